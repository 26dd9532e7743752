"""Parts of an index: merges, links, and the largest number of rows."""

from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from lexicept.corpora import Document
from lexicept.errors import IndexFormatError, InputError
from lexicept.fields.columns import FieldColumns
from lexicept.fields.writing import FieldWriter, join_columns
from lexicept.index import parts
from lexicept.index.builder import IndexBuilder
from lexicept.index.parts import (
    LOWEST_LEVEL,
    MERGED_TOGETHER,
    MOST_DOCUMENTS,
    Parts,
    check_number,
    plan_merges,
)
from lexicept.index.reader import IndexReader
from lexicept.index.updates import delete, update
from lexicept.storage.arrays import StoredRows, load_csr, save_csr
from lexicept.storage.texts import JoinedTexts, TextStore, TextWriter
from support.indexes import build


def named(number: int, first: int = 0) -> list[Document]:
    return [Document(f"d{i}", f"cat n{i}") for i in range(first, first + number)]


# Which parts are merged.


def test_merges_are_planned():
    assert plan_merges([10**6, 1000, 1000], [10**6, 1000, 1000]) == ([0, 1, 2], [])
    counts = [10**6, *[1000] * MERGED_TOGETHER]
    assert plan_merges(counts, counts) == ([0], [[*range(1, MERGED_TOGETHER + 1)]])
    counts = [*[LOWEST_LEVEL] * (MERGED_TOGETHER - 1), *[LOWEST_LEVEL - 1] * MERGED_TOGETHER, 2]
    assert plan_merges(counts, counts) == ([], [[*range(len(counts))]])
    assert plan_merges([100, 100, 100, 100], [100, 50, 49, 0]) == ([0, 1], [[2]])


@given(st.integers(1, 400), st.integers(0, 2**32))
def test_parts_stay_few_and_a_row_is_written_once_a_level(steps, seed):
    sizes = np.random.default_rng(seed).integers(1, 3000, steps).tolist()
    counts: list[int] = []
    written = 0
    for size in sizes:
        counts.append(size)
        kept, merged = plan_merges(counts, counts)
        sums = [sum(counts[count] for count in group) for group in merged]
        assert sorted([*kept, *(count for group in merged for count in group)]) == [
            *range(len(counts))
        ]
        written += size + sum(sums)
        counts = [*(counts[count] for count in kept), *sums]
    levels = 1
    while LOWEST_LEVEL * MERGED_TOGETHER ** (levels - 1) <= sum(sizes):
        levels += 1
    assert len(counts) < MERGED_TOGETHER * levels
    assert written <= (1 + levels) * sum(sizes)


def test_adding_links_what_is_there(tmp_path):
    path = build(tmp_path / "index", {f"d{i}": f"cat n{i}" for i in range(30)}).path
    before = {f.name: f.stat().st_ino for f in (path / "generation-000001/parts/000001").iterdir()}
    update(path, named(5, 30))
    generation = path / "generation-000002"
    after = {f.name: f.stat().st_ino for f in (generation / "parts" / "000001").iterdir()}
    assert after == before
    assert not (generation / "order.npy").exists()
    for n in range(MERGED_TOGETHER - 2):
        update(path, named(5, 35 + 5 * n))
    index = IndexReader.open(path, checksums=True)
    assert [folder.name for folder in index.parts.folders] == [f"{MERGED_TOGETHER + 1:06d}"]
    assert list(index.ids) == [f"d{i}" for i in range(30 + 5 * (MERGED_TOGETHER - 1))]


def test_parts_are_in_the_order_of_their_numbers(tmp_path):
    generation = build(tmp_path / "index", {"d0": "cat"}).folder
    for name in ("999999", "1000000"):
        copytree(generation / "parts" / "000001", tmp_path / "parts" / name)
    assert [part.name for part in Parts.open(tmp_path).folders] == ["999999", "1000000"]


def test_replaced_and_deleted_documents_leave_the_order(tmp_path):
    path = build(tmp_path / "index", {f"d{i}": f"cat n{i}" for i in range(10)}).path
    update(path, [Document("d3", "dog"), Document("new", "emu")])
    delete(path, ["d0"])
    index = IndexReader.open(path, checksums=True)
    assert np.load(index.folder / "order.npy").tolist() == [1, 2, 10, *range(4, 10), 11]
    assert index.document("d3").text == "dog"
    assert [hit.id for hit in index.search(["dog"])[0]] == ["d3"]
    assert index.search(["n3 n0"])[0] == []
    delete(path, [f"d{i}" for i in range(4, 8)])  # most of the first part is gone: it is rewritten
    index = IndexReader.open(path, checksums=True)
    assert index.parts.counts == (2, 4)
    assert list(index.ids) == ["d1", "d2", "d3", "d8", "d9", "new"]


def test_an_order_of_rows_that_are_not_there_is_refused(tmp_path):
    generation = build(tmp_path / "index", {"a": "cat", "b": "dog"}).path / "generation-000001"
    for wrong in ([0, 2], [-1, 0]):
        np.save(generation / "order.npy", np.array(wrong))
        with pytest.raises(IndexFormatError, match="documents that are in no part"):
            Parts.open(generation)


# Rows and texts of several files.


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.data())
def test_rows_and_texts_of_several_files(sizes, data):
    total = sum(sizes)
    order = np.array(data.draw(st.permutations(range(total))), np.int64)
    order = order[: data.draw(st.integers(0, total))]
    dense = np.arange(3 * total, dtype=np.float32).reshape(total, 3) % 5
    texts = [f"é{n}" * (n % 3) for n in range(total)]
    with TemporaryDirectory() as folder:
        folders = [Path(folder) / str(n) for n in range(len(sizes))]
        first = 0
        for part_folder, size in zip(folders, sizes, strict=True):
            save_csr(part_folder, sp.csr_array(dense[first : first + size]))
            TextStore.write(part_folder, texts[first : first + size])
            first += size
        rows = StoredRows(tuple(folders), 3, order)
        assert rows.load().toarray().tolist() == dense[order].tolist()
        assert np.diff(rows.indptr).tolist() == (dense[order] > 0).sum(axis=1).tolist()
        assert rows[1:3].load().toarray().tolist() == dense[order][1:3].tolist()
        joined = JoinedTexts([TextStore(path) for path in folders], order)
        expected = [texts[n] for n in order]
        assert list(joined) == [joined[n] for n in range(order.size)] == expected
        with TextWriter(Path(folder) / "copy") as writer:
            writer.append("first")
            joined.write(writer)
            writer.append("last")
        assert list(TextStore(Path(folder) / "copy")) == ["first", *expected, "last"]


def test_rows_are_mapped_where_they_are_neighbours(tmp_path):
    save_csr(tmp_path / "a", sp.csr_array(np.eye(4, dtype=np.float32)))
    result = StoredRows(tmp_path / "a", 4, np.array([1, 2, 3])).load()
    assert not result.data.flags.owndata
    assert (result != load_csr(tmp_path / "a", 4)[1:]).nnz == 0


# Fields.

TEXTS = st.sampled_from(["x", "y", "zebra", "2020-01-01"])
NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, -1.25])
DAYS = st.sampled_from(["2020-01-01", "2021-02-03", "2020-01-01T10:00:00"])
VALUES = {"text": TEXTS, "number": NUMBERS, "day": DAYS}
ROWS = st.lists(
    st.fixed_dictionaries(
        {}, optional={n: v | st.lists(v, min_size=1, max_size=3) for n, v in VALUES.items()}
    ),
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(ROWS, ROWS, st.data())
def test_joined_columns_are_those_of_all_documents(old, new, data):
    order = data.draw(st.permutations(range(len(old) + len(new))))
    order = order[: data.draw(st.integers(0, len(order)))]
    with TemporaryDirectory() as folder:
        first = columns(Path(folder) / "old", old)
        types = first.types
        if types.get("day") and types["day"].name != "date":
            new = [{n: v for n, v in record.items() if n != "day"} for record in new]
        if types.get("text") and types["text"].name == "date":
            new = [{n: v for n, v in record.items() if n != "text"} for record in new]
        second = columns(Path(folder) / "new", new, types)
        ids = [str(n) for n in order]
        join_columns(Path(folder) / "joined", first, second, np.array(order, np.int64), ids)
        joined = FieldColumns(Path(folder) / "joined", len(order))
        sources = [first.of(n) for n in range(len(old))] + [second.of(n) for n in range(len(new))]
        types = {**first.types, **second.types}
        expected = columns(Path(folder) / "expected", [sources[n] for n in order], types)
        assert joined.types == expected.types
        for i in range(len(order)):
            assert joined.of(i) == expected.of(i)
        for name in joined:
            joined[name].check()


def columns(
    folder: Path,
    records: list[dict[str, object]],
    types: dict[str, object] = {},  # noqa: B006
) -> FieldColumns:
    with FieldWriter(folder, types) as writer:  # type: ignore[arg-type]
        for i, record in enumerate(records):
            writer.append(str(i), record)
    return FieldColumns(folder, len(records))


def test_a_number_that_fractions_would_change_is_refused(tmp_path):
    old = columns(tmp_path / "old", [{}, {"n": 2**53 + 1}])
    new = columns(tmp_path / "new", [{"n": 0.5}], old.types)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"document 'b': the field 'n' is {2**53 + 1}, which"):
        join_columns(tmp_path / "out", old, new, np.array([1, 2]), ["b", "c"])
    join_columns(tmp_path / "out", old, new, np.array([2, 0]), ["c", "a"])
    assert FieldColumns(tmp_path / "out", 2).of(0) == {"n": 0.5}


# How many rows there may be.


def test_more_rows_than_32_bits_number_are_refused(tmp_path, monkeypatch):
    assert MOST_DOCUMENTS == 2_147_483_647
    check_number(MOST_DOCUMENTS)
    with pytest.raises(InputError, match="2,147,483,648 documents and passages; an index holds 2,"):
        check_number(MOST_DOCUMENTS + 1)
    monkeypatch.setattr(parts, "MOST_DOCUMENTS", 3)
    path = build(tmp_path / "index", {"a": "cat", "b": "dog"}).path
    update(path, named(1))
    with pytest.raises(InputError, match="4 documents and passages; an index holds 3 at most"):
        update(path, named(2))
    assert list(IndexReader.open(path, checksums=True).ids) == ["a", "b", "d0"]
    with IndexBuilder(tmp_path / "other") as builder, pytest.raises(InputError, match="holds 3"):
        builder.add_documents(named(4), {})

"""Budgets of one file; no file ends the reading of others."""

import gzip
import json
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lexicept
from lexicept.corpora import budgets, files, read_documents
from lexicept.corpora.budgets import Budget, NothingToRead, check_bytes
from lexicept.errors import InputError, LexiceptError, LexiceptWarning


def texts(folder: Path) -> tuple[dict[str, str], str]:
    """Return the texts of a folder's documents, and the warnings of skipped files."""
    with pytest.warns(LexiceptWarning) as caught:
        documents = {document.id: document.text for document in read_documents(folder)}
    return documents, "\n".join(str(warning.message) for warning in caught)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "z.txt").write_text("zebras")
    return tmp_path


def test_a_budget_grows_with_the_size(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100_000)
    budget = Budget(str(path))
    assert (budget.seconds, budget.records, budget.bytes) == (7, 51_000, 2**20 + 10_000_000)
    assert Budget(str(path), most_seconds=6).seconds == 6
    path.write_bytes(b"")
    budget = Budget(str(path))
    assert (budget.seconds, budget.records, budget.bytes) == (5, 1_000, 2**20)
    budget.run("a", partial(check_bytes, 2**20))
    with pytest.raises(NothingToRead, match="too many decompressed bytes for the size"):
        budget.run("a", partial(check_bytes, 2**20 + 1))
    check_bytes(2**40)  # no file is read
    for _ in range(1_000):
        budget.check_record()
    with pytest.raises(NothingToRead, match="too many records for the size"):
        budget.check_record()


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".json", ".csv", ".tsv"])
def test_gzipped_records_are_as_many_as_the_size_allows(folder, ending):
    texts_of = {".csv": "text\n" + "a\n" * 9_000, ".tsv": "id\ttext\n" + "{}\ta\n" * 9_000}
    texts_of[".json"] = "[" + '{"text":"a"},' * 9_000 + "{}]"
    config = texts_of.get(ending, '{"text":"a"}\n' * 9_000)
    if ending == ".tsv":
        config = config.format(*range(9_000))
    path = folder / f"a{ending}.gz"
    path.write_bytes(gzip.compress(config.encode()))
    most = 1_000 + path.stat().st_size // 2
    if ending != ".tsv":
        assert most < 2_000
        documents, warned = texts(folder)
        assert len(documents) == most + 1
        assert f"1 too many records for the size: a{ending}.gz" in warned
        with pytest.raises(LexiceptError, match=f"a{ending}.gz: too many records for the size"):
            list(read_documents(folder, strict=True))
        with pytest.warns(LexiceptWarning, match="too many records for the size"):
            assert len(list(read_documents(path))) == most
    else:
        assert len(list(read_documents(path))) == 9_000  # ids take their bytes


def test_gzipped_bytes_are_as_many_as_the_size_allows(folder, monkeypatch):
    monkeypatch.setattr(budgets, "EXPANDED", 1_000)
    for name in ("a.jsonl.gz", "b.csv.gz", "c.json.gz", "d.tsv.gz"):
        (folder / name).write_bytes(gzip.compress(b"[" + b" " * 2_000_000))
    (folder / "e.jsonl.gz").write_bytes(gzip.compress(b'{"text": "sound"}'))
    documents, warned = texts(folder)
    assert documents == {"e.jsonl.gz#1": "sound", "z.txt": "zebras"}
    assert "4 too many decompressed bytes for the size: a.jsonl.gz, b.csv.gz" in warned


def test_parquet_has_a_budget_of_rows_and_bytes(folder, monkeypatch):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ["a"] * 20_000}), folder / "rows.parquet")
    long = pyarrow.table({"text": ["a" * 1_000_000] * 500})
    parquet.write_table(long, folder / "values.parquet", compression="zstd")
    documents, warned = texts(folder)
    limit = 1_000 + (folder / "rows.parquet").stat().st_size // 2
    assert len(documents) == limit + 1 < 3_000
    assert "1 too many records for the size: rows.parquet" in warned
    assert "1 too many decompressed bytes for the size: values.parquet" in warned


@pytest.mark.parametrize("error", [RecursionError, MemoryError, KeyError, AssertionError])
@pytest.mark.parametrize("name", ["a.md", "a.rst", "a.jsonl"])
def test_any_error_of_a_reader_skips_its_file(folder, monkeypatch, error, name):
    def fail(*_: object) -> None:
        raise error("planned")

    monkeypatch.setitem(files._PARSERS, Path(name).suffix, fail)
    monkeypatch.setitem(files.RECORDS, ".jsonl", fail_later(fail))
    (folder / name).write_text('{"text": "x"}\n')
    index = folder.parent / f"{folder.name}.index"
    with pytest.warns(LexiceptWarning, match=f"{name}: .*{error.__name__}: .*planned"):
        built = lexicept.build(folder, index, vocabulary="words")
    assert [hit.id for hit in built.search("zebras")] == ["z.txt"]
    for source in (folder, folder / name):
        with pytest.raises(InputError, match=f"{name}: .*{error.__name__}"):
            list(read_documents(source, strict=True))
    with pytest.raises(InputError, match=f"{name}: can't be read: {error.__name__}"):
        list(read_documents(folder / name))
    assert [skipped[0] for skipped in lexicept.sync(folder, index).skipped] == [name]


def fail_later(fail):
    def read(path):
        fail()
        yield

    return read


def test_an_error_in_one_record_skips_the_record(folder, monkeypatch):
    def read(path):
        for i in range(3):
            yield files.Location(path, i + 1), partial(document, i)

    def document(number):
        return lexicept.Document(f"d{number}", f"text {1 // (number - 1)}")

    monkeypatch.setitem(files.RECORDS, ".jsonl", read)
    (folder / "a.jsonl").write_text("{}")
    documents, warned = texts(folder)
    assert documents == {"a.jsonl#d0": "text -1", "a.jsonl#d2": "text 1", "z.txt": "zebras"}
    assert "a.jsonl, line 2: can't be read: ZeroDivisionError" in warned


FENCES = "".join("`" * (605 - level) + "{note}\n" for level in range(600)) + "owls\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fences.md", FENCES),
        ("admonitions.md", "".join("    " * n + "!!! note\n" for n in range(300)) + "owls"),
        ("quotations.md", "> " * 2_000 + "owls"),
        ("lists.md", "- " * 2_000 + "owls"),
        ("indents.md", "".join("  " * n + "- x\n" for n in range(300)) + "\nowls"),
        ("emphasis.md", "*a **b " * 500 + "owls"),
        ("links.md", "[" * 2_000 + "owls" + "](x)" * 2_000),
        ("images.md", "![" * 2_000 + "owls" + "](x)" * 2_000),
        ("footnotes.md", "^[" * 500 + "owls" + "]" * 500),
        ("tags.md", "<div>" * 5_000 + "owls"),
        ("directives.rst", "".join("   " * n + ".. note::\n\n" for n in range(200)) + "owls"),
        ("lists.rst", "".join("  " * n + "- x\n\n" for n in range(400)) + "\nowls"),
        ("names.rst", ":a" * 20_000 + " owls"),
    ],
)
def test_nested_texts_are_read(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (document,) = read_documents(tmp_path / name)
    assert "owls" in document.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "bomb.rst",
            "".join(f".. |s{n}| replace:: |s{n + 1}| |s{n + 1}|\n" for n in range(40))
            + ".. |s40| replace:: owls\n\n|s0|\n",
        ),
        ("cells.ipynb", '{"cells": ' + "[" * 100_000),
        ("values.json", "[" * 100_000),
        ("lines.jsonl", "[" * 100_000 + "\n" + '{"a":' * 100_000),
    ],
)
def test_too_deep_is_skipped(folder, name, text, monkeypatch):
    monkeypatch.setattr(budgets, "SECONDS", 0.5)
    (folder / name).write_text(text)
    documents, warned = texts(folder)
    assert documents == {"z.txt": "zebras"}
    assert name in warned


@given(st.text('[]()!*_`<>{}:|#-~^&\\"= \n\ta.', min_size=1, max_size=8), st.integers(1, 200))
def test_any_repetition_is_a_text_or_skipped(tmp_path_factory, chunk, times):
    for ending in (".md", ".rst", ".jsonl", ".csv"):
        path = tmp_path_factory.getbasetemp() / f"repeated{ending}"
        path.write_text(chunk * times)
        budget = Budget(str(path))
        with suppress(NothingToRead, InputError):
            for _, read in budget.run(
                path, lambda path=path: list(files.read_file(str(path), "a"))
            ):
                budget.run(path, read)


def test_equal_headings_have_anchors_of_their_own(tmp_path):
    words = "word " * 201
    (tmp_path / "a.md").write_text(
        f"# T\n\n## a\n\nx\n\n## a\n\ny\n\n## a-2\n\n{words}\n\n## a\n\nz"
    )
    (document,) = read_documents(tmp_path / "a.md")
    anchors = [passage.anchor for passage in document.passages]
    assert anchors == ["a", "a-2", "a-2-2", "a-2.2", "a-3"]


def test_fields_beyond_the_most_are_left_out(tmp_path):
    records = [{"text": "owls"} | {f"f{n}": 1 for n in range(s, s + 600)} for s in (0, 500, 1_500)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.warns(LexiceptWarning, match="'f1000' .*699 more: is one of more than 1,000"):
        index = lexicept.build(tmp_path / "a.jsonl", tmp_path / "i", vocabulary="words")
    assert [len(index.document(str(n)).fields) for n in (1, 2, 3)] == [600, 500, 0]


def test_an_id_has_few_anchors(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"id": "a" + "#" * n, "text": "x"}) + "\n" for n in (16, 17))
    )
    with pytest.raises(InputError, match="an id has at most 16 #"):
        list(read_documents(path, strict=True))

"""Building, updating, deleting, re-weighting; survival of kills and refusals."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from lexicept import rra
from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import IndexFormatError, InputError
from lexicept.index import parts, term_frequencies
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.updates import delete, reweight, update
from lexicept.index.verification import verify
from lexicept.storage.locks import lock
from lexicept.weighting import BM25
from support.indexes import build, build_of, contents, scores_of
from support.vowels import Vowels

pytestmark = pytest.mark.usefixtures("_no_leaks")

TEXTS = {"a": "cat owl", "b": "cat dog yak", "c": "dog dog elk"}
CONCEPTS = VocabularySettings(BM25(k3=1.0))


def documents(texts: dict[str, str]) -> list[Document]:
    return [Document(name, text) for name, text in texts.items()]


def weights_by_term(index: IndexReader) -> dict[tuple[str, str, str], float]:
    """(document, vocabulary, term) → weight: the index without the order of its dimensions."""
    labels = [(v.name, t) for v in index.vocabularies for t in v.terms or ()]
    matrix = index.document_vectors().weights.tocoo()
    return {
        (index.ids[int(i)], *labels[int(column)]): float(weight)
        for i, column, weight in zip(matrix.row, matrix.col, matrix.data, strict=True)
    }


def assert_same(result: IndexReader, expected: IndexReader, queries: Sequence[str]) -> None:
    assert list(result.documents()) == list(expected.documents())
    assert weights_by_term(result) == weights_by_term(expected)
    assert result.rra == expected.rra
    assert result.settings == expected.settings
    for query in queries:
        for vocabulary in (None, *result.settings):
            # Sums in another order of dimensions may differ in the last bit.
            ours, theirs = (
                scores_of(result, query, vocabulary),
                scores_of(expected, query, vocabulary),
            )
            assert ours == pytest.approx(theirs, rel=1e-5)


QUERIES = ("cat", "dog dog owl", "elk yak cat", "aeiou")


def test_a_document_is_deleted_once(tmp_path):
    path = build(tmp_path / "index", TEXTS).path
    assert delete(path, ["b", "b"]) == 1
    with pytest.raises(InputError, match="no document 'b'"):
        IndexReader.open(path).document("b")


WORDS = st.sampled_from(["cat", "dog", "owl", "yak", "elk", "emu", "the"])
TEXT = st.lists(WORDS, max_size=5).map(" ".join)
IDS = st.sampled_from("abcdef")
COLLECTION = st.dictionaries(IDS, TEXT, min_size=1, max_size=4)
EDITS = st.lists(COLLECTION | st.sets(IDS, min_size=1, max_size=2), max_size=4)


@pytest.mark.usefixtures("_vowels")
@settings(max_examples=10, deadline=None)
@given(COLLECTION, EDITS, st.lists(TEXT, min_size=1, max_size=3), st.integers(2, 8))
def test_edits_equal_a_new_index(texts, edits, queries, few):
    texts = dict(texts)
    # All parts are merged again and again.
    merging = patch.multiple(parts, MERGED_TOGETHER=few, LOWEST_LEVEL=2)
    with TemporaryDirectory() as folder, merging:
        path = Path(folder) / "index"
        build(path, texts, concepts=CONCEPTS)
        for edit in edits:
            Vowels.encoded.clear()
            if isinstance(edit, dict):
                new = len(edit.keys() - texts.keys())
                assert update(path, documents(edit)) == (new, len(edit) - new)
                assert Vowels.encoded == list(edit.values())
                texts |= edit
            elif edit < texts.keys():
                assert delete(path, edit) == len(edit)
                assert Vowels.encoded == []
                texts = {name: text for name, text in texts.items() if name not in edit}
            else:
                with pytest.raises(InputError):
                    delete(path, edit)
        result = IndexReader.open(path, checksums=True)
        assert_same(result, build(Path(folder) / "fresh", texts, concepts=CONCEPTS), queries)
        assert verify(path).problems == []


@pytest.mark.usefixtures("_vowels")
def test_update_of_a_reweighted_index_reweights(tmp_path):
    path = tmp_path / "index"
    setting = RRASettings(1.25, 2)
    before = build(path, TEXTS, concepts=CONCEPTS, rra=setting)
    update(path, documents({"d": "emu cat cat"}))
    fresh = build(tmp_path / "fresh", {**TEXTS, "d": "emu cat cat"}, concepts=CONCEPTS, rra=setting)
    after = IndexReader.open(path)
    assert list(after.documents()) == list(fresh.documents())
    assert weights_by_term(after) == pytest.approx(weights_by_term(fresh), rel=1e-5)
    for query in QUERIES:
        ours, theirs = scores_of(after, query), scores_of(fresh, query)
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
    assert scores_of(after, "cat")["a"] != pytest.approx(scores_of(before, "cat")["a"])


def test_refused_changes_leave_the_index_as_it_was(tmp_path):
    path = tmp_path / "index"
    build(path, TEXTS)
    before = contents(path)

    def broken():
        yield Document("d", "emu")
        raise InputError("line 2: broken")

    changes: list[tuple[str, Callable[[], object]]] = [
        ("no document 'zz'", lambda: delete(path, ["a", "zz"])),
        ("without documents", lambda: delete(path, ["c", "b", "a"])),
        (
            "document 2: id 'd' was already used in document 1",
            lambda: update(path, [Document("d", "emu")] * 2),
        ),
        ("line 2: broken", lambda: update(path, broken())),
    ]
    for message, change in changes:
        with pytest.raises(InputError, match=message):
            change()
        assert contents(path) == before
    assert update(path, []) == (0, 0)
    assert delete(path, []) == 0
    assert contents(path) == before


def test_one_writer_and_one_builder_at_a_time(tmp_path):
    path = tmp_path / "index"
    build(path, TEXTS)
    held = lock(path)
    try:
        with pytest.raises(InputError, match="another process is writing here"):
            update(path, documents({"d": "emu"}))
        with pytest.raises(InputError, match="another process is writing here"):
            delete(path, ["a"])
        assert len(IndexReader.open(path)) == 3  # readers are not held up
    finally:
        os.close(held)
    assert update(path, documents({"d": "emu"})) == (1, 0)
    builder = IndexBuilder(tmp_path / "index2")
    del builder  # one that nobody holds any more holds nobody up
    IndexBuilder(tmp_path / "index2").close()


@pytest.mark.usefixtures("_vowels")
@pytest.mark.parametrize("used", [True, False], ids=["after a search", "before any search"])
def test_a_reader_opened_before_updates_keeps_its_view(tmp_path, used):
    path = tmp_path / "index"
    expected = build(path, TEXTS, concepts=CONCEPTS).search(["cats dogs emu"])[0]
    reader = IndexReader.open(path)
    if used:
        assert reader.search(["cats dogs emu"])[0] == expected
    update(path, documents({"a": "emu", "d": "cat emu gnu"}))
    delete(path, ["c"])
    assert reader.search(["cats dogs emu"])[0] == expected
    explained = reader.explain("dog elk", "c", "words")
    assert [contribution.term for contribution in explained.contributions] == ["elk", "dog"]
    assert list(reader.documents()) == documents(TEXTS)
    assert list(IndexReader.open(path).ids) == ["a", "b", "d"]


def test_a_change_leaves_one_generation(tmp_path):
    path = tmp_path / "index"
    build(path, TEXTS)
    (
        path / "generation-000002"
    ).mkdir()  # what killed changes left: one before the manifest, one after it
    (path / "generation-000002" / "ids.bin").write_bytes(b"half")
    (path / "generation-000000").mkdir()
    update(path, documents({"d": "emu"}))
    generation = IndexReader.open(path, checksums=True).folder.name
    assert sorted(p.name for p in path.iterdir()) == [".lock", generation, "manifest.json"]


# RRA.


@pytest.mark.usefixtures("_vowels")
def test_reweight_is_rra_on_the_document_vectors(tmp_path):
    plain = build(tmp_path / "plain", TEXTS, concepts=CONCEPTS)
    index = reweight(tmp_path / "plain", tmp_path / "out", RRASettings(1.5, 2, "exp(x)"))
    by_hand = rra.reweight(plain.document_vectors().weights, 1.5, 2, transform="exp(x)")
    for query in QUERIES:
        vector = plain.query_vectors([query])
        values = (by_hand.queries(vector) @ by_hand.documents.T).toarray()[0]
        expected = {name: s for name, s in zip(TEXTS, values, strict=True) if s > 0}
        assert scores_of(index, query) == pytest.approx(expected, rel=1e-4)
    assert IndexReader.open(tmp_path / "out", checksums=True).rra == RRASettings(1.5, 2, "exp(x)")
    assert list(index.documents()) == documents(TEXTS)
    # The source is as it was, and neither follows the other's changes.
    update(tmp_path / "out", documents({"a": "emu"}))
    assert (
        IndexReader.open(tmp_path / "plain", checksums=True).search(["cat"])[0]
        == plain.search(["cat"])[0]
    )
    assert plain.rra is None


def test_reweight_replaces_an_earlier_reweighting(tmp_path):
    build(tmp_path / "plain", TEXTS)
    once = reweight(tmp_path / "plain", tmp_path / "once", RRASettings(2.0))
    twice = reweight(tmp_path / "once", tmp_path / "twice", RRASettings(0.5))
    direct = reweight(tmp_path / "plain", tmp_path / "direct", RRASettings(0.5))
    assert (
        twice.search(["cat dog"])[0] == direct.search(["cat dog"])[0] != once.search(["cat dog"])[0]
    )


# Builds that are refused, or go on.


def test_a_build_without_vocabularies_is_refused(tmp_path):
    builder = IndexBuilder(tmp_path / "index")
    builder.add_documents(documents(TEXTS), {})
    with pytest.raises(InputError, match="at least one vocabulary"):
        builder.commit()
    builder.close()


class Failing(Vowels):
    """Fails at one text, like a killed process."""

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        if "emu" in texts:
            raise KeyboardInterrupt
        return super().documents(texts)


FIVE = {"a": "cat", "b": "dog", "c": "owl", "d": "yak", "e": "emu"}


def interrupted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of FIVE, stopped in its last shard."""
    monkeypatch.setattr(term_frequencies, "SHARD", 2)
    builder = IndexBuilder(path)
    builder.add_documents(documents(FIVE), {"k": 8})
    with pytest.raises(KeyboardInterrupt):
        builder.add_vocabulary(Failing(), CONCEPTS)
    builder.close()
    assert Vowels.encoded == ["cat", "dog", "owl", "yak"]
    Vowels.encoded.clear()
    for unfinished in (path, path.with_name(f"{path.name}.partial")):
        with pytest.raises(IndexFormatError):
            IndexReader.open(unfinished)


def build_five(path: Path, k: int = 8, restart: bool = False, **changed: str) -> IndexReader:
    with closing(IndexBuilder(path, restart=restart)) as builder:
        builder.add_documents(documents(FIVE | changed), {"k": k})
        builder.add_vocabulary(Vowels(), CONCEPTS)
        return builder.commit()


@pytest.mark.usefixtures("_vowels")
def test_an_interrupted_build_is_resumed(tmp_path, monkeypatch):
    interrupted(tmp_path / "index", monkeypatch)
    index = build_five(tmp_path / "index")
    assert Vowels.encoded == ["emu"]
    expected = [[text.count(v) for v in "aeiou"] for text in FIVE.values()]
    assert index.tf()[0].toarray().tolist() == expected
    assert [p.name for p in tmp_path.iterdir()] == ["index"]


@pytest.mark.usefixtures("_vowels")
@pytest.mark.parametrize(
    ("k", "changed", "told"),
    [
        (16, {}, "k was 8 and is now 16"),
        (8, {"a": "gnu"}, r"documents was [0-9a-f]{12}… \(a checksum\) and is now"),
    ],
    ids=["other settings", "other documents"],
)
def test_another_build_is_refused_until_it_restarts(tmp_path, monkeypatch, k, changed, told):
    interrupted(tmp_path / "index", monkeypatch)
    with pytest.raises(InputError, match=rf"index\.partial: .*{told}.*--restart"):
        build_five(tmp_path / "index", k, **changed)
    assert Vowels.encoded == []
    build_five(tmp_path / "index", k, restart=True, **changed)
    assert Vowels.encoded == list((FIVE | changed).values())
    assert [p.name for p in tmp_path.iterdir()] == ["index"]


@pytest.mark.usefixtures("_vowels")
def test_titles_that_are_cut_elsewhere_are_other_documents(tmp_path, monkeypatch):
    def build_titled(*titles):
        with closing(IndexBuilder(tmp_path / "index")) as builder:
            builder.add_documents([Document(t[-1], "", t) for t in titles], {})
            builder.add_vocabulary(Vowels(), CONCEPTS)
            raise KeyboardInterrupt

    cut = [["ab", "b c"], ["abb", " c"]]
    assert "".join(cut[0]) == "".join(cut[1])
    with pytest.raises(KeyboardInterrupt):
        build_titled(*cut[0])
    with pytest.raises(InputError, match="documents was"):
        build_titled(*cut[1])


@pytest.mark.usefixtures("_vowels")
def test_an_index_that_another_process_changes_is_not_replaced(tmp_path):
    build_five(tmp_path / "index")
    with closing(IndexBuilder(tmp_path / "index", overwrite=True)) as builder:
        builder.add_documents(documents({"new": "gnu"}), {})
        builder.add_vocabulary(Vowels(), CONCEPTS)
        held = lock(tmp_path / "index")
        with pytest.raises(InputError, match="another process is writing here"):
            builder.commit()
        os.close(held)
    assert list(IndexReader.open(tmp_path / "index", checksums=True).ids) == list(FIVE)


@pytest.mark.usefixtures("_vowels")
def test_shards_of_another_model_of_that_name_are_refused(tmp_path, monkeypatch):
    interrupted(tmp_path / "index", monkeypatch)
    monkeypatch.setattr(Vowels, "terms", "uoiea")
    with pytest.raises(InputError, match=r"model of concepts\.\S+ was .* and is now .*--restart"):
        build_five(tmp_path / "index")
    assert Vowels.encoded == []


@pytest.mark.usefixtures("_vowels")
def test_shards_give_what_one_pass_gives(tmp_path, monkeypatch):
    whole = build(tmp_path / "whole", TEXTS, concepts=CONCEPTS)
    monkeypatch.setattr(term_frequencies, "SHARD", 1)
    calls: list[tuple[str, int, int]] = []
    builder = IndexBuilder(tmp_path / "parts")
    builder.add_documents(documents(TEXTS), {})
    builder.add_vocabulary(
        WordVectorizer("en"), VocabularySettings(BM25()), progress=lambda *call: calls.append(call)
    )
    builder.add_vocabulary(Vowels(), CONCEPTS)
    assert_same(builder.commit(), whole, QUERIES)
    assert calls == [("words", 1, 3), ("words", 2, 3), ("words", 3, 3)]


def test_rounded_weights_stay_rounded(tmp_path):
    path, again = tmp_path / "index", tmp_path / "again"
    words = WordVectorizer(), VocabularySettings(BM25())
    assert build_of(path, TEXTS, words, weight_bits=8).engine.weight_bits == 8
    update(path, [Document("new", "a new cat")])
    assert IndexReader.open(path).engine.weight_bits == 8
    assert reweight(path, again, RRASettings()).engine.weight_bits == 8

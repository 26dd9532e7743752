"""Token tables: queries whose concepts are looked up, without a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, Whitespace

import lexicept
from lexicept.errors import IndexFormatError, InputError
from lexicept.explanation.contributions import Sources
from lexicept.index import term_frequencies
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.models.encoder import Encoder
from lexicept.models.heads.sae import SAEHead
from lexicept.models.heads.settings import HeadSettings
from lexicept.models.sae.model import SAE
from lexicept.vectorizers.concepts import ConceptVectorizer
from lexicept.vectorizers.interface import TOKEN_TABLE
from lexicept.vectorizers.token_table import LATENTS, Combine, QueryCut, TokenTable
from lexicept.vectorizers.words import WordVectorizer
from lexicept.weighting import BM25
from support.collections import write_beir
from support.commands import assert_error
from support.indexes import build_of
from support.processes import MAIN, loaded_after
from support.served import DOCUMENTS, save_index
from support.tiny import text

WORDS = ["a", "b", "c", "d"]
SUMS = [  # four latents and the number of occurrences
    [6.0, 0.0, 2.0, 0.0, 2.0],
    [0.0, 3.0, 1.0, 0.0, 1.0],
    [0.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 8.0, 4.0],
]
MODELS = {"torch", "transformers", "sentence_transformers", "safetensors"}


def tokenizer() -> Tokenizer:
    made = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="c"))
    made.pre_tokenizer = Whitespace()
    return made


def table(pooling: Combine) -> TokenTable:
    return TokenTable.of(tokenizer(), sp.csr_array(np.array(SUMS, np.float32)), pooling)


@pytest.mark.parametrize(
    ("pooling", "query", "expected"),
    [
        ("sum", "a", [3.0, 0.0, 1.0, 0.0]),
        ("sum", "a b a", [6.0, 3.0, 3.0, 0.0]),
        ("max", "a b a", [3.0, 3.0, 1.0, 0.0]),
        ("sqrt_sum", "d d", [0.0, 0.0, 0.0, 2.0]),
        ("sum", "d", [0.0, 0.0, 0.0, 2.0]),
        ("sum", "c nothing", [0.0, 0.0, 0.0, 0.0]),
        ("sum", "", [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_a_query_combines_the_means_of_its_tokens(pooling, query, expected):
    made = table(pooling)
    assert made.size == 4
    assert made.queries([query]).toarray().tolist() == [expected]
    assert made.encode_query(query).tf.toarray().tolist() == [expected]
    several = made.queries(["b", query, "", query]).toarray().tolist()
    assert several[1] == several[3] == expected
    assert several[2] == [0.0] * 4


@pytest.mark.parametrize(
    ("query_cut", "expected"),
    [
        (QueryCut(2), [3.0, 3.0, 2.0, 0.0]),
        (QueryCut(1, "left"), [0.0, 0.0, 0.0, 2.0]),
        (QueryCut(9), [6.0, 3.0, 3.0, 2.0]),
    ],
)
def test_a_query_is_cut(query_cut, expected, tmp_path):
    sums = sp.csr_array(np.array(SUMS, np.float32))
    made = TokenTable.of(tokenizer(), sums, "sum", query_cut)
    made.save(tmp_path / "table")
    for cut in (made, TokenTable.load(tmp_path / "table")):
        assert cut.queries(["a b a d", "a"]).toarray().tolist() == [expected, [3.0, 0.0, 1.0, 0.0]]
        encoded = cut.encode_query("a b a d")
        assert encoded.tf.toarray().tolist() == [expected]
        assert bool(encoded.sources([3])[3].spans) == (expected[3] > 0)
        assert cut.document_sources(["a b a d"], [[3]])[0][3].spans == ((6, 7),)


@given(st.text("aBé\u0301 \t\u00a0.-[MASK]\u4e2d\x1c", max_size=20))
def test_words_are_remembered_where_spaces_part_tokens(query):
    pieces = ["[UNK]", "[MASK]", "a", "b", "##a", "##b", "e", "##e", ".", "-", "[", "]", "mask"]
    made = Tokenizer(WordPiece({p: n for n, p in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    made.add_special_tokens(["[MASK]"])
    rows = sp.csr_array(np.eye(len(pieces), dtype=np.float32))
    counted = np.bincount(made.encode(query, add_special_tokens=False).ids, minlength=len(pieces))
    remembering = TokenTable(made, rows, "sum")
    for _ in range(2):
        assert remembering.queries([query]).toarray().tolist() == [counted.tolist()]


def test_a_table_keeps_its_largest_means_and_comes_back(tmp_path):
    sums = sp.csr_array(np.array([[*range(1, 13), 1.0]], np.float32))
    kept = TokenTable.of(tokenizer(), sums, "sum").queries(["a"]).toarray()[0]
    assert np.flatnonzero(kept).tolist() == list(range(12 - LATENTS, 12))
    made = table("max")
    made.save(tmp_path / "table")
    loaded = TokenTable.load(tmp_path / "table")
    queries = ["a b", "d", ""]
    assert (loaded.queries(queries) != made.queries(queries)).nnz == 0


def test_sources_are_the_words_that_have_a_dimension():
    third = pytest.approx(1 / 3)
    assert table("sqrt_sum").encode_query("a b  a").sources([2, 0, 3]) == {
        2: Sources(((0, 1), (2, 3), (5, 6)), (third, third, third)),
        0: Sources(((0, 1), (5, 6)), (0.5, 0.5)),
        3: Sources(),
    }
    assert table("max").encode_query("b a").sources([2]) == {2: Sources(((0, 1),), (1.0,))}
    assert table("sum").document_sources(["a b", ""], [[0, 1], [0]]) == [
        {0: Sources(((0, 1),), (1.0,)), 1: Sources(((2, 3),), (1.0,))},
        {0: Sources()},
    ]
    assert table("sum").encode_query("a").sources([]) == {}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("table.json", b"{}"),
        ("table.json", b'{"combine": "max", "latents": 2, "kept": [null, "right"]}'),
        ("table.json", b'{"combine": "mean", "latents": 4, "kept": [null, "right"]}'),
        ("table.json", b'{"combine": "max", "latents": 4, "kept": [0, "right"]}'),
        ("table.json", b'{"combine": "max", "latents": 4, "kept": [2, "up"]}'),
        ("rows.indices.npy", b"nothing"),
        ("tokenizer.json", b"{"),
    ],
)
def test_damage_is_an_error(tmp_path, file, content):
    table("sum").save(tmp_path / "table")
    (tmp_path / "table" / file).write_bytes(content)
    with pytest.raises(IndexFormatError):
        TokenTable.load(tmp_path / "table")


def brute_force(encoder: Encoder, texts: Sequence[str]) -> np.ndarray:
    """Sums of activations and counts, token by token."""
    windows = encoder.backbone.windows(list(texts))
    sums = np.zeros((len(encoder.backbone.tokenizer), encoder.head.size + 1))
    for acts, dimensions, tokens, _ in encoder.token_activations(windows):
        for row, (window, place) in enumerate(tokens):
            token = windows[window].token_ids[place]
            sums[token, -1] += 1
            for dimension, act in zip(dimensions[row].tolist(), acts[row].tolist(), strict=True):
                sums[token, dimension] += act
    return sums


@pytest.mark.parametrize("pooling", ["max", "sum", "sqrt_sum"])
def test_tokens_are_counted_as_documents_are_encoded(tmp_path, pooling):
    index = IndexReader.open(save_index(tmp_path, atlas=False))
    concepts = index.vectorizer("concepts")
    assert isinstance(concepts, ConceptVectorizer)
    concepts.head.configure(pooling=pooling)
    texts = [document.content for document in DOCUMENTS] + ["", text(*range(200))]
    encoded = concepts.encode_documents(texts)
    assert (encoded.tf != concepts.documents(texts)).nnz == 0
    assert encoded.tokens is not None
    expected = brute_force(concepts.encoder, texts)
    if pooling == "sum":  # the activations are what is pooled: their log1p
        assert encoded.tokens[:, [-1]].toarray().ravel() == pytest.approx(expected[:, -1])
    else:
        assert encoded.tokens.toarray() == pytest.approx(expected, rel=1e-4, abs=1e-4)
    parts = [concepts.encode_documents(texts[start::2]).tokens for start in (0, 1)]
    both = sum(part.toarray() for part in parts if part is not None)
    assert both == pytest.approx(encoded.tokens.toarray(), rel=1e-4, abs=1e-4)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return save_index(tmp_path_factory.mktemp("served"))


def test_scores_of_looked_up_queries_are_explained(built):
    index = lexicept.open(built)
    query = f"{DOCUMENTS[3].text} unknownword"
    hits = index.search(query, 5, query_encoder="lookup", explain=True)
    assert hits
    kinds = set()
    for hit in hits:
        assert hit.explanation is not None
        assert hit.explanation.score == pytest.approx(hit.score, rel=1e-5)
        kinds |= {part.vocabulary for part in hit.explanation.contributions}
        assert hit.explanation == index.explain(query, hit.id, query_encoder="lookup")
        assert all(part.query_spans for part in hit.explanation.contributions)
    assert kinds == {"words", "concepts"}
    (many,) = index.search_many([query], 5, query_encoder="lookup")
    assert [(hit.id, hit.score) for hit in many] == [(hit.id, hit.score) for hit in hits]
    alone = index.search(query, 5, vocabulary="words")
    assert index.search(query, 5, vocabulary="words", query_encoder="lookup") == alone
    assert index.search(query, 5) != hits
    assert index.search("", query_encoder="lookup") == []


def table_files(index: IndexReader) -> dict[str, bytes]:
    folder = index.folder / "concepts" / TOKEN_TABLE
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_index_keeps_its_table(tmp_path):
    path = save_index(tmp_path, atlas=False)
    index = lexicept.open(path)
    files = table_files(index.reader)
    index.add([{"id": "new", "text": text(3)}])
    assert table_files(index.reader) == files
    index.delete(["new"])
    index.reweight(alpha=1.25)
    copied = index.reweight(alpha=1.0, out=tmp_path / "copy")
    for changed in (index, copied):
        assert table_files(changed.reader) == files
        assert changed.verify().problems == []
        assert changed.search("baba", query_encoder="lookup")
    name = f"{index.reader.folder.name}/concepts/{TOKEN_TABLE}/rows.data.npy"
    assert name in index.reader.manifest["files"]
    (path / name).write_bytes(b"")
    with pytest.raises(IndexFormatError, match="rows"):
        IndexReader.open(path)


def test_what_has_no_table_is_refused(tmp_path, built, run):
    words = save_index(tmp_path, concepts=False)
    problem = "has no token table to look queries up in"
    with pytest.raises(InputError, match=problem):
        lexicept.open(words).search("cat", query_encoder="lookup")
    done = run("search", words, "cat", "--query-encoder", "lookup")
    assert_error(done, problem)
    with pytest.raises(InputError, match="model or lookup, not 'both'"):
        lexicept.open(built).search("cat", query_encoder="both")


def without_k(concepts: ConceptVectorizer) -> ConceptVectorizer:
    sae = concepts.encoder.head
    assert isinstance(sae, SAEHead)
    return ConceptVectorizer(
        Encoder.of(concepts.encoder.backbone, SAEHead(sae.sae, HeadSettings()))
    )


def test_a_head_without_k_has_no_table(tmp_path, built):
    concepts = IndexReader.open(built).vectorizer("concepts")
    assert isinstance(concepts, ConceptVectorizer)
    assert concepts.counts_tokens
    weighed = without_k(concepts), VocabularySettings(BM25(k3=1.0))
    index = build_of(tmp_path / "index", DOCUMENTS[:3], weighed)
    assert not index.vectorizers.has_table
    assert isinstance(concepts.head, SAEHead)
    assert isinstance(concepts.head.sae, SAE)


def test_shards_are_counted_and_resumed(tmp_path, built, monkeypatch):
    """An interrupted build makes the same table; of many shards evenly spread ones are counted."""
    monkeypatch.setattr(term_frequencies, "SHARD", 4)
    monkeypatch.setattr(term_frequencies, "COUNTED_SHARDS", 3)
    concepts = IndexReader.open(built).vectorizer("concepts")
    assert isinstance(concepts, ConceptVectorizer)

    def build(path, stop=10**9):
        def progress(_, done, total, note=""):
            if done >= stop:
                raise KeyboardInterrupt

        with IndexBuilder(path) as builder:
            builder.add_documents(DOCUMENTS, {})
            builder.add_vocabulary(concepts, VocabularySettings(BM25(k3=1.0)), progress=progress)
            builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
            return builder.commit()

    once = build(tmp_path / "once")
    for stop in (4, 20):
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "resumed", stop)
    assert table_files(build(tmp_path / "resumed")) == table_files(once)
    total = None
    for start in (0, 12, 24):  # 8 shards: every third
        sums = concepts.encode_documents([d.content for d in DOCUMENTS[start : start + 4]]).tokens
        total = sums if total is None else total + sums
    expected = concepts.token_table(sp.csr_array(total)).queries([text(n) for n in range(30)])
    loaded = TokenTable.load(once.folder / "concepts" / TOKEN_TABLE)
    found = loaded.queries([text(n) for n in range(30)])
    assert found.toarray() == pytest.approx(expected.toarray(), rel=1e-5)


def test_looking_up_needs_no_model(tmp_path, built):
    documents, judged = {"d3": DOCUMENTS[3].text}, {"test": "q 0 d3 1\n"}
    write_beir(tmp_path, documents, {"q": "baba deki"}, judged)
    option = ["--query-encoder", "lookup"]
    for arguments in (
        ["search", built, "baba deki", "--explain", *option],
        ["explain", built, "baba deki", "d3", *option],
        ["evaluate", built, tmp_path, *option],
    ):
        loaded = loaded_after(MAIN, *arguments)
        assert "tokenizers" in loaded
        assert not loaded & MODELS


SERVE = """
import sys
from fastapi.testclient import TestClient
from lexicept.server.app import create_app

app = create_app(sys.argv[1], host="0.0.0.0", query_encoder="lookup")
with TestClient(app) as client:
    found = client.get("/search", params={"query": "baba deki"}).json()["results"]
    assert found
    asked = {"query": "baba deki"}
    assert client.get("/query", params=asked).status_code == 200
    asked["document_id"] = found[0]["id"]
    assert client.get("/explain", params=asked).status_code == 200
"""


def test_serving_looked_up_queries_needs_no_model(built):
    pytest.importorskip("fastapi")
    loaded = loaded_after(SERVE, built)
    assert "tokenizers" in loaded
    assert not loaded & MODELS

"""Misuses of the public API: each ends in an error that names the parameter or the value."""

from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import lexicept
from lexicept import Document, LexiceptError
from lexicept.vectors import SparseVectors, Vocabulary
from support.collections import write_beir

MISUSES = r"""
lexicept.open("") -> path must be a path, not ''
lexicept.open("no/such") -> no/such: there is no index here
lexicept.open("a\0b") -> path must be a path, not 'a\x00b'
lexicept.build({"text": "x"}, new, **words) -> documents must be a list, a data frame or a path, not
lexicept.build([], new, **words) -> the corpus has no documents
lexicept.build("no/such", new, **words) -> no/such: no such file or folder, and ir_datasets knows no
lexicept.build([b"x"], new, **words) -> the documents, document 1: a document is a text, a dict or a
lexicept.build([{}], new, **words) -> the documents, document 1: the object has none of the keys tex
lexicept.build([{"text": None}], new, **words) -> the documents, document 1: the text must be a stri
lexicept.build([{"id": 1.5, "text": "x"}], new, **words) -> the documents, document 1: the id must b
lexicept.build([{"id": "a b", "text": "x"}], new, **words) -> the documents, document 1: bad id 'a b
lexicept.build([{"id": "", "text": "x"}], new, **words) -> the documents, document 1: bad id '': an
lexicept.build([{"text": "x", "title": 5}], new, **words) -> the documents, document 1: the title mu
lexicept.build([Document("a", None)], new, **words) -> the documents, document 1: its text must be a
lexicept.build([Document("a", "x", nan)], new, **words) -> the documents, document 1: its title must
pets.add(["x", Document(1, "x")], strict=True) -> the documents, document 2: its id must be a te
lexicept.build([Document("a", "x")] * 2, new, strict=True, **words) -> the documents, document 2: id
lexicept.build(["\ud800"], new, **words) -> the documents, document 1: lone surrogate '\ud800': UTF-
lexicept.build(T, tmp/"pets", **words) -> exists already: name another path or replace it with
lexicept.build(T, tmp, overwrite=True, **words) -> no index, and not replaced
lexicept.build(T, new, language="xx", **words) -> no language 'xx': a code of ISO 639-1, such as
lexicept.build(T, new, model="nosuch") -> nosuch: no such folder
lexicept.build(T, new, model="x", **words) -> model requires concepts, but vocabulary is words
lexicept.build(T, new, concepts=CS(sae="y"), model="x") -> model and sae are two sources of concepts
lexicept.build(T, new, concepts=CS(sae="nosuch")) -> nosuch: neither a folder nor a hub's name, such
lexicept.build(T, new, concepts=CS(width=3)) -> width requires sae
lexicept.build(T, new, concepts=CS(layer=3)) -> layer requires train, sae or backbone: a saved mode
lexicept.build(T, new, concepts=CS(explanations="nosuch")) -> explanations requires sae or model
lexicept.build(T, new, limits=Limits(query_max_active_dims=0)) -> query_max_active_dims must be at l
lexicept.build(T, new, limits=Limits(query_max_qd_flops=0)) -> query_max_qd_flops must be above 0, n
lexicept.build(T, new, weight_bits=16, **words) -> weights have 32 or 8 bits, not 16
lexicept.build(T, new, ray_workers=2, **words) -> ray_workers requires ray
lexicept.build(T, new, concepts=CS(sae="x", adapt=True)) -> adapt adapts lexicept-mini, not sae
lexicept.build(T, new, limits=Limits(weighting="bm25"), **words) -> weighting requires concepts, but
pets.search(None) -> a query is a text, not None
pets.search("\ud800") -> the query is not valid UTF-8
pets.search("cat", 0) -> top_k must be at least 1, not 0
pets.search("cat", 2.5) -> top_k must be a whole number, not 2.5
pets.search("cat", vocabulary="concepts") -> has no vocabulary 'concepts', only: words
pets.search("cat", vocabulary=["words"]) -> has no vocabulary ['words'], only: words
pets.search("cat", steering=5) -> steering maps (vocabulary, dimension) to a factor: 5
pets.search("cat", steering={"cat": 0}) -> steering: a key is (vocabulary, dimension), not 'cat'
pets.search("cat", steering={("concepts", 0): 0}) -> has no vocabulary 'concepts', only: words
pets.search("cat", steering={("words", 99): 0}) -> steering: words has no dimension 99
pets.search("cat", steering={("words", -1): 0}) -> steering: words has no dimension -1
pets.search("cat", steering={("words", "cat"): 0}) -> steering: words has no dimension 'cat'
pets.search("cat", steering={("words", 0): -1}) -> steering: the factor on words 0 must be from 0 to
pets.search("cat", steering={("words", 0): nan}) -> steering: the factor on words 0 must be from 0 t
pets.search("cat", steering={("words", 0): None}) -> steering: the factor on words 0 must be from 0
pets.concept("a") -> number must be
pets.suggestions(None) -> word must be
pets.search_many("cat") -> queries are a list of texts, not 'cat'
pets.search_many(["cat"], threads=0) -> threads must be at least 1, not 0
pets.reader.rank(vec(-1)) -> dimension -1 in a matrix of 9 dimensions
pets.reader.rank(vec(9)) -> dimension 9 in a matrix of 9 dimensions
pets.reader.rank(None) -> expected a SciPy sparse matrix, not NoneType
pets.reader.rank(V) -> queries of 2 dimensions for an index of 10
pets.reader.rank(vec(0) * nan) -> weight nan in row 0: weights must be finite and not nega
rra.reader.rank(vec(-1)) -> dimension -1 in a matrix of 9 dimensions
pets.explain("cat", None) -> no document None in
pets.explain("cat", "nosuch") -> no document 'nosuch' in
pets.document("nosuch") -> no document 'nosuch' in
pets.document(["1"]) -> no document ['1'] in
pets.delete("1") -> ids must be a list of texts, not '1'
pets.delete(["nosuch"]) -> no document 'nosuch' in
pets.delete(list(pets.reader.ids)) -> an index can't be left without documents
pets.add(pets.delete(["1"]) for _ in "x") -> the index can't change while it reads documents for
pets.reweight(0) -> alpha must be above 0, not 0
pets.reweight(nan) -> alpha must be a finite number, not nan
pets.reweight(1.0, transform="x²") -> no transform 'x²', only: 1+x, x, lambda*x, log(1+x), exp(x), t
pets.reweight(1.0, out=tmp/"pets") -> exists already: name another path or remove it first
pets.reweight(1.0, ray="local") -> ray requires out
pets.reweight(1.0, ray_workers=2) -> ray_workers requires out
pets.verify(progress="yes") -> progress must be true, false or a function, not 'yes'
evaluate(pets, "no/such") -> no/such: no such file or folder, and ir_datasets knows no 'no/su
evaluate(pets, beir, "nosuch") -> no split 'nosuch'; splits here: test
evaluate(pets, beir, "../x") -> bad split '../x': a split is a plain name such as test
evaluate(pets, beir, measures=["nope"]) -> no measure 'nope'; examples: nDCG@10, RR@10, R@100, Succe
evaluate(pets, beir, systems="words") -> systems must be a list or a mapping
evaluate(pets, beir, systems=["x"]) -> no system 'x': it is words, concepts, all, sparse, bm25,
evaluate(pets, beir, systems=["concepts"]) -> has no concepts, only words
evaluate(pets, beir, systems=["words", "words"]) -> system 'words' is there twice
evaluate(pets, beir, systems=["bm25:k=1"]) -> 'k=1' is not k1=NUMBER or b=NUMBER, each at most once
evaluate(pets, beir, systems=["bm25:b=2"]) -> k1 must be at least 0, b within 0 and 1
evaluate(pets, beir, systems=[tmp]) -> no index, or one that was never finished
evaluate(pets, beir, systems=[{}]) -> a run in memory needs a name: systems={'name': run}
evaluate(pets, beir, systems={"": "words"}) -> the name of a system is a text, not ''
evaluate(pets, beir, systems={"r": {"q1": 5}}) -> run 'r': query 'q1' has no documents with scores
evaluate(pets, beir, systems={"r": {"q1": {"a b": 1}}}) -> run 'r': bad id 'a b': an id is a text wi
evaluate(pets, beir, systems={"r": {"q1": {"d1": None}}}) -> score None of 'd1' is not a finite numb
evaluate(pets, beir, systems={"r": {}}) -> run 'r' has results for no query that
evaluate(pets, beir, out=beir/"qrels"/"test.tsv") -> test.tsv exists already: name another path or
evaluate("no/such", beir) -> no/such: there is no index here
evaluate(closed, beir) -> the index is closed
lexicept.serve(pets, host="no such host") -> can't serve at no such host:8000: [Errno -2] Name or se
lexicept.sweep(pets, beir, tmp, split="test") -> not unfinished work of lexicept; name another folde
lexicept.sweep(pets, beir, new, split="test", vocabulary="x") -> has no vocabulary 'x', only: words
lexicept.sweep(pets, beir, new, split="test", query_max_active_dims=[0]) -> query_max_active_dims[0]
lexicept.sweep(pets, beir, new, split="test", query_max_active_dims=[]) -> query_max_active_dims: no
lexicept.sweep(pets, beir, new, split="test", alpha=[0]) -> alpha[0] must be above 0, not 0
lexicept.train("no/such.yaml", new) -> no/such.yaml: No such file or directory
lexicept.train({}, new) -> data.corpus is missing: the documents to train on
lexicept.train({"nope": 1}, new) -> no setting 'nope'; there are data, model
lexicept.train({}, new, changes=["x"]) -> 'x' is not of the form data.corpus=PATH
lexicept.convert("nosuch", new) -> nosuch: no such folder
lexicept.convert(tmp, tmp) -> exists already: name another path or remove it first
lexicept.report(pets, tmp) -> a folder, not a file to write
SparseVectors(None, ["a"], two) -> expected a SciPy sparse matrix, not NoneType
SparseVectors(V, ["a", "b"], None) -> vocabularies must be a list of Vocabulary, not None
SparseVectors(V, ["a", "b"], [5]) -> vocabularies must be a list of Vocabulary, not [5]
SparseVectors(vec(-1), ["a"], [Vocabulary("words", 9)]) -> dimension -1 in a matrix of 9 dimensions
SparseVectors(V, ["a", ["b"]], two) -> ids must be a list of str, not ['a', ['b']]
"""
"""Calls, each with a part of the message of its error."""

TEXTS = ["Cats sleep all day.", "Dogs bark at night.", "A kitten naps in the sun."]


def vector(dimension: int) -> sp.csr_array:
    """Return the weights of one query over nine dimensions; SciPy does not check indices."""
    arrays = np.ones(1, np.float32), np.array([dimension], np.int32), np.array([0, 1], np.int32)
    return sp.csr_array(arrays, shape=(1, 9))


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("misuse")
    judged = {"test": "q1 0 1 1\nq2 0 2 1\n"}
    beir = write_beir(tmp / "beir", {}, {"q1": "cats", "q2": "dogs"}, judged)
    pets = lexicept.build(TEXTS, tmp / "pets", vocabulary="words")
    closed = lexicept.open(tmp / "pets")
    closed.close()
    V, two = sp.csr_array(np.eye(2, dtype=np.float32)), (Vocabulary("words", 2),)
    return {
        **{
            "lexicept": lexicept,
            "evaluate": lexicept.evaluate,
            "Document": Document,
            "SparseVectors": SparseVectors,
        },
        **{"CS": lexicept.ConceptSettings, "Limits": lexicept.Limits},
        **{"Vocabulary": Vocabulary, "np": np, "nan": float("nan")},
        **{"tmp": tmp, "beir": beir, "new": tmp / "new", "T": TEXTS, "vec": vector},
        **{"pets": pets, "closed": closed, "rra": pets.reweight(1.0, out=tmp / "rra")},
        **{"V": V, "two": two},
        "words": {"vocabulary": "words"},
    }


@pytest.mark.parametrize("line", MISUSES.strip().splitlines())
def test_misuse(line, names):
    call, _, message = line.partition(" -> ")
    with pytest.raises(LexiceptError) as caught:
        eval(call, dict(names))
    assert message in str(caught.value)
    folder: Path = names["tmp"]
    assert {path.name for path in folder.iterdir()} == {"beir", "pets", "rra"}
    assert len(names["pets"]) == 3


CLOSED = """
closed.search("cat") | closed.search_many(["cat"]) | closed.explain("cat", "1")
closed.document("1") | closed.documents() | closed.add(["x"]) | closed.delete(["1"])
closed.reweight(1.0) | closed.info() | closed.verify() | closed.refresh() | closed.path
closed.vocabularies | len(closed) | "1" in closed
"""
"""Calls of a closed index."""


@pytest.mark.parametrize("call", CLOSED.strip().replace("\n", " | ").split(" | "))
def test_a_closed_index(call, names):
    with pytest.raises(LexiceptError, match="the index is closed"):
        eval(call, dict(names))


class Odd:
    """A value of a type that no parameter has."""


FUNCTIONS = [
    *(lexicept.build, lexicept.convert, lexicept.evaluate, lexicept.explain, lexicept.open),
    *(lexicept.pretrain, lexicept.report, lexicept.serve, lexicept.sweep, lexicept.sync),
    *(lexicept.train, lexicept.Index.add, lexicept.Index.describe),
    *(lexicept.Index.merge, lexicept.Index.reweight, lexicept.ConceptSettings, lexicept.Limits),
]
PARAMETERS = {
    f"{function.__qualname__} {name}": (function, name)
    for function in FUNCTIONS
    for name, parameter in signature(function).parameters.items()
    if name != "self" and parameter.kind != parameter.VAR_KEYWORD
}
# Read after what these calls lack.
LATE = {"train progress", "sync progress", "pretrain vocabulary"}


@pytest.mark.parametrize("parameter", sorted(PARAMETERS.keys() - LATE))
def test_every_argument_of_another_type_is_named(parameter, names):
    function, name = PARAMETERS[parameter]
    needed = [key for key, p in signature(function).parameters.items() if p.default is p.empty]
    usual = {"self": names["pets"], "documents": TEXTS, "document": "x", "query": "x"}
    usual |= {"index": names["pets"].path, "dataset": names["beir"], "config": {}, "others": []}
    arguments = {key: usual.get(key, names["new"]) for key in needed if key != "settings"}
    if function is lexicept.sweep:
        arguments["split"] = "test"
    with pytest.raises(LexiceptError, match=f"^{name} must be "):
        function(**{**arguments, name: Odd()})
    assert not names["new"].exists()


def failing() -> Iterator[str]:
    yield "a cat"
    raise KeyError("own")


@pytest.mark.parametrize(
    "call", [lambda path: lexicept.build(failing(), path, vocabulary="words"), None]
)
def test_errors_of_the_callers_own_documents_pass(call, tmp_path, names):
    with pytest.raises(KeyError, match="own"):
        names["pets"].add(failing()) if call is None else call(tmp_path / "index")
    assert list(tmp_path.iterdir()) == []
    assert len(names["pets"]) == 3


def test_what_is_odd_and_right(names):
    """Defined results for input that other libraries refuse."""
    pets = names["pets"]
    ids = [hit.id for hit in pets.search("cats dogs")]
    assert [hit.id for hit in pets.search("cats dogs", np.int64(2))] == ids
    assert [hit.id for hit in pets.search("cats dogs", 10**30)] == ids
    assert pets.search("") == pets.search("\0") == pets.search("zebra") == []
    assert pets.search_many([]) == []
    assert pets.search_many(iter(["cats", ""]), np.int32(1), threads=np.int8(1))[1] == []
    assert pets.search("cats", steering={}) == pets.search("cats")
    assert 5 not in pets
    assert None not in pets
    assert pets.reader.rank(sp.csr_array((0, 10), dtype=np.float32)) == []
    assert pets.reader.rank(sp.csr_array((2, 10), dtype=np.float32)) == [[], []]
    assert pets.delete([]) == 0
    assert pets.add([]) == (0, 0)

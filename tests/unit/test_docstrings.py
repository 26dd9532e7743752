"""Docstrings of the public names: every parameter is described, and the examples run."""

import doctest
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path

import docstring_parser
import pytest

import lexicept
from lexicept import Document, Index
from support.collections import write_beir

DOCUMENTS = [
    Document("cats", "Cats sleep all day.", fields={"year": 2020}),
    Document("dogs", "Dogs bark at night.", fields={"year": 2021}),
    Document("kitten", "A kitten naps in the sun.", fields={"year": 2021}),
]

FUNCTIONS = {name: getattr(lexicept, name) for name in lexicept.__all__}
METHODS = {
    f"Index.{name}": getattr(Index, name)
    for name in dir(Index)
    if not name.startswith("_") and not isinstance(getattr(Index, name), property)
}
PUBLIC = FUNCTIONS | METHODS


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of documents, judged queries for them, and a described index."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "pets").mkdir()
    texts = {document.id: document.text for document in DOCUMENTS}
    queries = {"q1": "sleepy cats", "q2": "barking dogs"}
    qrels = dict.fromkeys(("dev", "test"), "q1 0 cats 1\nq2 0 dogs 1\n")
    write_beir(folder / "judged", texts, queries, qrels)
    for name, text in texts.items():
        (folder / "pets" / f"{name}.md").write_text(text)
    lexicept.build(DOCUMENTS, folder / "pets.index").describe()
    return folder


@pytest.fixture
def index(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[lexicept.Index]:
    """A copy of the index, in a copy of the folder that the examples run in."""
    monkeypatch.chdir(Path(shutil.copytree(examples, tmp_path / "examples")))
    with lexicept.open("pets.index") as opened:
        yield opened


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_examples_run(name: str, index: Index) -> None:
    names = {"lexicept": lexicept, "index": index}
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(PUBLIC[name], name, module=False, globs=names)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_parameter_is_described(name: str) -> None:
    owner = PUBLIC[name]
    if isinstance(owner, type):
        pytest.skip("fields have docstrings of their own")
    described = {entry.arg_name for entry in docstring_parser.parse(owner.__doc__ or "").params}
    assert set(inspect.signature(owner).parameters) - {"self"} <= described

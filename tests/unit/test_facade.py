"""lexicept.Index: searched by threads while it changes in place."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import lexicept
from lexicept.corpora import Document
from lexicept.errors import LexiceptWarning
from lexicept.storage.manifest import generations
from support.handles import open_files

pytestmark = pytest.mark.usefixtures("_no_leaks")

TEXTS = ["Cats sleep all day.", "Dogs bark.", "A kitten naps on the sofa."]


@pytest.fixture
def index(tmp_path):
    return lexicept.build(TEXTS, tmp_path / "index", vocabulary="words")


def ids(index: lexicept.Index, query: str) -> list[str]:
    return [hit.id for hit in index.search(query)]


@pytest.fixture
def _looks_at_every_search(monkeypatch):
    monkeypatch.setattr(lexicept.pipelines.snapshot, "LOOK_SECONDS", 0)


@pytest.mark.usefixtures("_looks_at_every_search")
def test_changes_show_at_once_and_elsewhere_after_refresh(index):
    other = lexicept.open(index.path)
    assert index.add(["A lion sleeps.", {"id": "2", "text": "Wolves howl."}]) == (1, 1)
    assert ids(index, "lion") == ["4"]
    assert ids(index, "howl") == ["2"]
    assert (index.stale, other.stale) == (False, True)
    with pytest.warns(LexiceptWarning, match=f"^{index.path} has changed since it was opened: "):
        assert ids(other, "lion") == []
    assert ids(other, "lion") == []  # it is said once
    assert other.add(["A tiger runs."]) == (1, 0)  # as 5: the snapshot has no 4
    assert not other.refresh()
    assert not other.stale
    assert ids(other, "lion") == ["4"]
    assert other.delete(["5"]) == 1
    assert index.refresh()
    assert index.delete(["1", "4"]) == 2
    assert len(index) == 2
    assert "1" not in index
    assert "2" in index
    # A number that is free: the index has two documents, of which one is "3".
    assert index.add(["Owls hoot."]) == (1, 0)
    assert ids(index, "owls") == ["4"]


@pytest.mark.usefixtures("_looks_at_every_search")
@pytest.mark.parametrize("search", ["search", "search_many", "explain"])
def test_an_index_that_is_gone_or_damaged_is_stale(index, search):
    def ask():
        return getattr(index, search)(
            *{"search": ["cats"], "search_many": [["cats"]]}.get(search, ["cats", "1"])
        )

    file = index.path / "manifest.json"
    data = file.read_bytes()
    expected = ask()
    file.write_bytes(data)  # touched, and the same
    assert not index.stale
    assert ask() == expected
    file.write_bytes(data[:-1])
    with pytest.warns(LexiceptWarning, match="searches see it as it was"):
        assert ask() == expected
    file.unlink()
    assert index.stale
    assert ask() == expected


def test_a_link_or_a_working_folder_that_changes_changes_nothing(index, tmp_path, monkeypatch):
    lexicept.build(["Wolves howl."] * 3, tmp_path / "wolves", vocabulary="words")
    link = tmp_path / "current"
    link.symlink_to(index.path)
    linked = lexicept.open(link)
    monkeypatch.chdir(tmp_path)
    relative = lexicept.open("index")
    link.unlink()
    link.symlink_to(tmp_path / "wolves")
    monkeypatch.chdir("/")
    for opened in (linked, relative):
        assert ids(opened, "cats") == ["1"]  # loads the words now
        assert opened.path == index.path
    assert len(relative.reader.tf()) == 1
    linked.add([{"id": "lion", "text": "A lion sleeps."}])
    assert ids(linked, "lion") == ["lion"]
    assert relative.stale
    assert "lion" not in lexicept.open(link)


def test_changes_keep_hits_and_one_generation(index):
    (hit,) = index.search("bark")
    for _ in range(3):
        index.add([Document("2", "Owls hoot.")])
    assert hit.text == "Dogs bark."
    assert index.document("2").text == "Owls hoot."
    for i in range(4):
        index.add([f"Owl {i}"])
    assert generations(index.path) == [index.reader.folder]


def test_files_of_older_generations_are_closed(index, tmp_path):
    other = lexicept.open(index.path)
    for i in range(3):
        index.add([f"Owl {i}"])
        assert ids(index, "owl")
        assert index.search("owl", explain=True)
        assert other.refresh()
        assert ids(other, "owl")
        opened = {path.removeprefix(f"{index.path.resolve()}/") for path in open_files(tmp_path)}
        assert {name.partition("/")[0] for name in opened} == {index.reader.folder.name}
    index.close()
    other.close()
    assert open_files(tmp_path) == []


@pytest.mark.usefixtures("_looks_at_every_search")
def test_searches_in_threads_see_one_generation_or_the_next(index):
    """The index's own changes give them no warning, which would be an error here."""
    states = {("1",), ("1", "4"), ("1", "4", "5"), ("1", "4", "5", "6")}

    def search(_):
        return tuple(sorted(ids(index, "sleep cats")))

    with ThreadPoolExecutor(3) as pool:
        answers = pool.map(search, range(200))
        for _ in range(3):
            index.add(["Cats sleep."])
        assert set(answers) <= states
    assert search(0) == ("1", "4", "5", "6")


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_many_queries(index, threads):
    queries = ["cats", "", "dogs bark", "sofa kitten"]
    found = index.search_many(queries, 2, threads=threads)
    assert found == [index.search(query, 2) for query in queries]


def test_reweight_in_place_and_as_a_copy(index, tmp_path):
    before = index.search("cats sleep dogs")
    copy = index.reweight(1.5, out=tmp_path / "copy")
    assert index.search("cats sleep dogs") == before
    assert index.reweight(1.5) is index
    assert index.search("cats sleep dogs") == copy.search("cats sleep dogs") != before
    assert index.info()["rra"] == {"alpha": 1.5, "iterations": 1, "transform": "1+x"}
    assert index.reweight().info()["rra"]["alpha"] == 1.0

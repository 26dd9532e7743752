"""sync: an index in step with a folder."""

import json
import os
from pathlib import Path

import pytest

import lexicept
from lexicept.errors import IndexFormatError, InputError, LexiceptWarning
from lexicept.index.manifest import read_files
from lexicept.index.reader import IndexReader
from lexicept.pipelines.sync import Synced
from support.files import OWLS, write_files, write_pdf

pytestmark = pytest.mark.usefixtures("_no_leaks")


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path / "files")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "index"


def sync(folder: Path, path: Path) -> Synced:
    return lexicept.sync(folder, path, vocabulary="words")


def counts(done: Synced) -> tuple[int, ...]:
    return tuple(done[:4])


def ids(path: Path, query: str, **options: str) -> list[str]:
    with lexicept.open(path) as index:
        return [hit.id for hit in index.search(query, **options)]


def same_as_new(folder: Path, path: Path, tmp_path: Path) -> bool:
    """Return whether an index equals a new build."""
    with (
        lexicept.build(folder, tmp_path / "new", vocabulary="words", overwrite=True) as new,
        lexicept.open(path) as index,
    ):
        documents = [{d.id: d for d in opened.documents()} for opened in (new, index)]
        found = [
            {
                (hit.id, hit.passage, round(hit.score, 5))
                for hit in opened.search("owls cat note", 50)
            }
            for opened in (new, index)
        ]
    return documents[0] == documents[1] and found[0] == found[1]


def test_what_changes_is_added_replaced_and_deleted(folder, path, tmp_path):
    assert counts(sync(folder, path)) == (15, 0, 0, 0)
    assert ids(path, "owls") == ["birds.pdf"]
    assert ids(path, "cat note", filter="year >= 2021 and tags in ['cat']") == [
        "notes/6.md",
        "notes/8.md",
    ]
    generation = sorted(path.glob("gen*"))
    assert counts(sync(folder, path)) == (0, 0, 0, 15)
    assert sorted(path.glob("gen*")) == generation  # nothing was written
    write_pdf(folder / "birds.pdf", [OWLS, OWLS, "Cranes dance. " * 50])
    note = folder / "notes" / "0.md"
    times = note.stat()
    note.write_text(note.read_text().replace("cat of", "cub of"))
    os.utime(note, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if nothing had happened
    (folder / "notes" / "1.md").rename(folder / "notes" / "renamed.md")
    (folder / "notes" / "2.md").unlink()
    (folder / "stock.csv").write_text("name,price\nbowl,3\nleash,9\nbed,1\n")
    (folder / "new.html").write_text("<title>Page</title><p>A web page.")
    assert counts(sync(folder, path)) == (3, 3, 2, 10)
    assert ids(path, "cranes") == ["birds.pdf"]
    assert ids(path, "eagles") == []
    assert ids(path, "cub") == ["notes/0.md"]
    assert ids(path, "web") == ["new.html"]
    assert same_as_new(folder, path, tmp_path)
    with lexicept.open(path) as index:
        assert index.verify().problems == []
        index.delete(["stock.csv#2", "new.html"])
        index.add([{"id": "stock.csv#3", "text": "other", "shape": "round"}])
    assert counts(sync(folder, path)) == (2, 1, 0, 13)  # a folder is what it holds
    assert same_as_new(folder, path, tmp_path)


def test_dates_lists_and_anchors_that_an_index_spells_otherwise_are_unchanged(folder, path):
    rows = "text,created\ncats,2020-01-01 10:00:00\nowls,2021-02-03\n"
    (folder / "d.csv").write_text(rows)
    passages = [{"text": "cats " * 150}, {"text": "owls " * 150}]
    record = {"id": "p", "passages": passages, "tags": "a"}
    (folder / "p.jsonl").write_text(f'{json.dumps(record)}\n{{"text": "x", "tags": ["a", "b"]}}\n')
    sync(folder, path)
    (folder / "d.csv").write_text(rows + "mice,2022-01-01\n")
    (folder / "p.jsonl").write_text((folder / "p.jsonl").read_text() + "\n")
    assert counts(sync(folder, path))[:3] == (1, 0, 0)


def test_an_unfinished_build_of_other_documents_is_kept(folder, path, tmp_path):
    collection = tmp_path / "c.jsonl"
    collection.write_text("".join(f'{{"text": "owls {n}"}}\n' for n in range(9)))

    def stop(stage, *_):
        if stage == "concepts":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lexicept.build(collection, path, progress=stop)
    with pytest.raises(InputError, match="an unfinished build of other documents"):
        sync(folder, path)
    assert IndexReader.open(path).num_documents == 9


def test_an_index_of_other_origin_takes_the_files(folder, path):
    documents = [{"id": "mine", "text": "my own"}, {"id": "brief.txt", "text": "old"}]
    lexicept.build(documents, path, vocabulary="words").close()
    assert counts(sync(folder, path)) == (14, 1, 0, 1)
    (folder / "brief.txt").unlink()
    assert counts(sync(folder, path)) == (0, 0, 1, 15)
    assert ids(path, "own") == ["mine"]


def test_other_changes_of_the_index_are_kept_or_made_good(folder, path):
    sync(folder, path)
    with lexicept.open(path) as index:
        index.add([{"id": "mine", "text": "my own"}])
        index.delete(["fish.pdf"])
    assert counts(sync(folder, path)) == (1, 0, 0, 15)
    assert ids(path, "salmon") == ["fish.pdf"]
    assert ids(path, "own") == ["mine"]


def test_unreadable_files_keep_what_the_index_has(folder, path):
    sync(folder, path)
    sound = (folder / "birds.pdf").read_bytes()
    (folder / "birds.pdf").write_bytes(sound[:200])
    (folder / "notes" / "3.md").write_text("---\nyear: none\n---\nNo year.")
    (folder / "brief.txt").write_bytes(b"")
    (folder / "stock.csv").write_text("name,price\nbowl,3,4\nbed,2\n")
    with pytest.warns(LexiceptWarning, match="'year' is not kept in document 'notes/3.md'"):
        sync(folder, path)
    for _ in range(2):  # the errors are said again
        done = sync(folder, path)
        assert done.num_errors == 1
        assert done.errors == [f"{folder / 'stock.csv'}, line 2: 3 values, the header has 2"]
        (name, reason), *others = done.skipped
        assert (name, reason.split(": ")[:2]) == ("birds.pdf", ["unreadable", "can't be read"])
        assert others == [("brief.txt", "empty")]
    assert ids(path, "owls") == ["birds.pdf"]
    assert "notes/3.md" not in ids(path, "dog")  # read without the year
    assert ids(path, "küche") == []
    assert sorted(ids(path, "collar bed")) == ["stock.csv#3"]
    (folder / "birds.pdf").write_bytes(sound)
    assert sync(folder, path).skipped == [("brief.txt", "empty")]
    with pytest.raises(InputError, match=r"brief\.txt: empty"):
        lexicept.sync(folder, path, strict=True)


def test_documents_stay_where_their_parser_is_missing(folder, path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = folder / "birds.parquet"
    parquet.write_table(pyarrow.table({"id": ["b"], "text": ["A row about puffins."]}), table)
    sync(folder, path)
    sound = table.read_bytes()
    with monkeypatch.context() as without:
        without.setattr("importlib.util.find_spec", lambda name: None)
        assert counts(sync(folder, path)) == (0, 0, 0, 16)
        parquet.write_table(pyarrow.table({"id": ["b"], "text": ["Herons."]}), table)
        done = sync(folder, path)
        assert counts(done) == (0, 0, 0, 16)
        needed = "unreadable: pyarrow missing: pip install 'lexicept[parquet]'"
        assert done.skipped == [("birds.parquet", needed)]
        assert ids(path, "puffins") == ["birds.parquet#b"]
    assert counts(sync(folder, path)) == (0, 1, 0, 15)
    assert ids(path, "puffins") == []
    table.write_bytes(sound)
    with monkeypatch.context() as without:
        without.setattr("importlib.util.find_spec", lambda name: None)
        sync(folder, path)
        table.unlink()
        assert counts(sync(folder, path)) == (0, 0, 1, 15)


def test_an_index_inside_its_folder_is_no_part_of_it(folder):
    path = folder / "my.index"
    assert counts(sync(folder, path)) == (15, 0, 0, 0)
    done = sync(folder, path)
    assert counts(done) == (0, 0, 0, 15)
    assert done.skipped == [("my.index", "an index")]


def test_folders_that_are_refused(folder, path, tmp_path):
    with pytest.raises(InputError, match="nowhere: no such folder"):
        sync(tmp_path / "nowhere", path)
    (tmp_path / "beir").mkdir()
    (tmp_path / "beir" / "corpus.jsonl").write_text("")
    with pytest.raises(InputError, match=r"beir: has a corpus\.jsonl"):
        sync(tmp_path / "beir", path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the corpus has no documents"):
        sync(tmp_path / "empty", path)
    assert not path.exists()
    with pytest.raises(IndexFormatError):
        sync(folder, tmp_path / "empty")
    sync(folder, path)
    with pytest.raises(InputError, match="can't be left without documents"):
        sync(tmp_path / "empty", path)
    assert read_files(lexicept.open(path).reader.folder) is not None


def test_further_files_are_included(folder, path, tmp_path):
    for name in ("a.py", "sub/b.PY", "sub/c.py", ".hidden.py", "sub/d.js", "e.data"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"def hoot(): {name}")
    (folder / "f.py").write_bytes(b"\0\1\2")
    assert counts(sync(folder, path)) == (15, 0, 0, 0)
    include = ["**/*.py", "sub/*.js"]
    done = lexicept.sync(folder, path, vocabulary="words", include=include)
    assert counts(done) == (3, 0, 0, 15)
    assert ids(path, "hoot") == ["a.py", "sub/c.py", "sub/d.js"]
    assert dict(done.skipped) == {
        **{".hidden.py": "hidden", "e.data": ".data", "f.py": "binary"},
        "sub/b.PY": ".py (which --include '*.py' reads)",
    }
    # Later calls repeat the patterns, unless they have others.
    (folder / "g.py").write_text("hoot")
    assert counts(sync(folder, path)) == (1, 0, 0, 18)
    done = lexicept.sync(folder, path, vocabulary="words", include=["*.data"])
    assert counts(done) == (1, 0, 4, 15)
    with (
        pytest.warns(LexiceptWarning, match="4 files skipped"),
        lexicept.build(folder, tmp_path / "built", vocabulary="words", include=include) as built,
    ):
        assert len(built) == 19
    assert counts(sync(folder, tmp_path / "built")) == (0, 0, 0, 19)


def test_patterns_need_a_folder(folder, path):
    with pytest.raises(InputError, match="include: lone surrogate"):
        lexicept.build(folder, path, vocabulary="words", include=["caf\udce9*"])
    for documents in (["a text"], folder / "stock.csv"):
        with pytest.raises(InputError, match="include chooses among files, and this is no folder"):
            lexicept.build(documents, path, vocabulary="words", include=["*.py"])


def test_the_command(folder, path, run):
    (folder / "pic.png").write_bytes(b"x")
    assert ".png: pic.png" in run("sync", folder, path, "--vocabulary", "words").out
    (folder / "fish.pdf").unlink()
    done = run("sync", folder, path, "--json").json
    assert done == {
        **{"added": 0, "replaced": 0, "deleted": 1, "unchanged": 14},
        **{"skipped": [["pic.png", ".png"]], "errors": [], "num_errors": 0},
    }

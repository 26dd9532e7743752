"""Every reader of corpora, queries and judgements, and every refused input."""

import csv
import gzip
import json
import os
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexicept.corpora import Document, Qrel, Query, read_documents, read_qrels, read_queries
from lexicept.corpora.records import fields_without_folders
from lexicept.errors import InputError, LexiceptWarning
from lexicept.pipelines.documents import as_documents

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file below tmp_path, gzipped if its name says so."""

    def write(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def refusal(records: Callable[[], Iterable[object]]) -> str:
    with pytest.raises(InputError) as caught:
        list(records())
    return str(caught.value)


# JSON Lines


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".json", ".jsonl.gz", ".JSONL"])
def test_json_lines(write, ending):
    lines = [
        '{"_id": "a", "id": "unused", "title": "T", "text": "x", "metadata": {}}',
        "",
        '{"id": 7, "contents": "y"}\r',
        '{"docno": "c", "body": ""}',
        '{"doc_id": "d", "text": "one\u2028line\x85and\u2029more"}',
    ]
    assert list(read_documents(write("c" + ending, "\ufeff" + "\n".join(lines)))) == [
        Document("a", "x", "T"),
        Document("7", "y"),
        Document("c", ""),
        Document("d", "one\u2028line\x85and\u2029more"),
    ]


def test_reading_streams(write):
    path = write("c.jsonl", '{"id": "a", "text": "x"}\nbroken')
    documents = read_documents(str(path), strict=True)
    assert next(documents) == Document("a", "x")
    with pytest.raises(InputError):
        next(documents)


@pytest.mark.parametrize("name", ["c.jsonl", "c.tsv", "c.csv", "c.json", "folder"])
def test_an_empty_corpus_has_no_documents(tmp_path, write, name):
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" if name == "folder" else write(name, "")
    assert list(read_documents(path)) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": "a", "text": }', "not valid JSON: Expecting value (column 21)"),
        ("[" * 100_000, "not valid JSON: "),
        ("1" * 5000, "not valid JSON: "),
        ('["a", "text"]', "not a JSON object but list"),
        ("null", "not a JSON object but null"),
        ('{"id": "a"}', "none of the keys text, contents, body"),
        ('{"id": 1.5, "text": "x"}', "the id must be a string or an integer, not float"),
        ('{"id": true, "text": "x"}', "the id must be a string or an integer, not bool"),
        ('{"id": "a", "text": 5}', "the text must be a string, not int"),
        ('{"id": "a", "text": "x", "title": 5}', "the title must be a string, not int"),
        ('{"id": "", "text": "x"}', "bad id ''"),
        ('{"id": "\\t ", "text": "x"}', r"bad id '\t '"),
        ('{"id": "a", "text": "x \\ud800"}', r"lone surrogate '\ud800'"),
        ('{"id": "a\\udfff", "text": "x"}', r"lone surrogate '\udfff'"),
    ],
)
def test_json_lines_refused(write, line, reason):
    path = write("corpus.jsonl", '{"id": "first", "text": "x"}\n\n' + line + "\n")
    message = refusal(lambda: read_documents(path, strict=True))
    assert message.startswith(f"{path}, line 3: ")
    assert reason in message


def test_broken_gzip_is_refused(tmp_path):
    path = tmp_path / "c.jsonl.gz"
    whole = gzip.compress(b'{"id": "a", "text": "x"}\n' * 100)
    flipped = whole[:20] + bytes([whole[20] ^ 0xFF]) + whole[21:]
    for data in (whole[:-12], flipped, b'{"id": "a", "text": "x"}'):
        path.write_bytes(data)
        assert str(path) in refusal(lambda: read_documents(path, strict=True))


# TSV


@pytest.mark.parametrize(
    "header", ["", "id\ttext\n", "doc_id\ttext\n", "ID\tText\r\n", "id\ttitle\ttext\n"]
)
@pytest.mark.parametrize("name", ["c.tsv", "c.tsv.gz"])
def test_tsv(write, header, name):
    path = write(name, "\ufeff" + header + "a\tx\r\n\n2\tT\ty\u2028z\nc\t\n")
    assert list(read_documents(path)) == [
        Document("a", "x"),
        Document("2", "y\u2028z", "T"),
        Document("c", ""),
    ]


# Folders of text


def test_text_folder(write, tmp_path):
    write("b.txt", "\ufeffplain # text\n")
    write("a b/100%.md", "intro\n```\n# comment\n```\n# The Title \r\nrest\n# second\n")
    write("a/ä.MD", "no heading")
    text = "intro\n\n# comment\n\nrest\n\nsecond"
    assert list(read_documents(tmp_path)) == [
        Document("a%20b/100%25.md", text, "The Title", {"folder": ["a b"]}),
        Document("a/ä.MD", "no heading", "", {"folder": ["a"]}),
        Document("b.txt", "plain # text\n"),
    ]


def test_folders_of_a_file_are_a_field(write, tmp_path):
    write("api/structures/size.md", "width and height")
    write("api/own.md", "---\nfolder: 7\n---\nfront matter")
    write("top.md", "no folder")
    fields = {document.id: document.fields for document in read_documents(tmp_path)}
    assert fields == {
        "api/own.md": {"folder": "7"},
        "api/structures/size.md": {"folder": ["api", "api/structures"]},
        "top.md": {},
    }


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ("folder: 5", "5"),
        ("folder: 0", "0"),
        ("folder: true", "true"),
        ("folder: 2020-01-02T10:00:00", "2020-01-02T10:00:00Z"),
        ("folder: [b, null, true]", ["b", "true"]),
        ("folder: []", ["api"]),
    ],
)
def test_a_field_of_the_name_folder_remains_as_texts(write, tmp_path, fields, kept):
    write("api/a.md", f"---\n{fields}\n---\nfront matter")
    write("api/inside.md", "a file with the folders of its path")
    write("top.csv", "id,text,folder\n1,a record,5\n")
    documents = {document.id: document.fields for document in read_documents(tmp_path)}
    assert documents == {
        "api/a.md": {"folder": kept},
        "api/inside.md": {"folder": ["api"]},
        "top.csv#1": {"folder": "5"},
    }


def test_folders_that_an_id_shows_are_left_out_of_the_shown_fields():
    inside = Document("a%20b/c.md", "", "", {"folder": ["a b"], "year": 7})
    assert fields_without_folders(inside) == {"year": 7}
    for fields in ({"folder": ["d"]}, {"folder": ["d", "a b"]}, {"folder": "a b"}, {}):
        assert fields_without_folders(inside._replace(fields=fields)) == fields


def skipped(source: Path) -> tuple[list[str], list[str]]:
    """Return the ids of the documents, and the lines of all warnings."""
    with pytest.warns(LexiceptWarning) as caught:
        ids = [document.id for document in read_documents(source)]
    return ids, [line for warning in caught for line in str(warning.message).splitlines()]


def test_a_folder_names_the_files_that_are_skipped(write, tmp_path):
    write("a.txt", "text")
    for name in ("b.doc", "c/d.DOC", "e.py", "empty.txt", "README", ".hidden", "g.md.gz"):
        write(name, "")
    for i in range(7):
        write(f"images/{i}.png", "")
    (tmp_path / "loop").symlink_to(tmp_path)
    ids, lines = skipped(tmp_path)
    assert ids == ["a.txt"]
    assert lines[0].startswith(f"{tmp_path}: 15 files skipped, only .txt, ")
    warnings_of = {line.partition(":")[0].strip(): line.partition(": ")[2] for line in lines[1:]}
    assert sorted(warnings_of.pop("2 .doc (to be saved as .docx)").split(", ")) == [
        "b.doc",
        "c/d.DOC",
    ]
    assert warnings_of.pop("7 .png").count("images/") == 5
    assert lines[1].endswith(", and 2 more")
    assert warnings_of == {
        "1 .py (which --include '*.py' reads)": "e.py",
        "1 empty": "empty.txt",
        "1 without an extension": "README",
        "1 hidden": ".hidden",
        "1 .gz": "g.md.gz",
        "1 links to folders": "loop",
    }


def test_what_is_no_file_of_the_folder_is_not_read(write, tmp_path):
    write("in/a.txt", "a cat")
    write("inner/b.txt", "a dog")
    tmp_path, outside = tmp_path / "in", tmp_path
    os.mkfifo(tmp_path / "pipe.txt")
    links = {"twin.txt": "a.txt", "lost.txt": "nowhere", "out.txt": outside / "inner" / "b.txt"}
    links |= {"up.txt": "../inner/b.txt", "zero.md": "/dev/zero", "kmsg.txt": "/proc/kmsg"}
    links |= {"chain.txt": "up.txt", "round.txt": "round.txt", "fifo.txt": "pipe.txt"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.txt"))
    ids, lines = skipped(tmp_path)
    assert ids == ["a.txt", "twin.txt"]
    assert {
        count: set(names.split(", ")) for count, names in (x.split(": ") for x in lines[1:])
    } == {
        "  5 links to the outside": {"chain.txt", "kmsg.txt", "out.txt", "up.txt", "zero.md"},
        "  3 pipes, sockets and devices": {"fifo.txt", "pipe.txt", "socket.txt"},
        "  2 broken links": {"lost.txt", "round.txt"},
    }


LATIN = "caf\u00e9".encode("latin-1")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("c.jsonl", b'{"id":"a","text":"x"}\n{"id":"b","text":"%b"}', "line 2: not UTF-8: "),
        ("c.jsonl", b'{"id":"a","text":"x"}\n{"id":', "line 2: not valid JSON: "),
        ("c.tsv", b"a\tx\n%b\ty", "line 2: not UTF-8: "),
        ("c.json", b'[{"id":"a","text":"x"},{"id":"b"}]', "object 2: the object has none"),
        ("c.csv", b"id,text\na,x\nb,x,y", "line 3: 3 values, the header has 2"),
        ("c.csv", b"id,text\na,x\nb", "line 3: 1 values, the header has 2"),
        ("c.jsonl", b'{"id":"a","text":"x"}\n{"id":"a","text":"y"}', "line 2: id 'a' was already"),
        ("folder/b.pdf", b"%PDF-1.4", ": can't be read: "),
    ],
)
def test_errors_are_skipped_and_listed(write, name, text, reason):
    """If ``strict``, the same text is the error."""
    path = write(name, text.replace(b"%b", LATIN))
    if name.startswith("folder/"):
        write("folder/a", "")
        write("folder/a.md", "x")
    source = path.parent if name.startswith("folder/") else path
    message = refusal(lambda: read_documents(source, strict=True))
    assert message.startswith(str(path))
    assert reason in message
    more = b"\nc,z\n" if name == "c.csv" else b""
    path.write_bytes(path.read_bytes() + more)
    ids, lines = skipped(source)
    assert ids == (["a.md"] if name.startswith("folder/") else ["a", "c"] if more else ["a"])
    if name.startswith("folder/"):
        assert lines[0].startswith(f"{source}: 2 files skipped, only ")
        damage = message.removeprefix(f"{path}: unreadable: ")
        assert f"  1 unreadable: b.pdf: {damage}" in lines
    else:
        assert lines == [f"{source}: 1 document skipped after an error", f"  {message}"]


def test_many_errors_are_counted(write):
    path = write("c.jsonl", '{"id": "a", "text": "x"}\n' * 31)
    ids, lines = skipped(path)
    assert ids == ["a"]
    assert lines[0] == f"{path}: 30 documents skipped after an error"
    assert lines[1] == f"  {path}, line 2: id 'a' was already used in line 1"
    assert len(lines) == 22
    assert lines[-1] == "  and 10 more"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", b'{"text":"%w"}\n{"text":"cats"}', "its text has more than 16,777,216 char"),
        ("a.json", b'[{"text":"%w"},{"text":"cats"}]', "its text has more than 16,777,216 char"),
        ("a.tsv", b"1\t%w\n2\tcats\n", "its text has more than 16,777,216 char"),
        ("a.jsonl", b'{"text":"%w%w%w%w"}', "a.jsonl, line 1: longer than 64 MiB"),
        ("a.txt", b"%w", "a.txt: nothing to read: longer than 16,777,216 characters"),
    ],
)
def test_the_text_of_a_document_is_bounded(write, name, text, message):
    path = write(name, text.replace(b"%w", b"word " * (2**24 // 5 + 1)))
    assert message in refusal(lambda: read_documents(path, strict=True))
    if b"cats" in text:
        ids, lines = skipped(path)
        assert ids == ["2"]
        assert message in lines[1]


# JSON arrays


@pytest.mark.parametrize("name", ["c.json", "c.json.gz"])
@pytest.mark.parametrize("start", ["", "\ufeff", " \n\t\n"])
def test_a_json_array(write, name, start):
    records = [{"id": 7, "text": "x\ny"}, {"_id": "b", "title": "T", "body": ""}]
    for indent in (None, 1):
        path = write(name, start + json.dumps(records, indent=indent))
        assert list(read_documents(path)) == [Document("7", "x\ny"), Document("b", "", "T")]
    assert list(read_documents(write(name, f"{start}[\n]"))) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.json", '[{"id": "a", "text": "x"}', ": not valid JSON: Expecting ',' delimiter"),
        ("c.json", "[" * 100_000, ": not valid JSON: "),
        ("c.json", b'[{"id": "a", "text": "\xff"}]', ": not UTF-8 at byte 22: "),
        ("c.json", '[{"id": "a", "text": "x"}, 5]', ", object 2: not a JSON object but int"),
        ("c.json", '{"documents":\n[]}', ", object 1: the object has none of the keys text"),
        ("c.tsv", "id\ttext\na\tx\nlonely", ", line 3: 1 columns, expected id, text or id, title"),
        ("c.tsv", "id\ttext\na\tb\tc\td", ", line 2: 4 columns, expected id, text or id, title"),
        ("c.tsv", "id\ttext\nfirst\tx\n \tx", ", line 3: bad id ' '"),
        ("c.csv", "id,text,text\n1,x,y\n", ", line 1: the header has the column 'text' twice"),
        ("c.csv", 'id,text\n1,"x\ny"\n1,z', ", line 4: id '1' was already used in line 2"),
        ("c.csv", "id,text\n ,x\n", ", line 2: bad id ' '"),
    ],
)
def test_files_refused(write, name, text, message):
    path = write(name, text)
    assert refusal(lambda: read_documents(path, strict=True)).startswith(f"{path}{message}")


def test_a_json_array_larger_than_memory_is_refused(write, monkeypatch):
    path = write("c.json.gz", "[" + " " * 2**20 + "]")
    monkeypatch.setattr("lexicept.corpora.json_lines.LARGEST_ARRAY", 2**20)
    message = f"{path}: an array of more than 1 MiB: JSON Lines (.jsonl) have no limit"
    assert refusal(lambda: read_documents(path, strict=True)) == message


# CSV


@pytest.mark.parametrize("name", ["c.csv", "c.CSV", "c.csv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv(write, name, end):
    lines = ["\ufeffprice,ID, Title ,text", '3,a,,"one, two"', "", '4,b,T,"a ""b""\nc"', "5,c,,"]
    assert list(read_documents(write(name, end.join([*lines, ""])))) == [
        Document("a", "one, two", "", {"price": 3}),
        Document("b", 'a "b"\nc', "T", {"price": 4}),
        Document("c", "", "", {"price": 5}),
    ]


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        # The separator: stated, else the one that divides the lines evenly.
        ("sep=;\nid;text\nA1;owls, cats\n", [("A1", "owls, cats", {})]),
        ('"sep=|"\r\nid|text\r\nA1|owls\r\n', [("A1", "owls", {})]),
        ("sep=:\nid:text\nA1:owls\n", [("A1", "owls", {})]),
        ("id\ttext\nA1\tone; two, three\n", [("A1", "one; two, three", {})]),
        ("\n\nid;text;price\n1;x;1,29\n2;y;2,30\n", [("1", "x", "1,29"), ("2", "y", "2,30")]),
        ('"price, net";text\n1;x\n', [("2", "x", {"price, net": 1})]),
        ("id,text\n1,a|b\n2,c;d\n", [("1", "a|b", {}), ("2", "c;d", {})]),
        ("text\nowls, cats\n", [("2", "owls, cats", {})]),
        # The ends of lines.
        ("id,text\rA1,owls\rA2,cats", [("A1", "owls", {}), ("A2", "cats", {})]),
        ('id,text\r\n1,"a\rb\r\nc"\r\n', [("1", "a\rb\r\nc", {})]),
        # Columns without a name, an id or a text.
        (
            "year,\n2020,owls\n",
            [("2", "year: 2020\ncolumn 2: owls", {"year": 2020, "column 2": "owls"})],
        ),
        (",id,text,\n0,a,x,\n", [("a", "x", {"column 1": 0})]),
        ("id,title\n7,T\n", [("7", "id: 7\ntitle: T", {})]),
        ("id,text\n,x\n", [("2", "x", {})]),
        ("text\ncaf\xe9\n", [("2", "caf\xe9", {})]),
    ],
)
def test_dialects_of_csv(write, text, documents):
    """A file alone and in a folder."""
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "latin-1"):
        path = write("folder/c.csv", text.encode(encoding))
        for source, prefix in ((path, ""), (path.parent, "c.csv#")):
            result = list(read_documents(source))
            assert [(d.id.removeprefix(prefix), d.text) for d in result] == [
                d[:2] for d in documents
            ]
            for document, (_, _, fields) in zip(result, documents, strict=True):
                fields = {"price": fields} if isinstance(fields, str) else fields
                assert dict(document.fields) == fields


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        # As Python's csv module and pandas read them.
        ('1,"a 5" disk"\n2,x', {"1": 'a 5 disk"', "2": "x"}),
        ('1,"he said \\"owls\\" twice"\n2,x', {"1": 'he said \\owls\\" twice"', "2": "x"}),
        ('1,a 5" disk\n2,"x"y', {"1": 'a 5" disk', "2": "xy"}),
        ('1,"a\nb 5" disk"\n2,x', {"1": 'a\nb 5 disk"', "2": "x"}),
        ('1,a\0b\n"2",""', {"1": "a\0b", "2": ""}),
        # Where backslashes alone give each row the values of the header.
        ('1,"he said \\"owls, cats\\" twice"\n2,x', {"1": 'he said "owls, cats" twice', "2": "x"}),
        # A quote that never closes ends with its line.
        ('1,"never closed\n2,x\n3,y', {"1": '"never closed', "2": "x", "3": "y"}),
        ('1,"a ""b""\n2,""\n', {"1": '"a ""b""', "2": ""}),
        ('1,x\n2,"', {"1": "x", "2": '"'}),
    ],
)
def test_quotes_that_the_standard_forbids(write, text, texts):
    path = write("c.csv", f"id,text\n{text}")
    assert {document.id: document.text for document in read_documents(path)} == texts


def test_a_quote_that_never_closes_in_a_long_file(write):
    lines = [f"{n},text" for n in range(300)] + [f"{n},{'x ' * 500_000}" for n in range(300, 318)]
    lines[250] = '250,"never closed'
    path = write("c.csv", "\n".join(["id,text", *lines, f"long,{'x' * (2**24 + 1)}"]))
    with pytest.warns(LexiceptWarning, match="line 320: a value of over 16,777,216 characters"):
        documents = list(read_documents(path))
    assert [document.id for document in documents] == [*map(str, range(318))]


def test_rows_of_other_lengths(write):
    path = write("c.csv", "id,text,n,m\n1,a\n2,b,NA,3\n3,c, 5,,,\n4,d,nan,,x\n5\n,, \n6,e,<NA>,4\n")
    documents = []
    with pytest.warns(LexiceptWarning) as warned:
        documents += [(d.id, d.text, dict(d.fields)) for d in read_documents(path)]
    assert documents == [
        ("1", "a", {}),
        ("2", "b", {"m": 3}),
        ("3", "c", {"n": 5}),
        ("6", "e", {"m": 4}),
    ]
    assert "line 5: 5 values, the header has 4" in str(warned[0].message)
    assert "line 6: 1 values, the header has 4" in str(warned[0].message)


def test_ids_with_blanks_are_encoded(write, tmp_path):
    ids = ["Item 12", "Item%2012", "a#b", "c\u3000d", "\x00e\x1f"]
    encoded = ["Item%2012", "Item%252012", "a%23b", "c%E3%80%80d", "%00e%1F"]
    write("in/c.jsonl", "".join(json.dumps({"id": name, "text": "x"}) + "\n" for name in ids))
    write("in/c.csv", "id,text\n" + "".join(f"{name},x\n" for name in ids[:4]))
    write("in/c.tsv", "id\ttext\n" + "".join(f"{name}\tx\n" for name in ids[:4]))
    write("in/c.json", json.dumps([{"id": name, "text": "x"} for name in ids]))
    documents = [document.id for document in read_documents(tmp_path / "in", strict=True)]
    assert documents == [
        *(f"c.csv#{name}" for name in encoded[:4]),
        *(f"c.json#{name}" for name in encoded),
        *(f"c.jsonl#{name}" for name in encoded),
        *(f"c.tsv#{name}" for name in encoded[:4]),
    ]
    # Of a file alone, other ids stay: judgements may name them.
    assert skipped(tmp_path / "in" / "c.csv") == (
        ["Item%2012", "a#b", "c%E3%80%80d"],
        [
            f"{tmp_path / 'in' / 'c.csv'}: 1 document skipped after an error",
            f"  {tmp_path / 'in' / 'c.csv'}, line 3: id 'Item%2012' was already used in line 2",
        ],
    )
    # A BEIR folder's judgements can't name ids with blanks.
    write("beir/corpus.jsonl", '{"_id": "a b", "text": "x"}')
    assert "bad id 'a b'" in refusal(lambda: read_documents(tmp_path / "beir", strict=True))


def test_lines_that_end_in_cr_alone(write):
    expected = [Document("a", "x"), Document("b", "y")]
    assert list(read_documents(write("c.tsv", "a\tx\rb\ty\r"))) == expected
    lines = '{"id": "a", "text": "x"}\r{"id": "b", "text": "y"}'
    assert list(read_documents(write("c.jsonl", lines))) == expected


# Parquet


@pytest.fixture
def write_table(tmp_path: Path) -> Callable[..., Path]:
    """Writes columns as a Parquet file."""
    arrow = pytest.importorskip("pyarrow", reason="needs lexicept[parquet]")
    from pyarrow import parquet

    def write(**columns: Any) -> Path:
        path = tmp_path / "c.parquet"
        parquet.write_table(arrow.table(columns), path)
        return path

    return write


def test_parquet(write_table, monkeypatch):
    monkeypatch.setattr("lexicept.corpora.tables.BATCH", 2)
    path = write_table(
        id=["a", "b", "c"],
        text=["x", "y", ""],
        title=["T", None, ""],
        year=[2019, None, 2021],
        score=[0.5, float("nan"), None],
        tag=[["s", "t"], [], None],
        day=[date(2020, 2, 29), None, date(2020, 3, 1)],
        __index_level_0__=[0, 1, 2],
    )
    assert list(read_documents(path)) == [
        Document(
            "a", "x", "T", {"year": 2019, "score": 0.5, "tag": ["s", "t"], "day": "2020-02-29"}
        ),
        Document("b", "y"),
        Document("c", "", "", {"year": 2021, "day": "2020-03-01"}),
    ]


def test_parquet_refused(write_table, write):
    path = write_table(id=["a", "b"], text=["x", None])
    message = f"{path}, row 2: the text must be a string, not null"
    assert refusal(lambda: read_documents(path, strict=True)) == message
    broken = write("broken.parquet", b"PAR1 and nothing more")
    assert refusal(lambda: read_documents(broken, strict=True)).startswith(
        f"{broken}: can't be read: ArrowInvalid: "
    )


@pytest.mark.parametrize("missing", [None, float("nan"), "NaT", "NA"])
def test_a_missing_value_and_an_integer_id_are_the_same_everywhere(write_table, write, missing):
    pd = pytest.importorskip("pandas")
    np = pytest.importorskip("numpy")
    nothing = {"NaT": pd.NaT, "NA": pd.NA}.get(missing, missing)
    for value in (7, 7.0, np.uint8(7), np.float32(7), Decimal(7), "7"):
        frame = pd.DataFrame({"id": [value], "text": ["x"]})
        assert list(as_documents(frame)) == list(as_documents(frame.to_dict("records")))
        assert [document.id for document in as_documents(frame)] == ["7"]
        assert list(read_documents(write_table(id=[value], text=["x"]))) == [Document("7", "x")]
    ids = [7, np.int64(8)]
    records = [
        {"id": ids[0], "text": "x", "title": nothing, "year": nothing, "tag": ["s", nothing]},
        {"id": ids[1], "text": "y", "title": "T", "year": 2020, "tag": nothing},
        {"id": nothing, "text": "z", "passages": nothing},
    ]
    expected = [
        Document("7", "x", "", {"tag": ["s"]}),
        Document("8", "y", "T", {"year": 2020}),
        Document("3", "z"),
    ]
    assert list(as_documents(records)) == expected
    frame = pd.DataFrame(records)  # whose ids are floats beside a missing one
    assert list(as_documents(frame)) == expected
    assert list(as_documents(frame.convert_dtypes())) == expected
    plain = [{n: None if v is nothing else v for n, v in record.items()} for record in records]
    plain[0]["tag"] = ["s", None]
    lines = "\n".join(json.dumps(record, default=int) for record in plain)
    assert list(read_documents(write("c.jsonl", lines))) == expected
    assert list(read_documents(write("c.json", f"[{lines.replace(chr(10), ',')}]"))) == expected
    columns = {name: [record.get(name) for record in plain] for name in records[1]}
    columns["id"] = [7, 8, None]
    assert list(read_documents(write_table(**columns))) == expected


# BEIR folders


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "queries"),
    [
        ("queries.jsonl", '{"_id": "q1", "text": "one"}\n{"_id": 2, "text": "two"}\n'),
        ("queries.tsv", "qid\ttext\nq1\tone\n2\ttwo\n"),
    ],
)
def test_beir_folder(write, tmp_path, name, queries, gz):
    write("corpus.jsonl" + gz, '{"_id": "d1", "title": "T", "text": "x"}')
    write(name + gz, queries)
    write("qrels/test.tsv" + gz, "query-id\tcorpus-id\tscore\n2\td1\t1\n\n2\td2\t-1\r\n")
    write("qrels/dev.tsv" + gz, "q1 0 d1 3\n")
    assert list(read_documents(tmp_path)) == [Document("d1", "x", "T")]
    assert list(read_qrels(tmp_path)) == [Qrel("2", "d1", 1), Qrel("2", "d2", -1)]
    assert list(read_qrels(tmp_path, "dev")) == [Qrel("q1", "d1", 3)]
    assert list(read_queries(tmp_path)) == [Query("2", "two")]
    assert list(read_queries(str(tmp_path), "dev")) == [Query("q1", "one")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("q1\td1\tmany", "the relevance 'many' is not an integer"),
        ("q1\td1\t1.0", "the relevance '1.0' is not an integer"),
        ("q1 0 d1 1_0", "the relevance '1_0' is not an integer"),
        ("q1\td1", "2 columns, expected 3 (BEIR) or 4 (TREC)"),
        ("q1\td\0\t1", r"bad id 'd\x00'"),
        (b"q1\t\xff\t1", "not UTF-8"),
    ],
)
def test_qrels_refused(write, tmp_path, line, reason):
    raw = line.encode() if isinstance(line, str) else line
    path = write("qrels/test.tsv", b"query-id\tcorpus-id\tscore\n" + raw)
    for read in (read_qrels, read_queries):
        assert refusal(lambda read=read: read(tmp_path)).startswith(f"{path}, line 2: {reason}")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("queries.tsv", "q1\tone\tmore", "line 1: 3 columns, expected id, text"),
        ("queries.tsv", "q1\tone\nq1\ttwo", "line 2: id 'q1' was already used in line 1"),
        ("queries.jsonl", '\n{"_id": "q1"}', "line 2: the object has none of the keys text"),
    ],
)
def test_queries_refused(write, tmp_path, name, text, message):
    write("qrels/test.tsv", "q1\td1\t1")
    path = write(name, text)
    assert refusal(lambda: read_queries(tmp_path)).startswith(f"{path}, {message}")


def test_missing_queries_splits_and_sources_are_named(write, tmp_path):
    assert "no split 'test'; splits here: none" in refusal(lambda: read_qrels(tmp_path))
    write("qrels/test.tsv", "q1\td1\t1")
    write("qrels/train.tsv.gz", "")
    message = refusal(lambda: read_queries(tmp_path, "dev"))
    assert message == f"{tmp_path / 'qrels'}: no split 'dev'; splits here: test, train"
    assert refusal(lambda: read_queries(tmp_path)).startswith(f"{tmp_path}: no queries.jsonl")
    path = write("c.doc", "")
    message = refusal(lambda: read_documents(path, strict=True))
    assert message.startswith(f"{path}: not a kind of file that is read here; accepted: python-d")
    with pytest.raises(InputError, match=r"python-docs: no such file or folder.*a BEIR folder"):
        read_queries("python-docs")


@pytest.mark.parametrize("split", ["", "../test", "a\\b", "/etc/passwd", "a\0"])
def test_a_split_is_no_path(tmp_path, split):
    assert f"bad split {split!r}" in refusal(lambda: read_qrels(tmp_path, split))
    assert f"bad split {split!r}" in refusal(lambda: read_queries(tmp_path, split))


# Sources that no reader fits, and ir_datasets


@pytest.mark.parametrize("source", ["no/such", "ir_datasets:no/such", "", "a\0b", "x" * 5000])
def test_a_name_nobody_knows(source):
    pytest.importorskip("ir_datasets")
    message = refusal(lambda: read_documents(source, strict=True))
    assert message.startswith(f"{source}: no such file or folder, and ir_datasets knows no ")
    assert "accepted: python-docs, a BEIR folder" in message


def test_without_ir_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    assert "lexicept[ir-datasets]" in refusal(lambda: read_documents("beir/scifact", strict=True))


class Dataset:
    """As much of an ir_datasets dataset as the reader uses."""

    def __init__(self, **records: list[Any]) -> None:
        self._records = records

    def __getattr__(self, name: str) -> Callable[[], object]:
        if name.startswith("has_"):
            return lambda: name.removeprefix("has_") in self._records
        return lambda: iter(self._records[name.removesuffix("_iter")])


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch) -> dict[str, Dataset]:
    """Known datasets by name, in place of ir_datasets'."""
    known: dict[str, Dataset] = {}
    fake = SimpleNamespace(load=known.__getitem__, registry=known, __spec__=True)
    monkeypatch.setitem(sys.modules, "ir_datasets", fake)
    return known


def test_ir_datasets(datasets):
    docs = [
        SimpleNamespace(
            doc_id="1", title="Cat", default_text=lambda: "Cat sat", year=3, body="sat"
        ),
        SimpleNamespace(doc_id="2", title="Cat", default_text=lambda: "Category"),
        SimpleNamespace(doc_id="3", title=None, text="plain"),
    ]
    queries = [SimpleNamespace(query_id=name, default_text=lambda: "what") for name in ("q1", "q2")]
    qrels = [SimpleNamespace(query_id="q2", doc_id="1", relevance=2)]
    datasets["toy"] = Dataset(docs=docs)
    datasets["toy/test"] = Dataset(docs=docs, queries=queries, qrels=qrels)
    expected = [Document("1", "sat", "Cat", {"year": 3}), Document("2", "Category", "Cat")]
    for source in ("toy", "ir_datasets:toy"):
        assert list(read_documents(source)) == [*expected, Document("3", "plain")]
        assert list(read_qrels(source)) == [Qrel("q2", "1", 2)]
        assert list(read_queries(source)) == [Query("q2", "what")]
    assert list(read_queries("toy/test")) == [Query("q2", "what")]
    message = refusal(lambda: read_qrels("toy", "dev"))
    assert message == "toy: no qrels for the split 'dev'; ir_datasets has below it: toy/test"


def test_ir_datasets_refused(datasets):
    doc = SimpleNamespace(doc_id="1", text="x")
    datasets["twice"] = Dataset(docs=[doc, doc], qrels=[])
    message = refusal(lambda: read_documents("twice", strict=True))
    assert message == "twice, document 2: id '1' was already used in document 1"
    assert "no queries for the split 'test'" in refusal(lambda: read_queries("twice"))
    datasets["bare"] = Dataset()
    assert "bare: ir_datasets has no documents" in refusal(
        lambda: read_documents("bare", strict=True)
    )

    class Far(list[object]):
        def __iter__(self) -> Iterator[object]:
            raise RuntimeError("All download sources failed")

    datasets["far"] = Dataset(docs=Far(), queries=Far(), qrels=Far())
    readers: list[Callable[[str], Iterable[object]]] = [read_documents, read_queries, read_qrels]
    for read in readers:
        message = refusal(partial(read, "far"))
        assert message == "far: ir_datasets can't read it: All download sources failed"


# The standard library


def python_docs_of(
    stdlib: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]
) -> list[Document]:
    for name, source in files.items():
        path = stdlib / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(stdlib)})
    return list(read_documents("python-docs"))


def test_python_docs_walks_and_numbers(tmp_path, monkeypatch):
    module = b'''"""Os."""
try:
    def f(): "One."
except ImportError:
    async def f(): "Two."
class C:
    "\\d"
    def bare(self):
        def inner(): "In."
'''
    files = {
        "os.py": module,
        "pkg/__init__.py": b'"""Pkg."""',
        "pkg/tests/a.py": b'"""No."""',
        "site-packages/b.py": b'"""No."""',
        "pydoc_data/topics.py": b"topics = {'b': 'B text', 'a': 'A text'}",
        "bad_syntax.py": b"def",
        "bad_bytes.py": b'"""\xff"""',
        "bad_nul.py": b"\0",
    }
    assert python_docs_of(tmp_path, monkeypatch, files) == [
        Document("os", "Os.", "os"),
        Document("os.f", "One.", "os.f"),
        Document("os.f#2", "Two.", "os.f"),
        Document("os.C", "\\d", "os.C"),
        Document("os.C.bare.inner", "In.", "os.C.bare.inner"),
        Document("pkg", "Pkg.", "pkg"),
        Document("topic:a", "A text", "a"),
        Document("topic:b", "B text", "b"),
    ]


def test_python_docs_without_a_library(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"^python-docs: no Python source"):
        python_docs_of(tmp_path / "python311.zip", monkeypatch, {})


# Properties

# "Cs" is what UTF-8 cannot hold; a byte order mark would count as the file's own.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"))
ids = texts.map(lambda text: "".join(text.replace("\0", "").split())).filter(bool)


def corpora(field: st.SearchStrategy[str]) -> st.SearchStrategy[list[Document]]:
    documents = st.builds(Document, ids, field, field, st.just({}), st.just(()))
    return st.lists(documents, unique_by=lambda document: document.id)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("properties")


@settings(max_examples=50)
@given(documents=corpora(texts), escaped=st.booleans())
def test_files_round_trip(scratch, documents, escaped):
    items = [document._asdict() for document in documents]
    lines = "".join(json.dumps(item, ensure_ascii=escaped) + "\n" for item in items)
    (scratch / "round.jsonl").write_bytes(lines.encode())
    (scratch / "round.json").write_text(json.dumps(items))
    with open(scratch / "round.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "text", "title"), *(d[:3] for d in documents)])
    for ending in ("jsonl", "json", "csv"):
        assert list(read_documents(scratch / f"round.{ending}")) == documents

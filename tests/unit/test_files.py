"""Everyday files: parsers, encodings, ids, and skipped files."""

import gzip
import json
import os
from contextlib import suppress
from datetime import date
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.corpora import Document, budgets, folder, read_documents
from lexicept.corpora.budgets import NothingToRead
from lexicept.corpora.files import read_one
from lexicept.corpora.folder import KINDS, Folder
from lexicept.corpora.html import parse_html
from lexicept.corpora.markdown import markdown_blocks, parse_markdown, parse_notebook
from lexicept.corpora.passages import Heading, Parsed, Section
from lexicept.corpora.records import checked
from lexicept.corpora.restructured import parse_restructured
from lexicept.corpora.skipped import Skipped
from lexicept.corpora.text_encoding import BinaryError, decode_text
from lexicept.errors import InputError, LexiceptWarning
from lexicept.pipelines.documents import as_documents
from support.files import EAGLES, OWLS, write_files, write_pdf

# Encodings


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff")))
def test_marked_texts_and_utf_8_are_read_as_they_are(text):
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        assert decode_text(text.encode(encoding)) == text


@given(st.binary())
def test_any_bytes_are_a_text_or_binary(text):
    with suppress(BinaryError):
        decode_text(text).encode()


# Markdown


def test_markdown_and_its_front_matter():
    text = "---\nyear: 2020\nid: 5\n---\n# The *Title*\n\nintro\n\nSet\n---\nx\n### Deep\ny\n"
    text += "## Empty\n> ## quoted\n\n## Last `c`\n```\n# code\n```\n"
    parsed = parse_markdown(text)
    assert (parsed.title, parsed.fields) == ("The Title", {"year": 2020})
    sections = [(s.text.strip(), s.title, s.anchor) for s in parsed.sections]
    assert sections == [
        ("intro", "", ""),
        ("x", "Set", "set"),
        ("y", "Set › Deep", "deep"),
        ("quoted", "Empty", "empty"),
        ("# code", "Last c", "last-c"),
    ]
    parsed = parse_markdown("---\ntitle: Given\n---\n# Other\ntext\n## Bare\n")
    assert parsed.title == "Given"
    assert parsed.text.startswith("Other")
    assert [section.title for section in parsed.sections] == ["", "Other", "Other › Bare"]
    assert parsed.sections[2].text == "Bare"  # a heading without text is not lost
    parsed = parse_markdown('+++\ntitle = "Toml"\ndate = 2020-01-02\n+++\nx')
    assert (parsed.title, parsed.text, parsed.fields) == ("Toml", "x", {"date": date(2020, 1, 2)})


def test_nested_front_matter_is_fields_with_dots():
    front = "params:\n  level: 3\n  deep: {er: x}\ntags: [u]\n"
    fields = parse_markdown(f"---\n{front}---\nx").fields
    assert fields == {"params.level": 3, "params.deep.er": "x", "tags": ["u"]}
    front = "a0: &a0 1\n"
    for i in range(1, 9):  # 9 ** 8 fields
        members = ", ".join(f"k{member}: *a{i - 1}" for member in range(9))
        front += f"a{i}: &a{i} {{{members}}}\n"
    assert parse_markdown(f"---\n{front}---\nx").fields == {}


@pytest.mark.parametrize(
    "front",
    [
        "---\ntitle: Owls: a guide\n---\n",
        "---\r\ntitle: {{ page.title }}\r\n---\r\n",
        "---\ntitle: Bats\nauthor: @jo\ntags:\n  - a\n---\n",
        "---\na:\tb\n\tc: d\n...\n",
        "---\ntags: [a, b\n---\n",
        "---\n{% if x %}\ntitle: y\n{% endif %}\n---\n",
        "---\na: &a [*a]\n---\n",
        "---\nday: 2020-99-99\n---\n",
        '---\ntitle: "\\ud800"\n---\n',
        "---\na: " + "[" * 500 + "\n---\n",
        "+++\na = 1\na = 2\n+++\n",
        "+++\n[params]\na = b\n+++\n",
        "---\n" + "".join(f"f{n}: 1\n" for n in range(1_001)) + "---\n",
        "---\na: |\n" + "  words\n" * 9_000 + "---\n",
    ],
)
def test_a_flaw_in_front_matter_costs_the_fields_alone(tmp_path, front):
    (tmp_path / "a.md").write_bytes(f"{front}# Head\n\nBody".encode())
    with pytest.warns(LexiceptWarning, match=r"a\.md: ") as caught:
        assert list(read_documents(tmp_path)) == [Document("a.md", "Body", "Head")]
    assert f"{tmp_path}: 1 file read in part\n  1 front matter ignored: " in str(caught[0].message)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("---\ntitle: open\n\nBody", "title: open\n\nBody"),
        ("---\nA rule\n---\nBody", "A rule\n\nBody"),
        ("---\n- a\n- b\n\n---\nBody", "a\nb\n\nBody"),
        ("---\n---\nBody", "Body"),
    ],
)
def test_rules_are_no_front_matter(text, rendered):
    assert parse_markdown(text).text == rendered


def test_a_text_between_rules_is_kept(tmp_path):
    (tmp_path / "a.md").write_text("---\nOwls: they hoot: loud\n\nBy night.\n\n---\nBody")
    with pytest.warns(LexiceptWarning, match="front matter ignored"):
        (document,) = read_documents(tmp_path)
    assert document.text == "Owls: they hoot: loud\n\nBy night.\n\nBody"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("The _gearbox_, __clutch__ and ~~old~~ **a**b", ["The gearbox, clutch and old ab"]),
        ("caf&eacute; &#x41;&shy; max\\_speed \\{{ x }}", ["café A\xad max_speed {{ x }}"]),
        ("[top](#index) [r][x] [x] <https://a.b>\n\n[x]: http://c.d", ["top r x https://a.b"]),
        ('![An *owl*](a/b.png "t") <img src=x alt="a cat">', ["An owl a cat"]),
        ("`a_b *c*` soft\nline\\\nhard<br>e", ["a_b *c* soft line\nhard\ne"]),
        ("a<!-- x -->b <b id=x>c</b>d<script>e</script>f", ["ab cdf"]),
        ("```py title=x\na_1 = {{ _b_ }}\n\nc\n```\n\n    d_2", ["a_1 = {{ _b_ }}\n\nc", "d_2"]),
        ("| A | B |\n|---|:-:|\n| *c* | |", ["A\tB\nc\t"]),
        ("- [x] one\n- [ ] two\n  1. three\n\nfour", ["one\ntwo\nthree", "four"]),
        ("> [!NOTE]\n> text\n\n> [!tip]- Mine", ["text", "Mine"]),
        ("a[^1]\n\n[^1]: Foot\n[^b]: two\n  more", ["a", "Foot", "two more"]),
        ("b[^2] [^3] c\n\n[^2]: One\n\n    Two\n", ["b [^3] c", "One", "Two"]),
        ("`a <b>`{x}`c <d>`", ["a <b>c"]),
        ("{{ a }} b }} {{ c", ["b }} {{ c"]),
        ("# A {#b .c} d {.e #f}", [Heading(1, "A {#b .c} d", "f")]),
        ('{{< tabs "x" >}}\nin\n{{< /tabs >}}', ["in"]),
        ('a {{< n b="c_d_e*" >}}in{{< /n >}} {% if x %}kept{% endif %}', ["a in kept"]),
        ('{{< figure\n\n  src="lost.png" >}}\ntext', ["text"]),
        ("{{% note %}}noted{{% /note %}} {# gone #} {{ site.name }}", ["noted"]),
        ('see [the page]({{< ref "a b.md" >}}).', ["see the page."]),
        ("{% highlight rb %}\na_b *c*\n{% endhighlight %}", ["a_b *c*"]),
        (
            '!!! warning "Look *out*"\n    In **it**\n\n        code\n\nout',
            ["Look out", "In it", "code", "out"],
        ),
        ('=== "Tab"\n    one\n\n??? tip\n    two', ["Tab", "one", "Tip", "two"]),
        (
            "::: tip My title\nin [r]\n:::\n\n::: a.b\n    o: 1\n\n:::note[T]\n# B\n:::\n\n[r]: c",
            ["My title", "in r", "T", Heading(1, "B", "b")],
        ),
        (
            "```{note} Care\n:class: x\nSome *text* {ref}`label <goal>` {f}`x`\n```",
            ["Care", "Some text label x"],
        ),
        ("[[Page|label]] [[Other]] :material-check: 10:30:20", ["label Other  10:30:20"]),
        ("[b](x){ .button } [ ] {a} [!x]", ["b [ ] {a} [!x]"]),
        ("<div>\n<p>a<i>b</i></p>c<br>d</div>\n\n*e*", ["ab", "c", "d", "e"]),
        (
            "<h1 align=center>My <b>t</b>ool</h1>\n\n## Use `it` {#use .x}\n",
            [Heading(1, "My tool", "my-tool"), Heading(2, "Use it", "use")],
        ),
    ],
)
def test_markdown_is_read_as_it_is_shown(source, text):
    assert markdown_blocks(source) == text


# Without fences, whose languages are not shown.
@given(st.text("# -=\n>ab\t*_~+", max_size=60).filter(lambda text: "~~~" not in text))
def test_no_letter_of_markdown_is_lost(text):
    def letters(rendered):
        return [letter for letter in rendered if letter in "ab"]

    parsed = parse_markdown(text)
    blocks = markdown_blocks(text)
    spelled = [block if isinstance(block, str) else block.text for block in blocks]
    assert letters("".join(spelled)) == letters(text)
    found = "\n".join([parsed.title, *(f"{s.title}\n{s.text}" for s in parsed.sections)])
    assert all(section in found for section in spelled)


# reStructuredText


def test_restructured_text_and_its_sections(capfd):
    text = ".. _top:\n\n=====\nGears\n=====\n\n:orphan:\n:Author: Me\n\nintro\n\n"
    parsed = parse_restructured(
        text + "Use `it`\n--------\n\nx\n\nDeep\n~~~~\n\ny\n\nEmpty\n-----\n"
    )
    assert parsed.title == "Gears"
    assert parsed.sections == (
        Section("Author: Me\n\nintro"),
        Section("x", "Use it", "use-it"),
        Section("y", "Use it › Deep", "deep"),
        Section("Empty", "Empty", "empty"),
    )
    assert parse_restructured("====\nbad").text == "====\nbad"  # an error, but not lost
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("*em* **strong** ``co_de`` a_b caf\u00e9 \\*x", "em strong co_de a_b caf\u00e9 *x"),
        ("the manual_ `lab <http://a.b/c>`_\n\n.. _manual: http://oil.can", "the manual lab"),
        (
            ":ref:`gear-label` :py:func:`~a.b.fun` :doc:`The page </x>` `y`:sup:",
            "gear-label fun The page y",
        ),
        ("|version| nowhere_ `lost`_", "version nowhere lost"),
        ("See::\n\n    oil = 3_4\n\nend", "See:\n\noil = 3_4\n\nend"),
        (".. code-block:: python\n   :caption: no\n   :linenos:\n\n   def f(): *a", "def f(): *a"),
        (".. py:function:: foo(x)\n   :module: a\n\n   Does *it*.", "foo(x)\n\nDoes it."),
        (".. note::\n\n   Care\n\n.. unknown:: arg\n   :o: 1\n\n   body", "Care\n\narg\n\nbody"),
        (".. only:: html\n\n   in\n\n.. toctree::\n   :maxdepth: 2\n\n   a\n   b", "in"),
        (".. include:: /etc/passwd\n\n.. raw:: html\n\n   <b>no</b>\n\n.. comment\n\nx", "x"),
        (".. csv-table::\n   :file: /etc/passwd\n\nx", "x"),
        ("==== ====\nA    B\n==== ====\n1    *2*\n==== ====", "A\tB\n\n1\t2"),
        ("- one\n- two\n\n  three\n\nTerm\n   Meaning", "one\n\ntwo\n\nthree\n\nTerm\n\nMeaning"),
        (
            ".. image:: a.png\n   :alt: An owl\n\n.. figure:: b.png\n\n   Caption",
            "An owl\n\nCaption",
        ),
        (".. |o| replace:: owls\n\n|o| hoot [1]_\n\n.. [1] Foot", "owls hoot 1\n\nFoot"),
        (".. role:: loud\n\n:loud:`hey`", "hey"),
    ],
)
def test_restructured_text_is_read_as_it_is_shown(source, text):
    assert parse_restructured(source).text == text


def test_docutils_is_left_as_it_was():
    directives = import_module("docutils.parsers.rst.directives")
    before = dict(directives._directives)
    parse_restructured(".. my-own::\n\n   x\n\n:mine:`y`")
    assert directives._directives == before


# Notebooks and HTML


def test_notebooks_are_their_cells(tmp_path):
    code = {"cell_type": "code", "source": ["import owls\n", "owls.hoot()"], "outputs": [{"o": 1}]}
    cells = [
        {"cell_type": "markdown", "source": ["# Owls\n", "*At* night\n"]},
        code,
        {"cell_type": "raw", "source": "raw"},
        {"cell_type": "markdown", "source": "## Food &amp; drink\n\nMice"},
    ]
    sections = (
        Section("At night\n\nimport owls\nowls.hoot()"),
        Section("Mice", "Food & drink", "food--drink"),
    )
    text = "At night\n\nimport owls\nowls.hoot()\n\nFood & drink\n\nMice"
    new = parse_notebook(json.dumps({"cells": cells}))
    assert new == Parsed(text, "Owls", sections)
    # nbformat 3
    cells[0] = {"cell_type": "heading", "level": 1, "source": ["Owls"]}
    cells[1] = {"cell_type": "code", "input": ["At night\n\n", *code["source"]]}
    assert parse_notebook(json.dumps({"worksheets": [{"cells": cells}]})) == new
    damaged = {"a": "{", "b": "[]", "c": "3", "d": '{"cells": 1}', "e": '{"cells": [{}]}'}
    damaged |= {"f": '{"cells": [{"cell_type": "code", "source": 1}]}', "g": "[" * 100_000}
    files = {f"{name}.ipynb": config for name, config in damaged.items()}
    files |= {"h.ipynb": json.dumps({"cells": []}), "i.ipynb": json.dumps({"cells": [code]})}
    for name, data in files.items():
        (tmp_path / name).write_text(data)
    with pytest.warns(UserWarning, match="can't be read: ") as warned:
        assert [document.id for document in read_documents(tmp_path)] == ["i.ipynb"]
    (message,) = [str(warning.message) for warning in warned]
    assert "7 unreadable: " in message
    assert "1 empty: h.ipynb" in message
    single = tmp_path / "i.ipynb"
    assert next(read_documents(single)).text == "import owls\nowls.hoot()"


def test_html_and_its_encoding():
    page = """<html><head><title> My  page</title><style>x{}</style></head><body><nav>menu</nav>
    <p>a<b>b</b>c</p>tail<div>One<p>two</p>three</div><h1>My page</h1><p>intro &lt;x&gt;
    <h2>Sub <i>y</i></h2><ul><li>l1<li>l2</ul><script>evil</script><h3>Deep</h3>z"""
    parsed = parse_html("a.html", page.encode())
    assert parsed.title == "My page"
    assert parsed.sections == (
        Section("abc\n\ntail\n\nOne\n\ntwo\n\nthree"),
        Section("intro <x>", "", "my-page"),
        Section("l1\n\nl2", "Sub y", "sub-y"),
        Section("z", "Sub y › Deep", "deep"),
    )
    assert parse_html("a.html", b"<meta charset=nonsense>x").text == "x"


# PDF


def test_a_pdf_has_pages_and_no_placeholder_as_title(tmp_path):
    write_pdf(tmp_path / "a.pdf", [OWLS, EAGLES], "Birds of  prey")
    (document,) = read_documents(tmp_path / "a.pdf")
    assert (document.id, document.title) == ("a.pdf", "Birds of prey")
    assert [(p.anchor, p.title) for p in document.passages] == [
        ("page=1", "page 1"),
        ("page=2", "page 2"),
    ]
    assert " ".join(document.passages[1].text.split()) == EAGLES.strip()
    for title in ("(anonymous)", "Untitled"):
        write_pdf(tmp_path / "a2.pdf", ["Owls."], title)
        assert read_one(str(tmp_path / "a2.pdf"), "a").title == ""


def test_pdfs_without_text(tmp_path):
    write_pdf(tmp_path / "locked.pdf", ["secret"], password="x")
    write_pdf(tmp_path / "open.pdf", ["open"], password="")
    write_pdf(tmp_path / "blank.pdf", [""])
    assert read_one(str(tmp_path / "open.pdf"), "a").text == "open"
    for name, reason in (("locked", "encrypted"), ("blank", "without text")):
        with pytest.raises(NothingToRead, match=reason):
            read_one(str(tmp_path / f"{name}.pdf"), "a")
    with pytest.raises(InputError, match=r"locked\.pdf: nothing to read: encrypted"):
        list(read_documents(tmp_path / "locked.pdf"))


def test_the_time_for_a_file_is_bounded(tmp_path, monkeypatch):
    """Texts that take a tenth of a second each or more, and files after them."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = {
        "emphasis.md": "*a **a " * 4_000,
        "lines.md": "> a\n\n" * 20_000,
        "cells.ipynb": json.dumps(
            {"cells": [{"cell_type": "markdown", "source": "_a_ " * 30_000}]}
        ),
        "marks.rst": "*a* " * 20_000,
        "lines.rst": "a\n\n" * 20_000,
        "blocks.html": "<p>a" * 50_000,
        "headings.md": "# a\n\n" + "words " * 250 + "\n\n# a\n\nb\n\n" * 4_000,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(budgets, "RECORDS", 20_000)
    parquet.write_table(pyarrow.table({"text": ["a"] * 20_000}), tmp_path / "rows.parquet")
    write_pdf(tmp_path / "pages.pdf", ["Owls hunt at night. " * 500] * 4)
    (tmp_path / "z.txt").write_text("good")
    monkeypatch.setattr(budgets, "SECONDS", 0.02)
    monkeypatch.setattr(budgets, "BYTES_A_SECOND", 2**40)
    with pytest.warns(LexiceptWarning) as caught:
        documents = [d for d in read_documents(tmp_path) if ".parquet#" not in d.id]
    assert [document.text for document in documents] == ["good"]
    assert "9 slow, over 0 seconds of processor time: " in str(caught[0].message)


def test_a_record_over_the_time_is_an_error_of_that_record(tmp_path, monkeypatch):
    def slow():
        raise NothingToRead("slow")

    monkeypatch.setattr("lexicept.corpora.passages.check_time", slow)
    records = [{"text": text} for text in ("cats", "long " * 300, "owls")]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    skipped = Skipped("", KINDS)
    assert list(by_id(tmp_path, skipped)) == ["a.jsonl#1", "a.jsonl#3"]
    assert skipped.errors == [f"{tmp_path / 'a.jsonl'}, line 2: slow"]


# Folders


def test_a_file_that_goes_during_the_walk_ends_nothing(tmp_path, monkeypatch):
    for name in ("a.txt", "b.part"):
        (tmp_path / name).write_text("owls")
    look = os.stat

    def stat(path, **more):
        if str(path).endswith("b.part"):
            Path(path).unlink(missing_ok=True)
        return look(path, **more)

    monkeypatch.setattr("lexicept.corpora.folder.os.stat", stat)
    assert list(by_id(tmp_path, Skipped("", KINDS))) == ["a.txt"]


def by_id(path: Path, skipped: Skipped | None = None) -> dict[str, Document]:
    records = Folder(path, skipped or Skipped("", KINDS)).documents()
    return {document.id: document for document in checked(records, skipped)}


def test_records_of_files_have_ids_below_it(tmp_path):
    (tmp_path / "a.csv").write_bytes("id,text\nx y,eins\nb,größer\n".encode("latin-1"))
    (tmp_path / "b.csv").write_bytes("ID,Text\nc,breit\n".encode("utf-16"))
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b'{"text":"one"}\n\n{"text":"two"}'))
    (tmp_path / "d#e.json").write_text(json.dumps({"text": "all\nof it", "n": 1}, indent=1))
    (tmp_path / "f.json").write_text('[{"text":"p"},{"id":"q","text":"q"}]')
    (tmp_path / "g.tsv").write_text("id\ttext\tyear\nr\tred\t2020\ns\tsea\t\n")
    pd.DataFrame({"text": ["row"]}).to_parquet(tmp_path / "h.parquet")
    skipped = Skipped("", KINDS)
    result = by_id(tmp_path, skipped)
    texts = {name: document.text for name, document in result.items()}
    assert texts == {
        **{"a.csv#x%20y": "eins", "a.csv#b": "größer", "b.csv#c": "breit"},
        **{"c.jsonl.gz#1": "one", "c.jsonl.gz#3": "two"},
        **{"d%23e.json#1": "all\nof it", "f.json#1": "p", "f.json#q": "q"},
        **{"g.tsv#r": "red", "g.tsv#s": "sea", "h.parquet#1": "row"},
    }
    assert result["g.tsv#r"].fields == {"year": 2020}
    assert skipped.errors == []


def test_what_is_skipped_has_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "LARGEST", 50)
    write_files(tmp_path / "files" / ".git")
    root = tmp_path / "files"
    for name, data in {
        **{"a.txt": b"x", "large.txt": b"x" * 51, "binary.txt": b"\0\1\2"},
        **{"large.csv": b"id,text\n1," + b"x" * 50, "none.csv": b"id,text\n"},
        **{"noise.txt": bytes(range(1, 32)), "void.html": b"<p></p>"},
    }.items():
        (root / name).write_bytes(data)
    (root / "index").mkdir()
    (root / "index" / "a.md").write_text("x")
    skipped = Skipped("", KINDS)
    reading = Folder(root, skipped, [root / "index"])
    assert [d.id for d in checked(reading.documents(), skipped)] == ["a.txt", "large.csv#1"]
    assert set(reading.checksums) == {"a.txt", "large.csv"}
    assert dict(skipped.files) == {
        **{".git": "hidden", "index": "an index", "void.html": "empty", "none.csv": "empty"},
        **{"binary.txt": "binary", "noise.txt": "binary", "large.txt": "larger than 0 MiB"},
    }


def test_packages_that_are_missing(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "b.parquet").write_bytes(b"x")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    skipped = Skipped("", KINDS)
    assert list(by_id(tmp_path, skipped)) == ["a.txt"]
    needed = "unreadable: pyarrow missing: pip install 'lexicept[parquet]'"
    assert skipped.files == [("b.parquet", needed)]
    with pytest.raises(InputError, match="pyarrow missing: pip install"):
        list(read_documents(tmp_path / "b.parquet"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.txt").chmod(0)
    with pytest.raises(InputError, match=r"a\.txt: cannot be read: .*Permission denied"):
        by_id(tmp_path)


# Objects of other libraries


def test_hugging_face_data_sets():
    datasets = pytest.importorskip("datasets")
    records = {"id": ["a", "b"], "text": ["one", "two"], "title": ["T", None], "n": [1, 2]}
    data = datasets.Dataset.from_dict(records)
    expected = [Document("a", "one", "T", {"n": 1}), Document("b", "two", "", {"n": 2})]
    assert list(as_documents(data)) == expected
    assert list(as_documents(data.to_iterable_dataset())) == expected
    with pytest.raises(InputError, match="choose one of its splits: train"):
        list(as_documents(datasets.DatasetDict({"train": data})))
    with pytest.raises(InputError, match="has no column 'text', only: id, title, n"):
        list(as_documents(data.remove_columns("text")))


def test_long_records_of_a_folder_are_cut_as_files_are(tmp_path):
    long = "Owls hunt at night. " * 60
    own = {"id": "own", "passages": [{"text": long}, "A short one."]}
    records = [{"id": "long", "text": long, "year": 2020}, {"id": "short", "text": "Owls."}, own]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "b.csv").write_text(f"id,text\n7,{long}\n")
    documents = {document.id: document for document in read_documents(tmp_path)}
    assert {name: len(document.passages) for name, document in documents.items()} == {
        **{"a.jsonl#long": 2, "a.jsonl#short": 0, "a.jsonl#own": 2, "b.csv#7": 2}
    }
    assert documents["a.jsonl#long"].fields == {"year": 2020}
    assert documents["a.jsonl#long"].text.split() == long.split()
    assert [document.anchor for document in documents["b.csv#7"].passages] == ["1", "2.2"]
    (alone,) = read_documents(tmp_path / "b.csv")
    assert alone.passages == ()

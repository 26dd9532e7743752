"""The command line: output, exit codes, and one line for every error."""

import json
import os
import re
import shlex
import subprocess

import pytest

import lexicept
from lexicept.index.impacts import VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.weighting import Splade
from support.collections import write_beir
from support.commands import assert_error
from support.indexes import build
from support.processes import command


@pytest.fixture
def beir(tmp_path):
    """Three documents, two judged queries and one without judgement."""
    documents = {"d1": "apple banana", "d2": "apple", "d3": "cherry"}
    queries = {"q1": "apple", "q2": "cherry", "q3": "banana"}
    qrels = {"test": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td3\t1\n"}
    return write_beir(tmp_path / "beir", documents, queries, qrels)


def test_build(beir, tmp_path, run):
    built = run("build", beir, "--vocabulary", "words", "--out", tmp_path / "x", "--json").json
    assert (built["documents"], built["postings"], built["rra"]) == (3, 4, None)
    (words,) = built["vocabularies"]
    assert (words["name"], words["size"], words["pruning"]) == ("words", 3, "impact")
    bm25 = {"name": "bm25", "k1": 1.5, "b": 0.75, "k3": None}
    assert words["weighting"] == {**bm25, "query_exponent": 1.0, "query_scale": 1.0}
    assert run("index", "info", tmp_path / "x", "--json").json == built
    assert "3 dimensions, bm25 k1 1.5, b 0.75" in run("index", "info", tmp_path / "x").out
    files = [p for p in (tmp_path / "x" / "generation-000001").rglob("*") if p.is_file()]
    assert built["bytes"] == sum(p.stat().st_size for p in files)


def test_search(index, run):
    hits = run("search", index, "apples banana", "--explain", "--json").json
    assert hits["query"] == "apples banana"
    first, second = hits["results"]
    assert (first["rank"], first["id"], first["text"]) == (1, "d1", "apple banana")
    assert (second["rank"], second["id"]) == (2, "d2")
    banana, apple = first["contributions"]
    assert (banana["vocabulary"], banana["term"], apple["term"]) == ("words", "banana", "appl")
    # Shares are those of the idfs, ln(1 + 2.5 / 1.5) and ln(1 + 1.5 / 2.5).
    assert banana["share"] == pytest.approx(0.9808293 / (0.9808293 + 0.4700036), rel=1e-6)
    assert [c["share"] for c in second["contributions"]] == [pytest.approx(1)]
    table = run("search", index, "apples banana", "--explain").out
    assert "68% banana  word" in table
    assert "32% apples  word  apple" in table
    assert "100% apples  word  apple" in table
    table = run("search", index, "apples").out
    assert "0.212" in table
    assert table.index("d2") < table.index("d1")


def test_explain_one_document(index, tmp_path, run):
    explanation = run("explain", index, "apples, bananas", "d1", "--json").json
    assert (explanation["query"], explanation["document_id"]) == ("apples, bananas", "d1")
    assert (explanation["content"], explanation["prior"]) == ("apple banana", 0)
    banana, apple = explanation["contributions"]
    assert (banana["query_spans"], banana["document_spans"]) == ([[8, 15]], [[6, 12]])
    assert explanation["score"] == pytest.approx(banana["score"] + apple["score"])
    output = run("explain", index, "apples, bananas", "d1").out
    assert "67.6%" in output
    assert "bananas" in output
    page = tmp_path / "page.html"
    assert run("explain", index, "<b>apples", "d1", "--out", page) == (0, "", "")
    assert "&lt;b&gt;<mark>apples</mark>" in page.read_text()
    assert_error(run("explain", index, "apple", "d9"), "no document 'd9'")
    refused = run("explain", index, "apple", "d1", "--vocabulary", "concepts")
    assert_error(refused, "no concepts, only words")


def test_no_results(index, run):
    assert run("search", index, "zebra", "--json").json == {
        "query": "zebra",
        "unmatched_words": ["zebra"],
        "weak": False,
        "note": "no document contains: zebra",
        "did_you_mean": "",
        "added": [],
        "facets": {},
        "results": [],
    }
    assert run("search", index, "").out.startswith("no results")


def test_filters_and_counts(tmp_path, run):
    records = [
        {"id": "a", "text": "apple", "year": 2019, "tag": ["red", "old"]},
        {"id": "b", "text": "apple pie", "year": 2021, "tag": ["red"]},
        {"id": "c", "text": "cherry", "year": 2021},
    ]
    index = lexicept.build(records, tmp_path / "index", vocabulary="words").path
    assert "tag: list of keywords" in run("index", "info", index).out
    options = ("--filter", "year > 2020", "--facet", "tag")
    hits = run("search", index, "apple", *options, "--json").json
    assert hits["results"][0]["fields"] == {"year": 2021, "tag": ["red"]}
    assert hits["facets"] == {"tag": [{"value": "red", "documents": 1}]}
    table = run("search", index, "apple", "--facet", "tag").out
    assert "year 2019 · tag red, old" in table
    assert re.search(r"tag +2 +red", table)
    nothing = run("search", index, "cherry", "--filter", "tag = 'red'")
    assert nothing.out.startswith("no results")
    assert "no document that meets the conditions has a word" in nothing.err
    refused = run("search", index, "apple", "--filter", "year >")
    assert_error(refused, "filter at character 7: expected a number")


@pytest.mark.usefixtures("_vowels")
def test_pruning_is_shown(tmp_path, run):
    build(tmp_path / "x", {"d": "apple", "e": "owl"}, concepts=VocabularySettings(Splade(), 1, 2))
    lines = [line.split() for line in run("index", "info", tmp_path / "x").out.splitlines()]
    assert ["at", "most", "1", "in", "a", "query"] in lines
    assert ["at", "most", "2", "in", "a", "document"] in lines
    hits = run("search", tmp_path / "x", "apple", "--explain", "--vocabulary", "all").out
    assert "apple  word" in hits
    assert "a  meaning" in hits
    alone = run("search", tmp_path / "x", "apple", "--explain", "--vocabulary", "concepts").out
    assert "apple  word" not in alone
    assert "100% a  meaning" in alone


def test_evaluate(index, beir, tmp_path, run):
    report = run("evaluate", index, beir, "--json", "--measure", "P@1").json
    assert (report["queries"], report["ignore_identical_ids"]) == (2, False)
    assert (report["comparisons"], list(report["systems"])) == ([], ["words"])
    # q1 finds d1 second, q2 finds d3 first.
    assert report["systems"]["words"]["values"]["P@1"] == pytest.approx(0.5)
    output = run("evaluate", index, beir, "--ignore-identical-ids").out
    assert "2 queries, without hits of the query's own id" in " ".join(output.split())
    assert "e2: RR@10 minus a penalty for cost: E² = RR@10 − 0.01 F − 0.09" in output
    assert "delta_e2: e2 minus that of BM25 (k1 1.5, b 0.75)" in output
    assert "differences" not in output
    # Against a run that is right: differences .369 and 0, so that t = 1.
    best = tmp_path / "best.txt"
    best.write_text("q1 Q0 d1 1 2 x\nq2 Q0 d3 1 2 x\n")
    output = run("evaluate", index, beir, "--system", "words", "--system", best).out
    assert "differences from words" in output
    assert "best.txt  +0.1845 ±2.3447" in output


def test_evaluate_with_rra_counts_the_offset(index, beir, run):
    out = index.with_name("rra")
    assert run("index", "reweight", index, "--out", out, "--alpha", "1").code == 0
    report = run("evaluate", out, beir, "--json").json["systems"]["words"]["values"]
    assert report["qd_flops"] == pytest.approx(0.5)
    assert report["qd_flops_with_offset"] == pytest.approx(1.5)
    # ΔE² is against BM25, not against the index's own weights.
    assert report["delta_e2"] == pytest.approx(report["e2"] - 0.744994447, abs=1e-8)


def test_update_and_delete(index, tmp_path, run):
    more = tmp_path / "more.jsonl"
    more.write_text('{"_id": "d3", "text": "quince"}\n{"_id": "d4", "text": "apple quince"}\n')
    assert run("add", index, more, "--json").json == {"added": 1, "replaced": 1}
    ids = [r["id"] for r in run("search", index, "quince", "--json").json["results"]]
    assert ids == ["d3", "d4"]
    assert run("search", index, "cherry", "--json").json["results"] == []
    assert run("delete", index, "d4", "d1", "--json").json == {"deleted": 2}
    assert run("index", "info", index, "--json").json["documents"] == 2
    assert run("add", index, more).out.split() == ["added", "1", "replaced", "1"]


def test_rra(index, run):
    fixed = index.with_name("fixed")
    arguments = ("index", "reweight", index, "--out", fixed, "--alpha", "1.25", "--iterations", "2")
    assert run(*arguments, "--json").json == {"alpha": 1.25}
    settings = {"alpha": 1.25, "iterations": 2, "transform": "1+x"}
    assert run("index", "info", fixed, "--json").json["rra"] == settings
    assert "alpha 1.25, iterations 2, transform 1+x" in run("index", "info", fixed).out
    assert_error(run(*arguments), "exists already")
    for alpha, code in (("abc", 2), ("", 2), ("0", 1)):
        assert_error(run("index", "reweight", index, f"--alpha={alpha}"), "alpha", code=code)
    # Without --out the index itself changes.
    assert run("index", "reweight", index, "--json").json == {"alpha": 1.0}
    assert run("index", "info", index, "--json").json["rra"]["alpha"] == 1.0


# Bad input.


def test_what_build_refuses(beir, tmp_path, run):
    def build(out, *arguments):
        return run("build", beir, "--vocabulary", "words", "--out", tmp_path / out, *arguments)

    (tmp_path / "file").write_text("precious")
    assert_error(build("file"), "exists already")
    assert_error(build("file/x"), "file")
    assert_error(build("/proc/nowhere/x"), "/proc/nowhere")
    assert (tmp_path / "file").read_text() == "precious"
    # Parameters in messages have the names of options.
    assert_error(build("x", "--query-max-active-dims", 1), "--query-max-active-dims requires conc")
    assert_error(build("x", "--width", 5), "--width requires --sae")
    assert not (tmp_path / "x").exists()
    assert build("a/new/parent").code == 0


def test_what_is_no_index(index, beir, tmp_path, run):
    damaged = index / "generation-000001" / "parts" / "000001" / "titles.offsets.npy"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    for path in (index, beir / "corpus.jsonl", tmp_path / "missing"):
        assert_error(run("search", path, "apple"), path.name)
    for arguments in (
        ("index", "info", beir),
        ("evaluate", beir, beir),
        ("add", beir, beir),
        ("delete", beir, "d1"),
        ("index", "reweight", beir, "--out", tmp_path / "out"),
    ):
        assert_error(run(*arguments), "beir")
    assert not (tmp_path / "out").exists()


def test_verify_names_what_is_wrong(index, run):
    whole = run("index", "verify", index)
    assert whole.code == 0
    assert whole.out.endswith("files, no problems\n")
    text = index / "generation-000001" / "parts" / "000001" / "texts.bin"
    text.write_bytes(text.read_bytes().replace(b"cherry", b"CHERRY"))
    damaged = run("index", "verify", index)
    message = "the content of generation-000001/parts/000001/texts.bin does not match its checksum"
    assert (damaged.code, damaged.out.splitlines()[0]) == (1, message)
    assert damaged.out.endswith("files, 1 problems\n")
    as_json = run("index", "verify", index, "--json")
    assert (as_json.code, json.loads(as_json.out)["problems"]) == (1, [message])


def test_bugs_keep_their_traceback(monkeypatch, run, index):
    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(IndexReader, "search", broken)
    with pytest.raises(ZeroDivisionError):
        run("search", index, "apple")


# Documents that speak to the terminal.

MARKUP = "[bold]x[/bold] [/nope] :cat: [link=http://evil]y[/link] \\[z]"


def test_markup_and_control_characters_of_documents(tmp_path, monkeypatch, run):
    escapes = "\x1b[31mred\x1b]0;owned\x07 \x9b31m \x08\x00\x7f \u202emirrored"
    corpus = tmp_path / "corpus.jsonl"
    record = {
        "_id": "\x1b[2J[i]",
        "title": f"{MARKUP} {escapes}",
        "text": f"cat {MARKUP} {escapes}",
    }
    corpus.write_text(json.dumps(record) + "\n")
    index = tmp_path / "[red]:dog:"
    assert run("build", corpus, "--vocabulary", "words", "--out", index).code == 0
    results = [
        run("search", index, "cat [bold]b[/bold] :cat: \x1b[1m", "--explain"),
        run("search", index, "cat", "--explain", "--json"),
        run("index", "info", index),
        run("explain", index, "cat \x1b[1m", record["_id"]),
    ]
    for result in results:
        assert result.code == 0
        assert not set(result.out) & {*map(chr, (*range(10), *range(11, 32), *range(127, 160)))}
    output = results[0].out
    assert output.count(MARKUP) == 2
    assert "cat [bold]b[/bold] :cat:" in output
    assert "\u202e" not in output
    assert "[31mred" in output
    assert "[red]:dog:" in results[2].out
    assert results[3].out.count(MARKUP) == 2
    assert "\u202e" not in results[3].out
    # As JSON the text is whole.
    assert json.loads(results[1].out)["results"][0]["text"] == record["text"]

    # A terminal gets colours, but none that the document chose.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = run("search", index, "cat").out
    assert "\x1b[1m" in coloured
    for escape in ("\x1b[31m", "\x1b]", "\x1b[2J", "\x9b"):
        assert escape not in coloured


def test_output_that_takes_no_unicode(tmp_path):
    lexicept.build([{"id": "d", "text": "cat 猫 😀"}], tmp_path / "index", vocabulary="words")
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    searched = command("search", tmp_path / "index", "cat")
    hits = subprocess.run(searched, capture_output=True, env=plain)
    assert hits.returncode == 0, hits.stderr
    assert b"cat" in hits.stdout


def test_a_closed_pipe_is_no_error(index):
    read, write = os.pipe()
    os.close(read)
    searched = command("search", index, "apple", "--json")
    done = subprocess.run(searched, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert b"Traceback" not in done.stderr
    subprocess.run(["sh", "-c", f"exec {shlex.join(map(str, searched))} >&- 2>&-"], check=True)


# Documents that are skipped


def test_skipped_documents_are_listed(index, tmp_path, run):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("cats")
    (corpus / "c.pdf").write_text("x")
    build = ("build", corpus, "--vocabulary", "words", "--out", tmp_path / "x")
    for reading in (build, ("add", index, corpus)):
        assert_error(run(*reading, "--strict"), f"{corpus / 'c.pdf'}: unreadable: can't be read: ")
        result = run(*reading)
        assert result.code == 0
        assert f"warning: {corpus}: 1 file skipped" in result.err
    assert run("index", "info", tmp_path / "x", "--json").json["documents"] == 1


# Terminals


def test_no_name_commands_the_terminal(tmp_path, run):
    """ESC of a file's name or an id, in errors, warnings and JSON."""
    corpus = tmp_path / "red\x1b[31m.jsonl"
    corpus.write_text('{"id": "a\\u001b[31m\\u202e\\u009b", "text": "x"}\n{"id": 1}\n')
    result = run("build", corpus, "--vocabulary", "words", "--strict", "--out", tmp_path / "x")
    assert_error(result, "red\ufffd[31m.jsonl, line 2: ")
    assert "\x1b" not in result.err
    corpus.write_text(corpus.read_text().splitlines()[0])
    out = tmp_path / "\x1b[31m"
    assert run("build", corpus, "--vocabulary", "words", "--out", out).code == 0
    for arguments in (("search", out, "x", "--json"), ("index", "verify", out)):
        output = run(*arguments)
        assert not {"\x1b", "\x9b", "\u202e"} & set(output.out + output.err), arguments


def test_an_interrupted_build_says_that_the_same_command_resumes(beir, tmp_path, monkeypatch, run):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lexicept.index.builder.write_tf", interrupt)
    done = run("build", beir, "--vocabulary", "words", "--out", tmp_path / "x")
    assert (done.code, done.out) == (130, "")
    note = "interrupted: the same command resumes, with nothing kept"
    assert done.err.splitlines()[-1] == note


def test_a_condition_alone_is_explained_by_nothing(tmp_path, run):
    record = {"id": "a", "text": "ant", "year": 2001}
    index = lexicept.build([record], tmp_path / "index", vocabulary="words").path
    hits = run("search", index, "year:2001", "--explain")
    lines = ["year:2001", "1  0.000  a", "          year 2001", "          ant"]
    assert (hits.code, hits.out.splitlines()) == (0, lines)
    explained = run("explain", index, "year:2001", "a")
    assert (explained.code, explained.out.splitlines()[1]) == (0, "0.0000")
    assert run("explain", index, "year:2001", "a", "--out", tmp_path / "a.html").code == 0


def test_piped_output_is_neither_padded_nor_wrapped(tmp_path, monkeypatch, run):
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    text = "spring water " * 18
    corpus.write_text(json.dumps({"id": "a", "text": text}) + "\n")
    assert run("build", corpus, "--vocabulary", "words", "--out", index).code == 0
    monkeypatch.setenv("COLUMNS", "40")
    query = "water " * 30 + "zebra"
    hits = run("search", index, query)
    assert hits.out == f"{query}\n1  7.967  a\n          {text.strip()}\n"
    assert hits.err.endswith("no document contains: zebra\n")
    for arguments in (("index", "info", index), ("explain", index, "water", "a")):
        lines = run(*arguments).out.splitlines()
        assert [line for line in lines if line != line.rstrip()] == []
    line = run("index", "info", index).out.splitlines()[2]
    assert line == "words      2 dimensions, bm25 k1 1.5, b 0.75"
    assert text.strip() in run("explain", index, "water", "a").out.splitlines()[-1]

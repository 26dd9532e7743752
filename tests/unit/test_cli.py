"""The command line: output, exit codes, and one line for every error."""

import json
import os
import re
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
    assert built["documents"] == 3
    assert built["postings"] == 4
    assert built["rra"] is None
    assert built["vocabularies"] == [
        {
            "name": "words",
            "size": 3,
            "weighting": {
                "name": "bm25",
                "k1": 1.5,
                "b": 0.75,
                "k3": None,
                "query_exponent": 1.0,
                "query_scale": 1.0,
            },
            "query_max_active_dims": None,
            "document_max_active_dims": None,
            "query_max_qd_flops": None,
            "pruning": "impact",
            "adapted": None,
        }
    ]
    assert run("index", "info", tmp_path / "x", "--json").json == built
    table = run("index", "info", tmp_path / "x").out
    assert "3 dimensions, bm25 k1 1.5, b 0.75" in table
    files = [p for p in (tmp_path / "x" / "generation-000001").rglob("*") if p.is_file()]
    assert built["bytes"] == sum(p.stat().st_size for p in files)


def test_search(index, run):
    # idf ln(1 + 1.5 / 2.5); lengths 2, 1, 1, mean 4 / 3; d2: 1 + 1.5 (0.25 + 0.75 · 3 / 4).
    hits = run("search", index, "apples", "--json").json
    assert hits["query"] == "apples"
    assert [(hit["rank"], hit["id"]) for hit in hits["results"]] == [(1, "d2"), (2, "d1")]
    assert hits["results"][0]["score"] == pytest.approx(0.4700036 / 2.21875, rel=1e-6)
    assert hits["results"][1]["score"] == pytest.approx(0.4700036 / 3.0625, rel=1e-6)
    assert hits["results"][1]["text"] == "apple banana"
    table = run("search", index, "apples").out
    assert "0.212" in table
    assert table.index("d2") < table.index("d1")


def test_explain(index, run):
    hits = run("search", index, "apples banana", "--explain", "--json").json["results"]
    assert [hit["id"] for hit in hits] == ["d1", "d2"]
    contributions = hits[0]["contributions"]
    assert [(c["vocabulary"], c["term"]) for c in contributions] == [
        ("words", "banana"),
        ("words", "appl"),
    ]
    assert sum(c["score"] for c in contributions) == pytest.approx(hits[0]["score"], rel=1e-6)
    # Shares are those of the idfs, ln(1 + 2.5 / 1.5) and ln(1 + 1.5 / 2.5).
    assert contributions[0]["share"] == pytest.approx(0.9808293 / (0.9808293 + 0.4700036), rel=1e-6)
    assert [c["share"] for c in hits[1]["contributions"]] == [pytest.approx(1)]
    table = run("search", index, "apples banana", "--explain").out
    assert "68% banana  word" in table
    assert "32% apples  word  apple" in table
    assert "100% apples  word  apple" in table


def test_explain_one_document(index, tmp_path, run):
    explanation = run("explain", index, "apples, bananas", "d1", "--json").json
    assert (explanation["query"], explanation["document_id"]) == ("apples, bananas", "d1")
    assert (explanation["content"], explanation["prior"]) == ("apple banana", 0)
    assert explanation["similarity"] == 0
    banana, apple = explanation["contributions"]
    assert (banana["term"], banana["query_spans"], banana["document_spans"]) == (
        "banana",
        [[8, 15]],
        [[6, 12]],
    )
    assert banana["score"] == banana["query_weight"] * banana["document_weight"]
    assert explanation["score"] == pytest.approx(banana["score"] + apple["score"])
    output = run("explain", index, "apples, bananas", "d1").out
    assert "67.6%" in output
    assert "bananas" in output
    page = tmp_path / "page.html"
    assert run("explain", index, "<b>apples", "d1", "--out", page) == (0, "", "")
    assert "&lt;b&gt;<mark>apples</mark>" in page.read_text()
    assert_error(run("explain", index, "apple", "d9"), "no document 'd9'")
    assert_error(
        run("explain", index, "apple", "d1", "--vocabulary", "concepts"), "no concepts, only words"
    )


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
    lines = [
        {"id": "a", "text": "apple", "year": 2019, "tag": ["red", "old"]},
        {"id": "b", "text": "apple pie", "year": 2021, "tag": ["red"]},
        {"id": "c", "text": "cherry", "year": 2021},
    ]
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("\n".join(map(json.dumps, lines)))
    built = run("build", corpus, "--vocabulary", "words", "--out", tmp_path / "x", "--json").json
    assert built["fields"] == {"year": "number", "tag": "list of keywords"}
    assert "tag: list of keywords" in run("index", "info", tmp_path / "x").out
    options = ("--filter", "year > 2020", "--facet", "tag", "--facet", "year")
    hits = run("search", tmp_path / "x", "apple", *options, "--json").json
    assert [(hit["id"], hit["fields"]) for hit in hits["results"]] == [
        ("b", {"year": 2021, "tag": ["red"]})
    ]
    assert hits["facets"] == {
        "tag": [{"value": "red", "documents": 1}],
        "year": [{"value": 2021, "documents": 1}],
    }
    table = run("search", tmp_path / "x", "apple", "--facet", "tag").out
    assert "year 2019 · tag red, old" in table
    assert re.search(r"tag +2 +red", table)
    nothing = run("search", tmp_path / "x", "cherry", "--filter", "tag = 'red'")
    assert nothing.out.startswith("no results")
    assert "no document that meets the conditions has a word" in nothing.err
    assert_error(
        run("search", tmp_path / "x", "apple", "--filter", "year >"),
        "filter at character 7: expected a number",
    )
    assert_error(run("search", tmp_path / "x", "apple", "--facet", "colour"), "no field 'colour'")


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


def test_evaluate(index, beir, run):
    report = run("evaluate", index, beir, "--json", "--measure", "P@1").json
    assert (report["queries"], report["ignore_identical_ids"]) == (2, False)
    assert (report["comparisons"], list(report["systems"])) == ([], ["words"])
    # q1 finds d1 second, q2 finds d3 first; q1 shares a word with two documents, q2 with one.
    assert report["systems"]["words"]["values"] == {
        "nDCG@10": pytest.approx((0.6309297535714575 + 1) / 2),
        "RR@10": pytest.approx(0.75),
        "R@100": pytest.approx(1),
        "Success@5": pytest.approx(1),
        "P@1": pytest.approx(0.5),
        "qd_flops": pytest.approx(0.5),
        "query_length": pytest.approx(1),
        "document_length": pytest.approx(4 / 3),
        "e2": pytest.approx(0.744994447, rel=1e-8),  # 0.75 − 0.005 − 0.09 · ln(1 + e⁻⁹) / 2
        "delta_e2": 0,
    }
    # Of 1/2 and 1: the mean ± 12.7062 (Student's t, one degree of freedom) / 4.
    assert report["systems"]["words"]["intervals"]["RR@10"] == [
        pytest.approx(0.75 - 12.706204736 / 4),
        pytest.approx(0.75 + 12.706204736 / 4),
    ]
    output = run("evaluate", index, beir).out
    assert "2 queries" in " ".join(output.split())
    assert "e2: RR@10 minus a penalty for cost: E² = RR@10 − 0.01 F − 0.09" in output
    assert "delta_e2: e2 minus that of BM25 (k1 1.5, b 0.75)" in output
    assert "differences" not in output


def test_queries_that_are_documents(tmp_path, run):
    documents = {"d1": "cat dog", "d2": "cat dog bird", "d3": "cat"}
    queries = {"d1": "cat dog", "d2": "bird dog"}
    judged = dict.fromkeys(("test", "dev"), "d1 0 d2 1\nd2 0 d1 1\n")
    dataset = write_beir(tmp_path / "dataset", documents, queries, judged)
    index = lexicept.build(dataset, tmp_path / "index", vocabulary="words").path
    flag = "--ignore-identical-ids"
    report = run("evaluate", index, dataset, flag, "--json").json
    assert report["systems"]["words"]["values"]["nDCG@10"] == 1.0
    assert report["ignore_identical_ids"] is True
    output = run("evaluate", index, dataset, flag).out
    assert "2 queries, without hits of the query's own id" in " ".join(output.split())
    limits = ("--query-max-active-dims", "none", "--document-max-active-dims", "none")
    swept = ("index", "sweep", index, dataset, "--out", tmp_path / "sweep", flag, *limits)
    swept += ("--alpha", "none")
    swept_json = run(*swept, "--json").json
    assert [point["nDCG@10"] for point in swept_json["front"]] == [1.0]
    assert swept_json["ignore_identical_ids"] is True
    assert "without hits of the query's own id" in " ".join(run(*swept).out.split())


def test_evaluate_with_rra_counts_the_offset(index, beir, run):
    out = index.with_name("rra")
    assert run("index", "reweight", index, "--out", out, "--alpha", "1").code == 0
    report = run("evaluate", out, beir, "--json").json["systems"]["words"]["values"]
    assert report["qd_flops"] == pytest.approx(0.5)
    assert report["qd_flops_with_offset"] == pytest.approx(1.5)
    # ΔE² is against BM25, not against the index's own weights.
    assert report["delta_e2"] == pytest.approx(report["e2"] - 0.744994447, abs=1e-8)


def test_systems_are_compared(index, beir, tmp_path, run):
    # Against a run that is right: differences .369 and 0, so that t = 1.
    best = tmp_path / "best.txt"
    best.write_text("q1 Q0 d1 1 2 x\nq2 Q0 d3 1 2 x\n")
    systems = ("--system", "words", "--system", best)
    test = run("evaluate", index, beir, *systems, "--json").json["comparisons"][0]
    assert (test["measure"], test["system"], test["baseline"]) == ("nDCG@10", "best.txt", "words")
    assert test["difference"] == pytest.approx(0.18453512321427)
    assert test["t"] == pytest.approx(1)
    assert test["p"] == test["p_holm"] == pytest.approx(0.5)
    output = run("evaluate", index, beir, *systems).out
    assert "differences from words" in output
    assert "best.txt  +0.1845 ±2.3447" in output


def test_update_and_delete(index, tmp_path, run):
    more = tmp_path / "more.jsonl"
    more.write_text('{"_id": "d3", "text": "quince"}\n{"_id": "d4", "text": "apple quince"}\n')
    assert run("add", index, more, "--json").json == {"added": 1, "replaced": 1}
    ids = [r["id"] for r in run("search", index, "quince", "--json").json["results"]]
    assert ids == ["d3", "d4"]
    assert run("search", index, "cherry", "--json").json["results"] == []
    assert run("delete", index, "d4", "d1", "--json").json == {"deleted": 2}
    assert run("index", "info", index, "--json").json["documents"] == 2
    table = run("add", index, more).out.split()
    assert table == ["added", "1", "replaced", "1"]


def test_rra(index, run):
    fixed = index.with_name("fixed")
    arguments = ("index", "reweight", index, "--out", fixed, "--alpha", "1.25", "--iterations", "2")
    assert run(*arguments, "--json").json == {"alpha": 1.25}
    settings = {"alpha": 1.25, "iterations": 2, "transform": "1+x"}
    assert run("index", "info", fixed, "--json").json["rra"] == settings
    assert "alpha 1.25, iterations 2, transform 1+x" in run("index", "info", fixed).out
    assert_error(run(*arguments), "exists already")
    for alpha, code in (("abc", 2), ("", 2), ("0", 1)):
        refused = run("index", "reweight", index, f"--alpha={alpha}")
        assert_error(refused, "alpha", code=code)
    # Without --out the index itself changes.
    assert run("index", "reweight", index, "--json").json == {"alpha": 1.0}
    assert run("index", "info", index, "--json").json["rra"]["alpha"] == 1.0


# Bad input.


def test_what_build_refuses(beir, tmp_path, run):
    def build(out, *arguments):
        return run("build", beir, "--vocabulary", "words", "--out", tmp_path / out, *arguments)

    (tmp_path / "file").write_text("precious")
    assert_error(build("file"), "exists already")
    assert_error(build("."), "exists already")
    assert_error(build("file/x"), "file")
    assert_error(build("/proc/nowhere/x"), "/proc/nowhere")
    assert (tmp_path / "file").read_text() == "precious"
    for option in ("query-max-active-dims", "document-max-active-dims", "query-max-qd-flops"):
        assert_error(build("x", f"--{option}", 1), f"--{option} requires concepts")
    assert_error(build("x", "--pruning", "impact"), "--pruning requires concepts")
    assert_error(build("x", "--weighting", "splade"), "--weighting requires concepts")
    assert_error(build("x", "--width", 5), "--width requires --sae")
    assert not (tmp_path / "x").exists()
    assert build("a/new/parent").code == 0


def test_what_is_no_index(index, beir, tmp_path, run):
    damaged = index / "generation-000001" / "parts" / "000001" / "titles.offsets.npy"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    corpus = beir / "corpus.jsonl"
    for path in (index, corpus, beir, tmp_path / "missing"):
        for arguments in (
            ("search", path, "apple"),
            ("index", "info", path),
            ("evaluate", path, beir),
            ("add", path, corpus),
            ("delete", path, "d1"),
            ("index", "reweight", path, "--out", tmp_path / "out"),
        ):
            assert_error(run(*arguments), path.name)
    assert not (tmp_path / "out").exists()


def test_verify_names_what_is_wrong(index, run):
    whole = run("index", "verify", index)
    assert whole.code == 0
    assert whole.out.endswith("files, no problems\n")
    assert run("index", "verify", index, "--json").json["problems"] == []
    text = index / "generation-000001" / "parts" / "000001" / "texts.bin"
    text.write_bytes(text.read_bytes().replace(b"cherry", b"CHERRY"))
    assert run("search", index, "apple").code == 0
    damaged = run("index", "verify", index)
    assert damaged.code == 1
    message = "the content of generation-000001/parts/000001/texts.bin does not match its checksum"
    assert damaged.out.splitlines()[0] == message
    assert damaged.out.endswith("files, 1 problems\n")
    as_json = run("index", "verify", index, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["problems"] == [message]
    assert_error(run("index", "verify", index / "generation-000001"), "no index")


def test_bugs_keep_their_traceback(monkeypatch, run, index):
    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(IndexReader, "search", broken)
    with pytest.raises(ZeroDivisionError):
        run("search", index, "apple")


# Documents that speak to the terminal.

MARKUP = "[bold]x[/bold] [/nope] :cat: [link=http://evil]y[/link] \\[z]"


def subprocess_run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.run(command(*arguments), capture_output=True, env=environment)


def test_markup_and_control_characters_of_documents(tmp_path, run):
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
    coloured = subprocess_run("search", index, "cat", FORCE_COLOR="1", TERM="xterm-256color")
    assert coloured.returncode == 0
    assert b"\x1b[1m" in coloured.stdout
    assert b"\x1b[31m" not in coloured.stdout
    assert b"\x1b]" not in coloured.stdout
    assert b"\x1b[2J" not in coloured.stdout
    assert "\x9b".encode() not in coloured.stdout


def test_output_that_takes_no_unicode(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"_id": "d", "text": "cat 猫 😀"}) + "\n")
    out = tmp_path / "index"
    plain = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    built = subprocess_run("build", corpus, "--vocabulary", "words", "--out", out, **plain)
    assert built.returncode == 0, built.stderr
    for flag in ([], ["--json"]):
        hits = subprocess_run("search", out, "cat", *flag, **plain)
        assert hits.returncode == 0, hits.stderr
        assert b"cat" in hits.stdout


def test_a_query_that_is_no_text(index):
    done = subprocess_run("search", index, b"caf\xe9")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"error: the query is not valid UTF-8\n"


def test_a_closed_pipe_is_no_error(index):
    read, write = os.pipe()
    os.close(read)
    searched = command("search", index, "apple", "--json")
    done = subprocess.run(searched, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert b"Traceback" not in done.stderr


# Documents that are skipped


def test_skipped_documents_are_listed(index, tmp_path, run):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("cats")
    (corpus / "c.pdf").write_text("x")
    build = ("build", corpus, "--vocabulary", "words", "--out", tmp_path / "x")
    for reading in (build, ("add", index, corpus)):
        assert_error(
            run(*reading, "--strict"), f"{corpus / 'c.pdf'}: damaged: can't be read as PDF"
        )
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
    for arguments in (
        ("search", out, "x"),
        ("search", out, "x", "--json"),
        ("explain", out, "x", "a\x1b[31m\u202e\x9b"),
        ("index", "info", out),
        ("index", "verify", out),
        ("delete", out, "\x1b"),
    ):
        output = run(*arguments)
        assert not {"\x1b", "\x9b", "\u202e"} & set(output.out + output.err), arguments


def test_an_interrupted_build_says_that_the_same_command_resumes(beir, tmp_path, monkeypatch, run):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lexicept.index.builder.TermFrequencyWriter.write", interrupt)
    done = run("build", beir, "--vocabulary", "words", "--out", tmp_path / "x")
    assert (done.code, done.out) == (130, "")
    note = "interrupted: the same command resumes, with nothing kept"
    assert done.err.splitlines()[-1] == note


def test_a_condition_alone_is_explained_by_nothing(tmp_path, run):
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    corpus.write_text('{"id": "a", "text": "ant", "year": 2001}\n')
    assert run("build", corpus, "--vocabulary", "words", "--out", index).code == 0
    hits = run("search", index, "year:2001", "--explain")
    assert (hits.code, hits.out) == (
        0,
        "year:2001\n1  0.000  a\n          year 2001\n          ant\n",
    )
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
    assert run("index", "info", index).out.splitlines()[2] == (
        "words      2 dimensions, bm25 k1 1.5, b 0.75, k3 None, query_exponent 1.0, query_scale 1.0"
    )
    assert text.strip() in run("explain", index, "water", "a").out.splitlines()[-1]

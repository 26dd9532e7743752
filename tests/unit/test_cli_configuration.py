"""Options from a file: their meaning, precedence and refusals."""

from pathlib import Path

import pytest

from support.commands import assert_error


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "options.yaml"
    path.write_text(text, "utf-8")
    return path


def test_options_of_a_file(index, tmp_path, run):
    out = tmp_path / "new" / "lists.jsonl"
    text = f"out: {out}\nsplit: dev\ndepth: 1\nrandom-negatives: 0\njson: true\n"
    report = run("data", "mine", index, tmp_path / "beir", "--config", write(tmp_path, text)).json
    assert report["file"] == str(out)
    again = tmp_path / "again.jsonl"
    options = ("--config", tmp_path / "options.yaml", "--out", again)
    assert run("data", "mine", index, tmp_path / "beir", *options).json["file"] == str(again)
    assert again.read_bytes() == out.read_bytes()
    write(tmp_path, "random_negatives: 1\nsplit: dev\n")
    assert run("data", "mine", index, tmp_path / "beir", "--config", tmp_path / "options.yaml").code
    more = ("--config", tmp_path / "options.yaml", "--depth", 1, "--out", tmp_path / "more.jsonl")
    assert run("data", "mine", index, tmp_path / "beir", *more).code == 0
    assert (tmp_path / "more.jsonl").read_bytes() != out.read_bytes()


def test_search_and_evaluate_take_a_file(index, tmp_path, run):
    few = write(tmp_path, "top-k: 1\njson: true\n")
    assert len(run("search", index, "cats dog river", "--config", few).json["results"]) == 1
    split = write(tmp_path, "split: dev\nmeasure: P@1\njson: true\n")
    output = run("evaluate", index, tmp_path / "beir", "--config", split).json
    assert all("P@1" in results["values"] for results in output["systems"].values())


def test_several_values(index, tmp_path, run):
    lists, beir = tmp_path / "lists.jsonl", tmp_path / "beir"
    assert run("data", "mine", index, beir, "--split", "dev", "--out", lists).code == 0
    paths = []
    for i, teachers in enumerate(("bm25", "[bm25]", "[bm25=0.5, 'bm25:en=0.5']")):
        path = write(tmp_path, f"teacher: {teachers}\nout: {tmp_path / str(i)}\nsplit: dev\n")
        paths.append(run("data", "score", lists, beir, beir, "--config", path))
    assert [one.code for one in paths] == [0, 0, 1]
    assert_error(paths[2], "is given twice")
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


@pytest.mark.parametrize(
    ("text", "message", "code"),
    [
        ("dept: 1", 'Unknown option: "[dept]" from {}. Did you mean --depth?', 2),
        ("depth: [1, 2]", "Invalid value for [depth] from {}: unable to convert", 2),
        ("depth: {a: 1}", 'Unknown option: "[depth][a]" from {}', 2),
        ("- depth", "{}: a mapping of options to values is needed", 1),
        ("", "{}: a mapping of options to values is needed", 1),
        ("a: b: c", "{}: not YAML: line 1: mapping values are not allowed here", 1),
        ("[" * 5000, "{}: not YAML", 1),
    ],
)
def test_refused(text, message, code, index, tmp_path, run):
    path = write(tmp_path, text)
    refused = run("data", "mine", index, index, "--config", path)
    assert_error(refused, message.format(path), code=code)


def test_unreadable_files(index, tmp_path, run):
    (tmp_path / "latin").write_bytes(b"depth: \xff")
    for name, message in (("none", "No such file"), (".", "directory"), ("latin", "not UTF-8")):
        assert_error(run("data", "mine", index, index, "--config", tmp_path / name), message)


def test_a_value_of_another_kind_is_named(index, tmp_path, run):
    result = run("data", "mine", index, index, "--config", write(tmp_path, "out: x\ndepth: many"))
    assert result.code == 2
    assert "Invalid value for [depth]: 'many' is not a whole number" in result.err

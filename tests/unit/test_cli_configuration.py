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
    text = f"out: {out}\nsplit: dev\ndepth: 1\njson: true\n"
    report = run("data", "mine", index, tmp_path / "beir", "--config", write(tmp_path, text)).json
    assert report["file"] == str(out)
    again = tmp_path / "again.jsonl"
    options = ("--config", tmp_path / "options.yaml", "--out", again)
    assert run("data", "mine", index, tmp_path / "beir", *options).json["file"] == str(again)
    assert again.read_bytes() == out.read_bytes()
    # An option of the command line replaces the file's.
    more = (
        "--config",
        tmp_path / "options.yaml",
        "--split",
        "train",
        "--out",
        tmp_path / "more.jsonl",
    )
    assert run("data", "mine", index, tmp_path / "beir", *more).code == 0
    assert (tmp_path / "more.jsonl").read_bytes() != out.read_bytes()


def test_search_and_evaluate_take_a_file(index, tmp_path, run):
    few = write(tmp_path, "top-k: 1\njson: true\n")
    assert len(run("search", index, "cats dog river", "--config", few).json["results"]) == 1
    for written, measures in (("P@1", {"P@1"}), ("[P@1]", {"P@1"}), ("[P@1, R@5]", {"P@1", "R@5"})):
        split = write(tmp_path, f"split: dev\nmeasure: {written}\njson: true\n")
        output = run("evaluate", index, tmp_path / "beir", "--config", split).json
        for results in output["systems"].values():
            assert results["values"].keys() & {"P@1", "R@5"} == measures


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

"""The command line follows from the declarations of public functions and settings."""

import re
import sys

import pytest
from rich.cells import cell_len

from lexicept.cli import COMMANDS, GROUPS, app, make_app
from lexicept.cli.declarations import declared, load, options_of
from support.commands import assert_error

PATHS = {
    name: f"lexicept.cli.{path}" for names in COMMANDS.values() for name, path in names.items()
}


@pytest.fixture
def narrow(run, monkeypatch):
    """Runs the command line in a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    return run


def test_help_of_build(narrow):
    text = narrow("build", "--help").out
    assert narrow("build", "-h").out == text
    assert max(cell_len(line.rstrip()) for line in text.splitlines()) <= 80
    panels = re.findall(r"^╭─ ([\w ]+?) ─", text, re.M)
    assert panels == ["Arguments", "Options", "Concept settings", "SAE settings", "Limits", "Ray"]
    for option in app.flattened(options_of(load("lexicept.cli.build:build"))):
        assert app.option_name(option) in text.replace("\n", " ").split(), option.name


def test_every_option_has_help():
    for name, path in PATHS.items():
        for option in app.flattened(options_of(load(path))):
            assert len(option.help) > 8, (name, option.name)
            assert "``" not in option.help


def test_options_of_settings_need_their_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "lexicept.training.sae.settings", None)
    assert declared.__wrapped__("lexicept.training.sae.settings:SAESettings") == []


def test_names_that_are_near(index, run):
    assert_error(run("bild"), 'Did you mean "build"?', code=2)
    assert_error(run("index", "swep"), 'Did you mean "sweep"?', code=2)
    assert_error(run("search", index, "x", "--topk", 3), "Did you mean --top-k?", code=2)
    assert_error(run("search", index, "-without"), "Write -- before a text", code=2)
    assert_error(run("build", index), "requires an argument", code=2)
    message = "Invalid value for --top-k: 'x' is not a whole number"
    assert_error(run("search", index, "x", "--top-k", "x"), message, code=2)
    assert_error(run("search", index, "x", "--top-k", "0"), "--top-k must be at least 1, not 0")
    refused = run("search", index, "x", "--vocabulary", "wrds")
    assert_error(refused, 'Choose from: "words", "concepts", "all"', code=2)


def test_settings_need_their_flag(index, run, tmp_path):
    built = ("build", index, "--out", tmp_path / "new")
    assert_error(run(*built, "--num-latents", 8), "--num-latents requires --train")


def test_the_last_of_a_repeated_option_wins(index, run):
    hits = run("search", index, "cats dog river", "--top-k", 3, "--top-k", 1, "--json").json
    assert len(hits["results"]) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    script = make_app().generate_completion(shell=shell)  # type: ignore[arg-type]
    assert "query-max-active-dims" in script
    assert "pseudo-queries" in script


def test_start_and_version(run):
    assert "lexicept build DOCUMENTS --out my.index" in run().out
    assert re.fullmatch(r"lexicept \d+\.\d+.*\n", run("--version").out)
    everything = run("--help").out
    for name in PATHS:
        assert name.split()[0] in everything


@pytest.mark.parametrize(
    "arguments",
    [name.split() for panel in COMMANDS.values() for name in panel] + [[name] for name in GROUPS],
    ids=" ".join,
)
def test_h_shows_the_help_before_and_after_the_name(arguments, run):
    output = run(*arguments, "-h")
    assert (output.code, output.err) == (0, "")
    assert output.out.startswith(f"Usage: lexicept {' '.join(arguments)}")
    assert run("-h", *arguments) == output

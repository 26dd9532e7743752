"""The documents: every snippet of the README and of docs/ runs, at small size, as it is printed.

Blocks run page by page, in order, in one folder. ```python and ```sh blocks are executed, a ```yaml
or ```python block with a title is saved as that file, and a ```text block right after code is its
output.
Blocks marked ``no-run`` need a hub, a GPU or a server; their commands are only parsed.
"""

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from cyclopts import CycloptsError

from lexicept.cli import COMMANDS, GROUPS, main, make_app
from support.collections import write_beir

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")],
    key=lambda page: page.relative_to(ROOT),
)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text()
FENCE = re.compile(r"^```(?P<info>.*)\n(?P<body>(?:.*\n)*?)^```$", re.MULTILINE)
NEEDS = {
    "agents.md": ["mcp"],
    "engines.md": ["qdrant_client", "milvus_lite", "pymilvus"],
    "integrations.md": ["pyterrier", "langchain_core", "llama_index.core"],
}
SMALL_COMMANDS = {
    "build --train": ["--num-latents", "64", "--tokens", "2000"],
    "model pretrain": ["--steps", "1", "--batch-size", "4"],
}
"""Options that make a documented command quick, by the words of the command that they go with."""

SMALL_TRAINING: dict[str, dict[str, Any]] = {
    "model": {"sae": {"num_latents": 64, "k": 4, "tokens": 2000}},
    "optimizer": {"steps": 2, "batch_size": 4},
    "validation": {"count": 4, "every": 2},
}
"""Settings that make a documented training quick."""

ANIMALS = {"cat": "sleep", "dog": "bark", "fish": "swim", "bird": "sing", "horse": "run"}
PLACES = ["in the sun", "at night", "near the river", "beside the house", "in spring", "all day"]


class Block(NamedTuple):
    language: str
    flags: str
    body: str
    shown: str
    """What the page says that the block prints; "" where it says nothing."""
    line: int


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    fences = list(FENCE.finditer(text))
    blocks = []
    for fence, after in zip_longest(fences, fences[1:]):
        language, _, flags = fence["info"].partition(" ")
        follows = after is not None and text[fence.end() : after.start()] == "\n\n"
        output = after["body"] if after and follows and after["info"] == "text" else ""
        line = text.count("\n", 0, fence.start()) + 1
        blocks.append(Block(language, flags, fence["body"], output, line))
    return blocks


def lines_of(block: Block) -> Iterator[list[str]]:
    """Yield the words of each command of a shell block."""
    for line in block.body.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def pages(*languages: str) -> list[Any]:
    return [
        pytest.param(page, id=page.relative_to(ROOT).as_posix())
        for page in PAGES
        if any(block.language in languages for block in blocks_of(page))
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files named in the pages, to run commands in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    animals = tmp_path / "my_documents" / "animals"
    animals.mkdir(parents=True)
    (animals / "cats.md").write_text("# Cats\n\nCats sleep all day. What it is about: sleeping.\n")
    (animals / "dogs.md").write_text("# Dogs\n\nDogs bark at night, and sleep in the sun.\n")
    (tmp_path / "my_documents" / "bread.txt").write_text("Bread needs flour, water and time.\n")
    (tmp_path / "more.jsonl").write_text('{"id": "tea", "text": "Tea needs hot water."}\n')
    write_collection(tmp_path / "my_queries")
    return tmp_path


def write_collection(folder: Path) -> None:
    """Write a BEIR folder of 31 documents and 6 queries in each of three splits."""
    texts = [f"The {a}s {verb} {anchor}." for a, verb in ANIMALS.items() for anchor in PLACES]
    # The pages evaluate the index of my_documents with these judgements.
    documents = {f"d{n}": text for n, text in enumerate(texts)} | {"animals/cats.md": "Cats sleep."}
    queries = {f"q{n}": text.lower().rstrip(".") for n, text in enumerate(texts[:18])}
    qrels = {
        split: "".join(f"q{n} 0 d{n} 1\n" for n in range(i, 18, 3)) + f"q{i} 0 animals/cats.md 0\n"
        for i, split in enumerate(("train", "dev", "test"))
    }
    write_beir(folder, documents, queries, qrels)


@pytest.mark.usefixtures("_hasty")
@pytest.mark.timeout(1200)  # Pages train models, and the machine may have other work.
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:pyterrier",  # PyTerrier 1.1 uses what pandas 3.1 deprecates.
    "ignore:Sparse CSR tensor support is in beta",
    "ignore:'pin_memory' argument is set as true but no accelerator is found",
)
@pytest.mark.parametrize("page", pages("python", "sh", "yaml"))
def test_the_snippets_of_a_page_run(page, folder, monkeypatch, capsys):
    for module in NEEDS.get(page.name, []):
        pytest.importorskip(module)
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: None)
    monkeypatch.syspath_prepend(folder)
    if page.name == "agents.md":
        monkeypatch.setattr("lexicept.integrations.mcp.serve", lambda *_, **__: None)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.flags == "no-run":
            continue
        location = f"{page.relative_to(ROOT)}:{block.line}"
        if block.language == "python" and block.flags:
            (folder / title_of(block)).write_text(block.body)
        elif block.language == "python":
            exec(compile("\n" * block.line + block.body, str(page), "exec"), names)
        elif block.language == "sh":
            for words in lines_of(block):
                run(words, location, monkeypatch)
        elif block.language == "yaml" and block.flags:
            save(block, folder)
        printed = capsys.readouterr().out
        if block.shown:
            assert parts_of(printed) == parts_of(block.shown), location


def parts_of(printed: str) -> list[Any]:
    """Return words, and numbers with a tolerance: processors round products differently."""
    parts = re.split(r"(\d+\.\d+)", " ".join(printed.split()))
    return [pytest.approx(float(p), rel=0.05) if i % 2 else p for i, p in enumerate(parts)]


def run(words: list[str], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    match words:
        case ["lexicept", *arguments]:
            for command, options in SMALL_COMMANDS.items():
                if set(command.split()) <= set(arguments):
                    arguments = [*arguments, *options]
            monkeypatch.setattr(sys, "argv", ["lexicept", *arguments])
            with pytest.raises(SystemExit) as exit_:
                main()
            assert not exit_.value.code, f"{path}: {shlex.join(words)}"
        case ["pip", "install", *arguments]:
            check_installation(arguments, path)
        case ["make", target]:
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"{path}: no target {target}"
        case ["git", "clone", *_] | ["cd", "lexicept"]:
            pass
        case _:
            pytest.fail(f"{path}: mark the block as no-run: {shlex.join(words)}")


def check_installation(arguments: list[str], path: str) -> None:
    match arguments:
        case ["-e", requirement]:
            extras = re.fullmatch(r"\.(?:\[(.*)\])?", requirement)
            assert extras, f"{path}: {requirement}"
            assert set((extras[1] or "").split(",")) - {""} <= set(EXTRAS), f"{path}: {requirement}"
        case [torch]:
            assert f"$(PIP) {torch}\n" in MAKEFILE, f"{path}: not the Makefile's version: {torch}"
        case _:
            pytest.fail(f"{path}: pip install {shlex.join(arguments)}")


def title_of(block: Block) -> str:
    title = re.fullmatch(r'title="(.*)"', block.flags)
    assert title, block
    return title[1]


def save(block: Block, folder: Path) -> None:
    content = yaml.safe_load(block.body)
    for section, values in SMALL_TRAINING.items():
        content[section] = {**content.get(section, {}), **values}
    (folder / title_of(block)).write_text(yaml.safe_dump(content))


@pytest.mark.parametrize("page", pages("python", "sh"))
def test_what_does_not_run_is_at_least_right_in_form(page):
    for block in blocks_of(page):
        if block.flags != "no-run":
            continue
        location = f"{page.relative_to(ROOT)}:{block.line}"
        if block.language == "python":
            compile(block.body, location, "exec")
            continue
        for words in lines_of(block):
            while re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            if words[0] == "lexicept":
                parse(words[1:], location)


def parse(arguments: list[str], path: str) -> None:
    """Parse a command as the application does, without running it."""
    try:
        make_app(arguments).parse_args(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        pytest.fail(f"{path}: {error}")


OTHER_PAGES = [*(ROOT / "benchmarks").glob("*.md"), *(ROOT / "configs").glob("*.yaml")]


@pytest.mark.parametrize(
    "page", [*PAGES, *OTHER_PAGES], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_commands_that_are_named_exist(page):
    known = {tuple(name.split()) for names in COMMANDS.values() for name in names}
    text = page.read_text()
    if page.suffix == ".md":
        text = "\n".join(
            [*re.findall(r"`([^`]+)`", FENCE.sub("", text)), *(b.body for b in blocks_of(page))]
        )
    for first, second in re.findall(r"^[ #]*lexicept ([a-z][\w-]*)(?: ([a-z][\w-]*))?", text, re.M):
        path = (first, second) if first in GROUPS and second else (first,)
        assert path in known or (path == (first,) and first in GROUPS), (
            f"{page.relative_to(ROOT)}: lexicept {' '.join(path)}"
        )


def test_few_blocks_are_not_run():
    languages = ("python", "sh")
    blocks = [b for page in PAGES for b in blocks_of(page) if b.language in languages]
    marked = [block for block in blocks if block.flags == "no-run"]
    assert {block.flags for block in blocks} == {"", "no-run", 'title="my_package.py"'}
    assert len(marked) <= 16
    assert len(marked) < len(blocks) / 3


def test_the_readme_is_short():
    text = FENCE.sub(lambda fence: fence["body"], (ROOT / "README.md").read_text())
    assert len(text.split()) <= 900


def test_links_lead_to_files():
    for page in [*PAGES, *(ROOT / "benchmarks").glob("*.md")]:
        text = FENCE.sub("", page.read_text())
        for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text):
            if page.parent.name == "reference" or target == "reference/cli.md":
                continue
            assert os.path.exists(page.parent / target), f"{page.relative_to(ROOT)}: {target}"


def anchors_of(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.M)
    return {
        re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def test_the_comparison_links_every_cell():
    page = ROOT / "docs" / "comparison.md"
    text = page.read_text()
    sources = dict(re.findall(r"^\[(\w+)\]: (https://\S+)$", text, re.M))
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    lines = [[cell.strip() for cell in cells] for cells in lines if cells[1].strip() != "lexicept"]
    assert len(lines) > 15
    used = set()
    for feature, ours, *theirs in lines:
        assert len(theirs) == 5, feature
        link = re.fullmatch(r"\[[^]]+\]\(([^)#]+)(?:#([^)]+))?\)", ours)
        assert link or ours == "no", feature
        if link:
            target = (page.parent / link[1]).read_text()
            assert link[2] is None or link[2] in anchors_of(target), f"{feature}: {ours}"
        for cell in theirs:
            label = re.search(r"\[[^]]+\]\[(\w+)\]", cell)
            assert label or cell == "no", f"{feature}: {cell}"
            used |= {label[1]} if label else set()
    assert used == set(sources)

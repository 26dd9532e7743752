"""The layout of the package: short modules, imports that run one way, and its page."""

from graphlib import TopologicalSorter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "src" / "lexicept"
MODULES = sorted(PACKAGE.rglob("*.py"))


def test_modules_are_short():
    lengths = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in MODULES}
    assert {name: length for name, length in lengths.items() if length > 450} == {}


def test_imports_have_no_cycle():
    grimp = pytest.importorskip("grimp", reason="needs import-linter")
    graph = grimp.build_graph("lexicept", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert "lexicept.vectors" in imports["lexicept.index.reader"]
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the cycle


def test_the_page_of_the_architecture_lists_every_module():
    page = (TESTS.parent / "docs" / "architecture.md").read_text()
    listing = page.partition("```text\n")[2].partition("\n```")[0]
    lines = listing.replace("\n ", " ").splitlines()
    listed = {line.split()[0]: set(line.split()[1:]) for line in lines}
    expected = {}
    for folder in {path.parent for path in MODULES} - {PACKAGE}:
        if folder.parent == PACKAGE:
            modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
            expected[f"{folder.name}/"] = modules | {
                f"{path.name}/" for path in folder.iterdir() if any(path.glob("*.py"))
            }
    assert listed == expected

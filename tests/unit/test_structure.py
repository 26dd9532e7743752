"""The layout of the repository: few files at the root, short modules, imports that run one way."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "src" / "lexicept"
MODULES = sorted(PACKAGE.rglob("*.py"))


def test_the_root_holds_few_files():
    names = [path.name for path in PACKAGE.iterdir() if path.is_file()]
    assert "vectors.py" in names
    assert len(names) <= 11, names


def test_modules_are_short():
    lengths = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in MODULES}
    assert {name: length for name, length in lengths.items() if length > 450} == {}


def test_the_page_of_the_architecture_lists_every_module():
    page = (TESTS.parent / "docs" / "architecture.md").read_text()
    listing = page.partition("```text\n")[2].partition("\n```")[0]
    listed, folder = {}, ""
    for line in listing.replace("\n      ", " ").splitlines():
        name, *modules = line.split()
        folder = folder if line.startswith(" ") else name
        listed[folder if name == folder else folder + name] = set(modules)
    expected = {}
    for path in {path.parent for path in MODULES} - {PACKAGE}:
        modules = {module.stem for module in path.glob("*.py")} - {"__init__"}
        expected[f"{path.relative_to(PACKAGE)}/"] = modules
    del expected["server/page/"]
    listed["server/"].remove("page/")
    assert listed == expected


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_no_test_imports_another_test():
    files = sorted(TESTS.rglob("test_*.py"))
    names = {path.stem for path in files}
    assert Path(__file__).stem in names
    guilty = {path.name: imported(path) & names for path in files}
    assert {name: modules for name, modules in guilty.items() if modules} == {}

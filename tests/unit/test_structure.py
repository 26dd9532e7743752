"""The layout of the package: short modules, imports that run one way, and its page."""

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
    listed["server/"].remove("page/")
    assert listed == expected

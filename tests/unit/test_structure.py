"""The layout of the repository: tests share helpers through ``tests/support``."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def imported(path: Path) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_no_test_imports_another_test() -> None:
    files = sorted(TESTS.rglob("test_*.py"))
    names = {path.stem for path in files}
    assert Path(__file__).stem in names
    guilty = {path.name: imported(path) & names for path in files}
    assert {name: modules for name, modules in guilty.items() if modules} == {}

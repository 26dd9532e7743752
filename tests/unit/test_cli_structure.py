"""Commands parse, call and print: the pipelines do the work."""

import ast
from pathlib import Path

import lexicept.cli

LINES = 40
"""Most lines of a function's body in ``lexicept.cli``, without its docstring."""


def bodies() -> dict[str, int]:
    """Return the number of lines of every function's body, by ``module.function``."""
    lines = {}
    for path in Path(str(lexicept.cli.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                tail = node.body[-1].end_lineno
                assert tail is not None
                first = node.body[1 if ast.get_docstring(node) and node.body[1:] else 0]
                lines[f"{path.stem}.{node.name}"] = tail - first.lineno + 1
    return lines


def test_bodies_are_short():
    lines = bodies()
    assert {"build.build", "search.search", "evaluate.sweep"} <= lines.keys()
    assert {name for name, count in lines.items() if count > LINES} == set()

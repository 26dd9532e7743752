"""The docstrings and help topics of the running Python's standard library, read without import."""

import ast
import os
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial

from lexicept.corpora.records import Document, Location, Records, readable
from lexicept.errors import InputError

_SKIPPED = {"test", "tests", "idle_test", "lib2to3"}
_TOPICS = "pydoc_data.topics"
_BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read_documents() -> Records[Document]:
    """Yield every docstring (id: its dotted name) and help topic (id: topic:NAME), file by file.
    Raises InputError if the standard library is zipped, absent or cannot be read."""
    stdlib = sysconfig.get_paths()["stdlib"]
    if not os.path.isfile(os.path.join(stdlib, "os.py")):
        raise InputError(f"python-docs: no Python source in the standard library folder {stdlib}")
    return _read_library(stdlib)


def _read_library(stdlib: str) -> Records[Document]:
    occurrences: Counter[str] = Counter()
    for module, path in sorted(_modules(stdlib)):
        with readable(path), open(path, "rb") as file:
            source = file.read()
        try:
            # Only around the parser: the filters are global and must not outlast a yield.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            continue  # a template or test data that only looks like Python
        for line, name, text in _docstrings(tree, module):
            occurrences[name] += 1
            suffix = f"#{occurrences[name]}" if occurrences[name] > 1 else ""
            yield Location(path, line), partial(Document, name + suffix, text, name)
        if module == _TOPICS:
            for name, text in _topics(tree):
                yield Location(path), partial(Document, f"topic:{name}", text, name)


def _modules(stdlib: str) -> Iterator[tuple[str, str]]:
    with readable(stdlib):
        for folder, folders, files in os.walk(stdlib):
            # Names that are no identifiers can't be imported: site-packages, lib-dynload.
            folders[:] = [name for name in folders if name.isidentifier() and name not in _SKIPPED]
            package = [] if folder == stdlib else os.path.relpath(folder, stdlib).split(os.sep)
            for file in files:
                stem, ending = os.path.splitext(file)
                if ending == ".py" and stem.isidentifier():
                    names = package if stem == "__init__" and package else [*package, stem]
                    yield ".".join(names), os.path.join(folder, file)


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and text of the docstrings in a node, those under `if`, `try`, `with` and
    the like included."""
    if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
        yield getattr(node, "lineno", 1), name, text
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _BLOCKS):
            inner = f"{name}.{child.name}" if isinstance(child, _DEFINITIONS) else name
            yield from _docstrings(child, inner)


def _topics(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="topics")], value=ast.Dict() as topics):
                yield from sorted(ast.literal_eval(topics).items())

"""reStructuredText as it is shown: text without marks, targets and comments; section titles name
passages. Directives and roles of Sphinx are known by what they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import cache
from importlib import import_module
from typing import Any

from lexicept.corpora.budgets import NothingToRead, check_time
from lexicept.corpora.markdown import label_of
from lexicept.corpora.passages import Block, Heading, Parsed, Section, parsed_blocks, spelled
from lexicept.corpora.records import MOST_CHARACTERS

_DIRECTIVE = re.compile(
    r"^[ \t]*\.\.[ \t]+(?:\|[^|\n]+\|[ \t]+)?([\w.+:-]+?)[ \t]?::(?:[ \t]|$)", re.M
)
_ROLE = re.compile(r":([\w.+-]++(?::[\w.+-]++){0,3}+):`|`:([\w.+-]++(?::[\w.+-]++){0,3}+):")
_NAME = re.compile(r"[\w.+:-]++")
LONGEST_NAME = 250
"""Most characters of a name: docutils takes the square of the time to tell names of roles apart."""

LONGEST_SUBSTITUTION = 10_000
"""Most characters of a substitution."""

_CODE = {"code", "code-block", "sourcecode", "doctest", "testcode", "testoutput", "math", "prompt"}
_HIDDEN = {
    "currentmodule", "graphviz", "highlight", "index", "inheritance-diagram", "literalinclude",
    "mermaid", "module", "plantuml", "tabularcolumns", "testcleanup", "testsetup", "toctree",
}  # fmt: skip
_UNTITLED = {"ifconfig", "only"}
"""Directives whose argument is a condition."""

_SETTINGS = {
    "file_insertion_enabled": False,
    "halt_level": 6,
    "line_length_limit": MOST_CHARACTERS,
    "raw_enabled": False,
    "report_level": 5,
    "syntax_highlight": "none",
    "warning_stream": False,
}


def parse_restructured(text: str) -> Parsed:
    """Parse a text; the title is the first title of the highest level. Nothing is included or run.

    A text that docutils fails on, or with a very long name, stays as written.
    """
    try:
        if all(len(name[0]) <= LONGEST_NAME for name in _NAME.finditer(text)):
            with _known(text):
                return parsed_blocks(list(_blocks(_tree(text), 1)))
    except NothingToRead:
        raise
    # A parser of strangers' texts, of its own errors and of Python's.
    except Exception:
        pass
    return Parsed(text, "", (Section(text),))


def _tree(text: str) -> Any:
    """Return the tree of a text, with substitutions replaced. Other references look the same
    without their targets, which take docutils the square of the time to find.

    Lines, marks in lines, messages and substitutions check the time.
    """
    states: Any = import_module("docutils.parsers.rst.states")
    references: Any = import_module("docutils.transforms.references")
    text_node: Any = import_module("docutils.nodes").Text

    def timed(read: Any) -> Any:
        def checked(*arguments: Any) -> Any:
            check_time()
            return read(*arguments)

        return checked

    class Timed(dict[Any, Any]):
        __getitem__ = timed(dict.__getitem__)

    inliner = states.Inliner()
    inliner.dispatch = {mark: timed(read) for mark, read in inliner.dispatch.items()}
    # Addresses look the same unmarked, and take the square of the time to find.
    inliner.implicit_inline = lambda text, line: [text_node(text)] if text else []
    document = import_module("docutils.utils").new_document("", copy(_settings()))
    document.note_source = timed(document.note_source)
    document.reporter.attach_observer(check_time)
    document.substitution_defs = Timed()
    import_module("docutils.parsers.rst").Parser(inliner=inliner).parse(text, document)
    # Substitutions inside one another may stand for more text than memory holds.
    document.settings.line_length_limit = LONGEST_SUBSTITUTION
    references.Substitutions(document).apply()
    return document


@cache
def _settings() -> Any:
    frontend: Any = import_module("docutils.frontend")
    settings = frontend.get_default_settings(import_module("docutils.parsers.rst").Parser)
    vars(settings).update(_SETTINGS)
    return settings


@contextmanager
def _known(text: str) -> Iterator[None]:
    """Have docutils know the directives and roles of a text, for the time of a ``with`` block."""
    directives: Any = import_module("docutils.parsers.rst.directives")
    roles: Any = import_module("docutils.parsers.rst.roles")
    english: Any = import_module("docutils.parsers.rst.languages.en")
    # Private in docutils 0.21 to 0.23, which forgets no registered name.
    registries = directives._directives, roles._roles
    saved = [dict(registry) for registry in registries]
    names = {match[1].lower() for match in _DIRECTIVE.finditer(text)}
    unknown = (names - english.directives.keys()) | _CODE
    for name in unknown:
        directives.register_directive(name, _directive())
    names = {(match[1] or match[2]).lower() for match in _ROLE.finditer(text)}
    for name in names - english.roles.keys():
        roles.register_local_role(name, _role)
    try:
        yield
    finally:
        for registry, saved_names in zip(registries, saved, strict=True):
            registry.clear()
            registry.update(saved_names)


def _role(name: str, source: str, text: str, *_: Any, **__: Any) -> tuple[list[Any], list[Any]]:
    """Return the label of a role: ``label <target>``, or the last name of ``~package.name``."""
    nodes: Any = import_module("docutils.nodes")
    text = nodes.unescape(text)
    label = label_of(text) or text.removeprefix("!")
    label = label.rpartition(".")[2] if label.startswith("~") else label
    return [nodes.inline(source, label)], []


def _directive() -> Any:
    """Return a directive that shows argument and content, code or not."""
    nodes: Any = import_module("docutils.nodes")
    rst: Any = import_module("docutils.parsers.rst")

    class Options(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            return str

    class Shown(rst.Directive):  # type: ignore[misc]
        has_content, final_argument_whitespace = True, True
        optional_arguments = 1
        option_spec = Options(name=str)

        def run(self) -> list[Any]:
            name = self.name.lower()
            if name in _HIDDEN:
                return []
            text = "\n".join(self.content)
            if name in _CODE:
                arguments = self.arguments if name == "math" else []
                return [nodes.literal_block(text, "\n".join([*arguments, text]))]
            container = nodes.container()
            if self.arguments and name not in _UNTITLED:
                container += nodes.paragraph("", self.arguments[0])
            self.state.nested_parse(self.content, self.content_offset, container, match_titles=True)
            return [container]

    return Shown


def _blocks(node: Any, level: int) -> Iterator[Block]:
    """Yield the headings and texts below a node of the tree."""
    nodes: Any = import_module("docutils.nodes")
    for child in node.children:
        if isinstance(child, nodes.section):
            title = " ".join(_text(child.next_node(nodes.title)).split())
            yield Heading(level, title, (child["ids"] or [""])[0])
            yield from _blocks(child, level + 1)
        elif isinstance(child, nodes.system_message):  # with the source that is in error
            source = child.next_node(nodes.literal_block)
            if source is not None and not source.astext().startswith(".."):
                yield source.astext()
        elif isinstance(child, nodes.Invisible | nodes.raw | nodes.label) or (
            isinstance(child, nodes.title) and isinstance(node, nodes.section)
        ):
            continue
        elif isinstance(child, nodes.row):
            cells = (_blocks(cell, level) for cell in child.children)
            yield "\t".join(" ".join(map(spelled, cell)) for cell in cells)
        elif isinstance(child, nodes.field):
            body = " ".join(map(spelled, _blocks(child[1], level)))
            if body:
                yield f"{child[0].astext()}: {body}"
        elif isinstance(child, nodes.TextElement | nodes.image):
            if text := _text(child).strip("\n"):
                yield text
        else:
            yield from _blocks(child, level)


def _text(node: Any) -> str:
    """Return the text of inline nodes, without the marks of what can't be resolved."""
    nodes: Any = import_module("docutils.nodes")
    if isinstance(node, nodes.problematic):
        return str(node.astext()).strip("`_|*")
    if isinstance(node, nodes.Text | nodes.image):
        return str(node.astext())
    if isinstance(node, nodes.raw | nodes.Invisible | nodes.system_message):
        return ""
    return "".join(_text(child) for child in node.children)

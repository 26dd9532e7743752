"""HTML and XHTML: the text that browsers show; headings name passages."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from html import unescape
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple

from lexicept.corpora.budgets import NothingToRead, check_time
from lexicept.corpora.passages import TITLES, Block, Heading, Parsed, num_words, sections, spelled
from lexicept.corpora.text_encoding import decode_text

_ELEMENTS = {
    "aside": "aside footer header",
    "block": "address article blockquote body br caption center dd details dialog dir div dl dt "
    "fieldset figcaption figure form hgroup hr html legend li menu ol option p search section "
    "summary table td th tr ul",
    "box": "button canvas meter object optgroup progress select svg text",
    "heading": "h1 h2 h3 h4 h5 h6",
    # By the standards' style sheets, navigation, and what older browsers show in place of a medium.
    "hidden": "annotation annotation-xml audio datalist defs desc iframe metadata nav noembed "
    "noframes noscript rp script selectedcontent style symbol template title video",
    "lines": "listing plaintext pre textarea xmp",
    "main": "main",
    "reading": "rt rtc",
    "ruby": "ruby",
}
"""Elements by their role in the text: a "box" in a line only separates words."""

_ROLES = {tag: role for role, tags in _ELEMENTS.items() for tag in tags.split()}

_IN_SVG = "text:not(defs text, symbol text, foreignObject text), foreignObject"
_CONTROLS = dict.fromkeys([*range(9), *range(14, 32), 127], " ")
_NAMED = re.compile(r"&(?!(?:amp|apos|gt|lt|quot);)[a-zA-Z][a-zA-Z0-9]*;")

STEP = 4_096
"""Characters that are parsed between checks of the time: a tag can stand for 500 elements."""

SECONDS = 0.5
"""Processor time of the parser for a small page."""

CHARACTERS_A_SECOND = 2_000_000
"""Size of a page for a further second: a fifth of the usual speed."""


def parse_html(path: str, raw: bytes) -> Parsed:
    """Parse the shown text of <main>, or all of the page if more words stand outside. The title is
    the page's, else the topmost heading. Raises BinaryError for bytes that are no text."""
    document = _document(path, decode_text(raw, declared=True))
    stated = document.select_one("title:not(svg title)")
    title = " ".join(stated.text.translate(_CONTROLS).split()) if stated else ""
    headed = list(sections(_main(list(_blocks(document)))))
    named = (section.title.split(TITLES)[0] for section in headed if section.title)
    title = title or next(named, "")
    return Parsed.of([section.without(title) for section in headed], title)


def blocks_of(text: str) -> list[Block]:
    """Return the headings and blocks of a piece of HTML."""
    return [block for _, block in _blocks(_document("", text))]


def _document(path: str, text: str) -> Any:
    """Return the tree of a text. XHTML that is not well-formed is read as HTML."""
    turbohtml: Any = import_module("turbohtml")
    if path.lower().endswith(".xhtml") or text.lstrip().startswith("<?xml"):
        try:
            # XML alone has five names of characters, XHTML those of HTML.
            return turbohtml.parse_xml(_NAMED.sub(lambda match: unescape(match[0]), text))
        except turbohtml.HTMLParseError:
            pass
    parser, begin = turbohtml.IncrementalParser(positions=False), time.thread_time()
    for start in range(0, len(text), STEP):
        check_time()
        # Memory grows with the time of parsing, a gigabyte a second.
        if time.thread_time() - begin > SECONDS + start / CHARACTERS_A_SECOND:
            raise NothingToRead("too many elements for its size")
        parser.feed(text[start : start + STEP])
    return parser.close()


class _Mark(NamedTuple):
    """The beginning or the end of an element with a role."""

    role: str
    tag: str
    is_end: bool = False


def _shown(document: Any) -> Iterator[str | _Mark]:
    """Yield the texts that browsers show and the alternatives of images, between marks."""
    turbohtml: Any = import_module("turbohtml")
    # A stack of its own: XML may be nested deeper than Python's.
    stack: list[Iterator[Any]] = [chain(document.children, [_Mark("block", "")])]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
        elif isinstance(node, str | _Mark):
            yield node
        elif isinstance(node, turbohtml.Text | turbohtml.CData):
            yield node.data
        elif isinstance(node, turbohtml.Element) and not _is_hidden(node):
            check_time()
            tag, role = node.tag, _ROLES.get(node.tag)
            # With the shadow trees that a page declares.
            inside = node.select(_IN_SVG) if tag == "svg" else node.flattened_children
            if role is None:
                stack.append(chain(_alternative(node), inside))
            else:
                ends = [] if tag == "br" else [_Mark(role, tag, True)]
                stack.append(chain([_Mark(role, tag)], inside, ends))


def _is_hidden(node: Any) -> bool:
    """Return True for an element that browsers do not show or find; they find closed details."""
    attributes = node.attrs
    hidden = (attributes.get("hidden", "until-found") or "").strip().lower() != "until-found"
    closed = node.tag == "dialog" and "open" not in attributes
    return _ROLES.get(node.tag) == "hidden" or hidden or closed or "popover" in attributes


def _alternative(node: Any) -> list[str]:
    """Return the text in place of an image; nothing for other elements."""
    tag, attributes = node.tag, node.attrs
    image = tag == "input" and (attributes.get("type") or "").lower() == "image"
    return [f" {attributes.get('alt') or ''} "] if image or tag in ("area", "img") else []


def _blocks(document: Any) -> Iterator[tuple[str, Block]]:
    """Yield the headings and blocks of a page, each with "main", "aside" or the empty text."""
    text: list[str] = []
    readings: list[str] = []
    inside: Counter[str] = Counter()
    for node in _shown(document):
        if isinstance(node, str):
            (readings if inside["reading"] else text).append(node)
            continue
        role = node.role
        if role == "ruby":
            readings.append(" ")
        elif role == "box" or (inside["heading"] and role not in ("heading", "reading")):
            text.append(" ")
        elif inside["lines"] and role == "block":
            text.append("\n")
        elif role != "reading":
            if words := _spelled(text, readings, bool(inside["lines"])):
                level = int(node.tag[1]) if inside["heading"] else 0
                heading = Heading.of(level, words) if level else words
                region = next((name for name in ("main", "aside") if inside[name]), "")
                yield region, heading
            text, readings = [], []
        inside[role] += -1 if node.is_end else 1


def _spelled(text: list[str], readings: list[str], preformatted: bool) -> str:
    """Return the words of a block, with the pronunciations of rubies, which divide words, last."""
    joined = "".join(text).translate(_CONTROLS)
    words = joined.strip("\n").rstrip() if preformatted else " ".join(joined.split())
    return " ".join(filter(None, (words, *"".join(readings).split())))


def _main(blocks: list[tuple[str, Block]]) -> Iterator[Block]:
    """Yield the blocks of <main>, or all blocks if more words stand outside."""
    words: Counter[str] = Counter()
    for region, block in blocks:
        words[region] += num_words(spelled(block))
    whole = words["main"] < max(words[""], 1)
    return (block for region, block in blocks if whole or region == "main")

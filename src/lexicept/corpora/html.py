"""HTML: text without scripts and navigation; headings name passages (extra ``files``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from lexicept.corpora.budgets import check_time
from lexicept.corpora.markdown import anchor_of
from lexicept.corpora.passages import TITLES, Block, Heading, Parsed, sections
from lexicept.corpora.text_encoding import MARKS, decode_text
from lexicept.errors import InputError, require

_DROPPED = "script, style, noscript, template, svg, nav, iframe, object"

_BLOCKS = (
    "address, article, aside, blockquote, br, dd, details, div, dl, dt, figcaption, figure, "
    "footer, form, header, hr, li, main, ol, option, p, pre, section, summary, table, td, th, tr, "
    "ul, body, legend, fieldset"
)
_HEADINGS = "h1, h2, h3, h4, h5, h6"

# Control characters, removed from the text before, mark the beginnings of blocks and headings.
_BLOCK, _HEADING = "\x01", "\x02"
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f]|&#(?:0*[0-8]|x0*[0-8]);?", re.I)

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_UNCLOSED = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr", "p", "li", "dt", "dd", "td", "th", "tr", "thead", "tbody", "tfoot", "option",
    "optgroup", "colgroup",
}  # fmt: skip
"""Elements without an end tag, or with an optional end tag."""

DEEPEST = 2_000
"""Most elements inside one another: the time of parsers grows with the square."""

_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I)


def parse_html(path: str, content: bytes) -> Parsed:
    """Parse the <main> of a file, or all of <body>. The title is the page's, else the first <h1>.
    Raises BinaryError for bytes that are no text. Raises InputError if selectolax is missing, or
    can't parse the file."""
    require("files", "selectolax")
    parser: Any = import_module("selectolax.lexbor").LexborHTMLParser
    text = _CONTROLS.sub(" ", _decoded(content))
    try:
        if _depth(text) > DEEPEST:
            raise ValueError(f"more than {DEEPEST:,} elements inside one another")
        tree = parser(text)
        stated = tree.css_first("title")
        title = " ".join(stated.text().split()) if stated else ""
        for node in tree.css(_DROPPED):
            check_time()
            node.decompose()
        root = tree.css_first("main") or tree.body
        if root is None:
            return Parsed("", title, ())
        marked = _marked(root)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise InputError(f"{path}: can't be parsed as HTML: {error}") from error
    headed = list(sections(_blocks(marked)))
    named = (section.title.split(TITLES)[0] for section in headed if section.title)
    title = title or next(named, "")
    headed = [section._replace(title=_below(title, section.title)) for section in headed]
    texts = [text for section in headed for text in (section.title, section.text) if text]
    return Parsed("\n\n".join(texts), title, tuple(headed))


def _depth(text: str) -> int:
    """Return the most elements that are open at once."""
    depth = deepest = 0
    for match in _TAG.finditer(text):
        if match[2].lower() in _UNCLOSED:
            continue
        depth = max(0, depth - 1) if match[1] else depth + 1
        deepest = max(deepest, depth)
    return deepest


def _below(title: str, heading: str) -> str:
    """Return the headings of a section without the document's title before them."""
    return "" if heading == title else heading.removeprefix(title + TITLES)


def _decoded(content: bytes) -> str:
    """Decode a file by the byte order mark, as UTF-8, or by the declared encoding."""
    declared = _DECLARED.search(content[:2048])
    if declared and not content.startswith(tuple(MARKS)):
        for encoding in ("utf-8", declared[1].decode("ascii", "replace")):
            with suppress(LookupError, ValueError):
                return content.decode(encoding)
    return decode_text(content)


def _marked(root: Any) -> str:
    """Return the text of a node with ``_BLOCK`` around blocks and ``_HEADING`` around headings."""
    for node in root.css(_HEADINGS):
        check_time()
        words = " ".join(node.text().split())
        node.replace_with(f"{_HEADING}{node.tag[1]}{words}{_HEADING}")
    for node in root.css(_BLOCKS):
        check_time()
        node.insert_before(_BLOCK)
        node.insert_after(_BLOCK)
    text: str = root.text(separator="")
    return text


def _blocks(marked: str) -> Iterator[Block]:
    """Yield the headings and blocks of a marked text."""
    for number, piece in enumerate(marked.split(_HEADING)):
        if number % 2:
            yield Heading(int(piece[0]), piece[1:], anchor_of(piece[1:]))
        else:
            blocks = (" ".join(block.split()) for block in piece.split(_BLOCK))
            yield from filter(None, blocks)

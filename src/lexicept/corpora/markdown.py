"""Markdown, also in cells of Jupyter notebooks, as it is shown: inline text without marks, link
targets, tags and shortcodes of site generators. Front matter is fields, the first heading the
title; later headings name passages."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from html.parser import HTMLParser
from itertools import islice
from typing import TYPE_CHECKING, Any

from lexicept.corpora.json_lines import RESERVED
from lexicept.corpora.passages import Block, Heading, Parsed, check_time, parsed_blocks
from lexicept.errors import InputError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_FRONT_MATTER = re.compile(
    r"(---|\+\+\+)[ \t]*\r?\n(.*?)^(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M
)
NESTING = 100
"""Most blocks inside one another."""

DEEPEST = 10
"""Most mappings inside one another in front matter."""

_SHORTCODE = re.compile(r"\{\{.{0,4000}?\}\}|\{%.{0,4000}?%\}|\{#.{0,4000}?#\}", re.S)
"""Shortcodes, variables and comments of Hugo, Jekyll, Jinja and the like."""
_CODE_SHORTCODE = re.compile(r"\{[{%][<%]?-?\s*(highlight|code|codeblock)\b")
_ATTRIBUTES = re.compile(r"\{:?[ \t]*[#.][\w-][^{}\n]*\}|\{:[^{}\n]*\}")
_CONTAINER = re.compile(r"""(?:!!!|\?\?\?\+?|===[!+]?(?=[ \t]+["']))[ \t]+(?P<kind>[^\n]*)""")
"""Admonitions and tabs of Python-Markdown, with the content indented by four."""
_FENCED_DIV = re.compile(r":{3,}[ \t]*(\{[^}\n]*\}|[\w.-]+)?(.*)")
"""A fence of a container: Pandoc, MyST, VuePress, Docusaurus; ``::: module`` of mkdocstrings."""
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]")
_MARK = re.compile(r"\[!\w+\][+-]?[ \t]*|\[[ xX]\][ \t]+")
"""Marks at the start of quotations and list items: ``[!NOTE]``, ``[x]``."""
_WIKI_LINK = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_DROPPED_TARGET = re.compile("\\[([^\\[\\]]*)\\]\\([^()\x01]*\x01[^()]*\\)")
_ICON = re.compile(r"(?<!\w):(?:material|fontawesome|octicons|simple)-[\w-]+:")
_MYST_ROLE = re.compile(r"\{[\w:-]+\}$")
_MYST_DIRECTIVE = re.compile(
    r"\{(?!code|literal|math|toctree|include|figure|image|mermaid)[\w:-]+\}"
)
_ANCHOR = re.compile(r"\{:?[^{}]*#([\w:.-]+)[^{}]*\}\s*$")


def parse_markdown(path: str, text: str) -> Parsed:
    """Parse a file; ``path`` is for errors. Raises InputError for broken front matter.

    The title is the front matter's, else the first heading of level 1, which the text then lacks.
    """
    front, text = _split_front_matter(path, text)
    stated = front.pop("title", None)
    fields = {name: value for name, value in front.items() if name not in RESERVED}
    fields = dict(islice(_flat(fields), 1_001))  # more are refused; aliases may multiply them
    title = "" if stated is None else str(stated)
    return parsed_blocks(markdown_blocks(text), title, fields)


def markdown_blocks(text: str) -> list[Block]:
    """Return the headings and the texts of the blocks of a Markdown text."""
    blocks: list[Block] = []
    for separator, block in _shown(_parser().parse(text)):
        block = block if isinstance(block, Heading) else block.strip("\n")
        if isinstance(block, Heading) or not block.strip():
            blocks += [block] if isinstance(block, Heading) else []
        elif separator == "\n" and blocks and isinstance(blocks[-1], str):
            blocks[-1] += separator + block
        else:
            blocks.append(block)
    return blocks


def _shown(tokens: Sequence[Token]) -> Iterator[tuple[str, Block]]:
    """Yield headings and texts, each after the separator from the text before."""
    lists, first = 0, True
    cells: list[str] = []
    for number, token in enumerate(tokens):
        before = tokens[number - 1]
        match token.type:
            case "bullet_list_open" | "ordered_list_open" | "table_open":
                first = first or not lists
                lists += 1
            case "bullet_list_close" | "ordered_list_close" | "table_close":
                lists -= 1
            case "inline" if before.type in ("th_open", "td_open"):
                cells.append(_inline_text(token.children or ()))
            case "tr_close":
                yield "" if first else "\n", "\t".join(cells)
                cells, first = [], False
            case "inline":
                spelled = _inline_text(token.children or ())
                if token.level > 1 and (mark := _MARK.match(spelled)):
                    spelled = spelled[mark.end() :]
                # A heading inside a quotation or a list heads no section.
                if before.type == "heading_open" and before.level == 0:
                    words = " ".join(spelled.split())
                    anchor = _ANCHOR.search(token.content)
                    level = int(before.tag[1:])
                    yield "", Heading(level, words, anchor[1] if anchor else anchor_of(words))
                else:
                    yield "\n" if before.hidden and not first else "", spelled
                    first = False
            case "fence" if _MYST_DIRECTIVE.match(token.info):
                title = token.info.partition("}")[2]
                for block in markdown_blocks(f"{title}\n\n{token.content}"):
                    yield "", block.text if isinstance(block, Heading) else block
            case "fence" | "code_block":
                yield "", token.content
            case "html_block":
                for block in _Tags.of(token.content).blocks:
                    yield "", block.text if isinstance(block, Heading) and token.level else block


def _inline_text(tokens: Sequence[Token]) -> str:
    """Return the text that a reader sees of inline elements."""
    text, hidden = "", False
    for token in tokens:
        match token.type:
            case "html_inline":
                tag = _Tags.of(token.content)
                hidden = tag.hidden if tag.tags else hidden
                text += "".join(block for block in tag.blocks if isinstance(block, str))
                text += "\n" if "br" in tag.tags else ""
            case _ if hidden:
                continue
            case "code_inline" if role := _MYST_ROLE.search(text):
                label = re.sub(r"\s*<[^<>]*>$", "", token.content)
                text = text[: role.start()] + (label or token.content)
            case "image":
                text += _inline_text(token.children or ())
            case "softbreak":
                text += " "
            case "hardbreak":
                text += "\n"
            case _:
                text += token.content
    if "\x01" in text:
        text = _DROPPED_TARGET.sub(r"\1", text).replace("\x01", "")
    text = _ICON.sub("", _WIKI_LINK.sub(r"\1", text)) if "[[" in text or ":" in text else text
    return text.strip()


class _Tags(HTMLParser):
    """The shown text of a piece of HTML: headings and blocks."""

    INLINE = frozenset({
        "a", "abbr", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font",
        "i", "img", "input", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span",
        "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
    })  # fmt: skip
    HIDDEN = frozenset({"script", "style", "template", "noscript", "svg", "iframe"})

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.hidden = False
        self.blocks: list[Block] = []
        self._text = ""

    @classmethod
    def of(cls, html: str) -> _Tags:
        """Parse a piece."""
        parser = cls()
        parser.feed(html)
        parser.close()
        parser._end()
        return parser

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.hidden = self.hidden or tag in self.HIDDEN
        if tag not in self.INLINE:
            self._end()
        self._text += (dict(attributes).get("alt") or "") if tag == "img" else ""

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(tag)
        self.hidden = self.hidden and tag not in self.HIDDEN
        if re.fullmatch("h[1-6]", tag):
            words = " ".join(self._text.split())
            self.blocks += [Heading(int(tag[1]), words, anchor_of(words))] if words else []
            self._text = ""
        elif tag not in self.INLINE:
            self._end()

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        hidden = self.hidden
        self.handle_starttag(tag, attributes)
        self.hidden = hidden

    def handle_data(self, data: str) -> None:
        self._text += "" if self.hidden else data

    def _end(self) -> None:
        text = _SHORTCODE.sub("", self._text)
        self.blocks += [" ".join(text.split())] if text.strip() else []
        self._text = ""


@cache
def _parser() -> MarkdownIt:
    """Return a parser of CommonMark, tables, footnotes, admonitions and shortcodes."""
    from markdown_it import MarkdownIt  # slow to import, and a search does not need it

    parser = MarkdownIt("commonmark", {"maxNesting": NESTING}).enable(["table", "strikethrough"])
    ends: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("fence", "shortcode", _shortcode_lines, ends)
    parser.block.ruler.before("fence", "container", _container, ends)
    parser.block.ruler.before("reference", "footnote", _footnote, ends)
    parser.inline.ruler.before("link", "shortcode", _inline_mark)
    parser.block.ruler.before("table", "time", _time)
    parser.inline.ruler.before("text", "time", _time)
    return parser


def _time(*_: object) -> bool:
    """Check the time at each line, and at each place of a line with a mark."""
    check_time()
    return False


def _inline_mark(state: StateInline, silent: bool) -> bool:
    """Skip a shortcode, an attribute list or the mark of a footnote."""
    source, start = state.src, state.pos
    if source[start] == "[":
        match = _FOOTNOTE.match(source, start)
    elif source[start] == "{":
        match = _SHORTCODE.match(source, start)
        if match is None and (attributes := _ATTRIBUTES.match(source, start)):
            ended = source[attributes.end() : attributes.end() + 1] in ("", "\n")
            match = attributes if ended or source[start - 1 : start] in (*")]`*_",) else None
    else:
        return False
    if match is None or match.end() > state.posMax:
        return False
    if not silent:
        state.pending += "\x01"
    state.pos = match.end()
    return True


def _line(state: StateBlock, line: int) -> tuple[int, int]:
    """Return the bounds of a line's text."""
    return state.bMarks[line] + state.tShift[line], state.eMarks[line]


def _shortcode_lines(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Skip lines of a shortcode; the content of a shortcode for code is code."""
    begin = _line(state, start)[0]
    if state.src[begin : begin + 2] not in ("{{", "{%", "{#") or state.is_code_block(start):
        return False
    match = _SHORTCODE.match(state.src, begin)
    code = _CODE_SHORTCODE.match(state.src, begin)
    if match is None:
        return False
    last = start
    while last + 1 < end and state.eMarks[last] < match.end():
        last += 1
    if state.src[match.end() : state.eMarks[last]].strip():
        return False
    if code is not None:
        closing = re.compile(rf"\{{[{{%][<%]?-?\s*(end|/\s*){code[1]}\b")
        for line in range(last + 1, end):
            if closing.match(state.src, _line(state, line)[0]):
                if not silent:
                    token = state.push("code_block", "code", 0)
                    token.content = state.getLines(last + 1, line, state.blkIndent, False)
                last = line
                break
    if not silent:
        state.line = last + 1
    return True


def _container(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read an admonition, a tab or a fenced division: the title and the blocks inside."""
    begin, stop = _line(state, start)
    if state.src[begin : begin + 3] not in ("!!!", "???", "===", ":::"):
        return False
    opening = state.src[begin:stop]
    indented = _CONTAINER.fullmatch(opening)
    division = _FENCED_DIV.fullmatch(opening)
    if state.is_code_block(start) or not (indented or division):
        return False
    if silent:
        return True
    last, indent = start + 1, state.sCount[start] + 4
    if indented:
        quoted = re.search(r"""(["'])(.*)\1""", indented["kind"])
        title = quoted[2] if quoted else ""
    else:
        title = division[2].strip(' \t"[]{}') if division else ""
    if indented or (division and "." in (division[1] or "")):
        while last < end and (state.isEmpty(last) or state.sCount[last] >= indent):
            last += 1
    state.push("paragraph_open", "p", 1)
    token = state.push("inline", "", 0)
    token.content, token.children = title, []
    state.push("paragraph_close", "p", -1)
    if indented:
        outside = state.lineMax, state.blkIndent
        state.lineMax, state.blkIndent = last, indent
        state.md.block.tokenize(state, start + 1, last)
        state.lineMax, state.blkIndent = outside
    state.line = last
    return True


def _footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read the first paragraph of a footnote."""
    begin, _ = _line(state, start)
    match = _FOOTNOTE.match(state.src, begin)
    if match is None or state.src[match.end() : match.end() + 1] != ":":
        return False
    if state.is_code_block(start):
        return False
    if not silent:
        last = start + 1
        while last < end and not state.isEmpty(last):
            if _FOOTNOTE.match(state.src, _line(state, last)[0]):
                break
            last += 1
        content = state.getLines(start, last, state.blkIndent, False)
        state.push("paragraph_open", "p", 1)
        token = state.push("inline", "", 0)
        token.content, token.children = content.partition("]:")[2].strip(), []
        state.push("paragraph_close", "p", -1)
        state.line = last
    return True


def anchor_of(heading: str) -> str:
    """Return GitHub's anchor of a heading: the words in lower case, joined by hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _flat(fields: dict[Any, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield fields and, as ``params.level``, the members of nested mappings."""
    for name, value in fields.items():
        if isinstance(value, dict) and depth < DEEPEST:
            yield from _flat(value, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", value


def _split_front_matter(path: str, markdown: str) -> tuple[dict[str, Any], str]:
    """Return the mapping in YAML between lines of ---, or in TOML between lines of +++, at the
    start, and the text after the lines; an empty mapping and the whole text without either."""
    match = _FRONT_MATTER.match(markdown)
    if match is None:
        return {}, markdown
    try:
        if match[1] == "+++":
            content: Any = tomllib.loads(match[2].replace("\r\n", "\n"))
        else:
            from lexicept.storage.yaml_text import parse_yaml  # slower than most searches

            content = parse_yaml(match[2])
    except (InputError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: front matter: {error}") from None
    if not isinstance(content, dict):
        return {}, markdown
    return {str(key): value for key, value in content.items()}, markdown[match.end() :].strip()


def parse_notebook(path: str, text: str) -> Parsed:
    """Parse a notebook of nbformat 3 or 4. The title is the first heading of level 1.

    Raises InputError for broken JSON, and for JSON that is no notebook.
    """
    try:
        return parsed_blocks(list(_cells(json.loads(text))))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error!s:.80}"
        raise InputError(f"{path}: can't be read as a notebook: {problem}") from error


def _cells(notebook: Any) -> Iterator[Block]:
    """Yield the headings and texts of all cells."""
    # Up to nbformat 3, cells are in worksheets, and headings are cells.
    sheets = [notebook] if "cells" in notebook else notebook["worksheets"]
    for cell in (cell for sheet in sheets for cell in sheet["cells"]):
        kind = cell["cell_type"]
        source = "".join(cell["source"] if "source" in cell else cell.get("input", ""))
        if kind == "markdown":
            yield from markdown_blocks(source)
        elif kind == "heading":
            words = " ".join(source.split())
            yield Heading(int(cell["level"]), words, anchor_of(words))
        elif kind == "code" and source.strip():
            yield source.strip("\n")

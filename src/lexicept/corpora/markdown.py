"""Markdown, also in cells of Jupyter notebooks, as it is shown: inline text without marks, link
targets, tags and shortcodes of site generators. Front matter is fields, the first heading the
title; later headings name passages."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, MutableMapping, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from lexicept.corpora.budgets import FRONT_MATTER, NESTED_TEXTS, NESTING, check_time, note
from lexicept.corpora.html import blocks_of
from lexicept.corpora.json_lines import RESERVED
from lexicept.corpora.passages import Block, Heading, Parsed, parsed_blocks, spelled
from lexicept.errors import message_of
from lexicept.fields.values import MOST_FIELDS

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

_FRONT_MATTER = re.compile(
    r"(---|\+\+\+)[ \t]*\r?\n(.*?)^(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M
)
_FRONT_LINE = re.compile(
    r"[\s#{}\]-]|\[.*\]\s*$|(\"[^\"]*\"|'[^']*'|[^\s:=][^:=]{0,60})[ \t]*[:=]|$"
)
"""Lines that front matter may have, in YAML, TOML or a template of either."""

DEEPEST = 10
"""Most mappings inside one another in front matter."""

# No mark stands inside another one: else the time would grow with the square.
_SITE_MARKS = re.compile(
    r"(?P<code>^[ \t]*(?P<fence>```|~~~).*?(?:^[ \t]*(?P=fence)|\Z)|`[^`\n]*`)"
    r"|(?<!\\)\{\{(?P<shortcode>(?:(?!\{\{|\}\}).){0,4000}+)\}\}"
    r"|\{(?P<sign>[%#])(?P<tag>(?:(?!\{(?P=sign)|(?P=sign)\}).){0,4000}+)(?P=sign)\}"
    r"|^::: \w+(?:\.\w+)+[ \t]*(?:\n {4}[^\n]*)*"
    r"|^(?P<indent>[ \t]*)===[!+]?[ \t]+(?=[\"'])",
    re.S | re.M,
)
"""Code, which stays as it is; shortcodes, variables and comments of Hugo, Jekyll, Jinja and the
like; names of mkdocstrings; and tabs of Python-Markdown."""
_CODE_SHORTCODE = re.compile(r"[<%]?-?\s*(?:end|/\s*)?(?:highlight|code|codeblock)\b")
_LIST = r"(?:\{:?[ \t]*[#.][\w-][^{}\n]*\}|\{:[^{}\n]*\})"
_ATTRIBUTES = re.compile(rf"\A{_LIST}|(?<![ \t])[ \t]*{_LIST}\Z")
"""Lists of attributes behind an inline element, or at the end of a text."""
_MARK = re.compile(r"\[!\w+\][+-]?[ \t]*|\[[ xX]\][ \t]+")
"""Marks at the start of quotations and list items: ``[!NOTE]``, ``[x]``."""
_WIKI_LINK = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_ICON = re.compile(r"(?<!\w):(?:material|fontawesome|octicons|simple)-[\w-]+:")
_MYST_ROLE = re.compile(r"\{[\w:-]+\}$")
_MYST_DIRECTIVE = re.compile(
    r"\{(?!code|literal|math|toctree|include|figure|image|mermaid)[\w:-]+\}"
)
_OPTIONS = re.compile(r"\A(?::[\w-]+:.*\n)+")
_DIRECTIVE_NAME = re.compile(r"\{[^}\n]*\}|[\w.-]+")
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][\w-]*)")
_HIDDEN = frozenset({"script", "style", "template", "noscript", "svg", "iframe"})
_ANCHOR = re.compile(r"\{[^{}#]*#([\w:.-]++)[^{}]*\}$")


def parse_markdown(text: str) -> Parsed:
    """Parse a file. Front matter with a flaw is ignored, and noted.

    The title is the front matter's, else the first heading of level 1, which the text then lacks.
    """
    front, text = _split_front_matter(text)
    title = front.pop("title", "")
    return parsed_blocks(markdown_blocks(text), str(title), front)


def markdown_blocks(
    text: str, depth: int = 0, references: MutableMapping[str, Any] | None = None
) -> list[Block]:
    """Return the headings and the blocks' texts of Markdown, itself inside ``depth`` others, whose
    ``references`` count too."""
    if depth > NESTED_TEXTS:
        return [text]
    if not depth:
        text = _SITE_MARKS.sub(_without_site_mark, text)
    blocks: list[Block] = []
    references = {} if references is None else references
    for separator, block in _shown(_parser().parse(text, references), depth, references):
        block = block if isinstance(block, Heading) else block.strip("\n")
        if isinstance(block, Heading) or not block.strip():
            blocks += [block] if isinstance(block, Heading) else []
        elif separator == "\n" and blocks and isinstance(blocks[-1], str):
            blocks[-1] += separator + block
        else:
            blocks.append(block)
    return blocks


def _without_site_mark(match: re.Match[str]) -> str:
    """Return code as it is, a shortcode for code as a fence, a tab as an admonition, and nothing in
    place of any other mark of a site generator."""
    if match["code"] is not None:
        return match[0]
    if match["indent"] is not None:
        return f"{match['indent']}!!! tab "
    return "```" if _CODE_SHORTCODE.match(match["shortcode"] or match["tag"] or "") else ""


def _shown(
    tokens: Sequence[Token], depth: int, references: MutableMapping[str, Any]
) -> Iterator[tuple[str, Block]]:
    """Yield headings and texts, each after the separator from the text before."""
    lists, at_start = 0, True
    cells: list[str] = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1]
        match token.type:
            case "bullet_list_open" | "ordered_list_open" | "table_open":
                at_start = at_start or not lists
                lists += 1
            case "bullet_list_close" | "ordered_list_close" | "table_close":
                lists -= 1
            case "inline" if before.type in ("th_open", "td_open"):
                cells.append(_inline_text(token.children or ()))
            case "tr_close":
                yield "" if at_start else "\n", "\t".join(cells)
                cells, at_start = [], False
            case "inline":
                text = _inline_text(token.children or ())
                if token.level > 1 and (mark := _MARK.match(text)):
                    text = text[mark.end() :]
                # A heading inside a quotation or a list heads no section.
                if before.type == "heading_open" and before.level == 0:
                    heading = Heading.of(int(before.tag[1:]), " ".join(text.split()))
                    anchor = _ANCHOR.search(token.content)
                    yield "", heading._replace(anchor=anchor[1]) if anchor else heading
                else:
                    yield "\n" if before.hidden and not at_start else "", text
                    at_start = False
            case "fence" | "colon_fence" if token.type == "colon_fence" or _MYST_DIRECTIVE.match(
                token.info
            ):
                title = _DIRECTIVE_NAME.sub("", token.info.strip(), count=1).strip(' \t"[]{}')
                text = f"{title}\n\n{_OPTIONS.sub('', token.content)}"
                for block in markdown_blocks(text, depth + 1, references):
                    yield "", spelled(block) if token.level else block
            case "fence" | "code_block":
                yield "", token.content
            case "html_block":
                for block in blocks_of(token.content):
                    yield "", spelled(block) if token.level else block


def label_of(text: str) -> str:
    """Return the label of ``label <target>``; an empty text without both."""
    return text[:-1].rpartition("<")[0].rstrip() if text.endswith(">") else ""


def _inline_text(tokens: Sequence[Token]) -> str:
    """Return the text that a reader sees of inline elements."""
    texts, hidden = [""], False
    for token in tokens:
        match token.type:
            case "html_inline":
                match = _TAG.match(token.content)
                name = match["name"].lower() if match else ""
                if match and name in _HIDDEN:
                    hidden = not match["end"] and not token.content.endswith("/>")
                texts += map(spelled, blocks_of(token.content)) if name == "img" else ()
                texts += "\n" if name == "br" else ""
            case _ if hidden:
                continue
            case "code_inline" if role := _MYST_ROLE.search(texts[-1]):
                texts[-1] = texts[-1][: role.start()]
                texts.append(label_of(token.content) or token.content)
            case "image":
                texts.append(_inline_text(token.children or ()))
            case "softbreak":
                texts.append(" ")
            case "hardbreak":
                texts.append("\n")
            case "text":
                texts.append(_ATTRIBUTES.sub("", token.content))
            case _:
                texts.append(token.content)
    text = "".join(texts)
    text = _ICON.sub("", _WIKI_LINK.sub(r"\1", text)) if "[[" in text or ":" in text else text
    return text.strip()


@cache
def _parser() -> MarkdownIt:
    """Return a parser of CommonMark, tables, footnotes, admonitions and fenced divisions."""
    # Slow to import, and a search does not need them.
    from markdown_it import MarkdownIt
    from mdit_py_plugins.admon import admon_plugin
    from mdit_py_plugins.colon_fence import colon_fence_plugin
    from mdit_py_plugins.footnote import footnote_plugin

    parser = MarkdownIt("commonmark", {"maxNesting": NESTING}).enable(["table", "strikethrough"])
    parser.use(footnote_plugin, inline=False, move_to_end=False)
    parser.use(admon_plugin).use(colon_fence_plugin)
    parser.block.ruler.before("table", "deep", _deep)
    parser.inline.ruler.before("text", "time", check_time)
    return parser


def _deep(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read blocks too deep in others as they are written; the parser would drop them."""
    check_time()
    if silent or state.level < NESTING - 2:
        return False
    line = start + 1
    while line < end and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent):
        line += 1
    token = state.push("code_block", "code", 0)
    token.content = state.getLines(start, line, state.blkIndent, False)
    state.line = line
    return True


def _flat(fields: dict[Any, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield fields and, as ``params.level``, the members of nested mappings."""
    for name, value in fields.items():
        if isinstance(value, dict) and depth < DEEPEST:
            yield from _flat(value, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", value


def _split_front_matter(markdown: str) -> tuple[dict[str, Any], str]:
    """Return the fields in YAML between lines of ---, or in TOML between lines of +++, at the
    start, and the text after the lines; no fields and the whole text without either."""
    match = _FRONT_MATTER.match(markdown)
    if match is None:
        return {}, markdown
    after = markdown[match.end() :].strip()
    try:
        fields = _front_fields(match[2], toml=match[1] == "+++")
    except (ValueError, RecursionError) as error:
        note(f"front matter ignored: {message_of(error)}")
        # Other lines are of a text between two rules.
        between = not all(map(_FRONT_LINE.match, match[2].splitlines()))
        return {}, markdown if between else after
    return ({}, markdown) if fields is None else (fields, after)


def _front_fields(text: str, toml: bool) -> dict[str, Any] | None:
    """Return the fields of front matter; None for a text. Raises ValueError for a flaw."""
    from lexicept.storage.yaml_text import parse_yaml  # slower than most searches

    if len(text) > FRONT_MATTER:
        raise ValueError(f"more than {FRONT_MATTER:,} characters")
    front_matter = tomllib.loads(text.replace("\r\n", "\n")) if toml else parse_yaml(text)
    if not isinstance(front_matter, dict):
        return None
    named = {str(name): value for name, value in front_matter.items() if value is not None}
    allowed = {name: value for name, value in named.items() if name not in RESERVED - {"title"}}
    fields = dict(islice(_flat(allowed), MOST_FIELDS + 1))
    if len(fields) > MOST_FIELDS:
        raise ValueError(f"more than {MOST_FIELDS:,} fields")
    str(fields.get("title", "")).encode()
    return fields


def parse_notebook(text: str) -> Parsed:
    """Parse a notebook of nbformat 3 or 4. The title is the first heading of level 1. Raises
    ValueError and the like for broken JSON, and for JSON that is no notebook."""
    return parsed_blocks(list(_cells(json.loads(text))))


def _cells(notebook: Any) -> Iterator[Block]:
    """Yield the headings and texts of all cells."""
    # Up to nbformat 3, cells are in worksheets, and headings are cells.
    sheets = [notebook] if "cells" in notebook else notebook["worksheets"]
    for cell in (cell for sheet in sheets for cell in sheet["cells"]):
        cell_type = cell["cell_type"]
        source = "".join(cell["source"] if "source" in cell else cell.get("input", ""))
        if cell_type == "markdown":
            yield from markdown_blocks(source)
        elif cell_type == "heading":
            yield Heading.of(int(cell["level"]), " ".join(source.split()))
        elif cell_type == "code" and source.strip():
            yield source.strip("\n")

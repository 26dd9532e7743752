"""Text formats with marks, as a reader sees the text: MDX, LaTeX, AsciiDoc, Org and subtitles.

Each function takes a file's text and returns headings and blocks. No command or include is run.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

from lexicept.corpora.markdown import anchor_of, markdown_blocks
from lexicept.corpora.passages import Block, Heading, Parsed, parsed_blocks

_FENCE = re.compile(r"[ \t]*(```+|~~~+)")
_MODULE_LINE = re.compile(r"(import|export)\b")


def parse_markup(extension: str, text: str) -> Parsed:
    """Parse a text of an extension of ``EXTENSIONS``."""
    return parsed_blocks([block for block in _READERS[extension](text) if block])


def _heading(level: int, text: str) -> Iterator[Block]:
    if text := " ".join(text.split()):
        yield Heading(level, text, anchor_of(text))


def _mdx(text: str) -> Iterator[Block]:
    """Yield Markdown without imports, exports, expressions and the names of components."""
    kept: list[str] = []
    fence, module = "", False
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and (not fence or line.strip() == fence):
            fence = "" if fence else mark[1]
        elif not fence:
            module = bool(line.strip()) and (module or bool(_MODULE_LINE.match(line)))
            if module:
                continue
            line = re.sub(r"\{/\*.*?\*/\}|\{[^{}]*\}", "", line)
            line = re.sub(r"</?(?:[A-Z][^<>]{0,1000})?>", "", line)
        kept.append(line)
    yield from markdown_blocks("\n".join(kept))


_LEVELS = {"part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4}
_LEVELS |= {"paragraph": 5, "title": 1, "frametitle": 2}
_SECTION = re.compile(
    r"\\(" + "|".join(_LEVELS) + r")\*?[ \t]*(?:\[[^\]\n]*\][ \t]*)?\{([^{}\n]*)\}"
)
_SILENT = re.compile(
    r"\\(?:label|ref|eqref|cite\w*|bibliography\w*|usepackage|documentclass|includegraphics|input|"
    r"include|vspace|hspace|pagestyle|newcommand|renewcommand|setlength|begin|end|index|date)"
    r"\*?(?:\[[^\]]*\])*(?:\{[^{}]*\})*"
)


def _tex(text: str) -> Iterator[Block]:
    """Yield the body of LaTeX without commands; formulas stay as they are written."""
    text = re.sub(r"(?<!\\)%[^\n]*", "", text)
    titles = re.findall(r"\\title\s*\{([^{}]*)\}", text[:100_000])
    _, begun, body = text.partition(r"\begin{document}")
    body = body.partition(r"\end{document}")[0] if begun else text
    yield from _heading(1, titles[0] if begun and titles else "")
    end = 0
    for match in _SECTION.finditer(body):
        yield from _paragraphs(_plain_tex(body[end : match.start()]))
        if match[1] != "title":
            yield from _heading(_LEVELS[match[1]], _plain_tex(match[2]))
        end = match.end()
    yield from _paragraphs(_plain_tex(body[end:]))


def _plain_tex(text: str) -> str:
    text = _SILENT.sub("", text)
    text = re.sub(r"\\(?:item|par|maketitle|newline|\\)(?![a-zA-Z])\s?", "\n", text)
    text = re.sub(r"\\([%&$#_{}])", r"\1", text)
    text = re.sub(r"\\[a-zA-Z]+\*?[ \t]*(?:\[[^\]\n]*\])?", "", text)
    return re.sub(r"[{}~]", lambda match: " " if match[0] == "~" else "", text)


def _paragraphs(text: str) -> Iterator[Block]:
    yield from (paragraph.strip() for paragraph in re.split(r"\n[ \t]*\n", text))


def _by_lines(text: str, heading: re.Pattern[str], dropped: re.Pattern[str]) -> Iterator[Block]:
    """Yield headings, whose marks give the level, and the paragraphs between, without lines that
    are dropped."""
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        match = heading.match(line)
        if match or not line.strip():
            yield "\n".join(paragraph)
            paragraph = []
        if match:
            yield from _heading(len(match[1]), _unmarked(match[2]))
        elif not dropped.match(line):
            paragraph.append(_unmarked(line.rstrip()))
    yield "\n".join(paragraph)


_INLINE = re.compile(r"(?<![\w*_=~/+`])([*_=~`+]{1,2})(?=\S)([^\n]{0,200}?\S)\1(?![\w*_=~/+`])")
_LINKS = re.compile(
    r"\[\[[^\[\]]{0,500}\]\[([^\[\]]{0,500})\]\]|"
    r"(?:link:|xref:|https?://|mailto:)[^\s\[]{1,500}\[([^\[\]]{1,500})\]|"
    r"<<[^,<>]{0,200},([^<>]{0,500})>>"
)


def _unmarked(line: str) -> str:
    """Return a line of AsciiDoc or Org without marks of style, with the labels of links."""
    line = _LINKS.sub(lambda match: match[1] or match[2] or match[3] or "", line)
    return _INLINE.sub(r"\2", line)


def _asciidoc(text: str) -> Iterator[Block]:
    text = re.sub(r"^////+\n.*?^////+$", "", text, flags=re.S | re.M)
    heading = re.compile(r"(={1,6})[ \t]+(\S.*)")
    dropped = re.compile(
        r"//|:[\w!-]+:|\[.*\]$|(----|====|\.\.\.\.|\*\*\*\*|____|\|===|--|\+)\s*$|(include|image)::"
    )
    return _by_lines(re.sub(r"^[.|](?=[^\s.=])", "", text, flags=re.M), heading, dropped)


def _org(text: str) -> Iterator[Block]:
    titles = re.findall(r"^#\+title:[ \t]*(\S.*)$", text, flags=re.I | re.M)
    yield from _heading(1, titles[0] if titles else "")
    text = re.sub(r"^[ \t]*:(PROPERTIES|LOGBOOK):[ \t]*\n.*?^[ \t]*:END:[ \t]*$", "", text, flags=re.S | re.M)  # fmt: skip  # noqa: E501
    text = re.sub(r"^(\*+[ \t]+)(?:TODO|DONE)[ \t]+|[ \t]+:[\w@:]{1,100}:[ \t]*$", r"\1", text, flags=re.M)  # fmt: skip  # noqa: E501
    heading = re.compile(r"(\*{1,9})[ \t]+(\S.*)")
    yield from _by_lines(text, heading, re.compile(r"[ \t]*#([ +]|$)|(SCHEDULED|DEADLINE|CLOSED):"))


_TIME = re.compile(r"(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}[ \t]*-->")


def _subtitles(text: str) -> Iterator[Block]:
    """Yield the spoken lines, without counters, times and tags."""
    spoken: list[str] = []
    for cue in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n")):
        lines = cue.strip().split("\n")
        times = [index for index, line in enumerate(lines) if _TIME.match(line.strip())]
        if times:
            words = " ".join(lines[times[0] + 1 :])
            words = html.unescape(re.sub(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}", "", words)).strip()
            if words and words not in spoken[-1:]:  # rolling captions repeat the line before
                spoken.append(words)
    yield "\n".join(spoken)


_READERS: dict[str, Callable[[str], Iterator[Block]]] = {
    ".mdx": _mdx,
    ".tex": _tex,
    **dict.fromkeys((".adoc", ".asciidoc"), _asciidoc),
    ".org": _org,
    **dict.fromkeys((".srt", ".vtt"), _subtitles),
}
EXTENSIONS = tuple(_READERS)
"""Extensions of these formats."""

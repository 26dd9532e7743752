"""LaTeX, AsciiDoc, Org, MDX and subtitles as a person sees them: rules take out marks, comments
and commands; headings name passages."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unicodedata import lookup, normalize

from lexicept.corpora.budgets import check_time
from lexicept.corpora.markdown import parse_markdown
from lexicept.corpora.passages import Block, Heading, Parsed, parsed_blocks
from lexicept.fields.values import parse_date

Rule = tuple[str, str | Callable[[re.Match[str]], str]]
"""A regular expression, whose ^ and $ are ends of lines, and the replacement."""

# Possessive: the time stays linear in unclosed braces.
_BRACES = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+)\}"
_BRACKETS = r"\[[^\[\]\n]*+\]"
_LEVELS = dict.fromkeys(("part", "chapter"), 1) | {"section": 2, "frametitle": 2, "subsection": 3}
_LEVELS |= {"subsubsection": 4, "paragraph": 5}
_MARKS = "\u0300\u0301\u0302\u0303\u0308\u0304\u0307\u0306\u030c\u030b\u0327\u0328\u030a"
_ACCENTS = dict(zip("`'^~\"=.uvHckr", _MARKS, strict=True))
_LETTERS = {
    "ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "o": "ø", "O": "Ø", "aa": "å", "AA": "Å",
    "l": "ł", "L": "Ł", "i": "ı", "S": "§", "dots": "…", "ldots": "…",
}  # fmt: skip


def _accented(match: re.Match[str]) -> str:
    return normalize("NFC", match[2] + _ACCENTS[match[1]])


def _symbol(match: re.Match[str]) -> str:
    """Return the letter that a command of LaTeX stands for; "" for another command."""
    name = match[1]
    try:
        return lookup(f"GREEK {'CAPITAL' if name.istitle() else 'SMALL'} LETTER {name}")
    except KeyError:
        return _LETTERS.get(name, "")


def _marked(level: int | str, words: str) -> str:
    """Return a heading between marks, by which ``_blocks`` divides a text."""
    return f"\x02{level}{words.strip()}\x02"


_TEX: tuple[Rule, ...] = (
    (r"(?<!\\)%(?:[ \t].*)?\n|(?<![^\s{}\]])%.*\n?", ""),
    (r"(?s)\A.*\\begin\{document\}|\\end\{document\}.*", ""),
    (
        rf"\\({'|'.join(_LEVELS)})\b\*?(?:{_BRACKETS})?\s*{_BRACES}",
        lambda match: _marked(_LEVELS[match[1]], match[2]),
    ),
    (
        r"\\(?:label|(?:page|auto|eq|[cC])?ref|[cC]ite\w*|bibliograph\w+|input|include\w*|use\w+"
        r"|documentclass|(?:this)?pagestyle|[vh]space|set\w+|(?:re)?newcommand|title|author|date"
        rf"|graphicspath|definecolor|index|hypersetup)\b\*?(?:\s*+(?:{_BRACKETS}|{_BRACES}))*+",
        "",
    ),
    (rf"\\(?:href|textcolor|color|fontsize)\s*{_BRACES}", ""),
    (
        r"\\(?:begin|end)\s*\{(?:tabular.?|array|longtable|minipage)\}(?:\[\w*\]|\{[^{}]*+\})*+",
        "\n",
    ),
    (rf"\\(?:begin|end)\s*\{{[^{{}}]*+\}}(?:{_BRACKETS})?", "\n"),
    (r"\\item\b\s*(?:\[([^\[\]\n]*+)\])?", r"\n\1 "),
    (r"""\\([`'^~"=.])\s*\{?\\?([A-Za-z])\}?""", _accented),
    (r"\\([uvHckr])\s*\{\\?([A-Za-z])\}", _accented),
    (r"(?<![ \t])[ \t]*+(?<!\\)&[ \t]*", "\t"),
    (rf"\\\\\*?(?:{_BRACKETS})?|\\(?:par|newline)\b", "\n"),
    (r"~|\\[ ,;:!]", " "),
    (r"``|''", '"'),
    (r"---?", "–"),
    (r"\\verb\*?([^\w\s*])(.{0,500}?)\1", r"\2"),
    (rf"\\([A-Za-z]+)\*?(?:{_BRACKETS})?[ \t]*", _symbol),
    (r"(?<!\\)[${}]|\\[\[\]()]", ""),
    (r"\\([%&$#_{}])", r"\1"),
    (r"^[ \t]+|(?<![ \t])[ \t]+$", ""),
)

_ORG: tuple[Rule, ...] = (
    (r"(?is)^[ \t]*#\+begin_comment\b.*?(?:^[ \t]*#\+end_comment[^\n]*$|\Z)", ""),
    (
        r"(?i)^[ \t]*:(?:properties|logbook):[ \t]*\n(?:(?![ \t]*:end:).*\n){0,50}+[ \t]*:end:.*$",
        "",
    ),
    (r"^[ \t]*(?:#(?:\+.*|[ \t].*)?|(?:SCHEDULED|DEADLINE|CLOSED):.*)$", ""),
    (
        r"^(\*+) (?:(?:TODO|DONE|NEXT|WAITING|COMMENT) )?(?:\[#\w\] )?(.*?)(?:[ \t]+:[\w@#%:]+:)?$",
        lambda match: _marked(min(len(match[1]), 9), match[2]),
    ),
    (r"^[ \t]*\|[-+|]*\|?[ \t]*$", ""),
    (
        r"^[ \t]*\|[ \t]*(.*?)[ \t]*\|?[ \t]*$",
        lambda m: re.sub(r"(?<![ \t])[ \t]*\|[ \t]*", "\t", m[1]),
    ),
    (r"^([ \t]*)(?:[-+]|\d+[.)])[ \t]+(?:\[[ xX-]\][ \t]+)?", r"\1"),
    (r"\[\[[^\[\]\n]*+\]\[([^\[\]\n]*+)\]\]", r"\1"),
    (r"\[\[([^\[\]\n]*+)\]\]", r"\1"),
    (r"\[fn:[^\[\]:\n]*+:?([^\[\]\n]*+)\]", r"\1"),
    (r"(?<![^\s('\"{])([*/_=~+])(\S(?:[^\n]{0,500}?\S)?)\1(?![^\s.,;:!?)'\"}-])", r"\2"),
)

_ADOC: tuple[Rule, ...] = (
    (r"(?s)^////+\n.*?(?:^////+$|\Z)|^//(?!/)[^\n]*$", ""),
    (r"^(?::!?[\w-]+!?:.*|(?:include|ifn?def|ifeval|endif|toc)::.*|\[.*\]|<<<|'''|\+)$", ""),
    (r"^(={1,6}) +(.+)$", lambda match: _marked(len(match[1]), match[2])),
    (r"^(?:-{2,}|={4,}|\*{4,}|_{4,}|\.{4,}|\+{4,}|```.*|[|,:!]={3,})$", ""),
    (r"^\.(?=[^\s.])", ""),
    (
        r"^\|.*$",
        lambda m: re.sub(r"(?<![ \t])[ \t]*(?:[\d.+*<>^]{0,9}[a-z]?)\|[ \t]*", "\t", m[0]).strip(),
    ),
    (r"^[ \t]*(?:[*.]{1,5}|-)[ \t]+(?:\[[ x*]\][ \t]+)?", ""),
    (r"\b(?:image|video|audio)::?[^\s\[\]]*+\[(?:alt=)?\"?([^\[\]\",\n]*+)[^\[\]\n]*+\]", r"\1"),
    (r"\b(?:link|xref|mailto|https?):[^\s\[\]]*+\[([^\[\]\n]+)\]", r"\1"),
    (r"\b(?:kbd|btn|menu|footnote|stem|pass)(?::[^\s\[\]:]*)?:?\[([^\[\]\n]*+)\]", r" \1"),
    (r"<<[^<>,\n]*+,?[ \t]*([^<>\n]*+)>>|\[\[[^\[\]\n]*+\]\]|\(\(\([^()\n]*+\)\)\)", r"\1"),
    (r"(?<!\w)(\*\*|__|``|##|[*_`#])(?=\S)([^\n]{1,500}?)(?<=\S)\1(?!\w)", r"\2"),
    (r"(?<=\S)([\^~])(\S{1,40})\1", r"\2"),
)

_CODE = r"(?s)(^[ \t]*(```|~~~).*?(?:^[ \t]*\2|\Z)|`[^`\n]*`)"
_MDX: tuple[Rule, ...] = (
    (rf"{_CODE}|(?:\A|(?<=\n\n)|(?<=---\n))(?:import|export)\b.*?(?:\n[ \t]*\n|\Z)", r"\1"),
    (rf"{_CODE}|\{{/\*.*?(?:\*/\}}|\Z)", r"\1"),
    (
        rf"{_CODE}|</?(?:[A-Z][\w.]*|(?=>))((?:[^<>{{}}\"']|\"[^\"]*\"|'[^']*'|{_BRACES})*+)>",
        lambda m: (
            m[1] or " ".join(re.findall(r"\b(?:title|label|alt|summary)=[\"'](.+?)[\"']", m[3]))
        ),
    ),
    (rf"{_CODE}|\{{[\"'`]([^\"'`{{}}]*)[\"'`]\}}", lambda match: match[1] or match[3]),
    (rf"{_CODE}|{_BRACES}", r"\1"),
)

_SUBTITLES: tuple[Rule, ...] = (
    (r"(?s)\A\ufeff?WEBVTT.*?\n[ \t]*\n|(?<=\n\n)(?:NOTE|STYLE|REGION)\b.*?(?:\n[ \t]*\n|\Z)", ""),
    (r"^(?:[^\n]*\n)?[\d:.,]+[ \t]*-->.*$", ""),
    (r"<[^<>\n]*+>|\{\\[^{}\n]*+\}", ""),
    (r"(?<![ \t])[ \t]*\n\s*", "\n"),
)


def _replaced(text: str, rules: Iterable[Rule]) -> str:
    text = text.replace("\r\n", "\n").replace("\x02", " ")
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text, flags=re.M)
        check_time()
    return text


def _blocks(marked: str) -> Iterator[Block]:
    for index, segment in enumerate(marked.split("\x02")):
        if index % 2:
            yield Heading.of(int(segment[0]), " ".join(segment[1:].split()))
        elif text := re.sub(r"\n\s*\n", "\n\n", segment).strip():
            yield text


def _parsed(text: str, rules: Iterable[Rule], stated: dict[str, str]) -> Parsed:
    """Return a document; ``stated`` has its title, author and date as the text states these."""
    title = " ".join(stated.pop("title", "").split())
    fields: dict[str, Any] = {name: " ".join(value.split()) for name, value in stated.items()}
    if parse_date(fields.get("date", "")) is None:
        fields.pop("date", None)
    present = {name: value for name, value in fields.items() if value}
    return parsed_blocks(list(_blocks(_replaced(text, rules))), title, present)


def _tex(text: str) -> Parsed:
    commands = re.findall(rf"\\(title|author|date)\s*(?:{_BRACKETS})?\s*{_BRACES}", text)
    return _parsed(text, _TEX, {name: _replaced(value, _TEX) for name, value, *_ in commands})


def _org(text: str) -> Parsed:
    keywords = re.findall(r"(?im)^#\+(title|author|date):[ \t]*(.*)$", text)
    return _parsed(text, _ORG, {name.lower(): value.strip("<>[]") for name, value in keywords})


def _adoc(text: str) -> Parsed:
    attributes = dict(re.findall(r"(?m)^:([\w-]+):[ \t]+(.*)$", text))
    stated = {"author": attributes.get("author", ""), "date": attributes.get("revdate", "")}
    if header := re.match(r"(= .+\n)(\w[^\n<;:]*)(?: <.*)?\n(?:v?\d.*?([\d-]*)\n)?", text):
        stated = {"author": header[2], "date": header[3] or stated["date"]}
        text = header[1] + text[header.end() :]
    text = re.sub(r"\{([\w-]+)\}", lambda match: attributes.get(match[1], match[0]), text)
    return _parsed(text, _ADOC, stated)


def _subtitles(text: str) -> Parsed:
    lines = html.unescape(_replaced(text, _SUBTITLES)).strip().split("\n")
    # Rolling captions repeat the line before.
    spoken = [line for line, before in zip(lines, ["", *lines], strict=False) if line != before]
    return parsed_blocks(["\n".join(spoken)])


_READERS: dict[str, Callable[[str], Parsed]] = {
    ".mdx": lambda text: parse_markdown(_replaced(text, _MDX)),
    **{".tex": _tex, ".adoc": _adoc, ".asciidoc": _adoc, ".org": _org},
    **{".srt": _subtitles, ".vtt": _subtitles},
}
EXTENSIONS = tuple(_READERS)
"""Extensions of these formats."""


def parse_markup(extension: str, text: str) -> Parsed:
    """Parse a text of an extension of ``EXTENSIONS``; nothing is included or run."""
    return _READERS[extension](text)

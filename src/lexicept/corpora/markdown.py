"""Markdown: front matter is fields, the first heading the title; later headings name passages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

from lexicept.corpora.json_lines import RESERVED
from lexicept.corpora.passages import TITLES, Parsed, Section
from lexicept.errors import InputError

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M)


class Heading(NamedTuple):
    """A heading of a text, in the lines from ``start`` to ``end``."""

    start: int
    end: int
    level: int
    text: str


def parse_markdown(path: str, text: str) -> Parsed:
    """Parse a file; ``path`` is for errors. Raises InputError for front matter that is no YAML.

    The title is the front matter's, else the first heading of level 1, which the text then lacks.
    """
    front, text = _split_front_matter(path, text)
    lines, outline = text.split("\n"), headings(text)
    first = next((heading for heading in outline if heading.level == 1), None)
    stated = front.pop("title", None)
    title = "" if stated is None else str(stated)
    if first is not None and title in ("", first.text):
        title = first.text
        lines[first.start : first.end] = []
        text = "\n".join(lines).strip()
        outline = headings(text)
    fields = {name: value for name, value in front.items() if name not in RESERVED}
    return Parsed(text, title, tuple(_sections(text.split("\n"), outline)), fields)


def headings(text: str) -> list[Heading]:
    """Return the headings of a Markdown text by the rules of CommonMark."""
    from markdown_it import MarkdownIt  # slow to import, and a search does not need it

    tokens = MarkdownIt("commonmark").parse(text)
    outline = []
    for opened, content in pairwise(tokens):
        # A heading inside a quotation or a list heads no section.
        if opened.type == "heading_open" and opened.level == 0 and opened.map is not None:
            spelled = "".join(child.content or " " for child in content.children or ())
            start, end = opened.map
            outline.append(Heading(start, end, int(opened.tag[1:]), " ".join(spelled.split())))
    return outline


def _sections(lines: list[str], outline: list[Heading]) -> Iterator[Section]:
    """Yield the text before the first heading, and the text below each heading, whose title are the
    headings above."""
    yield Section("\n".join(lines[: outline[0].start] if outline else lines))
    path: list[Heading] = []
    for heading, following in zip_longest(outline, outline[1:]):
        path = [above for above in path if above.level < heading.level] + [heading]
        text = "\n".join(lines[heading.end : following.start if following else len(lines)])
        if not text.strip() and (following is None or following.level <= heading.level):
            text = heading.text
        title = TITLES.join(above.text for above in path if above.text)
        yield Section(text, title, anchor_of(heading.text))


def anchor_of(heading: str) -> str:
    """Return GitHub's anchor of a heading: the words in lower case, joined by hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _split_front_matter(path: str, markdown: str) -> tuple[dict[str, Any], str]:
    """Return the mapping in YAML between lines of --- at the start, and the text after the lines;
    an empty mapping and the whole text without such YAML."""
    match = _FRONT_MATTER.match(markdown)
    if match is None:
        return {}, markdown
    try:
        from lexicept.storage.yaml_text import parse_yaml  # which takes longer than most searches

        content = parse_yaml(match[1])
    except InputError as error:
        raise InputError(f"{path}: front matter: {error}") from None
    if not isinstance(content, dict):
        return {}, markdown
    return {str(key): value for key, value in content.items()}, markdown[match.end() :].strip()

"""Markdown: front matter is fields, the first heading the title, the others those of passages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from lexicept.corpora.json_lines import RESERVED
from lexicept.corpora.passages import TITLES, Parsed, Section
from lexicept.errors import InputError

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M)


class Heading(NamedTuple):
    """A heading of a text."""

    start: int
    """Its first line."""
    end: int
    """The line after its last."""
    level: int
    text: str


def parse_markdown(path: str, text: str) -> Parsed:
    """Parse a file.

    The title is the front matter's, else the first heading of level 1, which the text then lacks.

    Args:
        path: of the file, for errors.

    Raises:
        InputError: front matter that is no YAML.
    """
    front, text = _split_front_matter(path, text)
    lines, found = text.split("\n"), headings(text)
    first = next((heading for heading in found if heading.level == 1), None)
    given = front.pop("title", None)
    title = "" if given is None else str(given)
    if first is not None and title in ("", first.text):
        title = first.text
        lines[first.start : first.end] = []
        text = "\n".join(lines).strip()
        found = headings(text)
    fields = {name: value for name, value in front.items() if name not in RESERVED}
    return Parsed(text, title, tuple(_sections(text.split("\n"), found)), fields)


def headings(text: str) -> list[Heading]:
    """Return the headings of a Markdown text, as CommonMark has them."""
    from markdown_it import MarkdownIt  # slow to import, and a search does not need it

    tokens = MarkdownIt("commonmark").parse(text)
    found = []
    for opened, content in pairwise(tokens):
        # One that is inside a quotation or a list heads no section.
        if opened.type == "heading_open" and opened.level == 0 and opened.map is not None:
            spelled = "".join(child.content or " " for child in content.children or ())
            start, end = opened.map
            found.append(Heading(start, end, int(opened.tag[1:]), " ".join(spelled.split())))
    return found


def _sections(lines: list[str], found: list[Heading]) -> Iterator[Section]:
    """Yield the text before the first heading, and that of each heading with those above it."""
    yield Section("\n".join(lines[: found[0].start] if found else lines))
    path: list[Heading] = []
    for number, heading in enumerate(found):
        following = found[number + 1] if number + 1 < len(found) else None
        path = [above for above in path if above.level < heading.level] + [heading]
        own = "\n".join(lines[heading.end : following.start if following else len(lines)])
        if not own.strip() and (following is None or following.level <= heading.level):
            own = heading.text
        title = TITLES.join(above.text for above in path if above.text)
        yield Section(own, title, anchor_of(heading.text))


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub gives a heading: its words in lower case, joined by hyphens."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def _split_front_matter(path: str, markdown: str) -> tuple[dict[str, Any], str]:
    """Return the YAML between lines of --- at the start, if it is a mapping, and the text after it.

    Raises:
        InputError: it is no YAML.
    """
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

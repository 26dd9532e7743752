"""Office documents: Open XML (.docx, .pptx, .xlsx) and OpenDocument (.odt, .odp, .ods)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Set
from datetime import datetime, timedelta
from typing import NamedTuple
from xml.etree.ElementTree import Element

from lexicept.corpora.budgets import NothingToRead, check_time
from lexicept.corpora.passages import Block, Heading, Parsed, parsed_blocks
from lexicept.corpora.zipped_xml import ENCRYPTED, Archive, described, get, text_of

MOST_REPEATED = 1_000
"""Most copies of a cell or row that a sheet repeats."""


def parse_office(path: str, raw: bytes) -> Parsed:
    """Parse a file by its extension. Headings, slides and sheets name passages; the title, the
    author and the dates of the file are fields. Macros and references are left alone.

    Raises NothingToRead for an encrypted or damaged file, or one over its budget.
    """
    archive = Archive(raw)
    extension = os.path.splitext(path.lower())[1]
    blocks = [block for block in _READERS[extension](archive) if block]
    properties = "docProps/core.xml" if extension.endswith("x") else "meta.xml"
    title, fields = described(archive.xml(properties).iter())
    return parsed_blocks(blocks, title, fields)


def _heading(level: int, text: str) -> Iterator[Block]:
    if text:
        yield Heading.of(level, text)


def _main(archive: Archive, default: str) -> str:
    """Return the main member of an Open XML archive. Raises NothingToRead if absent."""
    for relation in archive.xml("_rels/.rels"):
        if get(relation, "Type").endswith("/officeDocument"):
            default = get(relation, "Target").lstrip("/")
    if default not in archive.names:
        raise NothingToRead(f"damaged: {default} is missing")
    return default


class _Word:
    """The blocks of a text document of Open XML."""

    DROPPED = frozenset({"del", "moveFrom", "instrText", "delText", "Fallback", "pPr", "rPr"})
    BLANKS = {"tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "p": "\n"}  # noqa: RUF012

    def __init__(self, archive: Archive) -> None:
        self._name = _main(archive, "word/document.xml")
        self._archive, related = archive, archive.related(self._name)
        named = (name for name in related.values() if name.endswith("styles.xml"))
        styles = archive.xml(next(named, "word/styles.xml"))
        self._levels = dict(self._styles(styles.iter("style")))
        self._notes = [n for n in related.values() if re.search(r"(foot|end)notes\.xml$", n)]

    def blocks(self) -> Iterator[Block]:
        """Yield headings, paragraphs and tables, and the notes at the end."""
        yield from self._below(self._archive.xml(self._name).find("body"))
        for name in self._notes:
            for note in self._archive.xml(name):
                if not get(note, "type"):
                    yield from self._below(note)

    def _styles(self, styles: Iterable[Element]) -> Iterator[tuple[str, int]]:
        """Yield the level of each style of headings."""
        for style in styles:
            match = re.fullmatch(r"title|heading (\d)", get(style.find("name"), "val").lower())
            if level := int(match[1] or 1) if match else _outline_level(style):
                yield get(style, "styleId"), level

    def _below(self, element: Element | None) -> Iterator[Block]:
        for below in () if element is None else element:
            check_time()
            if below.tag == "p":
                style = get(below.find("pPr/pStyle"), "val")
                level = _outline_level(below) or self._levels.get(style, 0)
                text = self._text(below).strip()
                yield from _heading(level, " ".join(text.split())) if level else [text]
            elif below.tag == "tbl":
                yield _table(map(self._text, _outer(tr, "tc")) for tr in _outer(below, "tr"))
            elif below.tag in ("sdt", "sdtContent", "ins", "customXml", "moveTo"):
                yield from self._below(below)

    def _text(self, element: Element) -> str:
        """Return the text that a reader sees: without deletions and hidden runs."""
        if element.tag == "t":
            return element.text or ""
        if element.tag in self.DROPPED or _is_hidden(element):
            return ""
        return "".join(map(self._text, element)) + self.BLANKS.get(element.tag, "")


def _outline_level(element: Element) -> int:
    """Return the level of a heading that a style or paragraph states; 0 for none."""
    outline = get(element.find("pPr/outlineLvl"), "val")
    return int(outline) + 1 if outline in set("012345678") else 0


def _outer(element: Element, tag: str) -> Iterator[Element]:
    """Yield the elements of a tag, without elements of the tag in them (nested tables)."""
    for below in element:
        yield from [below] if below.tag == tag else _outer(below, tag)


def _is_hidden(run: Element) -> bool:
    vanish = run.find("rPr/vanish")
    return vanish is not None and get(vanish, "val") not in ("0", "false")


def _table(rows: Iterable[Iterable[str]]) -> str:
    """Return a line for each row that is not empty."""
    lines = []
    for cells in rows:
        check_time()
        lines.append("\t".join(" ".join(cell.split()) for cell in cells).rstrip())
    return "\n".join(line for line in lines if line)


def _relation_id(element: Element) -> str:
    """Return the id by which an element refers to another member; empty if absent."""
    return next((value for key, value in element.items() if key.endswith("}id")), "")


def _slides(archive: Archive) -> Iterator[Block]:
    """Yield the slides of an Open XML presentation: titles, texts, tables and notes."""
    name = _main(archive, "ppt/presentation.xml")
    related = archive.related(name)
    for index, slide in enumerate(archive.xml(name).iter("sldId"), 1):
        yield from _slide(archive, related.get(_relation_id(slide), ""), index)


def _slide(archive: Archive, path: str, index: int) -> Iterator[Block]:
    title, texts = "", []
    root = archive.xml(path)
    if get(root, "show") == "0":  # hidden
        return
    for shape in root.iter():
        check_time()
        if shape.tag == "sp":
            lines, role = _lines(shape.find("txBody")), _role(shape)
            if role in ("title", "ctrTitle") and not title:
                title = " ".join(lines)
            elif role not in ("dt", "ftr", "sldNum"):
                texts.append("\n".join(lines))
        elif shape.tag == "tbl":
            cells = ((" ".join(_lines(cell)) for cell in tr.iter("tc")) for tr in shape.iter("tr"))
            texts.append(_table(cells))
    yield from _heading(1 if index == 1 else 2, title or f"slide {index}")
    yield from texts
    for name in archive.related(path).values():
        if "notesSlide" in name:
            shapes = (shape for shape in archive.xml(name).iter("sp") if _role(shape) == "body")
            yield from ("\n".join(_lines(shape.find("txBody"))) for shape in shapes)


def _role(shape: Element) -> str:
    return get(shape.find("nvSpPr/nvPr/ph"), "type")


def _lines(body: Element | None) -> list[str]:
    """Return the paragraphs of a shape."""
    lines = []
    for paragraph in () if body is None else body.iter("p"):
        runs = (run for run in paragraph.iter() if run.tag in ("t", "br", "tab"))
        texts = (run.text or "" if run.tag == "t" else " " for run in runs)
        lines.append(" ".join("".join(texts).split()))
    return [line for line in lines if line]


def _item(texts: list[str], index: str) -> str:
    return texts[int(index)] if index.isdecimal() and int(index) < len(texts) else ""


class _Sheets(NamedTuple):
    """What the cells of an Open XML workbook refer to."""

    strings: list[str]
    formats: list[str]
    """The number format of each style."""
    start: datetime
    """The day of number 0."""

    def shown(self, cell: Element) -> str:
        """Return a cell's value as it is displayed."""
        stored_as, value = get(cell, "t"), text_of(cell.find("v"))
        if stored_as == "inlineStr":
            return text_of(cell.find("is"))
        if stored_as == "s":
            return _item(self.strings, value)
        if stored_as == "b":
            return {"1": "TRUE", "0": "FALSE"}.get(value, value)
        if stored_as in ("str", "e", "d"):
            return value
        return self._number(value, _item(self.formats, get(cell, "s")))

    def _number(self, value: str, pattern: str) -> str:
        try:
            serial = float(value)
        except ValueError:
            return value
        letters = re.sub(r'"[^"]*"|[\\_*].|\[(?!h+\]|m+\]|s+\])[^\]]*\]', "", pattern.lower())
        if re.search(r"[ymdhs]", letters) and 0 <= serial < (datetime.max - self.start).days:
            moment = self.start + timedelta(seconds=round(serial * 86_400))
            has_day, has_hour = re.search(r"[yd]|mmm", letters), re.search(r"[hs]", letters)
            if not has_day:
                return f"{moment:%H:%M:%S}".removesuffix(":00")
            return f"{moment:%Y-%m-%d %H:%M}" if has_hour else f"{moment:%Y-%m-%d}"
        if "%" in letters:
            return f"{100 * serial:.10g}%"
        return f"{serial:.15g}"


_FORMATS = {9: "0%", 10: "0.00%", **dict.fromkeys(range(14, 18), "d/m/y"), 22: "d/m/y h:m"}
_FORMATS |= dict.fromkeys((18, 19, 20, 21, 45, 46, 47), "h:m:s")
"""Number formats that Open XML gives by their number, as far as they matter here."""


def _workbook(archive: Archive) -> Iterator[Block]:
    """Yield the visible sheets of an Open XML workbook, each with a heading."""
    name = _main(archive, "xl/workbook.xml")
    book, related = archive.xml(name), archive.related(name)

    def other(end: str) -> Element:
        return archive.xml(next((path for path in related.values() if path.endswith(end)), ""))

    strings = [
        "".join(t.text or "" for run in s if run.tag != "rPh" for t in run.iter("t"))
        for s in other("sharedStrings.xml")
    ]
    styles = other("styles.xml")
    custom = {get(f, "numFmtId"): get(f, "formatCode") for f in styles.iter("numFmt")}
    ids = [get(style, "numFmtId") for style in styles.findall("cellXfs/xf")]
    formats = [custom.get(i) or _FORMATS.get(int(i) if i.isdecimal() else 0, "") for i in ids]
    from_1904 = get(book.find("workbookPr"), "date1904") in ("1", "true")
    start = datetime(1904, 1, 1) if from_1904 else datetime(1899, 12, 30)
    sheets = _Sheets(strings, formats, start)
    for sheet in book.iter("sheet"):
        if get(sheet, "state") in ("hidden", "veryHidden"):
            continue
        sheet_rows = archive.xml(related.get(_relation_id(sheet), "")).iter("row")
        if table := _table(map(sheets.shown, sheet_row.iter("c")) for sheet_row in sheet_rows):
            yield from _heading(2, get(sheet, "name"))
            yield table


def _open_document(archive: Archive) -> Iterator[Block]:
    """Yield headings, paragraphs, tables, slides and sheets of OpenDocument."""
    if any(get(file, "algorithm-name") for file in archive.xml("META-INF/manifest.xml").iter()):
        raise NothingToRead(ENCRYPTED)
    if "content.xml" not in archive.names:
        raise NothingToRead("damaged: content.xml is missing")
    content = archive.xml("content.xml")
    hidden = {
        get(style, "name")
        for style in content.iter("style")
        if get(style.find("table-properties"), "display") == "false"
        or get(style.find("drawing-page-properties"), "visibility") == "hidden"
    }
    body = content.find("body")
    for section in () if body is None else body:
        yield from _open_blocks(section, hidden)


def _open_blocks(element: Element, hidden: Set[str]) -> Iterator[Block]:
    """Yield the blocks below an element, without those of hidden styles."""
    slide = 0
    for below in (each for each in element if get(each, "style-name") not in hidden):
        check_time()
        if below.tag == "h":
            level = get(below, "outline-level")
            yield from _heading(int(level) if level in set("123456789") else 1, _open_text(below))
        elif below.tag == "p":
            yield _open_text(below)
        elif below.tag == "table":
            sheet = element.tag == "spreadsheet"
            yield from _heading(2, get(below, "name")) if sheet else ()
            yield _table(_open_rows(below))
        elif below.tag == "page":
            slide += 1
            yield from _heading(1 if slide == 1 else 2, get(below, "name") or f"slide {slide}")
            yield from _open_blocks(below, hidden)
        elif below.tag not in ("tracked-changes", "sequence-decls", "forms", "annotation"):
            yield from _open_blocks(below, hidden)


def _open_rows(table: Element) -> Iterator[Iterator[str]]:
    for table_row in _outer(table, "table-row"):
        yield (
            text
            for cell in table_row
            if cell.tag == "table-cell"
            for text in [" ".join(map(_open_text, _outer(cell, "p")))] * _repeated(cell)
        )


def _repeated(cell: Element) -> int:
    """Return how often a cell stands side by side: filler at the end of a row stands once."""
    count = get(cell, "number-columns-repeated")
    return min(int(count), MOST_REPEATED) if count.isdecimal() and len(cell) else 1


def _open_text(element: Element) -> str:
    """Return a paragraph's text, with notes in place."""
    blanks = {"s": " ", "tab": " ", "note-body": " ", "text-box": " ", "line-break": "\n"}
    text = blanks.get(element.tag, "") + (element.text or "")
    for below in element:
        if below.tag not in ("annotation", "note-citation"):
            text += _open_text(below) + " " * (below.tag == "text-box")
        text += below.tail or ""
    return text if element.tag not in ("p", "h") else text.strip()


_READERS: dict[str, Callable[[Archive], Iterator[Block]]] = {
    ".docx": lambda archive: _Word(archive).blocks(),
    ".pptx": _slides,
    ".xlsx": _workbook,
    **dict.fromkeys((".odt", ".odp", ".ods"), _open_document),
}
EXTENSIONS = tuple(_READERS)
"""Extensions of office documents."""

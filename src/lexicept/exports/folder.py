"""The folder that an export becomes: in parts that a killed export does not write again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from lexicept.corpora import Query
from lexicept.exports.source import Format, Source
from lexicept.index.reader import IndexReader
from lexicept.progress import Progress, silent
from lexicept.storage.files import (
    fingerprint,
    move,
    read_json,
    replacing,
    replacing_text,
    sync_folder,
    write_json,
)
from lexicept.storage.workspace import claim, refuse_existing

PART_BYTES = 16 * 2**20
"""Of one file of documents: what servers take in one request."""

STATE = "parts.json"


def export_index(
    index: IndexReader,
    form: Format,
    out: str | os.PathLike[str],
    bits: int = 8,
    queries: Sequence[Query] = (),
    progress: Progress = silent,
) -> None:
    """Write an index in the format of another engine into a new folder.

    Until it is whole it is in ``<out>.partial``; the same export goes on there after its last part.

    Args:
        bits: of impacts, where the format takes integers only.
        queries: written as the engine takes them, with what their texts mean in this index.

    Raises:
        InputError: something is at ``out``, another process is writing there, or a document or a
            query that the format can't hold.
    """
    target = Path(out)
    work, descriptor = claim(target)
    try:
        folder = work / "export"
        texts = (f"{query.id}\t{query.text}" for query in queries)
        settings = fingerprint([form.name, str(bits), index.postings, *texts])
        note = work / "export.json"
        if not note.exists() or read_json(note).get("settings") != settings:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            write_json(note, {"settings": settings})
        for unfinished in folder.rglob(".*"):  # files that a killed export had not renamed yet
            unfinished.unlink()
        _write(Source(index, bits), form, folder, queries, progress)
        sync_folder(folder)
        refuse_existing(target)
        move(folder, target)
        shutil.rmtree(work)
    finally:
        os.close(descriptor)


def _write(
    source: Source, form: Format, folder: Path, queries: Sequence[Query], progress: Progress
) -> None:
    form.write(source, folder, progress)
    (folder / STATE).unlink(missing_ok=True)
    with replacing_text(folder / "vocabulary.tsv") as file:
        file.writelines(f"{line}\n" for line in source.vocabulary())
    if queries:
        with replacing_text(folder / form.queries_file) as file:
            for query, vector in zip(queries, source.queries(queries), strict=True):
                if vector.dimensions.size:
                    file.write(form.query(query, vector) + "\n")


def _written(state: Path, count: int) -> tuple[int, int]:
    """Parts that are whole, and documents in them; none where the note of it is damaged."""
    found = read_json(state)
    part, number = found.get("part"), found.get("next")
    if isinstance(part, int) and isinstance(number, int) and 0 <= part <= number <= count:
        return part, number
    return 0, 0


def write_parts(
    source: Source,
    folder: Path,
    name: str,
    document: Callable[[int], str],
    progress: Progress,
    around: tuple[str, str, str] = ("", "", ""),
) -> None:
    """Write all documents into files of about ``PART_BYTES``, after those that are there whole.

    Args:
        name: of a file, with the number of the part to fill in.
        document: a document's number → its lines.
        around: what stands before, between and after the documents of a part.
    """
    begin, between, end = (text.encode() for text in around)
    count = len(source.index)
    state = folder / STATE
    part, number = _written(state, count) if state.exists() else (0, 0)
    while number < count:
        with replacing(folder / name.format(part)) as file:
            written = file.write(begin)
            first = number
            while number < count and written < PART_BYTES:
                content = document(number).encode()
                written += file.write(content if number == first else between + content)
                number += 1
            file.write(end)
        part += 1
        write_json(state, {"part": part, "next": number})
        progress("export", number, count)

"""The folder of an export, written in parts that an interrupted export does not write again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from lexicept.corpora import Query
from lexicept.exports.source import Format, Source
from lexicept.index.reader import IndexReader
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint, fingerprint_json, replacing, replacing_text
from lexicept.storage.workspace import Units, Workspace

PART_BYTES = 16 * 2**20
"""Bytes of a file of documents, small enough for a request to a server."""


def export_index(
    index: IndexReader,
    form: Format,
    out: str | os.PathLike[str],
    bits: int = 8,
    queries: Sequence[Query] = (),
    progress: Progress = silent,
    *,
    restart: bool = False,
) -> None:
    """Write an index in the format of another engine into a new folder.

    An interrupted export is resumed after its last part (see ``storage.workspace``).

    Args:
        bits: bits of an impact, in formats that take integers only.
        queries: written as the engine takes them, with what their texts mean in this index.
        restart: discard unfinished work instead of resuming it.

    Raises:
        InputError: something is at ``out``, unfinished work with other settings, another process is
            writing there, or a document or a query that the format can't hold.
    """
    settings = {
        "format": form.name,
        "bits": bits,
        "index": fingerprint_json(index.manifest),
        "queries": fingerprint(f"{query.id}\t{query.text}" for query in queries),
    }
    with Workspace(out, "export", settings, restart=restart) as work:
        parts = work.units("export")
        source = Source(index, bits)
        form.write(source, parts, progress)
        with replacing_text(parts.folder / "vocabulary.tsv") as file:
            file.writelines(f"{line}\n" for line in source.vocabulary())
        if queries:
            with replacing_text(parts.folder / form.queries_file) as file:
                for query, vector in zip(queries, source.queries(queries), strict=True):
                    if vector.dimensions.size:
                        file.write(form.query(query, vector) + "\n")
        work.publish(parts.folder)


def write_numbered_files(
    source: Source,
    parts: Units,
    name: str,
    document: Callable[[int], str],
    progress: Progress,
    around: tuple[str, str, str] = ("", "", ""),
) -> None:
    """Write all documents into files of about ``PART_BYTES``, after the complete ones.

    Args:
        parts: the folder of the export; its units are the files.
        name: a file's name, with the number of the part to fill in.
        document: returns the lines of a document by its number.
        around: the text before, between and after the documents of a part.
    """
    begin, between, end = (text.encode() for text in around)
    count = len(source.index)
    part = number = 0
    while number < count:
        path = parts.folder / name.format(part)
        following = (parts.facts(path.name) or {}).get("next")
        if isinstance(following, int) and number < following <= count:
            number = following
        else:
            with replacing(path) as file:
                written = file.write(begin)
                first = number
                while number < count and written < PART_BYTES:
                    content = document(number).encode()
                    written += file.write(content if number == first else between + content)
                    number += 1
                file.write(end)
            parts.finish(path.name, [path], next=number)
        part += 1
        progress("export", number, count)

"""The command that keeps an index in step with a folder: sync."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexicept.cli.build import ConceptsOption, LanguageOption, ModelOption, VocabularyOption
from lexicept.cli.common import (
    JsonOption,
    VocabularyChoice,
    option_names,
    print_json,
    print_table,
)
from lexicept.sanitize import safe

if TYPE_CHECKING:
    from lexicept.pipelines.sync import Synced

SHOWN = 5
"""Names of files that are shown for each reason; --json has all."""


def sync(
    folder: Annotated[Path, typer.Argument(help="Folder of files.")],
    index: Annotated[Path, typer.Argument(help="Folder of the index; built if there is none.")],
    vocabulary: VocabularyOption = VocabularyChoice.all,
    language: LanguageOption = "en",
    model: ModelOption = None,
    adapted: ConceptsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an index hold what the files of a folder hold.

    Builds the index the first time, with the options. Then adds, replaces and deletes documents of
    files whose contents changed, in one step. Lists the files that it skips.
    """
    import lexicept

    with option_names():
        done = lexicept.sync(
            folder,
            index,
            vocabulary=vocabulary.value,
            language=language,
            model=model,
            concepts=lexicept.ConceptSettings(adapted=adapted),
            progress=True,
        )
    if as_json:
        print_json(done._asdict())
    else:
        _print(done)


def _print(done: Synced) -> None:
    counts = ("added", "replaced", "deleted", "unchanged")
    rows = [(name, f"{getattr(done, name):,}") for name in counts]
    rows += [("skipped", f"{len(done.skipped):,}"), ("errors", f"{done.num_errors:,}")]
    print_table("", rows)
    for reason, count in Counter(reason for _, reason in done.skipped).most_common():
        names = [name for name, own in done.skipped if own == reason]
        more = f", and {count - SHOWN:,} more" if count > SHOWN else ""
        print(safe(f"{reason}: {', '.join(names[:SHOWN])}{more}"))
    for error in done.errors:
        print(safe(error))

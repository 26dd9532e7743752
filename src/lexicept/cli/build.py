"""Commands that make an index: build, sync."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lexicept.cli.common import print_json, print_table
from lexicept.cli.declarations import takes
from lexicept.cli.index import print_info
from lexicept.sanitize import safe

if TYPE_CHECKING:
    from lexicept.pipelines.sync import Synced


@takes("lexicept.pipelines.build:build")
def build(as_json: bool = False, **options: Any) -> None:
    """Build an index of documents: words, concepts, or both.

    Concepts come from lexicept-mini, the model in the package, unless --model, --sae, --backbone or
    --train names another source. Re-running the command resumes an interrupted build.
    """
    import lexicept

    print_info(lexicept.build(**options, progress=True), as_json)


@takes("lexicept.pipelines.sync:sync")
def sync(as_json: bool = False, **options: Any) -> None:
    """Make an index hold what the files of a folder hold.

    Builds the index the first time, with the options. Then adds, replaces and deletes documents of
    files whose contents changed, in one step. Lists the files that it skips.
    """
    import lexicept

    done = lexicept.sync(**options, progress=True)
    if as_json:
        print_json(done._asdict())
    else:
        _print(done)


def _print(done: Synced) -> None:
    from lexicept.corpora.skipped import by_reason

    counts = ("added", "replaced", "deleted", "unchanged")
    lines = [(name, f"{getattr(done, name):,}") for name in counts]
    lines += [("skipped", f"{len(done.skipped):,}"), ("errors", f"{done.num_errors:,}")]
    print_table("", lines)
    for line in (*by_reason(done.skipped), *done.errors):
        print(safe(line))

"""Files and records that readers skip."""

from __future__ import annotations

import warnings

from lexicept.errors import InputError, LexiceptWarning

EXAMPLES = 5
"""Most names of files for a reason in a warning."""

UNREADABLE = "unreadable"
"""Reason to skip a file that breaks off, a parser refuses, or needs a missing package."""

MESSAGES = 20
"""Most errors in a warning."""


class UnreadFileError(InputError):
    """Raised for a file that gives no document, or breaks off; the message names the file."""

    def __init__(self, path: str, name: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.name, self.reason = name, reason


class Skipped:
    """The skipped files and records of a corpus, with the reasons.

    ``readable`` names the types of files that are read. If ``quiet``, ``warn`` names only what is
    ignored of these files.
    """

    def __init__(self, source: str, readable: str = "", *, quiet: bool = False) -> None:
        self.source, self.readable, self.quiet = source, readable, quiet
        self.files: list[tuple[str, str]] = []
        """Skipped files, each with the reason."""
        self.flaws: list[tuple[str, str]] = []
        """Files that were read in part, each with what is ignored."""
        self.errors: list[str] = []
        """Errors of unreadable records, ``MESSAGES`` at most."""
        self.num_errors = 0
        self.first: str | None = None
        """The first error of a file or record."""

    def error(self, error: InputError) -> None:
        """Note an unreadable file or record."""
        self.first = self.first or str(error)
        if isinstance(error, UnreadFileError):
            self.files.append((error.name, error.reason))
            return
        self.num_errors += 1
        if len(self.errors) < MESSAGES:
            self.errors.append(str(error))

    def warn(self) -> None:
        """Warn of skipped files, of errors, and of what is ignored of other files."""
        if self.flaws:
            lines = [f"{self.source}: {_counted(len(self.flaws), 'file')} read in part"]
            lines += [f"  {line}" for line in by_reason(self.flaws)]
            warnings.warn("\n".join(lines), LexiceptWarning, stacklevel=3)
        if self.quiet:
            return
        if self.files:
            files = _counted(len(self.files), "file")
            lines = [f"{self.source}: {files} skipped, only {self.readable} are read"]
            lines += [f"  {line}" for line in by_reason(self.files)]
            warnings.warn("\n".join(lines), LexiceptWarning, stacklevel=3)
        if self.num_errors:
            documents = _counted(self.num_errors, "document")
            text = _shortened("\n  ".join(self.errors), self.num_errors - MESSAGES, "\n  ")
            message = f"{self.source}: {documents} skipped after an error\n  {text}"
            warnings.warn(message, LexiceptWarning, stacklevel=3)


def by_reason(files: list[tuple[str, str]]) -> list[str]:
    """Return the counts and first names for each reason; files with details have a line each."""
    groups: dict[str, list[str]] = {}
    for name, note in files:
        reason, _, damage = note.partition(": ")
        groups.setdefault(reason, []).append(f"{name}: {damage}" if damage else name)
    lines = []
    for reason, names in sorted(groups.items(), key=lambda group: -len(group[1])):
        most, separator = (MESSAGES, "\n    ") if ": " in names[0] else (EXAMPLES, ", ")
        listing = _shortened(separator.join(names[:most]), len(names) - most, separator)
        lines.append(f"{len(names):,} {reason}: {listing}")
    return lines


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _shortened(text: str, more: int, separator: str) -> str:
    return f"{text}{separator}and {more:,} more" if more > 0 else text

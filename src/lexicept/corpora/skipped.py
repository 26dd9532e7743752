"""Files and records that readers skip."""

from __future__ import annotations

import warnings
from collections import Counter

from lexicept.errors import LexiceptWarning

EXAMPLES = 5
"""Most names of one kind of file in a warning."""

MESSAGES = 20
"""Most errors in a warning."""


class Skipped:
    """The skipped files and records of a corpus, with the reasons.

    ``kinds`` are the readable kinds of files, in words. If ``quiet``, ``warn`` does nothing.
    """

    def __init__(self, source: str, kinds: str = "", *, quiet: bool = False) -> None:
        self.source, self.kinds, self._quiet = source, kinds, quiet
        self.files: list[tuple[str, str]] = []
        """Skipped files, each with the kind or the reason."""
        self.errors: list[str] = []
        """Errors of unreadable records, ``MESSAGES`` at most."""
        self.num_errors = 0

    def file(self, name: str, kind: str) -> None:
        """Note a skipped file, with the kind or the reason."""
        self.files.append((name, kind))

    def error(self, error: Exception) -> None:
        """Note an unreadable record."""
        self.num_errors += 1
        if len(self.errors) < MESSAGES:
            self.errors.append(str(error))

    def warn(self) -> None:
        """Warn of skipped files, and of errors."""
        if self._quiet:
            return
        if self.files:
            files = _counted(len(self.files), "file")
            lines = [f"{self.source}: {files} skipped, only {self.kinds} are read"]
            for kind, count in Counter(kind for _, kind in self.files).most_common():
                examples = [name for name, of_kind in self.files if of_kind == kind][:EXAMPLES]
                names = _shortened(", ".join(examples), count - EXAMPLES, ", ")
                lines.append(f"  {count:,} {kind}: {names}")
            warnings.warn("\n".join(lines), LexiceptWarning, stacklevel=3)
        if self.num_errors:
            documents = _counted(self.num_errors, "document")
            text = _shortened("\n  ".join(self.errors), self.num_errors - MESSAGES, "\n  ")
            message = f"{self.source}: {documents} skipped after an error\n  {text}"
            warnings.warn(message, LexiceptWarning, stacklevel=3)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _shortened(text: str, more: int, separator: str) -> str:
    return f"{text}{separator}and {more:,} more" if more > 0 else text

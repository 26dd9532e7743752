"""The current folder may hold strangers' documents: no file there changes the running code."""

import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager


@contextmanager
def without(name: str) -> Iterator[None]:
    """Leave the current folder for the time of an import if a file there has this name: the
    imported library would read settings from the file."""
    if not os.path.lexists(name):  # or a thread that opens a relative path would miss the folder
        yield
        return
    with chdir(os.sep):
        yield

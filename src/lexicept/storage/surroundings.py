"""The current folder, which may be one of strangers' documents: no file in it changes what runs."""

import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager


@contextmanager
def without(name: str) -> Iterator[None]:
    """Leave the current folder for the time of an import if it holds a file of this name, which
    the imported library takes for its settings."""
    if not os.path.lexists(name):  # or a thread that opens a relative path would miss the folder
        yield
        return
    with chdir(os.sep):
        yield

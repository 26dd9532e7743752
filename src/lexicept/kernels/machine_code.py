"""Machine code of numba on disk, compiled again after any failure.

numba's own cache ends the program on an empty or truncated file, left by a power cut, and on a
read-only disk. The files are in numba's folder (``NUMBA_CACHE_DIR`` names another folder). They are
pickles like numba's files: whoever can write there can run code, as with ``__pycache__``.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, chdir, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from lexicept.errors import LexiceptWarning
from lexicept.storage.files import replacing


def without(name: str) -> AbstractContextManager[None]:
    """Leave the current folder for the time of an import if a file there has this name, from which
    the library would read settings: the folder may hold strangers' documents."""
    # Only then, or a thread that opens a relative path would miss the folder.
    return chdir(os.sep) if os.path.lexists(name) else nullcontext()


with without(".numba_config.yaml"):
    import numba as numba
    from numba.core.caching import CompileResultCacheImpl, NullCache
    from numba.core.serialize import dumps

# Private in numba 0.61 to 0.68: the name of a file of settings, which each compilation reads again
# and which could name a folder of pickled machine code; and a dispatcher's cache, see ``keep``.
numba.config._config_fname = os.devnull

DIGEST = 32
"""Bytes of a SHA-256."""


class Cache(NullCache):  # type: ignore[misc]
    """The machine code of a function on disk, one file for each signature and processor.

    A damaged file, or a file of another source, counts as absent.

    Args:
        function: the compiled function.
        sources: files of the function and of all called functions.
    """

    warned = False
    """True if this process has warned."""

    def __init__(self, function: Callable[..., Any], sources: Iterable[str]) -> None:
        self._function = function
        self._sources = sorted(sources)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the code for a signature; None without usable code."""
        context.refresh()
        path = None
        try:
            path = self._path(signature, context.codegen())
            content = path.read_bytes()
            identity, digest = content[:DIGEST], content[DIGEST : 2 * DIGEST]
            payload = content[2 * DIGEST :]
            if digest != hashlib.sha256(payload).digest():
                self._warn(f"{path}: damaged, and compiled again")
            elif identity == self._identity:
                return self._files.rebuild(context, pickle.loads(payload))
        except FileNotFoundError:
            pass
        except Exception as error:  # pickle and LLVM raise many kinds
            self._warn_not_kept(path, error)
        return None

    def save_overload(self, signature: Any, code: Any) -> None:
        """Write the code for a signature; a failure is a warning."""
        path = None
        try:
            if self._files.check_cachable(code):
                path = self._path(signature, code.codegen)
                payload = dumps(self._files.reduce(code))
                with replacing(path) as file:
                    file.write(self._identity + hashlib.sha256(payload).digest() + payload)
        except Exception as error:  # the disk's, and those of numba's search for a folder
            self._warn_not_kept(path, error)

    @cached_property
    def _files(self) -> Any:
        # Made when it is needed: it tries to write into the folder.
        return CompileResultCacheImpl(self._function)

    @cached_property
    def _identity(self) -> bytes:
        """Digest of what made the code: numba and the sources."""
        digest = hashlib.sha256(numba.__version__.encode())
        for source in self._sources:
            digest.update(hashlib.sha256(Path(source).read_bytes()).digest())
        return digest.digest()

    def _path(self, signature: Any, generator: Any) -> Path:
        # The name tells the signature and the processor apart, the content the source.
        key = repr((signature, generator.magic_tuple())).encode()
        name = f"{self._files.filename_base}.{hashlib.sha256(key).hexdigest()[:16]}.compiled"
        return Path(self._files.locator.get_cache_path(), name)

    def _warn_not_kept(self, path: Path | None, error: Exception) -> None:
        name = "" if path is None else f"{path}: "
        self._warn(
            f"compiled code is not kept, which takes seconds at every start: {name}{error} "
            "(NUMBA_CACHE_DIR names another folder for it)"
        )

    def _warn(self, message: str) -> None:
        if not Cache.warned:
            Cache.warned = True
            warnings.warn(message, LexiceptWarning, stacklevel=3)


def keep(dispatcher: Any, function: Callable[..., Any], sources: Iterable[str]) -> None:
    """Keep a dispatcher's machine code on disk, as numba's ``cache=True`` does; see ``Cache``."""
    dispatcher._cache = Cache(function, sources)

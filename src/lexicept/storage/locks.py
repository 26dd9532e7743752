"""Locks that end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from lexicept.errors import IndexFormatError, InputError


def lock(folder: Path) -> int:
    """An exclusive lock that ends with the process. Raises InputError where another holds it."""
    taken = InputError(f"{folder}: another process is writing here")
    try:
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except FileNotFoundError:  # the other one has just removed the folder
        raise taken from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    raise taken


def hold(folder: Path) -> int:
    """Keep a folder from ``remove_unheld`` until the descriptor is closed or the process ends.

    Raises:
        IndexFormatError: there is no such folder, or it is being removed.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise IndexFormatError(f"{folder}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise IndexFormatError(f"{folder}: being removed") from None
    return descriptor


def remove_unheld(folder: Path) -> None:
    """Remove a folder and what is in it, unless somebody has a ``hold`` on it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)

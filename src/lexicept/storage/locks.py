"""Locks on folders, released at the end of the process (POSIX only).

A writer has an exclusive ``flock`` on the folder's ``.lock`` file, readers have a shared ``flock``
on the folder. Windows can't lock folders: lexicept requires Linux or macOS.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lexicept.errors import IndexFormatError, InputError
from lexicept.storage.files import remove


def lock(folder: Path) -> int:
    """Take the exclusive lock of a folder to write to, without waiting.

    Returns a file descriptor, which keeps the lock while open. Raises InputError if another process
    holds the lock, or has just removed the folder.
    """
    # Not an exception: a frame that holds its own keeps files open until garbage is collected.
    message = f"{folder}: another process is writing here"
    try:
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except FileNotFoundError:  # the other process has just removed the folder
        raise InputError(message) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Without links the file was removed after it was opened: the lock would protect nothing.
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    raise InputError(message)


def hold(folder: Path) -> int:
    """Protect a folder from ``remove_unheld``; any number of processes may hold the folder.

    Returns a file descriptor, which holds the folder while open. Raises IndexFormatError for a
    missing folder, or a folder that another process is removing.
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
    """Remove a folder and its contents, unless a process holds the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(folder)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)

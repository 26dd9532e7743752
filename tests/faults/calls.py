"""System calls of a child process, each answered by this process before the kernel executes it.

A seccomp filter (Linux 5.5 or later, x86-64) stops the child at every call that opens, reads,
writes, flushes, maps, renames or removes a file, whatever library makes the call, in whatever
thread. The child is a fork: it starts in milliseconds with everything imported.
"""

import ctypes
import errno
import fcntl
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

PATH, AT, DESCRIPTOR = "path", "at", "descriptor"
"""How a call names a file: by a path, by a folder's descriptor and a path, by a descriptor."""

Place = tuple[str, int]
"""How a call names a file, and the number of the argument."""

CALLS: dict[int, tuple[str, tuple[Place, ...]]] = {
    0: ("read", ((DESCRIPTOR, 0),)),
    1: ("write", ((DESCRIPTOR, 0),)),
    2: ("open", ((PATH, 0),)),
    9: ("mmap", ((DESCRIPTOR, 4),)),
    17: ("read", ((DESCRIPTOR, 0),)),
    18: ("write", ((DESCRIPTOR, 0),)),
    19: ("read", ((DESCRIPTOR, 0),)),
    20: ("write", ((DESCRIPTOR, 0),)),
    40: ("write", ((DESCRIPTOR, 0), (DESCRIPTOR, 1))),  # sendfile
    74: ("fsync", ((DESCRIPTOR, 0),)),
    75: ("fsync", ((DESCRIPTOR, 0),)),
    76: ("truncate", ((PATH, 0),)),
    77: ("truncate", ((DESCRIPTOR, 0),)),
    82: ("rename", ((PATH, 0), (PATH, 1))),
    83: ("mkdir", ((PATH, 0),)),
    84: ("rmdir", ((PATH, 0),)),
    85: ("create", ((PATH, 0),)),
    86: ("link", ((PATH, 0), (PATH, 1))),
    87: ("unlink", ((PATH, 0),)),
    88: ("link", ((PATH, 1),)),
    257: ("open", ((AT, 0),)),
    258: ("mkdir", ((AT, 0),)),
    263: ("unlink", ((AT, 0),)),
    264: ("rename", ((AT, 0), (AT, 2))),
    265: ("link", ((AT, 0), (AT, 2))),
    266: ("link", ((AT, 1),)),
    285: ("write", ((DESCRIPTOR, 0),)),  # fallocate
    295: ("read", ((DESCRIPTOR, 0),)),
    296: ("write", ((DESCRIPTOR, 0),)),
    316: ("rename", ((AT, 0), (AT, 2))),
    326: ("write", ((DESCRIPTOR, 0), (DESCRIPTOR, 2))),  # copy_file_range
    327: ("read", ((DESCRIPTOR, 0),)),
    328: ("write", ((DESCRIPTOR, 0),)),
}
"""Names of system calls by number, and the files that each is about."""

OPENS = {2: 1, 257: 2}
"""The argument with the flags, of calls that open a file."""

CHANGES = ("create", "write", "truncate", "fsync", "rename", "link", "mkdir", "unlink", "rmdir")
"""Calls that change what is on disk."""

NEED_ROOM = ("create", "write", "fsync", "rename", "link", "mkdir")
"""Calls that a full disk may refuse."""


class Call(NamedTuple):
    """A system call before the kernel executes it."""

    name: str
    """One of the names in ``CALLS``; an ``open`` that may create or empty a file is ``create``."""
    paths: tuple[str, ...]
    """Absolute paths of the files that it is about; of a rename the source and the target."""
    process: int
    """The thread that makes it."""
    arguments: tuple[int, ...]


_FSYNC = os.fsync  # tests may put another in its place

Answer = Callable[[Call], int | None]
"""Fate of a call: None lets the kernel execute it, 0 pretends success, an ``errno`` fails it."""


def available() -> bool:
    """Return whether this system can stop the calls of a child."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return False
    try:
        return run(lambda: 0, lambda _: None) == 0
    except OSError:
        return False


def run(work: Callable[[], int | None], answer: Answer) -> int:
    """Do ``work`` in a child, whose calls are answered; return its exit status.

    Raises:
        OSError: the system has no such filters, or forbids them.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.fsync = _FSYNC
            ours.close()
            listener = _install()
            socket.send_fds(theirs, [b"l"], [listener])
            theirs.close()
            os.close(listener)
            status = work() or 0
        finally:
            os._exit(status)
    theirs.close()
    try:
        with ours:
            _, listeners, _, _ = socket.recv_fds(ours, 1, 1)
        if not listeners:
            raise OSError(errno.ENOSYS, "no seccomp listener")
        _supervise(pid, listeners[0], answer)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _supervise(pid: int, listener: int, answer: Answer) -> None:
    """Answer every call until the child ends."""
    ended = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(ended, select.POLLIN)
        while ended not in (events := dict(poll.poll())):
            if events[listener] & select.POLLIN:
                _answer_one(pid, listener, answer)
            else:
                poll.unregister(listener)
    finally:
        os.close(ended)
        os.close(listener)


_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1


def _answer_one(pid: int, listener: int, answer: Answer) -> None:
    notice = bytearray(80)
    try:
        fcntl.ioctl(listener, _RECEIVE, notice)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):  # the thread ended meanwhile
            return
        raise
    key, thread, _, call_number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", notice)
    call = _call(thread, call_number, tuple(arguments))
    decided = None if call is None else answer(call)
    flags = _CONTINUE if decided is None else 0
    try:
        fcntl.ioctl(listener, _SEND, struct.pack("=QqiI", key, 0, -(decided or 0), flags))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def _call(thread: int, call_number: int, arguments: tuple[int, ...]) -> Call | None:
    """Return a call, or None if its files can't be known."""
    name, positions = CALLS[call_number]
    if call_number in OPENS:
        flags = arguments[OPENS[call_number]]
        if flags & (os.O_CREAT | os.O_TRUNC):
            name = "create"
    if call_number == 263 and arguments[2] & 0x200:  # AT_REMOVEDIR
        name = "rmdir"
    try:
        paths = tuple(_path(thread, how, arguments[position:]) for how, position in positions)
    except OSError:
        return None
    return Call(name, paths, thread, arguments)


def _path(thread: int, how: str, arguments: tuple[int, ...]) -> str:
    if how == DESCRIPTOR:
        return os.readlink(f"/proc/{thread}/fd/{_signed(arguments[0])}")
    base = f"/proc/{thread}/cwd"
    if how == AT:
        folder, *arguments = arguments  # type: ignore[assignment]
        if _signed(folder) >= 0:
            base = f"/proc/{thread}/fd/{folder}"
    path = _string(thread, arguments[0])
    return os.path.normpath(path if path.startswith("/") else f"{os.readlink(base)}/{path}")


def _signed(call_number: int) -> int:
    """Read an ``int`` argument of a call."""
    return ctypes.c_int32(call_number & 0xFFFFFFFF).value


def _string(thread: int, address: int) -> str:
    """Return a string from a process's memory."""
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        data = b""
        while b"\0" not in data and len(data) < 4096:
            # Not across the end of a page: the next one may not be mapped.
            chunk = memory.read(4096 - (address + len(data)) % 4096)
            data += chunk
            if not chunk:
                break
    return os.fsdecode(data.split(b"\0")[0])


def _install() -> int:
    """Stop this process's calls from now on; return the descriptor that hears of them."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = _program()
    filters = (ctypes.c_char * len(program)).from_buffer_copy(program)
    header = struct.pack("=H6xQ", len(program) // 8, ctypes.addressof(filters))
    if libc.prctl(38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl")
    listener: int = libc.syscall(317, 1, 8, header)  # seccomp, MODE_FILTER, NEW_LISTENER
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return listener


def _program() -> bytes:
    """Return the filter: ``CALLS`` are stopped, but for maps of no file."""
    load, equal, give = 0x20, 0x15, 0x06
    notify, allow = 0x7FC00000, 0x7FFF0000
    call_numbers = [call_number for call_number in CALLS if call_number != 9]
    lines = [(load, 0, 0, 4), (equal, 1, 0, 0xC000003E), (give, 0, 0, allow), (load, 0, 0, 0)]
    rest = len(call_numbers)
    lines += [(equal, rest + 2 - n, 0, i) for n, i in enumerate(call_numbers)]
    lines += [(equal, 0, 3, 9), (load, 0, 0, 48), (equal, 1, 0, 0xFFFFFFFF)]
    lines += [(give, 0, 0, notify), (give, 0, 0, allow)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def allow_many_files() -> None:
    """Raise this process's limit on open files as far as it may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

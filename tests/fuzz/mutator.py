"""Mutations of valid files: of their bytes, and of what is inside JSON, zip, gzip and headers."""

from __future__ import annotations

import copy
import gzip
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

LONGEST = 2**16
"""Bytes of a mutated file: time limits are for small files."""

NUMBERS = [0, 1, -1, 2, 7, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63)]
NUMBERS += [2**64, 10**30]

VALUES: list[Any] = [*NUMBERS, None, True, False, "", [], {}, 0.5, -0.0, 1e308, float("nan")]
VALUES += [float("inf"), "a", "x" * 300, "\ud800", "\0", "é猫\u2028", "..", "/etc", "1", "1e9"]
VALUES += [[0], {"a": 1}, [[[[]]]], 10**400]

PIECES = [b"\xff", b"\x00", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n", b"\r\n", b"\t", b" "]
PIECES += [b"\xe2\x80\xa8", b"\xc2\x85", b"\x1c", b'"', b"\\", b"\\u0000", b"\\ud800", b"NaN"]
PIECES += [b"-", b"1e400", b"9" * 5000, b"[" * 3000, b'{"a":' * 3000, b"[]", b"{}", b"null", b"#"]
PIECES += [b"\x1f\x8b", b"PK\x05\x06", b"\x93NUMPY", b"", b"0", b"'", b"(", b"!!python/name:os"]


def mutate(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    """A content with one to four changes.

    Args:
        pool: other contents, to take parts of.
    """
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        inner = _inner(content)
        if inner is not None and random.random() < 0.7:
            content = inner(random, content, pool)
        else:
            content = random.choice(_BYTES)(random, content, pool)
    return content[:LONGEST]


def _inner(content: bytes) -> Mutation | None:
    """The mutation that keeps a file's outer form."""
    if content[:2] == b"\x1f\x8b":
        return _gzipped
    if content[:2] == b"PK":
        return _zipped
    if content[:6] == b"\x93NUMPY":
        return _numpy
    if content[:1] == b"{" or content[:1] == b"[":
        return _json_lines if content.count(b"\n") > 1 and content[-2:-1] in b"}]" else _json
    if content[8:9] == b"{":
        return _safetensors
    return None


Mutation = Callable[[Random, bytes, Sequence[bytes]], bytes]


def _place(random: Random, content: bytes) -> int:
    return random.randrange(len(content) + 1)


def _flip(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8)) if changed else 0):
        changed[random.randrange(len(changed))] = random.choice((0, 255, random.randrange(256)))
    return bytes(changed)


def _truncate(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    return content[: _place(random, content)]


def _insert(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    place, piece = _place(random, content), random.choice(PIECES)
    return content[:place] + piece + content[place + random.choice((0, 0, len(piece))) :]


def _splice(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    other = random.choice(pool)
    start = _place(random, other)
    part = other[start : start + random.choice((4, 40, 400))]
    place = _place(random, content)
    return content[:place] + part + content[place + random.choice((0, len(part))) :]


def _repeat(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    start = _place(random, content)
    part = content[start : start + random.choice((1, 8, 64))]
    return content[:start] + part * random.choice((0, 2, 50)) + content[start + len(part) :]


def _digits(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    found = [match.span() for match in re.finditer(rb"-?\d+(\.\d+)?", content)]
    if not found:
        return content
    start, end = random.choice(found)
    return content[:start] + str(random.choice(NUMBERS)).encode() + content[end:]


def _integer(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    size, form = random.choice(((1, "B"), (2, "<H"), (4, "<I"), (8, "<Q")))
    packed = struct.pack(form, random.choice(NUMBERS) % 256**size)
    place = _place(random, content) // size * size
    return content[:place] + packed + content[place + size :]


def _lines(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    lines = content.split(b"\n")
    other = random.choice(pool).split(b"\n")
    lines.insert(random.randrange(len(lines) + 1), random.choice(lines + other))
    if random.random() < 0.5:
        del lines[random.randrange(len(lines))]
    return b"\n".join(lines)


_BYTES: list[Mutation] = [_flip, _truncate, _insert, _splice, _repeat, _digits, _integer, _lines]


def _json(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return random.choice(_BYTES)(random, content, pool)
    places: list[tuple[Any, Any]] = []
    waiting = [value] if isinstance(value, dict | list) else []
    while waiting:
        node = waiting.pop()
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                waiting.append(node[key])
    if not places:
        return json.dumps(random.choice(VALUES)).encode()
    node, key = random.choice(places)
    if isinstance(node, dict) and random.random() < 0.3:
        kept = node.pop(key)
        if random.random() < 0.5:
            node[random.choice(("", "x", f"{key}2", *node))] = kept
    else:
        node[key] = copy.copy(random.choice((*VALUES, random.choice(places)[0])))
    return _dump(value)


def _dump(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=True).encode()
    except ValueError:  # a value that holds itself, or a number that Python does not print
        return b"[" * 5000


def _json_lines(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    lines = content.split(b"\n")
    number = random.randrange(len(lines))
    lines[number] = _json(random, lines[number], pool)
    return b"\n".join(lines)


def _numpy(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    end = content.find(b"\n") + 1
    header, data = content[:end], content[end:]
    if random.random() < 0.3:
        header = random.choice((_digits, _flip, _insert))(random, header, pool)
    else:
        data = random.choice((_integer, _flip))(random, data, pool)
    return header + data


def _safetensors(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    size = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + size], content[8 + size :]
    if random.random() < 0.7:
        header = _json(random, header, pool)
    else:
        data = random.choice(_BYTES)(random, data, pool)
    return len(header).to_bytes(8, "little") + header + data


def _gzipped(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    try:
        inner = gzip.decompress(content)
    except Exception:
        return _flip(random, content, pool)
    return gzip.compress(mutate(random, inner, pool), 1, mtime=0)


def _zipped(random: Random, content: bytes, pool: Sequence[bytes]) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
    except Exception:
        return _flip(random, content, pool)
    if not members:
        return content
    number = random.randrange(len(members))
    info, inner = members[number]
    members[number] = (info, mutate(random, inner, pool))
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for member, data in members:
            archive.writestr(member, data)
    return written.getvalue()

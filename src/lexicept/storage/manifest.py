"""Manifests: the size and checksum of every file of a folder, and a checksum of the manifest.

A manifest may name the current of several generations: numbered folders beside the manifest. The
names begin with a word: a user's folder such as ``2024`` is no generation.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from lexicept.errors import IndexFormatError
from lexicept.progress import Progress, silent
from lexicept.storage.files import parse_json, replace_file, sha256

_SEALED = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",(.*)', re.DOTALL)
"""A manifest on disk: the checksum, then the remaining JSON object."""


def save_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest atomically, with a checksum of the content."""
    body = json.dumps(manifest, indent=1).encode() + b"\n"
    digest = hashlib.sha256(body).hexdigest().encode()
    replace_file(path, b'{\n "sha256": "%b",%b' % (digest, body.removeprefix(b"{")))


def load_manifest(path: Path, format_name: str, version: int, rebuild: str) -> dict[str, Any]:
    """Return the content of a manifest of ``save_manifest``.

    Raises IndexFormatError for another format, another version, with the advice ``rebuild`` for an
    older version, or any changed byte.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise IndexFormatError(f"{path}: {error.strerror}") from None
    manifest = parse_json(raw, path)
    if manifest.get("format") != format_name:
        raise IndexFormatError(f"{path.parent}: not a {format_name}")
    if (written := manifest.get("version")) != version:
        newer = type(written) is int and written > version
        advice = "a newer one reads it" if newer else rebuild
        raise IndexFormatError(
            f"{path.parent}: {format_name} version {written!r:.20}; this lexicept reads version "
            f"{version}: {advice}"
        )
    sealed = _SEALED.fullmatch(raw)
    if sealed is None or hashlib.sha256(b"{" + sealed[2]).hexdigest().encode() != sealed[1]:
        raise IndexFormatError(f"{path} is damaged: its content does not match its checksum")
    del manifest["sha256"]
    return manifest


def describe(files: Iterable[Path], root: Path) -> dict[str, dict[str, Any]]:
    """Return the size and checksum of files, by their paths relative to ``root``."""
    return {
        path.relative_to(root).as_posix(): {"size": path.stat().st_size, "sha256": sha256(path)}
        for path in files
    }


def describe_files(
    folder: Path, root: Path, described: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the size and checksum of every file below ``folder``, or of a file; see ``describe``.
    ``described`` are descriptions of files that are not read."""
    described = described or {}
    files = (path for path in sorted([folder, *folder.rglob("*")]) if path.is_file())
    new = describe((p for p in files if p.relative_to(root).as_posix() not in described), root)
    return dict(sorted({**described, **new}.items()))


def check_files(root: Path, files: Mapping[str, Any], *, checksums: bool) -> None:
    """Raise IndexFormatError for the first ``damage`` of files."""
    for message in damage(root, files, checksums=checksums):
        raise IndexFormatError(f"{root}: {message}")


def damage(
    root: Path, files: Mapping[str, Any], *, checksums: bool, progress: Progress = silent
) -> Iterator[str]:
    """Compare files with the descriptions of ``describe_files``, by size or by checksum too; yield
    a line for each missing, truncated or altered file, and for malformed descriptions."""
    # Sizes first, in no time; checksums of the files with the right size.
    complete = {}
    for name, expected in files.items():
        message = _size_damage(root, name, expected)
        if message is None:
            complete[name] = expected
        else:
            yield message
    if not checksums:
        return
    total, done = sum(description["size"] for description in complete.values()), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing releases the GIL
        digests = pool.map(sha256, [root / name for name in complete])
        for (name, expected), digest in zip(complete.items(), digests, strict=True):
            if digest != expected["sha256"]:
                yield f"the content of {name} does not match its checksum"
            done += expected["size"]
            progress("checksums", done, total)


def _size_damage(root: Path, name: str, expected: Any) -> str | None:
    inside = not name.startswith("/") and ".." not in PurePosixPath(name).parts
    described = isinstance(expected, dict) and isinstance(expected.get("sha256"), str)
    if not (inside and described and type(expected.get("size")) is int):
        return f"its manifest is damaged: {name!r:.80} is described by {expected!r:.80}"
    try:
        status = (root / name).stat()
    except FileNotFoundError:
        return f"{name} is missing"
    except (OSError, ValueError) as error:  # a name that is no file's
        return f"{name!r:.80}: {error!s:.80}"
    if not stat.S_ISREG(status.st_mode):
        return f"{name} is no file"
    size = status.st_size
    if size != expected["size"]:
        return f"{name} has {size} bytes instead of {expected['size']}"
    return None


_GENERATION = re.compile(r"generation-(\d{6,})")


def generation_name(index: int) -> str:
    return f"generation-{index:06d}"


def generation_number(name: object) -> int | None:
    """Return the number in a generation's name; None for a different name."""
    match = _GENERATION.fullmatch(name) if isinstance(name, str) else None
    return None if match is None else int(match[1])


def generations(folder: Path) -> list[Path]:
    """Return the generations in a folder, in order."""
    numbered = ((generation_number(path.name), path) for path in folder.iterdir())
    return [path for _, path in sorted((n, e) for n, e in numbered if n is not None)]

"""Texts of unknown encoding."""

from __future__ import annotations

import codecs
from importlib import import_module

MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # begins like UTF-16's
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""Encodings by their byte order marks."""

WESTERN = "windows-1252"
"""Latin-1, with Windows' quotes and dashes in place of control characters; browsers read Latin-1
so."""

OTHERS = [WESTERN, "cp1250", "cp1251", "cp1253", "koi8_r", "shift_jis", "euc_kr", "gb18030", "big5"]
"""Encodings that are told apart by how likely their letters are."""

SAMPLE = 2**16
"""Bytes that are looked at."""

SHARE = 0.7
"""Share of a text's pairs of bytes with a zero on one side from which on it is UTF-16."""


class BinaryError(ValueError):
    """Raised for bytes that are no text."""


def decode_text(content: bytes) -> str:
    """Return bytes as a text: by their byte order mark, else as UTF-8, else as the likeliest.

    Text with zeros in every other byte is UTF-16. What is neither that nor UTF-8 is Windows-1252,
    which holds Latin-1, or with the package charset-normalizer (extra ``files``) the likeliest of
    ``OTHERS``.

    Raises:
        BinaryError: the bytes are no text: they hold zeros, or many other control characters.
    """
    for mark, encoding in MARKS.items():
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, errors="replace")
    if b"\0" in content:
        return _wide(content)
    if _controls(content):
        raise BinaryError
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode(likeliest(content), errors="replace")


def _wide(content: bytes) -> str:
    """Return UTF-16 without a mark. Raises BinaryError for anything else."""
    sample = content[:SAMPLE]
    pairs = len(sample) // 2
    encodings = [("utf-16-be", sample[::2]), ("utf-16-le", sample[1::2])]
    for encoding, zeros in encodings:
        if len(content) % 2 == 0 and zeros.count(0) >= SHARE * pairs:
            try:
                text = content.decode(encoding)
            except UnicodeDecodeError:
                break
            if "\0" not in text:
                return text
    raise BinaryError


def _controls(content: bytes) -> bool:
    """Return whether a tenth of the bytes are control characters that texts do not have."""
    sample = content[:SAMPLE]
    kept = sample.translate(None, bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b\b")))
    return 10 * (len(sample) - len(kept)) > len(sample)


def other_mark(content: bytes) -> str | None:
    """Return the encoding of the byte order mark of UTF-16 or UTF-32 at the start; None without."""
    found = (name for mark, name in MARKS.items() if content.startswith(mark))
    encoding = next(found, "utf-8")
    return None if encoding == "utf-8" else encoding[:6]  # the mark itself is left out by these


def likeliest(content: bytes) -> str:
    """Return the likeliest encoding of a text that is not UTF-8."""
    try:
        from_bytes = import_module("charset_normalizer").from_bytes
    except ImportError:
        return WESTERN
    # A few accents say little: Western unless another is clearly likelier.
    matches = from_bytes(content[:SAMPLE], cp_isolation=OTHERS)
    best = matches.best()
    western = next((match for match in matches if match.encoding == "cp1252"), None)
    if best is None or (western is not None and western.chaos <= best.chaos):
        return WESTERN
    return str(best.encoding)

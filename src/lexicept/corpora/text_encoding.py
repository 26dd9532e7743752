"""Texts of unknown encoding."""

from __future__ import annotations

import codecs
from contextlib import suppress
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
"""Encodings, distinguished by the likelihood of the letters."""

SAMPLE = 2**16
"""Number of inspected bytes."""

SHARE = 0.7
"""Smallest share of UTF-16's pairs of bytes with a zero on one side."""


class BinaryError(ValueError):
    """Raised for bytes that are no text."""


def decode_text(content: bytes) -> str:
    """Decode bytes by the byte order mark, else as UTF-8, else in the likeliest encoding. Raises
    BinaryError for no text: zeros, or many control characters.

    Text with zeros in every second byte is UTF-16. Remaining text is Windows-1252, which includes
    Latin-1, or with the package charset-normalizer (extra ``files``) the likeliest of
    ``OTHERS``."""
    for mark, encoding in MARKS.items():
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, errors="replace")
    if b"\0" in content:
        return _wide(content)
    # A tenth of control characters that texts lack.
    sample = content[:SAMPLE]
    printable = sample.translate(None, bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b\b")))
    if 10 * (len(sample) - len(printable)) > len(sample):
        raise BinaryError
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode(likeliest(content), errors="replace")


def _wide(content: bytes) -> str:
    """Decode UTF-16 without a mark. Raises BinaryError for different bytes."""
    sample = content[:SAMPLE]
    # Of Latin letters, the byte with the higher bits is zero.
    for encoding, high in (("utf-16-be", sample[::2]), ("utf-16-le", sample[1::2])):
        if len(content) % 2 == 0 and high.count(0) >= SHARE * (len(sample) // 2):
            with suppress(UnicodeDecodeError):
                if "\0" not in (text := content.decode(encoding)):
                    return text
    raise BinaryError


def other_mark(content: bytes) -> str | None:
    """Return the encoding of a byte order mark of UTF-16 or UTF-32; None without a mark."""
    encodings = (name for mark, name in MARKS.items() if content.startswith(mark))
    encoding = next(encodings, "utf-8")
    return None if encoding == "utf-8" else encoding[:6]  # without byte order: decoders cut marks


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

"""Texts of unknown encoding."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from importlib import import_module
from itertools import chain

from lexicept.corpora.budgets import note

MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # begins like UTF-16's
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""Encodings by their byte order marks."""

UTF_8 = "utf-8"
SAMPLE = 2**16
"""Number of inspected bytes."""

_PRESCANNED = 1_024
"""Bytes at the beginning of a file that detectors search for the encoding of HTML."""

_XML = re.compile(rb"^\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([\w.:-]{1,40})[^>]*>")
_HIGH = bytes(range(128, 256))

# Of texts in 30 other encodings, none has as many bytes in valid sequences as damaged ones.
_VALID_PER_DAMAGED = 2

_REPLACEMENT = "\ufffd".encode()


class BinaryError(ValueError):
    """Raised for bytes that are no text."""


def decode_text(encoded: bytes, *, declared: bool = False) -> str:
    """Decode bytes by the byte order mark, else as UTF-8 if nearly all bytes are, else in the
    likeliest encoding. Raises BinaryError for no text: zeros, or many control characters.

    The likeliest encoding is one of the WHATWG Encoding Standard. With ``declared`` the bytes are
    HTML, which may declare the encoding."""
    for mark, encoding in MARKS.items():
        if encoded.startswith(mark):
            return encoded[len(mark) :].decode(encoding, errors="replace")
    if b"\0" in encoded:
        raise BinaryError
    # A tenth of control characters that texts lack.
    sample = encoded[:SAMPLE]
    printable = sample.translate(None, bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b\b")))
    if 10 * (len(sample) - len(printable)) > len(sample):
        raise BinaryError
    encoding = encoding_of([encoded])
    label = _declared(encoded) if declared else None
    if label is not None:
        text = encoded.decode(label, errors="replace")
        # A page that was saved again in UTF-8 has fewer characters in UTF-8.
        if encoding != UTF_8 or len(text) <= len(encoded.decode(UTF_8, errors="replace")):
            return text
    return encoded.decode(encoding, errors="replace")


def encoding_of(blocks: Iterable[bytes]) -> str:
    """Return UTF-8 if nearly all bytes of a file's blocks are, else the likeliest encoding."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    num_damaged = num_continued = 0
    damaged = previous = b""
    for block in chain(blocks, [b""]):
        text = decoder.decode(block, final=not block)
        previous = block or previous
        damages = text.count("\ufffd") - block.count(_REPLACEMENT)
        # Escape sequences may be those of ISO-2022-JP, all of ASCII.
        if not damaged and (damages > 0 or b"\x1b$" in block):
            damaged = previous
        num_damaged += damages
        num_continued += len(block) - len(text)
    if num_damaged * _VALID_PER_DAMAGED > num_continued or b"\x1b$" in damaged:
        return likeliest(damaged)
    if num_damaged:
        note("damaged characters read as U+FFFD")
    return UTF_8


def decode_utf_8(encoded: bytes) -> str:
    """Decode UTF-8, with U+FFFD for damage where nearly all bytes are UTF-8. Raises
    UnicodeDecodeError for other bytes."""
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        if encoding_of([encoded]) != UTF_8:
            raise
        return encoded.decode(errors="replace")


def likeliest(encoded: bytes) -> str:
    """Return the likeliest encoding of a text that is not UTF-8."""
    detect = import_module("turbohtml.detect").detect
    non_ascii = re.search(rb"[\x1b\x80-\xff]", encoded)
    begin = non_ascii.start() if non_ascii else 0
    start = max(encoded.rfind(b"\n", 0, begin) + 1, begin - SAMPLE // 2)
    # Spaces, because the text may be about HTML that declares an encoding.
    return str(detect(b" " * _PRESCANNED + encoded[start : start + SAMPLE]).codec)


def _declared(encoded: bytes) -> str | None:
    """Return the encoding that HTML declares; None for UTF-8, or without a known declaration."""
    detect = import_module("turbohtml.detect").detect
    # Without a declaration the last letter decides.
    letters = encoded[:_PRESCANNED].translate(None, _HIGH)
    letters = _XML.sub(rb"<meta charset=\1>", letters)
    match = detect(letters.ljust(_PRESCANNED) + "é".encode())
    return None if match.encoding in ("UTF-8", "replacement") else str(match.codec)


def other_mark(encoded: bytes) -> str | None:
    """Return the encoding of a byte order mark of UTF-16 or UTF-32; None without a mark."""
    encodings = (name for mark, name in MARKS.items() if encoded.startswith(mark))
    encoding = next(encodings, "utf-8")
    return None if encoding == "utf-8" else encoding[:6]  # without byte order: decoders cut marks

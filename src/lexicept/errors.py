"""lexicept's errors: each message names the input that caused it."""


class LexiceptError(Exception):
    """Base of every error that lexicept raises on purpose."""


class InputError(LexiceptError, ValueError):
    """Raised for bad input: the message names the file and line, the id or the value."""


class IndexFormatError(LexiceptError):
    """Raised for a folder that is no index, is damaged, or was written by a newer version."""

"""lexicept's errors: each message names the input that caused it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class LexiceptError(Exception):
    """Base of every error that lexicept raises on purpose.

    Examples:
        >>> lexicept.open("nowhere")
        Traceback (most recent call last):
        lexicept.errors.IndexFormatError: nowhere: there is no index here
    """


class LexiceptWarning(UserWarning):
    """Base of every warning that lexicept gives; the command line prints its text alone."""


class InputError(LexiceptError, ValueError):
    """Raised for bad input: the message names the file and line, the id or the value."""


class ParameterError(InputError):
    """Parameters that do not go together, or a parameter out of range.

    Args:
        text: the message, with ``{0}``, ``{1}`` and so on in place of the names.
        names: names of parameters.
    """

    def __init__(self, text: str, *names: str) -> None:
        super().__init__(text.format(*names))
        self.text = text
        self.names = names


class IndexFormatError(LexiceptError):
    """Raised for a folder that is no index, is damaged, or has another format version."""


def message_of(error: BaseException, most: int = 300) -> str:
    """Return an error's message in one line of at most ``most`` characters, or the type's name."""
    return " ".join(str(error).split())[:most] or type(error).__name__


def first_line_of(error: BaseException) -> str:
    """Return the first line of an error's message, or the type's name."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def require(extra: str, *modules: str, hint: str = "") -> None:
    """Refuse to start work that a missing package would stop halfway.

    Args:
        extra: the optional extra of lexicept that installs the packages.
        modules: the names that the work imports.
        hint: what to do instead.

    Raises:
        InputError: naming the missing packages.
    """
    from importlib.util import find_spec

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise InputError(f"{', '.join(missing)} missing: pip install 'lexicept[{extra}]'{hint}")


def check_known(noun: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raise ParameterError, with the nearest name, for a name that is not known."""
    import difflib

    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1, 0.5)
            hint = f"perhaps {near[0]}?" if near else f"there are {', '.join(known) or 'none'}"
            raise ParameterError(f"no {noun} {{0!r:.80}}; {hint}", name)

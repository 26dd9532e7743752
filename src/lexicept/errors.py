"""lexicept's errors: each message names the input that caused it."""

from operator import index


class LexiceptError(Exception):
    """Base of every error that lexicept raises on purpose."""


class LexiceptWarning(UserWarning):
    """Base of every warning that lexicept gives; the command line prints its text alone."""


class InputError(LexiceptError, ValueError):
    """Raised for bad input: the message names the file and line, the id or the value."""


class ParameterError(InputError):
    """Parameters that do not go together.

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


def check_count(name: str, value: object) -> None:
    """Raise InputError unless the value is a whole number of at least 1."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} must be a whole number, not {value!r:.40}") from None
    if number < 1:
        raise InputError(f"{name} must be at least 1, not {number}")


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

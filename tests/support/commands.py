"""Results of the command line, and its one line for an error."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Run = Callable[..., Result]


def assert_error(result: Result, *parts: str, code: int = 1) -> None:
    """The exit code and one line on standard error (after a progress bar), no traceback."""
    assert result.code == code
    lines = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert result.err.rstrip("\n").endswith(lines[0])
    assert "Traceback" not in result.err
    for fragment in parts:
        assert fragment in lines[0]

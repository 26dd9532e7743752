"""Access by an API key."""

from __future__ import annotations

import base64
import binascii
import os
import re
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from lexicept.errors import InputError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LEAST_KEY = 16
"""Fewest characters of a key."""

MOST_KEY = 1_024

REFUSAL = "this server requires its API key, as a bearer token or as the password of any user"


def read_key(path: str | os.PathLike[str]) -> str:
    """Return the API key of a file. Raises InputError for a missing file, or not a line of 16 to
    1,024 visible ASCII characters."""
    try:
        if not Path(path).is_file():  # a FIFO would be read by one worker only
            raise InputError(f"{path}: no file with an API key")
        with open(path, "rb") as file:
            content = file.read(MOST_KEY + 3)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    key = content.removesuffix(b"\n").removesuffix(b"\r")
    if not re.fullmatch(rb"[!-~]{%d,%d}" % (LEAST_KEY, MOST_KEY), key):
        raise InputError(
            f"{path}: an API key is one line of {LEAST_KEY} to {MOST_KEY:,} ASCII letters, digits "
            "and signs, without spaces"
        )
    return key.decode()


class KeyRequired:
    """ASGI middleware: requests without the API key get status 401."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._holds_key(scope["headers"]):
            await self.app(scope, receive, send)
            return
        # Basic is the scheme that browsers know: they ask for the key, for the page too.
        challenge = {"WWW-Authenticate": 'Basic realm="lexicept", charset="UTF-8"'}
        await JSONResponse({"detail": REFUSAL}, 401, challenge)(scope, receive, send)

    def _holds_key(self, headers: list[tuple[bytes, bytes]]) -> bool:
        authorizations = [value for name, value in headers if name == b"authorization"]
        if len(authorizations) != 1:
            return False
        scheme, _, credentials = authorizations[0].partition(b" ")
        if scheme.lower() == b"basic":
            try:
                decoded = base64.b64decode(credentials, validate=True)
            except binascii.Error:
                return False
            _, _, credentials = decoded.partition(b":")
        elif scheme.lower() != b"bearer":
            return False
        return compare_digest(credentials, self._key)

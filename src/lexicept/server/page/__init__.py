"""The files of the page, each with its media type."""

from importlib.resources import files

_TYPES = {
    "index.html": "text/html",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

FILES = {
    "/" if name == "index.html" else f"/{name}": (files(__name__).joinpath(name).read_bytes(), kind)
    for name, kind in _TYPES.items()
}
"""Content and media type by address."""

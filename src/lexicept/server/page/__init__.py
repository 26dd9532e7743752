"""The files of the page, and of the API's own page, each with its media type."""

from importlib.resources import files

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

_ADDRESSES = {"index.html": "/", "docs.html": "/docs"}

FILES = {
    _ADDRESSES.get(file.name, f"/{file.name}"): (file.read_bytes(), _TYPES[ending])
    for file in files(__name__).iterdir()
    if (ending := "." + file.name.rpartition(".")[2]) in _TYPES
}
"""Content and media type by address."""

SWAGGER = {
    f"/docs/{name}": (files("fastapi_offline").joinpath("static", name).read_bytes(), kind)
    for name, kind in (("swagger-ui-bundle.js", "text/javascript"), ("swagger-ui.css", "text/css"))
}
"""The same of Swagger, which shows the API."""

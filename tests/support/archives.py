"""Zip archives in memory."""

import io
import zipfile


def archive(**members):
    """A zip archive; a name has __ for / and _dot_ for the last point."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(name.replace("__", "/").replace("_dot_", "."), text)
    return content.getvalue()

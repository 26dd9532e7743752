"""Files opened or mapped by this process (Linux)."""

import os
from contextlib import suppress
from pathlib import Path


def open_files(folder: Path) -> list[str]:
    """Return the paths below a folder that this process has open or mapped, sorted.

    A path is there once for each descriptor and each map; removed files end in " (deleted)".
    """
    paths = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists the folder
            paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    with open("/proc/self/maps") as maps:
        paths += [line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/" in line]
    whole = os.path.realpath(folder)
    return sorted(path for path in paths if f"{path}/".startswith(f"{whole}/"))

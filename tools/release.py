"""Check and build a release: ``python -m tools.release check TAG | build FOLDER | try FOLDER``."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


class ReleaseError(Exception):
    """Raised for a release that must not be made."""


def check(tag: str, root: Path = ROOT) -> str:
    """Return the version that a tag, ``pyproject.toml`` and ``CHANGELOG.md`` agree on.

    Raises:
        ReleaseError: they do not agree, or the changes of the version have no date.
    """
    version: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        raise ReleaseError(f"the tag is {tag}, the version in pyproject.toml {version}")
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}$"
    if not re.search(heading, (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no heading '## [{version}] - YEAR-MONTH-DAY'")
    return version


def build(out: Path, root: Path = ROOT) -> None:
    """Build wheel and sdist into a folder, and try the wheel."""
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(root)]
    subprocess.run(command, check=True)
    try_wheel(out)


def try_wheel(folder: Path) -> None:
    """Install the wheel of a folder in a fresh environment, and index and search with it.

    Raises:
        ReleaseError: there is not exactly one wheel and one sdist, or a search finds nothing.
    """
    wheels, sources = [*folder.glob("*.whl")], [*folder.glob("*.tar.gz")]
    if len(wheels) != 1 or len(sources) != 1:
        raise ReleaseError(f"{folder} holds {len(wheels)} wheels and {len(sources)} sdists")
    with tempfile.TemporaryDirectory() as work:
        place = Path(work)
        venv.create(place / "venv", with_pip=True)
        binaries = place / "venv" / "bin"
        install = [binaries / "pip", "install", "--quiet", wheels[0].resolve()]
        subprocess.run(install, check=True)
        (place / "pets").mkdir()
        (place / "pets" / "cat.txt").write_text("Cats sleep all day.\n")
        lexicept = [str(binaries / "lexicept")]
        made = [*lexicept, "build", "pets", "--vocabulary", "words", "--out", "pets.index"]
        subprocess.run(made, check=True, cwd=place)
        found = subprocess.run(
            [*lexicept, "search", "pets.index", "sleeping cat", "--json"],
            check=True, cwd=place, capture_output=True, text=True,
        )  # fmt: skip
    if "cat.txt" not in found.stdout:
        raise ReleaseError(f"the installed wheel finds nothing: {found.stdout}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("check").add_argument("tag")
    for name in ("build", "try"):
        actions.add_parser(name).add_argument("folder", type=Path)
    given = parser.parse_args()
    try:
        if given.action == "check":
            print(check(given.tag))
        else:
            (build if given.action == "build" else try_wheel)(given.folder)
    except ReleaseError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

"""Hooks of the documentation site: pages from elsewhere in the repository, and generated ones."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

import lexicept
from lexicept.cli import make_app

ROOT = Path(__file__).parents[1]
INCLUDED = {
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "src/lexicept/mini/README.md": "model-card.md",
    "reproduction/RESULTS.md": "reproduction/RESULTS.md",
    "tests/README.md": "tests.md",
    **{
        path.relative_to(ROOT).as_posix(): path.relative_to(ROOT).as_posix()
        for path in [
            *sorted((ROOT / "benchmarks").glob("*.*")),
            *sorted((ROOT / "reproduction").glob("*/*/README.md")),
        ]
        if path.suffix in {".md", ".png"}
    },
}
"""Repository path → site path of the pages and pictures that live outside docs/."""

ORIGINS = {site: repository for repository, site in INCLUDED.items()}
LINK = re.compile(r"(?<=\]\()(?P<path>(?!\w+:)[^)#\s]+)(?=[)#\s])")
CODE = re.compile(r"^(```.*?^```|<!--.*?-->)$", re.MULTILINE | re.DOTALL)
NO_RUN = re.compile(r"^```(\w+) no-run$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the included files, the command line reference and the notebooks' pages."""
    for repository, site in INCLUDED.items():
        files.append(File.generated(config, site, abs_src_path=str(ROOT / repository)))
    files.append(File.generated(config, "reference/cli.md", content=command_line_reference()))
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        markdown, resources = MarkdownExporter().from_filename(str(notebook))
        for name, picture in (resources.get("outputs") or {}).items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=markdown))
    return files


def command_line_reference() -> str:
    """Return the page of all commands, generated from the application."""
    page = make_app().generate_docs(usage_name="lexicept")
    # Two brackets side by side, as in KIND[:NAME][=WEIGHT], would be a link.
    return page.replace("# lexicept", "# Command line", 1).replace("][", r"]\[")


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Name the public API, point links between files at the site's pages, drop the tests' marks."""
    inherited = "\n    options:\n      inherited_members: true"
    names = "\n\n".join(
        f"::: lexicept.{name}{inherited if name == 'Index' else ''}" for name in lexicept.__all__
    )
    markdown = markdown.replace("<!-- lexicept.__all__ -->", names)
    site = page.file.src_uri
    here = posixpath.dirname(ORIGINS.get(site, f"docs/{site}"))

    def relocated(match: re.Match[str]) -> str:
        repository = posixpath.normpath(posixpath.join(here, match["path"]))
        wanted = INCLUDED.get(repository, repository.removeprefix("docs/"))
        if wanted.endswith(".ipynb"):
            wanted = wanted.removesuffix(".ipynb") + ".md"
        return posixpath.relpath(wanted, posixpath.dirname(site) or ".")

    pieces = CODE.split(NO_RUN.sub(r"```\1", markdown))
    return "".join(
        piece if number % 2 else LINK.sub(relocated, piece) for number, piece in enumerate(pieces)
    )

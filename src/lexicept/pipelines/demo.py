"""A demonstration: the documentation of the running Python, with a search page."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
import urllib.request
import webbrowser
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from lexicept.errors import checked_arguments
from lexicept.pipelines.build import build
from lexicept.pipelines.serve import serve
from lexicept.storage.files import disk_errors

CORPUS = "python-docs"

WAIT_SECONDS = 60.0
"""Longest time to wait for the server before the browser is opened."""


@checked_arguments
def demo(
    *,
    folder: str | os.PathLike[str] | None = None,
    port: int = 8000,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a search page for Python's own documentation until interrupted.

    The words are indexed first, in seconds. Another process then indexes the concepts once, in
    minutes, for the next search on the page. A second demonstration resumes interrupted work.

    Args:
        folder: the folder of the indexes; by default in the user's cache.
        port: the port on 127.0.0.1; 0 takes a free port, without a browser.
        browser: True opens the page in a browser.
        say: called with each line about the progress.

    Raises:
        InputError: the port is taken, Python's sources are missing, or the extra ``serve`` is not
            installed.
    """
    home = default_folder() if folder is None else Path(folder)
    with disk_errors(home):
        home.mkdir(parents=True, exist_ok=True)
    words, both, current = home / "words.index", home / "both.index", home / "index"
    if not both.is_dir():
        if not words.is_dir():
            say("Indexing the words of Python's documentation ...")
            build(CORPUS, words, vocabulary="words").close()
        switch(current, words)
        start_concepts(both, current, say)
    else:
        switch(current, both)
    if port and browser:
        address = f"http://127.0.0.1:{port}/?q=how+do+I+join+two+file+paths"
        threading.Thread(target=open_page, args=(address,), daemon=True).start()
    say(f"Kept in {home}. Stop with Ctrl-C.")
    serve(current, port=port)


def default_folder() -> Path:
    """Return the folder of the demonstration of this Python in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    major, minor = sys.version_info[:2]
    return Path(cache) / "lexicept" / f"demo-python-{major}.{minor}"


def switch(link: Path, target: Path) -> None:
    """Let a link point at an index in the same folder, in one step: a server follows the link."""
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    with disk_errors(link):
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target.name)
        fresh.replace(link)


def start_concepts(out: Path, current: Path, say: Callable[[str], None]) -> None:
    """Index words and concepts in another process; switch to the new index at the end."""
    if find_spec("sentence_transformers") is None:
        say("Words only: concepts need pip install 'lexicept[concepts,offline]'")
        return
    say("Indexing its concepts meanwhile, a few minutes; the page has them then.")
    log = out.with_name("build.log")
    command = [sys.executable, "-c", "from lexicept.cli import main; main()"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "build", CORPUS, "--out", str(out)],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the server: it ends this process itself
        )

    def wait() -> None:
        if process.wait() == 0:
            switch(current, out)
            say("The concepts are indexed: the next search finds them.")
        else:
            say(f"The concepts could not be indexed: see {log}")

    threading.Thread(target=wait, daemon=True).start()
    atexit.register(process.terminate)


def open_page(address: str) -> None:
    """Open a browser once the server answers."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=5):
                break
        except OSError:
            time.sleep(0.2)
    webbrowser.open(address)

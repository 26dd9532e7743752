"""The read path: Python calls and frames of one search of words."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import lexicept

PACKAGE = str(Path(lexicept.__file__).parent)

CALLS = 64
FRAMES = 9

INSIDE_KERNELS = {"search_postings", "all_scores"}
"""The kernel, and a function of the reference that stands in for the kernel."""


def calls_of_a_search(index: lexicept.Index) -> tuple[list[str], int]:
    """Return the functions of lexicept called by a two-word search, and the deepest stack."""
    calls: list[str] = []
    depth = deepest = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth, deepest
        if frame.f_code.co_filename.startswith(PACKAGE):
            if frame.f_code.co_name in INSIDE_KERNELS:
                return
            if event == "call":
                calls.append(frame.f_code.co_qualname)
            depth += {"call": 1, "return": -1}.get(event, 0)
            deepest = max(deepest, depth)

    sys.setprofile(profile)
    try:
        index.search("cat dog")
    finally:
        sys.setprofile(None)
    return calls, deepest


def test_a_search_of_two_words_is_a_short_way(tmp_path, monkeypatch):
    monkeypatch.setattr("lexicept.pipelines.snapshot.LOOK_SECONDS", 3600.0)
    texts = ["the cat sat on the mat", "dogs and cats play", "a dog barks"]
    index = lexicept.build(texts, tmp_path / "index", vocabulary="words")
    assert len(index.search("cat dog")) == 3  # loads the words
    calls, deepest = calls_of_a_search(index)
    assert len(calls) <= CALLS, "\n".join(calls)
    assert deepest <= FRAMES

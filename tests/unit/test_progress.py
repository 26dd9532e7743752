"""Progress: a line for people, nothing, or the caller's own."""

import pytest

from lexicept import progress
from lexicept.progress import reporting, silent


@pytest.fixture
def clock(monkeypatch):
    """A clock of 10 seconds a look."""
    times = iter(range(0, 10_000, 10))
    monkeypatch.setattr(progress, "monotonic", lambda: next(times))


def test_each_stage_is_a_line_where_there_is_no_terminal(capsys, clock):
    with reporting(True) as report:
        report("words", 1, 4)
        report("words", 4, 4)
        report("[red]", 1, 2, "[blue]detail")
        report("searchable by words", 0, 0, "lexicept search index")
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == [
        "counting words (25%, 30 s left)",
        "[red] (50%, 10 s left)",
        "searchable by words: lexicept search index",
    ]


def test_the_time_left_is_of_all_stages(capsys, clock):
    with reporting(True, lambda totals: {"a": 1, "b": totals.get("a", 1), "c": 5}) as report:
        report("a", 2, 4)  # less than a tenth is done
        report("a", 4, 4)
        report("b", 1, 4)  # after 10 s: 30 s of b, and 5 shares of 30 s / 2
        report("else", 1, 4)
        report("c", 5, 5)
    assert capsys.readouterr().err.splitlines() == [
        "a (5%)",
        "b (20%, 105 s left)",
        "else (20%)",
        "c (100%, 0 s left)",
    ]


def test_nothing_is_shown_unasked(capsys):
    with reporting(False) as report:
        assert report is silent
        report("words", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_progress_of_ones_own():
    calls = []
    with reporting(lambda *call: calls.append(call)) as report:
        report("words", 1, 2)
    assert calls == [("words", 1, 2)]

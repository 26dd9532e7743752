"""Progress: bars for people, nothing, or the caller's own."""

from lexicept.progress import reporting, silent


def test_bars_are_on_standard_error(capsys):
    with reporting(True) as progress:
        progress("words", 3, 1200)
        progress("words", 1200, 1200)
        progress("[red]", 1, 2, "[blue]detail")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "1,200/1,200" in shown.err
    assert "[blue]detail" in shown.err
    assert "working" not in shown.err


def test_nothing_is_shown_unasked(capsys):
    with reporting(False) as progress:
        assert progress is silent
        progress("words", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_progress_of_ones_own():
    calls = []
    with reporting(lambda *call: calls.append(call)) as progress:
        progress("words", 1, 2)
    assert calls == [("words", 1, 2)]

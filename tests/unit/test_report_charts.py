"""Charts as SVG images: the data drawn by matplotlib, and text shown as text."""

from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from lexicept.reports.charts import Series, bars, differences, histogram, steps

NAMESPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def drawn(monkeypatch):
    """The axes of saved figures."""
    axes: list[Any] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: axes.extend(self.axes) or save(self, *a, **k)
    )
    return axes


def test_bars_are_as_long_as_their_values(drawn):
    chart = bars("Sizes", ["postings", "texts"], [50, 100], "MB")
    assert [bar.get_width() for bar in drawn[0].patches] == [50, 100]
    assert all(text in chart.svg for text in (">postings</text>", ">50 MB</text>"))
    assert chart.title == "Sizes"
    assert chart.source.startswith("data:image/svg+xml;base64,")


def test_a_histogram_has_a_box_for_every_count(drawn):
    histogram("Lengths", [0, 1, 3], [1, 2], "length", "documents")
    boxes = [(box.get_x(), box.get_width(), box.get_height()) for box in drawn[0].patches]
    assert boxes == [(0, 1, 1), (1, 2, 2)]


def test_differences_are_gains_and_losses(drawn):
    differences("D", [2, 1, -2], "queries", "difference")
    gains, losses = (stairs.get_data().values.tolist() for stairs in drawn[0].patches)
    assert gains == [2, 1, 0]
    assert losses == [0, 0, -2]


def test_steps(drawn):
    chart = steps("L", [Series("a", [1, 10], [5, 4]), Series("b", [1, 9], [3, 2])], "x", "y")
    assert [line.get_xydata().tolist() for line in drawn[0].lines] == [
        [[1, 5], [10, 4]],
        [[1, 3], [9, 2]],
    ]
    assert drawn[0].get_xscale() == "log"
    assert drawn[0].lines[0].get_linestyle() != drawn[0].lines[1].get_linestyle()
    assert all(f">{name}</text>" in chart.svg for name in "ab")


@settings(max_examples=10)
@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=5))
@example([5e-324])
def test_any_numbers_are_drawn(values):
    edges = list(range(len(values) + 1))
    for chart in (
        differences("D", values, "x", "y"),
        histogram("H", edges, values, "x", "y"),
        bars("B", ["name"] * len(values), values, "MB"),
    ):
        ElementTree.fromstring(chart.svg)


def test_the_same_bytes_whatever_the_settings_of_matplotlib_are():
    def draw():
        return steps("L", [Series("a", [1, 2], [3, 4]), Series("b", [1, 2], [4, 3])], "x", "y")

    before = draw()
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": True}):
        assert draw() == before


HOSTILE = '<script>"1"</script>&$x_{$'


@pytest.mark.parametrize("text", [HOSTILE, "\x00\x1b\u202e\ud800\uffff\n", "größe 猫 🐈"])
@pytest.mark.parametrize(
    "draw",
    [
        lambda text: bars(text, [text], [1], text),
        lambda text: histogram(text, [0, 1], [1], text, text),
        lambda text: steps(text, [Series(text, [1], [1]), Series("b", [2], [2])], text, text),
        lambda text: differences(text, [1], text, text),
    ],
)
def test_text_is_shown_as_text(text, draw):
    chart = draw(text)
    root = ElementTree.fromstring(chart.svg)
    assert not {element.tag for element in root.iter()} & {f"{NAMESPACE}script"}
    assert not set(chart.title + chart.svg) & set("\x00\x1b\u202e\ud800\uffff")
    if text == HOSTILE:
        assert text in [element.text for element in root.iter(f"{NAMESPACE}text")]

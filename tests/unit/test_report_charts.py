"""Charts as SVG: bars as high as their values, colours of the page, text that is shown as text."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lexicept.reports import charts
from lexicept.reports.charts import (
    Mark,
    Series,
    bars,
    columns,
    compact,
    differences,
    histogram,
    lines,
    scatter,
)


def paths(svg: str, attribute: str, colour: str) -> list[list[tuple[float, float]]]:
    """The corners of every path that is filled or stroked with a colour."""
    found = []
    for part in ElementTree.fromstring(svg).iter("path"):
        if part.get(attribute) == f"var(--{colour})":
            numbers = re.findall(r"-?[\d.]+", part.attrib["d"].replace("h0", ""))
            found.append(
                list(zip(map(float, numbers[::2]), map(float, numbers[1::2]), strict=True))
            )
    return found


def boxes(svg: str, series: int = 0) -> list[tuple[float, float]]:
    """Width and height of every box of a series."""
    return [
        (np.ptp([x for x, _ in path]), np.ptp([y for _, y in path]))
        for path in paths(svg, "fill", f"series-{series}")
    ]


def points(svg: str, colour: str) -> list[tuple[float, float]]:
    (path,) = paths(svg, "stroke", colour)
    return path


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"), (0.25, "0.25"), (0.001, "0.001"), (1e-5, "10⁻⁵"), (0.00032, "3×10⁻⁴"),
        (12000, "12,000"), (999.6, "1,000"), (2.5e6, "2.5M"), (-40, "-40"),
    ],
)  # fmt: skip
def test_compact_numbers(value, shown):
    assert compact(value) == shown


def test_bars_are_as_long_as_their_values():
    svg = bars("Sizes", ["postings", "texts"], [50, 100], "MB")
    (first, height), (second, same) = boxes(svg)
    assert second == pytest.approx(2 * first, abs=0.2)
    assert height == pytest.approx(same)
    assert ">postings</text>" in svg
    assert ">50 MB</text>" in svg
    assert "<title>texts: 100 MB</title>" in svg


def test_columns_are_as_high_as_their_values():
    svg = columns("Measures", ["a", "b"], [("x", [1, 0.5]), ("y", [2, 1])], "", "mean")
    *first, _ = boxes(svg)  # the last one is the legend's
    *second, _ = boxes(svg, 1)
    heights = [height for _, height in (*first, *second)]
    assert heights == pytest.approx([heights[0] * n for n in (1, 0.5, 2, 1)], abs=0.2)
    assert "<title>b: 0.5</title>" in svg


def test_a_histogram_has_a_box_for_every_count():
    svg = histogram("Lengths", [0, 1, 3], [1, 2], "length", "documents")
    (narrow, low), (wide, high) = boxes(svg)
    assert (wide, high) == pytest.approx((2 * narrow, 2 * low), abs=0.2)
    assert "<title>1 to 3: 2</title>" in svg


def test_differences_are_gains_and_losses():
    svg = differences("D", [2, 1, -2], "queries", "difference")
    width, gain = boxes(svg)[0]
    assert boxes(svg, 1)[0] == pytest.approx((width, gain), abs=0.2)


def test_lines_and_steps():
    drawn = points(lines("L", [Series("", [0, 5, 10], [0, 5, 10])], "x", "y"), "series-0")
    (a, zero), (b, middle), (c, top) = drawn
    assert b - a == pytest.approx(c - b, abs=0.2)
    assert zero - middle == pytest.approx(middle - top, abs=0.2)
    series = [Series("", [0, 1, 10, 100], [9, 0, 5, 10])]
    steps = points(lines("L", series, "x", "y", log_x=True, steps=True), "series-0")
    assert len(steps) == 5  # 0 has no place on a logarithmic axis
    assert len({x for x, _ in steps}) == len({y for _, y in steps}) == 3
    assert steps[2][0] - steps[0][0] == pytest.approx(steps[4][0] - steps[2][0], abs=0.2)


def test_scatter():
    svg = scatter("S", [Series("", [0, 10], [10, 0])], "x", "y", marks=[Mark(10, 0, "last")])
    (left, top), (right, bottom) = points(svg, "series-0")
    assert left < right
    assert top < bottom
    assert points(svg, "ink") == [(right, bottom)]
    assert ">last</text>" in svg
    logs = scatter("S", [Series("", [0, 1], [1, 1])], "x", "y", log_x=True, log_y=True)
    assert len(points(logs, "series-0")) == 1  # 0 has no place on a logarithmic axis
    assert "stroke-dasharray" not in logs
    assert "stroke-dasharray" in scatter("S", [], "x", "y", diagonal=True)


def test_names_of_marks_do_not_cover_each_other():
    marks = [Mark(1, 1, f"name {n}") for n in range(5)]
    svg = scatter("S", [Series("", [0, 9], [0, 9])], "x", "y", marks=marks)
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>name', svg))
    assert len(heights) == 5
    assert all(b - a >= 14 for a, b in pairwise(heights))


NUMBERS = st.floats(-1e12, 1e12)


@settings(max_examples=10)
@given(st.lists(NUMBERS, min_size=1, max_size=5), st.booleans(), st.booleans())
@example([5e-324], True, True)
def test_any_numbers_are_drawn(values, log_x, log_y):
    series = [Series("", values, values)]
    for svg in (
        lines("L", series, "x", "y", log_x=log_x),
        scatter("S", series, "x", "y", log_x=log_x, log_y=log_y),
        differences("D", values, "x", "y"),
    ):
        assert not re.search("nan|inf", svg)


def test_the_same_bytes_whatever_the_settings_of_matplotlib_are():
    def draw() -> str:
        return lines("L", [Series("a", [1, 2], [3, 4]), Series("b", [1, 2], [4, 3])], "x", "y")

    before = draw()
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": True}):
        assert draw() == before


HOSTILE = '<script>alert("1")</script>&$x_{$'


@pytest.mark.parametrize("text", [HOSTILE, "\x00\x1b\u202e\ud800\uffff\n", "größe 猫 🐈"])
def test_charts_are_accessible_and_show_text_as_text(text):
    for svg in (
        bars(text, [text], [1], text),
        columns(text, [text], [(text, [1]), ("b", [0])], text, text),
        histogram(text, [0, 1], [1], text, text),
        lines(text, [Series(text, [1], [1]), Series("b", [2], [2])], text, text),
        differences(text, [1], text, text),
        scatter(text, [Series("", [1], [1])], text, text, marks=[Mark(1, 1, text)]),
    ):
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        assert root[0].tag == "title"
        assert root[0].text == charts.one_line(text) or not root[0].text
        assert {part.tag for part in root.iter()} <= {"svg", "title", "text", "path"}
        names = {name for part in root.iter() for name in part.attrib}
        assert not names & {"id", "style", "class", "href"}  # the page's policy drops styles
        assert "url(" not in svg
        assert not set(svg) & set("\x00\x1b\u202e\ud800\uffff")
    if text == HOSTILE:
        assert text in [part.text for part in root.iter("text")]

"""Plots drawn by hand: coordinates, ticks, and text that is shown as text."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.reports.charts import (
    Mark,
    Scale,
    Series,
    bars,
    columns,
    compact,
    histogram,
    lines,
    meter,
    scale,
    scatter,
)


def rectangles(svg: str) -> list[tuple[float, ...]]:
    """x, y, width and height of every bar."""
    pattern = r'<rect class="series-\d" x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"'
    return [tuple(map(float, found)) for found in re.findall(pattern, svg)]


def path(svg: str, kind: str) -> str:
    found = re.search(rf'<path class="{kind}.*?" d="(.*?)"', svg)
    assert found is not None
    return found[1]


def test_scales():
    linear = scale([3, 87], 0, 500)
    assert linear == Scale(0, 100, 0, 500)
    assert linear.ticks() == [0, 20, 40, 60, 80, 100]
    assert linear(50) == 250
    logarithmic = scale([0.002, 0, 40], 0, 300, log=True)
    assert logarithmic == Scale(0.001, 100, 0, 300, log=True)
    assert logarithmic.ticks() == pytest.approx([0.001, 0.01, 0.1, 1, 10, 100])
    assert logarithmic(0.1) == pytest.approx(120)
    assert scale([5, 9], 0, 1, zero=True).low == 0
    assert scale([-0.3, 0.45], 0, 1, zero=True)[:2] == pytest.approx((-0.4, 0.6))


def test_scales_of_nothing_and_of_one_value():
    assert scale([], 0, 1)[:2] == (0, 1)
    assert scale([7, 7], 0, 1)[:2] == (6, 14)
    assert scale([5e-324, 1e-323], 0, 1)[:2] == (0, 1)  # too small to have digits
    assert scale([0.0], 0, 1, log=True)[:2] == (1, 10)
    assert scale([10], 0, 1, log=True)[:2] == (10, 100)


@given(st.lists(st.floats(-1e12, 1e12), min_size=1), st.booleans())
def test_scales_hold_all_values_between_a_few_ticks(values, zero):
    made = scale(values, 0, 1, zero=zero)
    slack = 1e-6 * (made.high - made.low)
    assert made.low - slack <= min(values)
    assert max(values) <= made.high + slack
    assert 2 <= len(made.ticks()) <= 13


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"), (0.25, "0.25"), (0.001, "0.001"), (1e-5, "10⁻⁵"), (0.00032, "3×10⁻⁴"),
        (12000, "12,000"), (999.6, "1,000"), (2.5e6, "2.5M"), (-40, "-40"),
    ],
)  # fmt: skip
def test_compact_numbers(value, shown):
    assert compact(value) == shown


def test_histogram():
    svg = histogram("Lengths", [0, 1, 2], [1, 2], "length", "documents")
    # The plot is 64 to 612 across and 14 to 252 down; ticks end at 2.
    assert rectangles(svg) == [(64, 133, 273, 119), (338, 14, 273, 238)]
    assert "<title>0 to 1: 1</title>" in svg


def test_columns():
    svg = columns("Measures", ["a", "b"], [("x", [1, 0]), ("y", [2, 1])], "", "mean")
    legend, drawn = rectangles(svg)[:2], rectangles(svg)[2:]
    assert [box[:2] for box in legend] == [(64, 6), (338, 6)]
    # Two places of 274, of which bars fill .84; below the legend the plot begins at 36.
    assert drawn == [
        (85.9, 144, 115.1, 108),
        (201, 36, 115.1, 216),
        (359.9, 252, 115.1, 0),
        (475, 144, 115.1, 108),
    ]


def test_bars():
    svg = bars("Sizes", ["postings", "texts"], [("MB", [50, 100])], "MB")
    assert rectangles(svg) == [(200, 16, 190, 14), (200, 34, 380, 14)]
    assert ">postings</text>" in svg


def test_lines_and_steps():
    series = [Series("", [1, 10, 100], [0, 5, 10])]
    assert path(lines("L", series, "x", "y"), "line") == "M69.5 252L118.8 133L612 14"
    steps = lines("L", series, "x", "y", log_x=True, steps=True)
    assert path(steps, "line") == "M64 252H338V133H612V14"


def test_scatter():
    points = [Series("", [0, 10], [10, 0])]
    svg = scatter("S", points, "x", "y", diagonal=True, marks=[Mark(10, 0, "last")])
    assert path(svg, "dots") == "M64 14h0M612 352h0"
    assert path(svg, "diagonal") == "M64 352L612 14"
    assert '<circle class="mark" cx="612" cy="352" r="3.5"/>' in svg
    without = scatter("S", [Series("", [0, 1], [1, 1])], "x", "y", log_x=True, log_y=True)
    assert path(without, "dots").count("h0") == 1  # 0 has no place on a logarithmic axis


def test_names_of_marks_do_not_cover_each_other():
    marks = [Mark(1, 1, f"name {n}") for n in range(5)]
    svg = scatter("S", [Series("", [0, 9], [0, 9])], "x", "y", marks=marks)
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>name', svg))
    assert all(b - a >= 14 for a, b in pairwise(heights))


def test_meter():
    assert 'width="25"' in meter(1, 4)
    assert 'width="0"' in meter(0, 0)
    assert 'width="100"' in meter(9, 4)


HOSTILE = '<script>alert("1")</script>&'


@pytest.mark.parametrize(
    "svg",
    [
        bars(HOSTILE, [HOSTILE], [(HOSTILE, [1]), ("b", [0])], HOSTILE),
        columns(HOSTILE, [HOSTILE], [(HOSTILE, [1]), ("b", [0])], HOSTILE, HOSTILE),
        histogram(HOSTILE, [0, 1], [1], HOSTILE, HOSTILE),
        lines(HOSTILE, [Series(HOSTILE, [1], [1]), Series("b", [2], [2])], HOSTILE, HOSTILE),
        scatter(HOSTILE, [Series("", [1], [1])], HOSTILE, HOSTILE, marks=[Mark(1, 1, HOSTILE)]),
    ],
)
def test_plots_are_accessible_and_show_text_as_text(svg):
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root[0].tag == "title"
    assert root[0].text == HOSTILE
    assert not [part for part in root.iter() if part.tag == "script"]

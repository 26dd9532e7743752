"""Filters: texts and dicts against a plain evaluation over documents, and refusals."""

import operator
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.errors import InputError
from lexicept.fields.columns import FieldColumns
from lexicept.fields.filters import Condition, FilterError, parse
from lexicept.fields.matching import matching
from lexicept.fields.values import plain
from lexicept.fields.writing import FieldWriter

COMPARED = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def columns(folder: Path, records: list[dict[str, Any]]) -> FieldColumns:
    with FieldWriter(folder / "fields") as writer:
        for i, record in enumerate(records):
            fields = {name: plain(value) for name, value in record.items()}
            writer.append(str(i), {n: value for n, value in fields.items() if value is not None})
    return FieldColumns(folder / "fields", len(records))


ROWS = [
    {"year": 2019, "tag": ["bio", "it's"], "score": 0.5, "day": "2020-02-29", "lang": "en"},
    {"year": 2020, "tag": ["med"], "score": 7, "day": "2020-03-01", "my field": "x"},
    {"year": 2021, "day": "2021-01-01", "lang": "de", "open": True},
    {},
]


@pytest.mark.parametrize(
    ("text", "given", "passing"),
    [
        ("year >= 2020", {"year": {">=": 2020}}, [1, 2]),
        ("year == 2020", {"year": 2020}, [1]),
        ("year = 2020.0", {"year": {"==": 2020.0}}, [1]),
        ("year > 2019.5 and year<2020.5", {"year": {">": 2019.5, "<": 2020.5}}, [1]),
        ("year != 2020", {"year": {"!=": 2020}}, [0, 2, 3]),
        ("year in [2019, 2021]", {"year": [2019, 2021]}, [0, 2]),
        ("year NOT IN [2019]", {"year": {"not in": [2019]}}, [1, 2, 3]),
        ("score < 1e0", {"score": {"<": 1}}, [0]),
        ("score <= .5", {"score": {"<=": 0.5}}, [0]),
        ("score > -1", {"score": {">": -1}}, [0, 1]),
        ("tag = 'bio'", {"tag": "bio"}, [0]),
        (r"tag = 'it\'s'", {"tag": "it's"}, [0]),
        ("tag in ['bio', \"med\"]", {"tag": {"in": ("bio", "med")}}, [0, 1]),
        ("tag = 'none'", {"tag": ""}, []),
        ("`my field` exists", {"my field": {"exists": True}}, [1]),
        ("not lang exists", {"lang": {"exists": False}}, [1, 3]),
        ("score exists", {"score": {"exists": True}}, [0, 1]),
        ("tag exists", {"tag": {"exists": True}}, [0, 1]),
        ("day exists", {"day": {"exists": True}}, [0, 1, 2]),
        ("open = true", {"open": True}, [2]),
        ("day = 2020-02-29", {"day": date(2020, 2, 29)}, [0]),
        ("day >= '2020-03'", {"day": {">=": "2020-03"}}, [1, 2]),
        ("day <= 2020", {"day": {"<=": 2020}}, [0, 1]),
        ("day > 2020-02", {"day": {">": "2020-02"}}, [1, 2]),
        ("day < 2020-02-29T12:00:00Z", {"day": {"<": datetime(2020, 2, 29, 12)}}, [0]),
        ("day in [2020-02, 2021]", {"day": ["2020-02", 2021]}, [0, 2]),
        ("day <= 9999", {"day": {"<=": 9999}}, [0, 1, 2]),
        ("day <= 9999-12", {"day": {"<=": "9999-12"}}, [0, 1, 2]),
        ("year = 2019 or year = 2020 and tag = 'x'", None, [0]),
        ("(year = 2019 or year = 2020) and tag = 'med'", None, [1]),
        ("not (year = 2019 or not year exists)", None, [1, 2]),
        ("not not lang = 'en'", {"not": {"not": {"lang": "en"}}}, [0]),
        ("lang = 'en' or tag = 'med'", {"or": [{"lang": "en"}, "tag = 'med'"]}, [0, 1]),
        ("lang = 'en' and year = 2019", {"and": [{"lang": "en", "year": 2019}]}, [0]),
    ],
)
def test_by_hand(tmp_path, text, given, passing):
    table = columns(tmp_path, ROWS)
    assert np.flatnonzero(matching(parse(text), table)).tolist() == passing
    if given is not None:
        assert np.flatnonzero(matching(parse(given), table)).tolist() == passing


def test_an_empty_dict_passes_all_and_an_empty_list_none(tmp_path):
    table = columns(tmp_path, ROWS)
    assert matching(parse({}), table).all()
    assert not matching(parse({"or": []}), table).any()
    assert not matching(parse({"year": []}), table).any()
    assert not matching(parse({"tag": []}), table).any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", " at character 1: expected the name of a field, not, or (, found the end"),
        ("year", " at character 5: expected =, !=, <, <=, >, >=, in, not in or exists, found the"),
        ("year >= ", " at character 9: expected a number, a date, true, false, or a text in quo"),
        ("year >= 2020 tag", " at character 14: expected and, or, or the end, found 'tag'"),
        ("year = bio", " at character 8: expected a number, a date, true, false, or a text in q"),
        ("(year = 1", " at character 10: expected and, or, or ), found the end"),
        ("year in (1)", " at character 9: expected [, found '('"),
        ("year in []", " at character 10: expected a number"),
        ("year in [1 2]", " at character 12: expected , or ], found 2"),
        ("year not 5", " at character 10: expected in, found 5"),
        ("lang = 'en", " at character 8: a quote ' without its end"),
        ("year & 5", " at character 6: unexpected '& 5'"),
        ("year = 1e999", " at character 8: the number 1e999 is too large"),
        ("not " * 101 + "a = 1", " at character 401: more than 100 conditions inside each other"),
        (
            "colour = 1",
            " at character 1: there is no field 'colour', only: year, tag, score, day, ",
        ),
        ("year = '2020'", " at character 8: the field 'year' is a number, not a text such as '20"),
        ("tag in ['a', 5]", " at character 14: the field 'tag' is a keyword: 5 needs quotes"),
        ("tag < 'b'", " at character 1: the field 'tag' is a keyword, which < does not compare"),
        ("day > 'soon'", " at character 7: the field 'day' is a date, not 'soon': a year, "),
        ("day > 0", " at character 7: the field 'day' is a date, not 0: a year, "),
        ("day = 2020-13", " at character 7: the field 'day' is a date, not '2020-13'"),
        (5, ": a filter is a text or a dict, not 5"),
        ({5: 1}, ": the name of a field is a text, not 5"),
        ({"year": {}}, ": 'year' has no condition"),
        ({"year": {"~": 1}}, ": 'year': no operator '~'"),
        ({"year": {"in": "ab"}}, ": 'year': in takes a list, not 'ab'"),
        ({"year": {"exists": 1}}, ": 'year': exists takes True or False, not 1"),
        ({"year": None}, ": 'year': compared with None"),
        ({"year": {"=": [1]}}, ": 'year': compared with [1]"),
        ({"year": float("nan")}, ": 'year': compared with nan"),
        ({"year": object}, ": 'year': a type"),
        ({"or": "year = 1"}, ": 'or' takes a list of filters, not 'year = 1'"),
        ({"colour": 1}, ": there is no field 'colour', only: year, tag, "),
    ],
)
def test_refused(tmp_path, given, message):
    with pytest.raises(InputError) as caught:
        matching(parse(given), columns(tmp_path, ROWS))
    assert str(caught.value).startswith(f"filter{message}")


def test_a_dict_that_holds_itself_is_refused():
    endless: dict[str, Any] = {}
    endless["not"] = endless
    with pytest.raises(InputError, match="more than 100 conditions"):
        parse(endless)


@pytest.mark.parametrize("value", [2**53 + 1, 2.0**53, 2**63 - 1, -(2**63), 10**30, -1e300, 0.5])
def test_numbers_are_compared_exactly(tmp_path, value):
    """A comparison of whole numbers with a double must round neither."""
    whole = [0, 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63) + 1]
    fractions = [0.5, 2.0**53, 2.0**53 + 2, 1e30, -1e300, 1.5]
    for name, values in (("whole", whole), ("fractions", fractions)):
        folder = tmp_path / name
        folder.mkdir()
        table = columns(folder, [{"n": number} for number in values])
        for sign, compare in COMPARED.items():
            passing = matching(Condition("n", sign, (value,)), table)
            wanted = value if name == "whole" else float(value)
            assert passing.tolist() == [compare(number, wanted) for number in values], sign


# Against a plain evaluation


@given(st.text(alphabet="ab1.-'\"`\\()[]<>=!,é \nandornotin20", max_size=30))
def test_any_text_is_a_filter_or_refused(text):
    with suppress(FilterError):
        parse(text)

"""Fields of documents: read, typed, stored, returned, changed and checked."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lexicept
from lexicept.corpora import Document, read_documents
from lexicept.errors import IndexFormatError, InputError, LexiceptWarning
from lexicept.fields.columns import FieldColumns
from lexicept.fields.filters import parse
from lexicept.fields.matching import matching
from lexicept.fields.values import FieldType, parse_date, period, plain
from lexicept.fields.writing import FieldWriter
from lexicept.index.verification import verify
from lexicept.pipelines.documents import as_documents
from lexicept.pipelines.index import Index

pytestmark = pytest.mark.usefixtures("_no_leaks")

CATS = {
    "id": "cats",
    "text": "cats sleep",
    "year": 2019,
    "tag": ["pet", "fur"],
    "seen": "2020-02-29",
}
DOGS = {"id": "dogs", "text": "dogs sleep", "year": 2021, "tag": ["pet"], "seen": "2021-01-01"}
BATS = {"id": "bats", "text": "bats sleep", "lang": "en"}


def build(path: Path, *documents: Any) -> Index:
    return lexicept.build(documents, path, vocabulary="words", strict=True)


def fields(index: Index) -> dict[str, dict[str, Any]]:
    return {document.id: dict(document.fields) for document in index.documents()}


def refusal(path: Path, *documents: Any) -> str:
    with pytest.raises(InputError) as caught:
        build(path, *documents)
    assert not path.exists()
    return str(caught.value)


# Values


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a", "a"),
        ("", None),
        (None, None),
        ([], None),
        ([None, ""], None),
        (True, "true"),
        (7, 7),
        (7.0, 7),
        (7.5, 7.5),
        (-0.0, 0),
        (2.0**60, 2.0**60),
        (Decimal("2.50"), 2.5),
        (np.float32(0.5), 0.5),
        (np.array([1, 2]), [1, 2]),
        (("a", None, "b"), ["a", "b"]),
        (date(2020, 2, 29), "2020-02-29"),
        (datetime(2020, 2, 29, 12, 30), "2020-02-29T12:30:00Z"),
        (datetime(2020, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2019-12-31T23:00:00Z"),
        (np.float32(0.1), 0.1),
        (np.longdouble(0.5), 0.5),
        (np.uint64(2**63 - 1), 2**63 - 1),
        (np.array([0.1, 0.2], np.float32), [0.1, 0.2]),
        ([np.float32(0.1), None], [0.1]),
        (np.datetime64("2020-01-15T10:00:00.123456789", "ns"), "2020-01-15T10:00:00.123456Z"),
        (np.datetime64("2020-01-15"), "2020-01-15"),
        (np.datetime64("NaT", "s"), None),
        (pd.Timestamp("2020-01-15", tz="Europe/Paris"), "2020-01-14T23:00:00Z"),
        (pd.array([1, None], dtype="Int64"), [1]),
        (Fraction(1, 2), 0.5),
        (Decimal("sNaN"), None),
    ],
)
def test_values_as_they_are_kept(value, kept):
    assert plain(value) == kept
    assert type(plain(value)) is type(kept)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-02", 86_400_000_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01 00:00:00.5", 500_000),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01T01+01", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("19700101T0130+0130", 0),
        ("1970-01-01 01:00:00 +0100", 0),
        ("1970-01-01T00:00:00,123456789", 123_456),
        ("1970-W01-5", 86_400_000_000),
        ("1970W015", 86_400_000_000),
        ("1970-002T00:00", 86_400_000_000),
        ("1970-01-01T24:01", None),
        ("1970-01T00:00", None),
        ("1970-0101", None),
        ("2020-02-30", None),
        ("2020-13-01", None),
        ("2020-W60-1", None),
        ("2020", None),
        ("2020-01", None),
        ("2020-001", None),
        ("20200101", None),
        ("2020-01-01T", None),
        ("0001-01-01T00:00+05:00", None),
        ("1970-01-01\n", None),
        ("١٩٧٠-01-01", None),
    ],
)
def test_dates_are_iso_8601(text, microseconds):
    assert parse_date(text) == microseconds


@pytest.mark.parametrize(
    ("text", "start", "last"),
    [
        ("2020", "2020-01-01", "2020-12-31"),
        ("2020-02", "2020-02-01", "2020-02-29"),
        ("2020-W01", "2019-12-30", "2020-01-05"),
        ("2020-366", "2020-12-31", "2020-12-31"),
        ("20200115", "2020-01-15", "2020-01-15"),
        ("9999-12-31", "9999-12-31", "9999-12-31"),
    ],
)
def test_a_shortened_date_is_a_period(text, start, last):
    day = timedelta(days=1) // timedelta(microseconds=1)
    assert period(text) == (parse_date(start), parse_date(last) + day - 1)


@pytest.mark.parametrize("text", ["0000", "2019-366", "2020-000", "2020-13", "20201301", "+002020"])
def test_no_date_of_the_calendar(text):
    assert period(text) is None


def found(values: dict[str, Any], filter_: Any) -> list[str]:
    """Return the ids of the documents with one field whose values pass a filter."""
    with TemporaryDirectory() as folder:
        with FieldWriter(Path(folder, "fields")) as writer:
            for id_, value in values.items():
                writer.append(id_, {"x": value})
        passing = matching(parse(filter_), FieldColumns(Path(folder, "fields"), len(values)))
    return [id_ for id_, passes in zip(values, passing, strict=True) if passes]


@pytest.mark.parametrize(
    "dates",
    [
        ["2019", "2020", "2021"],
        ["2019-12", "2020-02", "2021-01"],
        ["2019", "2020-02", "2021-01-15"],
        ["20191231", "20200229", "20210101"],
        ["2019-365", "2020-060", "2021-001"],
        ["2019-W50", "2020-W09", "2021-W02"],
        ["2019-12-31", "2020-02-29T10:00z", "20210101T00"],
    ],
)
@pytest.mark.parametrize(
    ("filter_", "years"),
    [
        ("x = 2020", ["2020"]),
        ("x >= '2020'", ["2020", "2021"]),
        ("x < 2020-01-01T00:00Z", ["2019"]),
        ({"x": {">": 2020}}, ["2021"]),
    ],
)
def test_dates_of_any_form_are_compared(dates, filter_, years):
    assert found({date[:4]: date for date in dates}, filter_) == years


def test_codes_that_look_like_dates_stay_texts():
    codes = {code: code for code in ("2020-001", "2020-999")}
    assert found(codes, "x = '2020-001'") == ["2020-001"]
    with pytest.raises(InputError, match="a keyword, which >= does not compare"):
        found(codes, "x >= '2020-001'")


NUMBERS = {
    "float32": np.array([9.99, 9.5], np.float32),
    "float16": np.array([9.99, 9.5], np.float16),
    "Float32": pd.array([9.99, None], "Float32"),
    "float64": [9.99, 9.5],
    "decimal": [Decimal("9.99"), None],
    "float[pyarrow]": pd.array([9.99, 9.5], "float[pyarrow]"),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("parquet", [False, True])
def test_numbers_of_every_precision_are_those_that_are_shown(tmp_path, name, parquet):
    frame: Any = pd.DataFrame({"text": ["a cat", "a dog"], "price": NUMBERS[name]})
    if parquet:
        frame.to_parquet(tmp_path / "c.parquet")
        frame = tmp_path / "c.parquet"
    documents = read_documents(frame) if parquet else as_documents(frame)
    first, _ = documents
    assert first.fields == {"price": 9.99}


@pytest.mark.parametrize(
    "value", [np.uint64(2**64 - 1), Decimal("1E+999999999"), Decimal("-Infinity")]
)
def test_numbers_that_are_not_kept(value):
    with pytest.raises(ValueError, match=r"more than 63 bits|not a finite number"):
        plain(value)


# Documents with fields


def test_fields_are_typed_and_take_no_space_where_there_are_none(tmp_path):
    index = build(tmp_path / "i", CATS, DOGS, BATS)
    assert index.reader.fields.types == {
        "year": FieldType("number"),
        "tag": FieldType("keyword", multiple=True),
        "seen": FieldType("date"),
        "lang": FieldType("keyword"),
    }
    hits = {hit.id: hit.fields for hit in index.search("sleep")}
    assert hits["cats"] == {"year": 2019, "tag": ["pet", "fur"], "seen": "2020-02-29"}
    assert hits["bats"] == {"lang": "en"}
    assert index.document("dogs").fields == {"year": 2021, "tag": ["pet"], "seen": "2021-01-01"}
    assert index.verify().problems == []
    index = build(tmp_path / "i2", "cats", "dogs")
    assert not (index.reader.folder / "fields").exists()
    assert fields(index) == {"1": {}, "2": {}}


def test_values_decide_the_kind_of_a_field(tmp_path):
    records = [{"text": "cats", "seen": "2020-01-01"}, {"text": "cats", "seen": "unknown"}]
    index = build(tmp_path / "i", *records)
    assert index.reader.fields.types == {"seen": FieldType("keyword")}
    assert [d.fields["seen"] for d in index.documents()] == ["2020-01-01", "unknown"]
    index = build(tmp_path / "i2", *({"text": "cats", "n": n} for n in (1, 2.5, 2**53)))
    assert [d.fields["n"] for d in index.documents()] == [1, 2.5, 2**53]
    whole = build(tmp_path / "w", *({"text": "cats", "n": n} for n in (2**63 - 1, -(2**63) + 1)))
    assert [d.fields["n"] for d in whole.documents()] == [2**63 - 1, -(2**63) + 1]
    mixed = build(tmp_path / "m", *({"text": "cats", "n": n} for n in (1e20, 0.5, 2.0)))
    kept = [d.fields["n"] for d in mixed.documents()]
    assert (kept, type(kept[0]), type(kept[2])) == ([1e20, 0.5, 2], float, int)


def test_times_keep_their_instant(tmp_path):
    records = [
        {"text": "cats", "at": "2020-01-01T02:00+02:00"},
        {"text": "cats", "at": date(2020, 1, 2)},
    ]
    assert [d.fields["at"] for d in build(tmp_path / "day", *records).documents()] == [
        "2020-01-01",
        "2020-01-02",
    ]
    records.append({"text": "cats", "at": "2020-01-01T12:00:00.000001"})
    assert [d.fields["at"] for d in build(tmp_path / "time", *records).documents()] == [
        "2020-01-01T00:00:00Z",
        "2020-01-02T00:00:00Z",
        "2020-01-01T12:00:00.000001Z",
    ]


def test_what_documents_do_not_agree_on_is_refused(tmp_path):
    path = tmp_path / "i"
    year = {"id": "old", "text": "cats", "year": "about 1900"}
    assert refusal(path, CATS, year).startswith(
        "the documents, document 2: document 'old': the field 'year' is a number in document "
        "'cats', but here 'about 1900'"
    )
    assert "a list of texts and numbers" in refusal(path, {"text": "cats", "a": [1, "b"]})
    assert "the field 'a': inf is not a finite number" in refusal(
        path, {"text": "cats", "a": [float("inf")]}
    )
    assert "has more than 63 bits" in refusal(path, {"text": "cats", "a": 2**63})
    assert "lone surrogate '\\ud800'" in refusal(path, {"text": "cats", "a": "\ud800"})
    assert "fields must be a mapping, not 5" in refusal(
        path, Document("a", "x", "", 5), Document("b", "x", "", {})
    )
    large = [{"id": "n", "text": "cats", "n": 2**53 + 1}, {"text": "cats", "n": 0.5}]
    assert "document 'n': the field 'n' is 9007199254740993, which has too many digits" in refusal(
        path, *large
    )
    crowd = {"text": "cats", **{f"f{n}": n for n in range(1001)}}
    assert "document '1': the field 'f1000' is one of more than 1,000 fields" in refusal(
        path, crowd
    )


def test_what_is_not_kept_is_listed(tmp_path):
    records = [{"id": str(n), "text": "cats", "by": [{"name": "A"}], "": 1} for n in range(3)]
    with pytest.warns(LexiceptWarning) as caught:
        index = build(tmp_path / "i", *records)
    assert sorted(str(warning.message) for warning in caught) == [
        "the field '' is not kept in document '0' and 2 more: a value without a printable name",
        "the field 'by' is not kept in document '0' and 2 more: an object",
    ]
    assert fields(index) == {"0": {}, "1": {}, "2": {}}


def test_a_filter_leaves_the_results_that_it_allows(tmp_path):
    index = build(tmp_path / "i", CATS, DOGS, BATS)
    everything = index.search("sleep dogs")
    assert [hit.id for hit in everything] == ["dogs", "cats", "bats"]
    for written in ("year exists and not tag = 'fur'", {"year": {">": 2020}, "tag": ["pet"]}):
        (hit,) = index.search("sleep dogs", 1, filter=written)
        assert (hit.rank, hit.id, hit.score) == (1, "dogs", everything[0].score)
    (cats, bats) = index.search("sleep dogs", filter="not year = 2021", explain=True)
    assert [(hit.rank, hit.id) for hit in (cats, bats)] == [(1, "cats"), (2, "bats")]
    assert cats.explanation is not None
    both = index.search_many(["dogs", "cats"], filter="year < 2020")
    assert [[hit.id for hit in hits] for hits in both] == [[], ["cats"]]
    with pytest.raises(InputError, match="filter at character 6: unexpected '~ 2'"):
        index.search("sleep", filter="year ~ 2")
    with pytest.raises(InputError, match="there is no field 'colour', only: year, tag, seen, lang"):
        index.search("sleep", filter="colour = 1")


# Counts


def test_values_are_counted(tmp_path):
    more = {"id": "cows", "text": "cows graze", "year": 2019, "tag": ["farm", "farm"]}
    index = build(tmp_path / "i", CATS, DOGS, BATS, more)
    assert index.facets(["tag", "year", "seen", "lang"]) == {
        "tag": [("pet", 2), ("farm", 1), ("fur", 1)],
        "year": [(2019, 2), (2021, 1)],
        "seen": [("2020-02-29", 1), ("2021-01-01", 1)],
        "lang": [("en", 1)],
    }
    assert index.facets(["tag"], query="sleep", most=1) == {"tag": [("pet", 2)]}
    assert index.facets(["year"], query="sleep") == {"year": [(2019, 1), (2021, 1)]}
    assert index.facets(["year"], query="unknown") == {"year": []}
    assert index.facets(["tag"], filter="year = 2019", query="graze") == {"tag": [("farm", 1)]}
    index.reweight(1.25)
    hits = {hit.id for hit in index.search("sleep", 10)}
    assert sum(facet.documents for facet in index.facets(["year"], query="sleep")["year"]) == len(
        hits - {"bats"}
    )
    with pytest.raises(InputError, match="there is no field 'colour', only: year, tag, seen, lang"):
        index.facets(["colour"])
    for names in ("tag", [[]], [["tag"]], [None], 5):
        with pytest.raises(InputError, match="fields must be a list of names, not"):
            index.facets(names)
    with pytest.raises(InputError, match="most must be at least 1"):
        index.facets(["tag"], most=0)


# Changes


def test_fields_that_are_long_or_hardly_repeat_are_not_offered(tmp_path):
    records = [
        {
            **{"id": f"d{n}", "passages": ["sleep", "sleep"]},
            **{"year": n, "tag": [f"t{n % 51}", "pet"]},
            **{"description": f"number {n}", "aliases": [f"a{n}", f"b{n}"], "half": n // 2},
            **{"author": f"author {n // 2}", "rare": "x" * 101 if n else None},
        }
        for n in range(104)
    ]
    index = build(tmp_path / "i", *records)
    assert index.reader.masks.offered == ["tag", "half", "author"]
    assert index.info()["unoffered_fields"] == ["year", "description", "aliases", "rare"]
    days = [{"text": "cats", "n": n / 3, "day": f"{1900 + n}-01-01"} for n in range(52)]
    assert build(tmp_path / "days", *days).reader.masks.offered == ["day"]
    days += [{"text": "dogs", "n": 0}] * 54
    assert build(tmp_path / "more", *days).reader.masks.offered == ["n", "day"]
    assert index.facets(["aliases"], most=1) == {"aliases": [("a0", 1)]}
    assert index.search("sleep", 1, filter="description = 'number 7'")[0].id == "d7"
    few = build(tmp_path / "few", *records[:48])
    assert few.reader.masks.offered == ["year", "tag", "description", "half", "author"]


def test_changes_keep_fields(tmp_path):
    index = build(tmp_path / "i", CATS, DOGS)
    index.add([BATS, {**DOGS, "year": 2022.5, "tag": "big"}])
    assert fields(index) == {
        "cats": {"year": 2019, "tag": ["pet", "fur"], "seen": "2020-02-29"},
        "dogs": {"year": 2022.5, "tag": ["big"], "seen": "2021-01-01"},
        "bats": {"lang": "en"},
    }
    index.delete(["cats", "dogs"])
    assert fields(index) == {"bats": {"lang": "en"}}
    # The fields stay, so that a filter on them goes on working.
    assert list(index.reader.fields) == ["year", "tag", "seen", "lang"]
    assert index.reweight(1.0).document("bats").fields == {"lang": "en"}
    for first in (0, 300, 600):  # as long as they leave room
        index.add([{**DOGS, **{f"f{n}": n for n in range(first, first + 300)}}])
    assert len(index.reader.fields) == 304
    assert index.verify().problems == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("year", "soon", "the field 'year' is a number, but here 'soon'"),
        ("seen", "soon", "the field 'seen' is a date, but here 'soon'"),
        ("tag", 5, "the field 'tag' is a keyword, but here 5"),
    ],
)
def test_a_change_keeps_the_types(tmp_path, name, value, message):
    index = build(tmp_path / "i", CATS)
    with pytest.raises(InputError, match=f"document 'new': {message}"):
        index.add([{"id": "new", "text": "cats", name: value}], strict=True)
    assert fields(index) == {"cats": dict(index.document("cats").fields)}


# Files


def test_members_of_json_and_columns_of_csv_are_fields(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text(
        '{"_id": "a", "id": 1, "text": "x", "body": "y", "metadata": {"url": "u", "n": 1}, "n": 2}'
    )
    assert list(read_documents(path)) == [Document("a", "x", "", {"url": "u", "n": 2})]
    path = tmp_path / "c.csv"
    path.write_text(
        ",id,text,Price,Code,Day\n0,a,cats,3,007,2020-01-01\n1,b,dogs,,8,\n2,c,owls,-.5,9,\n"
    )
    index = lexicept.build(path, tmp_path / "i", vocabulary="words")
    assert {n: str(type_) for n, type_ in index.reader.fields.types.items()} == {
        "column 1": "number",
        "Price": "keyword",
        "Code": "keyword",
        "Day": "date",
    }
    path.write_text("id,text,Price\na,x,3\nb,y,\nc,z,-0.5\n")
    assert [dict(d.fields) for d in read_documents(path)] == [{"Price": 3}, {}, {"Price": -0.5}]
    path.write_text("id,text,a,a,a.1\nx,x,1,2,3\n")
    (document,) = read_documents(path)
    assert dict(document.fields) == {"a": 1, "a.1": 2, "a.1.1": 3}


# FieldColumns on disk


def test_damage_is_found(tmp_path):
    index = build(tmp_path / "i", CATS, DOGS)
    folder = index.reader.folder / "fields"
    with pytest.raises(IndexFormatError, match="values of 2 documents, not 3"):
        FieldColumns(folder, 3)
    with pytest.raises(IndexFormatError, match="no text 7"):
        index.reader.fields["tag"].scalar(7)
    (folder / "fields.json").write_text('{"a": {"kind": "odd", "many": false, "days": false}}')
    with pytest.raises(IndexFormatError, match=r"fields\.json is damaged"):
        FieldColumns(folder, 2)
    assert any("fields.json" in message for message in verify(tmp_path / "i").problems)

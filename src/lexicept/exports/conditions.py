"""Filters in the languages of other engines, with the same meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from lexicept.errors import InputError
from lexicept.fields.columns import MISSING, FieldColumns
from lexicept.fields.filters import All, Condition, Expression, Filter, Not, Some, parse
from lexicept.fields.matching import Interval, intervals, keyword_codes, matching
from lexicept.fields.values import LARGEST_INTEGER, Scalar, iso
from lexicept.fields.writing import EXACT

JSON: TypeAlias = dict[str, Any]

GROUP = "fields"
"""The object with the fields of an exported document."""

UNBOUNDED = (-math.inf, math.inf, -LARGEST_INTEGER, MISSING + 1, LARGEST_INTEGER)


def elastic_condition(filter_: Filter, columns: FieldColumns) -> JSON:
    """Return a filter as a query of Elasticsearch and OpenSearch. Raises InputError for a malformed
    filter, or a filter that does not fit the fields."""
    expression = parse(filter_)
    matching(expression, columns)  # refuses what does not fit
    return _elastic(expression, columns)


def _elastic(expression: Expression, columns: FieldColumns) -> JSON:
    if isinstance(expression, Not):
        return {"bool": {"must_not": [_elastic(expression.expression, columns)]}}
    if isinstance(expression, All):
        conditions = [_elastic(inner, columns) for inner in expression.expressions]
        return {"bool": {"filter": conditions}} if conditions else {"match_all": {}}
    if isinstance(expression, Some):
        return _elastic_some([_elastic(inner, columns) for inner in expression.expressions])
    path = f"{GROUP}.{expression.field}"
    if expression.operator == "exists":
        return {"exists": {"field": path}}
    if columns[expression.field].kind.kind == "keyword":
        return {"terms": {path: _spellings(expression, columns)}}
    return _elastic_some([{"range": {path: ends}} for ends in _ranges(expression, columns)])


def _spellings(condition: Condition, columns: FieldColumns) -> list[Scalar]:
    """Return the values of a condition on keywords, and the equivalent values of documents."""
    column = columns[condition.field]
    assert column.terms is not None
    stored = column.terms.select(keyword_codes(condition, column))
    return [*dict.fromkeys([*condition.values, *stored])]


def _elastic_some(conditions: Sequence[JSON]) -> JSON:
    if len(conditions) == 1:
        return conditions[0]
    should = {"bool": {"should": conditions, "minimum_should_match": 1}}
    return should if conditions else {"match_none": {}}


def qdrant_condition(filter_: Filter, columns: FieldColumns) -> JSON:
    """Return a filter of Qdrant. Raises InputError as ``elastic_condition`` does, and for the name
    of a field that Qdrant can't be asked for."""
    expression = parse(filter_)
    matching(expression, columns)  # refuses what does not fit
    condition = _qdrant(expression, columns)
    is_clause = condition.keys() <= {"must", "should", "must_not"}
    return condition if is_clause else {"must": [condition]}


def _qdrant(expression: Expression, columns: FieldColumns) -> JSON:
    if isinstance(expression, Not):
        return {"must_not": [_qdrant(expression.expression, columns)]}
    if isinstance(expression, All):
        return {"must": [_qdrant(inner, columns) for inner in expression.expressions]}
    if isinstance(expression, Some):
        return _qdrant_some([_qdrant(inner, columns) for inner in expression.expressions])
    key = _qdrant_key(expression.field)
    if expression.operator == "exists":
        return {"must_not": [{"is_empty": {"key": key}}]}
    column = columns[expression.field]
    if column.kind.kind == "keyword":
        return {"key": key, "match": {"any": _spellings(expression, columns)}}
    if column.values.dtype.kind == "i" and column.kind.kind == "number":
        integers = intervals(expression, column)
        return _qdrant_some([_qdrant_whole(expression.field, key, ends) for ends in integers])
    ranges = _ranges(expression, columns)
    return _qdrant_some([{"key": key, "range": ends} for ends in ranges])


def _qdrant_some(conditions: Sequence[JSON]) -> JSON:
    if len(conditions) == 1:
        return conditions[0]
    return {"should": conditions} if conditions else {"must": [{"has_id": []}]}


def _qdrant_whole(name: str, key: str, interval: Interval) -> JSON:
    """Return a condition on whole numbers. Raises InputError where a range would round them."""
    # Qdrant's ranges are in double precision, a match is exact.
    least, largest = interval
    if least == largest:
        return {"key": key, "match": {"value": least}}
    ends = _ends(interval)
    if any(abs(end) > EXACT for end in ends.values()):
        raise InputError(f"Qdrant compares {name!r} in double precision, which {interval} exceeds")
    return {"key": key, "range": ends}


def _qdrant_key(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return f"{GROUP}.{name}"
    if '"' in name:
        raise InputError(f"Qdrant can't be asked for a field whose name has quotes: {name!r}")
    return f'{GROUP}."{name}"'


def _ranges(condition: Condition, columns: FieldColumns) -> list[JSON]:
    """Return the inclusive ends of a condition's intervals; no intervals if nothing matches."""
    column = columns[condition.field]
    ranges = []
    for interval in intervals(condition, column):
        if interval[0] <= interval[1]:
            ends = _ends(interval)
            with suppress(OverflowError):  # before the year 1, or after 9999: no date is there
                if column.kind.kind == "date":
                    ends = {name: iso(end, days=False) for name, end in ends.items()}
                ranges.append(ends)
    return ranges


def _ends(interval: Interval) -> JSON:
    ends = dict(zip(("gte", "lte"), interval, strict=True))
    return {name: end for name, end in ends.items() if end not in UNBOUNDED}

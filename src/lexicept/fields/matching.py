"""Documents that pass a filter."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from lexicept.fields.columns import MISSING, FieldColumn, FieldColumns
from lexicept.fields.filters import ORDERS, RANGE, All, Condition, Expression, FilterError, Not
from lexicept.fields.normal_forms import normal
from lexicept.fields.values import LARGEST_INTEGER, Scalar, period
from lexicept.kernels.field_values import any_of

Flags = npt.NDArray[np.bool_]

Interval = tuple[Any, Any]
"""The least and the largest value, both included; empty if the largest is below the least."""


def matching(expression: Expression, columns: FieldColumns) -> Flags:
    """Return the documents that pass a filter, as flags [N].

    A list meets a condition if at least one value does; documents without the field meet no
    condition. ``not`` passes all documents that the inner expression does not pass. Raises
    FilterError for an unknown field, or a value or an order that does not suit the field's type.
    """
    if isinstance(expression, Condition):
        return _condition(expression, columns)
    if isinstance(expression, Not):
        return ~matching(expression.expression, columns)
    everything = isinstance(expression, All)
    flags = (matching(member, columns) for member in expression.expressions)
    join = np.logical_and if everything else np.logical_or
    return reduce(join, flags, np.full(columns.num_documents, everything))


def _condition(condition: Condition, columns: FieldColumns) -> Flags:
    if condition.field not in columns:
        message = f"there is no field {condition.field!r}, only: {', '.join(columns) or 'none'}"
        raise FilterError(message, condition.position)
    column = columns[condition.field]
    if condition.operator == "exists":
        value_flags = column.present
    elif column.terms is not None:
        # The last flag is for missing values.
        flags = np.append(matching_terms(condition, column), False)
        value_flags = np.take(flags, column.values, mode="wrap")
    else:
        value_flags = _within(column.values, _intervals(condition, column))
    if column.offsets is None:
        return np.asarray(value_flags)
    passing: Flags = any_of(value_flags, column.offsets)
    return passing


def _within(values: Any, intervals: Sequence[Interval]) -> Flags:
    """Return the values inside an interval, as flags."""
    points = [least for least, largest in intervals if least == largest]
    inside = (
        np.isin(values, np.array(points, values.dtype)) if points else np.zeros(values.size, bool)
    )
    for least, largest in intervals:
        if least < largest:
            inside |= (values >= least) & (values <= largest)
    return inside


def _refuse(condition: Condition, index: int, description: str) -> FilterError:
    position = condition.value_positions[index] if condition.value_positions else None
    return FilterError(f"the field {condition.field!r} is a {description}", position)


def _keyword_codes(condition: Condition, column: FieldColumn) -> list[int]:
    """Return the numbers of the terms that are equivalent to a value of a condition. Raises
    FilterError for a value that is no text."""
    assert column.terms is not None
    codes = []
    for position, value in enumerate(condition.values):
        if not isinstance(value, str):
            raise _refuse(condition, position, f"keyword: {value} needs quotes")
        form = normal(value)
        code = bisect_left(column.terms, form, key=normal)  # terms are in the order of their forms
        while code < len(column.terms) and normal(column.terms[code]) == form:
            codes.append(code)
            code += 1
    return codes


def matching_terms(condition: Condition, column: FieldColumn) -> Flags:
    """Return the terms of a keyword field that meet a condition, as flags [terms]."""
    assert column.terms is not None
    compares = condition.operator in (*ORDERS, RANGE)
    if column.term_dates is not None and (compares or all(map(bounds_of, condition.values))):
        return _within(column.term_dates, _intervals(condition, column))
    if compares:
        description = f"keyword, which {condition.operator} does not compare: = or in"
        raise FilterError(f"the field {condition.field!r} is a {description}", condition.position)
    flags = np.zeros(len(column.terms), bool)
    flags[_keyword_codes(condition, column)] = True
    return flags


def _intervals(condition: Condition, column: FieldColumn) -> list[Interval]:
    """Return the numbers or times that meet a condition."""
    if condition.operator == RANGE:
        first, last = condition.values
        ((least, end),) = _intervals(replace(condition, operator=">=", values=(first,)), column)
        ((begin, largest),) = _intervals(replace(condition, operator="<=", values=(last,)), column)
        return [(max(least, begin), min(largest, end))]
    is_number = column.type.name == "number"
    return (_number_intervals if is_number else _date_intervals)(condition, column)


def _number_intervals(condition: Condition, column: FieldColumn) -> list[Interval]:
    ranges = []
    for position, value in enumerate(condition.values):
        if isinstance(value, str):
            raise _refuse(condition, position, f"number, not a text such as {value!r:.40}")
        whole = column.values.dtype == np.int64
        ends = _whole_interval if whole else _fraction_interval
        ranges.append(ends(condition.operator, value))
    return ranges


def _whole_interval(operator: str, value: float) -> Interval:
    """Return the 64-bit whole numbers within a comparison with a number, exactly."""
    least, largest = -LARGEST_INTEGER, LARGEST_INTEGER
    if operator in ("<", "<="):
        largest = math.floor(value) if operator == "<=" else math.ceil(value) - 1
    elif operator in (">", ">="):
        least = math.ceil(value) if operator == ">=" else math.floor(value) + 1
    else:
        least, largest = math.ceil(value), math.floor(value)
    least, largest = max(least, -LARGEST_INTEGER), min(largest, LARGEST_INTEGER)
    return (least, largest) if least <= largest else (1, 0)


def _fraction_interval(operator: str, value: float) -> Interval:
    """Return the numbers in double precision within a comparison with a number, rounded to it."""
    try:
        number = float(value)
    except OverflowError:
        number = math.copysign(math.inf, value)
    return {
        "<": (-math.inf, math.nextafter(number, -math.inf)),
        "<=": (-math.inf, number),
        ">": (math.nextafter(number, math.inf), math.inf),
        ">=": (number, math.inf),
    }.get(operator, (number, number))


def _date_intervals(condition: Condition, column: FieldColumn) -> list[Interval]:
    ranges = []
    for position, value in enumerate(condition.values):
        bounds = bounds_of(value)
        if bounds is None:
            expected = "a year, 2020-02, 2020-02-29 or a time in ISO 8601"
            raise _refuse(condition, position, f"date, not {value!r:.40}: {expected}")
        low, high = bounds
        earliest, latest = MISSING + 1, LARGEST_INTEGER
        ranges.append(
            {
                "<": (earliest, low - 1),
                "<=": (earliest, high),
                ">": (high + 1, latest),
                ">=": (low, latest),
            }.get(condition.operator, (low, high))
        )
    return ranges


def bounds_of(value: Scalar) -> tuple[int, int] | None:
    """Return the bounds of a date in a condition, of which a number may be a year."""
    return period(f"{value:04}" if isinstance(value, int) else str(value))

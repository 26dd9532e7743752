"""One query as the request of an engine that holds an export: vectors, conditions and all.

The engine finds ``WINDOW`` documents by words and concepts and adds ``scale`` times the cosine, as
lexicept does in a large index. Words count by passages, not by whole documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from lexicept.checks import Count, check
from lexicept.errors import InputError
from lexicept.exports.folder import ExportedIndex
from lexicept.exports.servers import (
    GROUP,
    SIMILARITY,
    VECTOR,
    Elasticsearch,
    OpenSearch,
    indices_and_values,
)
from lexicept.fields.columns import FieldColumns
from lexicept.fields.filters import RANGE, All, Condition, Expression, Not, Some
from lexicept.fields.matching import bounds_of, matching_terms
from lexicept.fields.values import Scalar, iso
from lexicept.index.reader import IndexReader
from lexicept.queries.syntax import ParsedQuery
from lexicept.vectors import Vector

Engine = Literal["opensearch", "elasticsearch", "qdrant"]

WINDOW = 1_000
"""Documents to which the similarity is added, or ``top_k`` if larger."""

_ORDERS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}

_COSINE = {
    "opensearch": f"cosineSimilarity(params.vector, doc['{SIMILARITY}'])",
    "elasticsearch": f"cosineSimilarity(params.vector, '{SIMILARITY}')",
}


def query_body(
    index: IndexReader, query: ParsedQuery, engine: Engine, top_k: int = 10
) -> dict[str, Any]:
    """Return a query as the body of a search request: ``POST /INDEX/_search`` of OpenSearch and
    Elasticsearch, ``POST /collections/NAME/points/query`` of Qdrant.

    Raises:
        InputError: an unknown engine, ``top_k`` below 1, a query without a known word or concept,
            or, for Qdrant, a phrase or an excluded word.
    """
    check("top_k", top_k, Count)
    if engine not in (engines := get_args(Engine)):
        raise InputError(f"no engine {engine!r:.40}; there are {', '.join(engines)}")
    index.query_masks([query])  # refuses what a search refuses
    ((vector, text_vector),) = ExportedIndex(index, has_similarity=True).queries([query])
    if not vector.dimensions.size:
        raise InputError(f"the query {query.text!r:.80} has no word or concept of the index")
    scale = 0.0 if index.vectors is None else index.vectors.settings.scale
    expression = query.conditions.expression
    if expression is not None:
        expression = _resolved(expression, index.fields)
    # Documents with passages are exported as these.
    hidden = [index.ids[entry] for name in query.hidden for entry in index.entries_of(name)]
    query = replace(query, hidden=tuple(hidden))
    if engine == "qdrant":
        if query.phrases or query.without:
            raise InputError("Qdrant takes no phrases and no excluded words: search without them")
        filtered = _qdrant_filter(expression, query.hidden)
        body = _qdrant_body(vector, text_vector, scale, top_k, filtered)
    else:
        body = {"size": top_k, **_lucene_body(engine, vector, text_vector, scale, top_k)}
        body["query"]["bool"] |= _lucene_conditions(expression, query)
    return body


def _lucene_body(
    engine: str, vector: Vector, text_vector: Sequence[float], scale: float, top_k: int
) -> dict[str, Any]:
    """Return a search for weighted dimensions, and the rescoring by the cosine."""
    form = {"opensearch": OpenSearch(), "elasticsearch": Elasticsearch()}[engine]
    factor, search = form.scaled_search(vector)
    clauses = {"must": [search]}
    if not text_vector:
        return {"query": {"bool": clauses}}
    script = {
        "source": f"doc['{SIMILARITY}'].size() == 0 ? 0 : "
        f"params.scale * Math.max(0, {_COSINE[engine]})",
        "params": {"vector": text_vector, "scale": scale},
    }
    rescore = {
        "rescore_query": {"script_score": {"query": {"match_all": {}}, "script": script}},
        "query_weight": 1 / factor,
        "rescore_query_weight": 1.0,
    }
    window = max(WINDOW, top_k)
    return {"query": {"bool": clauses}, "rescore": {"window_size": window, "query": rescore}}


def _lucene_conditions(expression: Expression | None, query: ParsedQuery) -> dict[str, Any]:
    required = [_phrase(text) for text in query.phrases]
    required += [_lucene(expression)] if expression is not None else []
    excluded = [_phrase(text) for text in query.without]
    excluded += [{"ids": {"values": [*query.hidden]}}] if query.hidden else []
    clauses = {"filter": required, "must_not": excluded}
    return {name: conditions for name, conditions in clauses.items() if conditions}


def _resolved(expression: Expression, columns: FieldColumns) -> Expression:
    """Return an expression with times in place of the days, months and years of date fields, and
    with the equivalent terms of keyword fields."""
    match expression:
        case Not(inner):
            return Not(_resolved(inner, columns))
        case All(parts) | Some(parts):
            return type(expression)(tuple(_resolved(part, columns) for part in parts))
        case Condition(field, operator, values) if values:
            column = columns[field]
            if column.terms is not None:
                met = np.flatnonzero(matching_terms(expression, column)).tolist()
                return replace(
                    expression, operator="in", values=tuple(column.terms[n] for n in met)
                )
            if column.type.name == "date":
                bounds = [tuple(iso(end, days=False) for end in bounds_of(v) or ()) for v in values]
                if operator in _ORDERS:
                    return replace(expression, values=(bounds[0][operator in ("<=", ">")],))
                if operator == RANGE:
                    return replace(expression, values=(bounds[0][0], bounds[1][1]))
                return Some(tuple(Condition(field, RANGE, pair) for pair in bounds))
    return expression


def _range(operator: str, values: Sequence[Scalar]) -> dict[str, Scalar]:
    signs = (">=", "<=") if operator == RANGE else (operator,)
    return {_ORDERS[sign]: value for sign, value in zip(signs, values, strict=True)}


def _phrase(text: str) -> dict[str, Any]:
    return {"multi_match": {"query": text, "type": "phrase", "fields": ["title", "text"]}}


def _lucene(expression: Expression) -> dict[str, Any]:
    """Return a condition in the query language of OpenSearch and Elasticsearch."""
    match expression:
        case Not(inner):
            return {"bool": {"must_not": [_lucene(inner)]}}
        case All(parts):
            return {"bool": {"filter": [*map(_lucene, parts)]}}
        case Some(parts):
            return {"bool": {"should": [*map(_lucene, parts)], "minimum_should_match": 1}}
        case Condition(field, operator, values):
            path = f"{GROUP}.{field}"
            if operator == "exists":
                return {"exists": {"field": path}}
            if operator in (*_ORDERS, RANGE):
                return {"range": {path: _range(operator, values)}}
            return {"terms": {path: [*values]}}


def _qdrant_filter(expression: Expression | None, hidden: Sequence[str]) -> dict[str, Any]:
    required = {} if expression is None else {"must": [_qdrant(expression)]}
    excluded = {"must_not": [{"key": "id", "match": {"any": [*hidden]}}]} if hidden else {}
    return {"filter": required | excluded} if required or excluded else {}


def _qdrant_body(
    vector: Vector, text_vector: Sequence[float], scale: float, top_k: int, filtered: dict[str, Any]
) -> dict[str, Any]:
    sparse = {"query": indices_and_values(vector), "using": VECTOR, **filtered}
    results = {"limit": top_k, "with_payload": True}
    if not text_vector:
        return sparse | results
    found = sparse | {"limit": max(WINDOW, top_k)}
    # Below 0 a cosine counts as 0.
    dense = {"query": text_vector, "using": SIMILARITY, "score_threshold": 0.0, **filtered}
    total = {"sum": ["$score[0]", {"mult": [scale, "$score[1]"]}]}
    return {
        "prefetch": [found, dense | {"prefetch": [found], "limit": found["limit"]}],
        "query": {"formula": total, "defaults": {"$score[0]": 0.0, "$score[1]": 0.0}},
        **results,
    }


def _qdrant(expression: Expression) -> dict[str, Any]:
    """Return a condition as a filter of Qdrant."""
    match expression:
        case Not(inner):
            return {"must_not": [_qdrant(inner)]}
        case All(parts):
            return {"must": [*map(_qdrant, parts)]}
        case Some(parts):
            return {"should": [*map(_qdrant, parts)]}
        case Condition(field, operator, values):
            path = f'{GROUP}."{field}"'
            if operator == "exists":
                return {"must_not": [{"is_empty": {"key": path}}]}
            if operator in (*_ORDERS, RANGE):
                return {"key": path, "range": _range(operator, values)}
            exact = [
                {"key": path, "range": {"gte": value, "lte": value}}
                for value in values
                if isinstance(value, float)
            ]
            matched = [value for value in values if not isinstance(value, float)]
            if matched or not exact:
                exact.append({"key": path, "match": {"any": matched}})
            return {"should": exact}

"""Tools for language models: searches and explanations as short texts.

A model reads every character of an answer: an answer has at most ``LONGEST`` characters, and a note
about omissions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from lexicept.corpora import Document
from lexicept.corpora.records import shown_fields
from lexicept.errors import InputError, LexiceptError
from lexicept.explanation.contributions import WholePart, largest_first, shown_term, spelled
from lexicept.index.dimensions import numbers_by_dimension
from lexicept.index.reader import IndexReader
from lexicept.index.results import Hits
from lexicept.pipelines.index import Index
from lexicept.queries.syntax import DimensionNumbers, ParsedQuery
from lexicept.sanitize import one_line, safe, shortened
from lexicept.server.concepts import concept_detail, concept_list

LONGEST = 8_000
"""Most characters of an answer: about 2,000 tokens."""

PAGE = 6_000
"""Characters of a document that are returned at once."""

SNIPPET = 280
"""Characters of a document in a list of results."""

TERMS = 12
"""Words and concepts listed for a query or a score."""

Query = Annotated[
    str,
    Field(
        max_length=4_000,
        coerce_numbers_to_str=True,
        description='What to look for, as a question or a few words. "exact phrase" must be there '
        "as it is, -word must not.",
    ),
]
TopK = Annotated[int, Field(ge=1, le=20, description="Number of results.")]
DocumentId = Annotated[
    str,
    Field(
        max_length=2_000,
        coerce_numbers_to_str=True,
        description="Id of a document, as search shows it.",
    ),
]
FilterText = Annotated[
    str | None,
    Field(
        max_length=4_000,
        description="Condition on the documents' fields, such as: year >= 2020 and "
        "tag in ['bio']. Leave it out to search all documents.",
    ),
]
SearchedVocabulary = Annotated[
    Literal["words", "concepts"] | None,
    Field(
        description="Search by words only or by concepts only. Leave it out to use all that the "
        "index has."
    ),
]
Numbers = dict[str, float]


class AgentTools:
    """The tools of one index; each returns plain text of at most ``LONGEST`` characters.

    Changes of the index on disk show at the next call. Threads may share the tools.

    Args:
        index: an opened index, refreshed after changes on disk.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._refreshing = threading.Lock()

    def _fresh(self) -> Index:
        """Return the index, refreshed unless opening the changed index fails."""
        with self._refreshing, suppress(LexiceptError):
            if self._index.stale:
                self._index.refresh()
        return self._index

    def search(
        self,
        query: Query,
        top_k: TopK = 5,
        filter: FilterText = None,  # noqa: A002
        vocabulary: SearchedVocabulary = None,
    ) -> str:
        """Find documents by the words and the concepts (meanings) of a query, best first. Each
        result has the document's id, title, fields and a passage. Read a whole document with
        get_document, and ask explain why it was found."""
        hits = self._fresh().search(query, top_k, vocabulary=vocabulary, filter=filter)
        return _results(hits, hits.notes)

    def similar_documents(self, document_id: DocumentId, top_k: TopK = 5) -> str:
        """Find similar documents: documents with the same words and concepts, best first."""
        index = self._fresh()
        return _results(index.search(index.like(document_id), top_k), [])

    def explain(self, query: Query, document_id: DocumentId) -> str:
        """Show why a document matches a query: each word and concept that both have, its share of
        the score, and which words of the query and of the document it stands for; and how similar
        both are as a whole. The shares add up to the whole score."""
        explanation = self._fresh().explain(query, document_id)
        score, text = explanation.score, explanation.content
        head = f'[{_id(document_id)}] for "{_name(query)}": score {score:.4g}'
        if not score:
            return f"{head}; the two share no word and no concept"
        lines = []
        for part in largest_first(explanation.ideas, explanation.whole_parts):
            if isinstance(part, WholePart):
                words = one_line(f": {part.words}") if part.words else ""
                lines.append(f"{part.score / score:5.1%} {part.name}{words}")
                continue
            query_words = spelled(explanation.query, part.in_query, 3)
            document_words = spelled(text, part.in_document, 3)
            matched = one_line(f": {query_words} → {document_words}") if document_words else ""
            largest = part.parts[0]
            term = shown_term(largest, explanation.query, text)
            name = _term_key(largest.vocabulary, largest.dimension, term)
            if "," in (composition := part.composition(score)):
                name += f" ({composition})"
            lines.append(f"{part.score / score:5.1%} {name}{matched}")
        head += f"; {one_line(explanation.note)}" if explanation.note else ""
        return _bounded(head, lines, "smaller contributions", TERMS)

    def get_document(
        self,
        document_id: DocumentId,
        start: Annotated[
            int, Field(ge=0, description="First character to return; for the rest of a long one.")
        ] = 0,
    ) -> str:
        """Read a document: title, fields and text. A long text comes in pages; the answer says how
        to get the next one."""
        document = self._fresh().document(document_id)
        length = len(document.text)
        if start and start >= length:
            raise InputError(f"{document_id!r} has {length:,} characters; start was {start:,}")
        page = safe(document.text[start : start + PAGE])
        end = start + len(page)
        lines = [_heading(document)]
        if start or end < length:
            more = f"; for the next page call this with start={end}" if end < length else ""
            lines.append(f"characters {start:,} to {end:,} of {length:,}{more}")
        return "\n".join([*lines, page or "(no text)"])

    def list_concepts(
        self,
        find: Annotated[
            str,
            Field(
                max_length=200,
                coerce_numbers_to_str=True,
                description="Text in a concept's name or words. Leave it out to list the most "
                "useful concepts.",
            ),
        ] = "",
        top_k: Annotated[int, Field(ge=1, le=100, description="Number of concepts.")] = 20,
    ) -> str:
        """List the concepts of this collection, or find some by name: number, name, how many
        documents or passages have each, and the words that it is active on. The most useful or
        the best matches come first."""
        reader = self._fresh().reader
        reader.span("concepts")  # raises InputError without concepts
        listing = concept_list(reader, find, top_k)
        concepts = listing["concepts"]
        lines = [
            f"concept:{c['number']} {one_line(c['name'])}, {c['documents']:,} {reader.unit}"
            + one_line(f": {', '.join(c['words'])}" if c["words"] else "")
            for c in concepts
        ]
        about = f' with "{_name(find)}"' if find.strip() else ""
        head = f"{listing['total']:,} concepts{about} in {len(reader):,} {reader.unit}"
        left = listing["total"] - len(concepts)
        return _bounded(head, lines, "concepts", len(lines), left)

    def get_concept(
        self, number: Annotated[int, Field(ge=0, description="The concept's number.")]
    ) -> str:
        """Show the meaning of a concept: words and passages that activate the concept, similar
        concepts, and the documents with the largest activations."""
        reader = self._fresh().reader
        span = reader.span("concepts")
        count = span.stop - span.start
        if number >= count:
            raise InputError(f"no concept {number}: the numbers are 0 to {count - 1:,}")
        concept = concept_detail(reader, number, 5)
        name, documents = one_line(concept["label"]), concept["documents"]
        lines, detection = [], concept["detection"]
        if detection is not None:
            lines.append(f"the name tells words that activate it from others: {detection:.0%}")
        if concept["words"]:
            lines.append("words: " + ", ".join(one_line(w["word"]) for w in concept["words"][:12]))
        for example in concept["examples"][:5]:
            before, fired, after = (example[key] for key in ("before", "fired", "after"))
            passage = one_line(f"{before}[{fired}]{after}")
            lines.append(f"in {_id(example['document_id'])}: …{passage}…")
        near = [f"concept:{n['number']} {one_line(n['label'])}" for n in concept["nearest"][:5]]
        lines += [f"similar: {', '.join(near)}"] if near else []
        best = [f"{_id(d['id'])} {one_line(d['title'])}" for d in concept["top_documents"]]
        lines += [f"most of it: {'; '.join(best)}"] if best else []
        return _bounded(f"concept:{number} {name}, in {documents:,} {reader.unit}", lines, "lines")

    def steer(
        self,
        query: Query,
        factors: Annotated[
            Numbers,
            Field(
                max_length=50,
                description="Numbers that multiply weights of the query, by word:TEXT or "
                "concept:NUMBER: 0 removes it, 2 doubles it. Example: "
                '{"word:spring": 0, "concept:812": 2}.',
            ),
        ] = {},  # noqa: B006
        add: Annotated[
            Numbers,
            Field(
                max_length=50,
                description="Words or concepts that the query does not have, each with a weight: "
                '1 is as heavy as the heaviest of the query. Example: {"concept:4562": 1}.',
            ),
        ] = {},  # noqa: B006
        top_k: TopK = 5,
        filter: FilterText = None,  # noqa: A002
    ) -> str:
        """Search with the words and concepts of the query changed: some weighed more or less,
        removed (0) or added. Without changes it shows what the query is made of. list_concepts
        finds the numbers of concepts."""
        index = self._fresh()
        reader = index.reader
        steering = numbers_by_dimension(reader, "factors", factors)
        parsed = replace(index.parse(query), steering=steering)
        weights = numbers_by_dimension(reader, "add", add)
        changed = replace(parsed, added=_as_heavy(reader, parsed, weights))
        hits = index.search(changed, top_k, filter=filter)
        terms = [term for term in reader.query_terms(changed) if term.weight]
        weighted = [
            f"{term.weight:.3g} {_term_key(term.vocabulary, term.dimension, term.term)}"
            for term in terms[:TERMS]
        ]
        weighted += [f"{len(terms) - TERMS} lighter ones"] if len(terms) > TERMS else []
        return _results(hits, [f"weights: {'; '.join(weighted) or 'nothing that is searched'}"])


def _as_heavy(
    reader: IndexReader, query: ParsedQuery, weights: DimensionNumbers
) -> DimensionNumbers:
    """Return weights to add to a query, of which 1 counts as much as the heaviest. Raises
    InputError for a concept of function words, which does not count."""
    present = reader.query_vectors([query])
    factors = np.ones(present.shape[1]) if reader.scorer is None else reader.scorer.factors
    heaviest = float((present.data * factors[present.indices]).max(initial=0)) or 1.0
    added = {}
    for (vocabulary, dimension), weight in weights.items():
        factor = float(factors[reader.span(vocabulary).start + dimension])
        if not factor:
            raise InputError(f"add: concept:{dimension} is of function words, and does not count")
        added[vocabulary, dimension] = weight * heaviest / factor
    return added


def _term_key(vocabulary: str, dimension: int, term: str) -> str:
    """Return a dimension in the notation of ``steer``, with the name of a concept."""
    if vocabulary == "words":
        return f"word:{one_line(term)}"
    return f"{vocabulary.removesuffix('s')}:{dimension} {one_line(term)}"


def _results(hits: Hits, notes: Iterable[str]) -> str:
    """Return results in lines, within ``LONGEST`` characters."""
    head = [*map(one_line, notes)]
    if not hits:
        query = hits.query.text
        head.append(f'no document for "{_name(query)}"' if query.strip() else "no document")
    lines = [
        f"{hit.rank}. {_heading(hit.document, hit.score)}\n{one_line(snippet)}"
        for hit, snippet in zip(hits, hits.snippets, strict=True)
    ]
    return _bounded("\n".join(head), lines, "results")


def _heading(document: Document, score: float | None = None) -> str:
    """Return a document's id, title, score and fields in a line or two."""
    title = f" {one_line(document.title)}" if document.title else ""
    fields = one_line("; ".join(f"{name}: {text}" for name, text in shown_fields(document)))
    fields = f"\n{shortened(fields, SNIPPET)}" if fields else ""
    scored = "" if score is None else f" (score {score:.4g})"
    return f"[{_id(document.id)}]{shortened(title, SNIPPET)}{scored}{fields}"


def _name(text: str) -> str:
    return shortened(one_line(text), 200)


def _id(text: str) -> str:
    return shortened(safe(text), 1_000)


def _bounded(
    head: str, lines: list[str], noun: str, most: int | None = None, left_out: int = 0
) -> str:
    """Return a heading and at most ``most`` lines within ``LONGEST`` characters, with a note about
    omitted lines, ``left_out`` of them before the call."""
    text, written = shortened(head, LONGEST // 2), 0
    for line in lines[:most]:
        if len(text) + len(line) > LONGEST - 100:
            break
        text += f"\n{line.rstrip()}" if text else line.rstrip()
        written += 1
    omitted = len(lines) - written + left_out
    return f"{text}\n({omitted:,} more {noun} left out)" if omitted else text

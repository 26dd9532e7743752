"""Relevance feedback: what marked documents, and first results unseen, add to a search.

    python -m benchmarks.feedback INDEX=DATA/cacm INDEX=DATA/vaswani_npl ...

*Marked*: the relevant ones among a query's first ten results, three at most, are marked, as a
person would. What was shown is then taken out of the results and of the judgements, with feedback
and without, so that only documents count that the person has not seen (residual collections: Salton
and Buckley 1990). Queries without such a document, or without another relevant one, are left out.
*Unseen*: the first three results are taken to be relevant, and all queries and documents count.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from benchmarks.common import Table
from benchmarks.judged import NDCG, System, ahead, decimal
from lexicept.corpora import Qrel, read_qrels, read_queries
from lexicept.evaluation.runs import Run, run_of_hits
from lexicept.index.feedback import Marked, with_feedback
from lexicept.index.reader import IndexReader
from lexicept.queries.syntax import ParsedQuery

SHOWN = 10
"""Results that a person looks at."""

MARKED = 3
"""Most documents that are marked, and results that are taken for relevant unseen."""

DEPTH = 100
"""Results that are looked at, of which nDCG takes the first ten that were not shown."""


def searched(index: IndexReader, texts: Mapping[str, str], marks: Mapping[str, Marked]) -> Run:
    """Return the results of queries with the feedback of some of them."""
    queries = [
        with_feedback(index, ParsedQuery(text), marks[name]) if name in marks else ParsedQuery(text)
        for name, text in texts.items()
    ]
    return run_of_hits(list(texts), index.search(queries, DEPTH))


def measured(path: str, folder: str) -> list[list[str]]:
    """Return the rows of one collection: of unseen results and of marked documents."""
    index = IndexReader.open(path)
    qrels = list(read_qrels(folder, "test"))
    texts = {query.id: query.text for query in read_queries(folder, "test")}
    plain = searched(index, texts, {})
    unseen = searched(index, texts, dict.fromkeys(texts, MARKED))
    marks, judgements = marked(plain, qrels)
    rest = {name: set(list(plain[name])[:SHOWN]) for name in marks}
    sample = {name: texts[name] for name in marks}
    before = without(plain, rest)
    after = without(searched(index, sample, marks), rest)
    return [
        row(folder, "marked", judgements, before, after),
        row(folder, "unseen", qrels, plain, unseen),
    ]


def marked(run: Run, qrels: Sequence[Qrel]) -> tuple[dict[str, list[str]], list[Qrel]]:
    """Return the relevant documents that were shown for each query, and the judgements of those
    that were not, for queries that have both."""
    relevant: dict[str, set[str]] = {}
    for qrel in qrels:
        if qrel.relevance > 0:
            relevant.setdefault(qrel.query_id, set()).add(qrel.document_id)
    top = {name: list(ranking)[:SHOWN] for name, ranking in run.items()}
    marks = {
        name: [document for document in top[name] if document in judged][:MARKED]
        for name, judged in relevant.items()
        if judged & set(top[name]) and judged - set(top[name])
    }
    remaining = [
        qrel
        for qrel in qrels
        if qrel.query_id in marks and qrel.document_id not in top[qrel.query_id]
    ]
    return marks, remaining


def without(run: Run, left_out: Mapping[str, set[str]]) -> Run:
    """Return the results of some queries without documents of each."""
    return {
        name: {d: score for d, score in run[name].items() if d not in documents}
        for name, documents in left_out.items()
    }


def row(folder: str, vocabulary: str, qrels: Sequence[Qrel], before: Run, after: Run) -> list[str]:
    """Return a row of the table: effectiveness without and with feedback, and the difference."""
    plain, fed = (System.of_run(vocabulary, qrels, run) for run in (before, after))
    name = folder.rstrip("/").rpartition("/")[2]
    means = [sum(run.ndcg.values()) / len(run.ndcg) for run in (plain, fed)]
    scores = [decimal(mean, 4) for mean in means]
    return [name, vocabulary, str(len(plain.ndcg)), *scores, ahead(fed, plain)]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("collections", nargs="+", metavar="INDEX=FOLDER")
    pairs = [collection.partition("=") for collection in parser.parse_args().collections]
    lines = [line for path, _, folder in pairs for line in measured(path, folder)]
    columns = ["collection", "documents", "queries", NDCG, "with feedback", "difference"]
    print(Table("relevance feedback", columns, lines).markdown())


if __name__ == "__main__":
    main()

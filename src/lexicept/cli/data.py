"""Commands that make training data: pseudo-queries, mine, score."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexicept.cli.common import (
    CorpusArgument,
    IndexArgument,
    JsonOption,
    RestartOption,
    print_report,
    require_concepts,
)
from lexicept.cli.configuration import ConfigOption
from lexicept.errors import InputError

if TYPE_CHECKING:
    from lexicept.training.candidates.teachers import Teacher


class KindChoice(StrEnum):
    """Kinds of pseudo-queries, in capitals because texts have a method ``title``."""

    TITLE = "title"
    SENTENCE = "sentence"
    SPAN = "span"
    MIXED = "mixed"


QueriesArgument = Annotated[
    str,
    typer.Argument(
        help="Queries and judgements: a BEIR folder, with or without corpus, or an ir_datasets "
        "name."
    ),
]
SplitOption = Annotated[str, typer.Option(help="Which judgements.")]
ListsOption = Annotated[
    Path, typer.Option(help="Where the lists will be, a .jsonl file; must not exist.")
]


def pseudo_queries(
    corpus: CorpusArgument,
    out: Annotated[
        Path, typer.Option(help="Folder for queries.jsonl and qrels/train.tsv; must have neither.")
    ],
    kind: Annotated[
        KindChoice,
        typer.Option(
            help="The title, a sentence, a run of 5 to 15 words, or at random one of these."
        ),
    ] = KindChoice.MIXED,
    per_document: Annotated[int, typer.Option(min=1, help="Queries of a document, at most.")] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Make queries from documents, each of which has its document as relevant."""
    from lexicept.corpora import read_documents
    from lexicept.corpora.pseudo_queries import generate, write

    count = write(out, generate(read_documents(corpus), kind.value, per_document, seed))
    print_report({"queries": count, "folder": str(out)}, as_json)


def mine(
    index: IndexArgument,
    queries: QueriesArgument,
    out: ListsOption,
    split: SplitOption = "train",
    depth: Annotated[int, typer.Option(min=0, help="Candidates of a query, at most.")] = 100,
    vocabulary: Annotated[
        str | None, typer.Option(help="words or concepts; by default all that the index has.")
    ] = None,
    max_positive_share: Annotated[
        float | None,
        typer.Option(
            help="Leave out candidates above this share of the best relevant document's score."
        ),
    ] = None,
    random_negatives: Annotated[
        int, typer.Option(min=0, help="Random documents added to each list.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the random documents.")] = 0,
    config: ConfigOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Search an index for training queries, and write what it finds as candidate lists.

    Each list has the query's relevant documents first. Re-running the command resumes interrupted
    mining.
    """
    from lexicept.corpora import read_qrels, read_queries
    from lexicept.index.reader import IndexReader
    from lexicept.progress import ProgressBars
    from lexicept.training.candidates import mining
    from lexicept.training.candidates.lists import from_qrels

    opened = IndexReader.open(index)
    judged = from_qrels(read_qrels(queries, split))
    with ProgressBars() as progress:
        lists = mining.mine(
            opened,
            dict(read_queries(queries, split)),
            {item.query_id: item.documents for item in judged},
            out,
            depth=depth,
            vocabulary=vocabulary,
            max_positive_share=max_positive_share,
            random_negatives=random_negatives,
            seed=seed,
            restart=restart,
            progress=progress,
        )
    print_report({"lists": len(lists), "file": str(out)}, as_json)


def score(
    lists: Annotated[
        Path, typer.Argument(help="Lists of mine, or in a format that ColBERT or others use.")
    ],
    corpus: CorpusArgument,
    queries: QueriesArgument,
    teacher: Annotated[
        list[str],
        typer.Option(
            metavar="KIND[:NAME][=WEIGHT]",
            help="bm25, bm25:LANGUAGE, dense (all-MiniLM-L6-v2), dense:MODEL or "
            "cross-encoder:MODEL. Of several, the standardised scores are added by weight.",
        ),
    ],
    out: ListsOption,
    split: SplitOption = "train",
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps embeddings for the next time.")
    ] = None,
    config: ConfigOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give the documents of candidate lists a teacher's scores.

    Re-running the command resumes interrupted scoring.
    """
    from lexicept.corpora import read_documents, read_queries
    from lexicept.progress import ProgressBars
    from lexicept.training.candidates.lists import Lists
    from lexicept.training.candidates.teachers import score_lists

    chosen = _teacher(teacher)
    opened = Lists.open(lists)
    texts = dict(read_queries(queries, split))
    documents = {document.id: document.content for document in read_documents(corpus)}
    with ProgressBars() as progress:
        scored = score_lists(
            opened, texts, documents, chosen, out, cache, restart=restart, progress=progress
        )
    print_report({"lists": len(scored), "file": str(out)}, as_json)


def _teacher(names: list[str]) -> Teacher:
    """The teacher of the options, a blend where there are several."""
    from lexicept.training.candidates.teachers import Blend

    weights: dict[Teacher, float] = {}
    for name in names:
        text, equals, weight = name.partition("=")
        teacher = _single_teacher(text)
        if teacher in weights:
            raise InputError(f"--teacher {text!r} is there twice")
        try:
            weights[teacher] = float(weight) if equals else 1.0
        except ValueError:
            raise InputError(f"--teacher {name!r}: the weight {weight!r} is no number") from None
    return Blend(weights) if len(weights) > 1 else next(iter(weights))


def _single_teacher(text: str) -> Teacher:
    kind, _, name = text.partition(":")
    if kind == "bm25":
        from lexicept.training.candidates.teachers import BM25Teacher

        return BM25Teacher(name) if name else BM25Teacher()
    if kind not in ("dense", "cross-encoder") or (kind == "cross-encoder" and not name):
        raise InputError(
            f"--teacher {text!r}: only bm25, bm25:LANGUAGE, dense, dense:MODEL, cross-encoder:MODEL"
        )
    require_concepts()
    from lexicept.training.candidates.neural_teachers import CrossEncoderTeacher, DenseTeacher

    if kind == "cross-encoder":
        return CrossEncoderTeacher(name)
    return DenseTeacher(name) if name else DenseTeacher()

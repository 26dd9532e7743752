"""Commands that make training data: pseudo-queries, import, cluster, mine, score."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.cli.common import (
    CorpusArgument,
    DtypeChoice,
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
    """Kinds of pseudo-queries, in capitals because strings have a method ``title``."""

    TITLE = "title"
    SENTENCE = "sentence"
    SPAN = "span"
    MIXED = "mixed"


QueriesArgument = Annotated[
    str,
    typer.Argument(
        help="Judged queries: a BEIR folder (its corpus is not needed) or an ir_datasets name."
    ),
]
SplitOption = Annotated[str, typer.Option(help="Split of the judged queries.")]
ListsOption = Annotated[
    Path, typer.Option(help="File for the candidate lists (.jsonl); must not exist.")
]


def pseudo_queries(
    corpus: CorpusArgument,
    out: Annotated[
        Path,
        typer.Option(help="Folder for queries.jsonl and qrels/train.tsv, which must not exist."),
    ],
    kind: Annotated[
        KindChoice,
        typer.Option(
            help="Part of the document that becomes the query: its title, a sentence, 5 to 15 "
            "consecutive words (span), or one of these at random (mixed)."
        ),
    ] = KindChoice.MIXED,
    per_document: Annotated[int, typer.Option(min=1, help="Most queries per document.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random choices.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Make pseudo-queries from documents; each counts its own document as relevant."""
    from lexicept.corpora import read_documents
    from lexicept.corpora.pseudo_queries import generate, write

    count = write(out, generate(read_documents(corpus), kind.value, per_document, seed))
    print_report({"queries": count, "folder": str(out)}, as_json)


def import_texts(
    source: Annotated[
        str,
        typer.Argument(
            help="JSON Lines file, folder of such files, or Hugging Face dataset by its folder or "
            "name. Columns: query, pos, neg, pos_scores, neg_scores (BGE), or query, positive, "
            "negative, score (sentence-transformers)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="New BEIR folder, with lists.jsonl in it.")],
    split: Annotated[str, typer.Option(help="Split of a Hugging Face dataset.")] = "train",
    subset: Annotated[str | None, typer.Option(help="Subset of a dataset on the hub.")] = None,
    scored_only: Annotated[
        bool, typer.Option("--scored-only", help="Leave out rows without scores (SPLARE).")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn a dataset of texts into a BEIR folder with candidate lists."""
    from lexicept.training.candidates.text_datasets import import_texts as run

    lists = run(source, out, split=split, config=subset, scored_only=scored_only)
    print_report({"lists": len(lists), "folder": str(out)}, as_json)


def mine(
    index: IndexArgument,
    queries: QueriesArgument,
    out: ListsOption,
    split: SplitOption = "train",
    depth: Annotated[int, typer.Option(min=0, help="Most candidates per query.")] = 100,
    vocabulary: Annotated[
        str | None,
        typer.Option(
            help="Vocabulary to search: words or concepts. Default: all that the index has."
        ),
    ] = None,
    max_positive_share: Annotated[
        float | None,
        typer.Option(
            help="Leave out candidates that score above this share of the best relevant document's "
            "score: they may be relevant too."
        ),
    ] = None,
    random_negatives: Annotated[
        int, typer.Option(min=0, help="Number of random documents to add to each list.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random documents.")] = 0,
    config: ConfigOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Search an index with training queries, and write the results as candidate lists.

    A list holds the query's relevant documents, then the hard negatives that the search returned.
    Re-running the command resumes interrupted mining.
    """
    from lexicept.corpora import read_qrels, read_queries
    from lexicept.index.reader import IndexReader
    from lexicept.progress import ProgressBars
    from lexicept.training.candidates import mining
    from lexicept.training.candidates.lists import from_qrels

    settings = mining.MiningSettings(depth, vocabulary, max_positive_share, random_negatives, seed)
    with ProgressBars() as progress:
        opened = IndexReader.open(index)
        judged = from_qrels(read_qrels(queries, split))
        lists = mining.mine(
            opened,
            dict(read_queries(queries, split)),
            {item.query_id: item.documents for item in judged},
            out,
            settings,
            restart=restart,
            progress=progress,
        )
    print_report({"lists": len(lists), "file": str(out)}, as_json)


def score(
    lists: Annotated[
        Path,
        typer.Argument(
            help="Candidate lists: a file of `lexicept data mine`, or another's, such as ColBERT's."
        ),
    ],
    corpus: CorpusArgument,
    queries: QueriesArgument,
    teacher: Annotated[
        list[str],
        typer.Option(
            metavar="KIND[:NAME][=WEIGHT]",
            help="bm25, bm25:LANGUAGE, dense (all-MiniLM-L6-v2), dense:MODEL or "
            "cross-encoder:MODEL. With several teachers, standardised scores are added by weight.",
        ),
    ],
    out: ListsOption,
    split: SplitOption = "train",
    dtype: Annotated[
        DtypeChoice | None,
        typer.Option(
            help="Type of the weights of dense and cross-encoder teachers. Default: the type that "
            "they were saved in."
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(min=1, help="Texts or pairs that go through such a teacher at once."),
    ] = 32,
    cache: Annotated[
        Path | None, typer.Option(help="Folder to cache embeddings in, for later runs.")
    ] = None,
    config: ConfigOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Score the documents of candidate lists with a teacher model.

    Re-running the command resumes interrupted scoring.
    """
    from lexicept.corpora import read_documents, read_queries
    from lexicept.progress import ProgressBars
    from lexicept.training.candidates.lists import Lists
    from lexicept.training.candidates.teachers import score_lists

    chosen = _teacher(teacher, None if dtype is None else dtype.value, batch_size)
    with ProgressBars() as progress:
        opened = Lists.open(lists)
        texts = dict(read_queries(queries, split))
        documents = {document.id: document.content for document in read_documents(corpus)}
        scored = score_lists(
            opened, texts, documents, chosen, out, cache, restart=restart, progress=progress
        )
    print_report({"lists": len(scored), "file": str(out)}, as_json)


def _teacher(names: list[str], dtype: str | None, batch_size: int) -> Teacher:
    """Return the teacher that the options name, a blend if there are several."""
    from lexicept.training.candidates.teachers import Blend

    weights: dict[Teacher, float] = {}
    for name in names:
        text, equals, weight = name.partition("=")
        teacher = _single_teacher(text, dtype, batch_size)
        if teacher in weights:
            raise InputError(f"--teacher {text!r} is given twice")
        try:
            weights[teacher] = float(weight) if equals else 1.0
        except ValueError:
            raise InputError(f"--teacher {name!r}: the weight {weight!r} is not a number") from None
    return Blend(weights) if len(weights) > 1 else next(iter(weights))


def _single_teacher(text: str, dtype: str | None, batch_size: int) -> Teacher:
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

    more: dict[str, Any] = {"dtype": dtype, "batch_size": batch_size}
    if kind == "cross-encoder":
        return CrossEncoderTeacher(name, **more)
    return DenseTeacher(name, **more) if name else DenseTeacher(**more)

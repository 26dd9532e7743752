"""Commands that make training data: pseudo-queries, import, mine, score."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexicept.cli.common import print_report, require_training
from lexicept.cli.declarations import takes
from lexicept.errors import InputError, check_count

if TYPE_CHECKING:
    from lexicept.candidates.teachers import Teacher


def pseudo_queries(
    documents: str,
    *,
    out: Path,
    kind: Literal["title", "sentence", "span", "mixed"] = "mixed",
    per_document: int = 1,
    seed: int = 0,
    as_json: bool = False,
) -> None:
    """Make pseudo-queries from documents; each counts its own document as relevant.

    Args:
        out: folder for queries.jsonl and qrels/train.tsv, which must not exist.
        kind: part of the document that becomes the query: its title, a sentence, 5 to 15
            consecutive words (span), or one of these at random (mixed).
        per_document: most queries of a document.
        seed: seed of the random choices.
    """
    from lexicept.corpora import read_documents
    from lexicept.corpora.pseudo_queries import generate, write

    check_count("per_document", per_document)
    count = write(out, generate(read_documents(documents), kind, per_document, seed))
    print_report({"queries": count, "folder": str(out)}, as_json)


def import_texts(
    source: str,
    *,
    out: Path,
    split: str = "train",
    subset: str | None = None,
    scored_only: bool = False,
    as_json: bool = False,
) -> None:
    """Turn a dataset of texts into a BEIR folder with candidate lists.

    Args:
        source: JSON Lines file, folder of such files, or Hugging Face dataset by its folder or
            name. Columns: query, pos, neg, pos_scores, neg_scores (BGE), or query, positive,
            negative, score (sentence-transformers).
        out: new BEIR folder, with lists.jsonl in it.
        split: split of a Hugging Face dataset.
        subset: subset of a dataset on the hub.
        scored_only: leave out lists without scores (SPLARE).
    """
    from lexicept.candidates.text_datasets import import_texts

    lists = import_texts(source, out, split=split, config=subset, scored_only=scored_only)
    print_report({"lists": len(lists), "folder": str(out)}, as_json)


@takes("lexicept.candidates.mining:MiningSettings")
def mine(
    index: Path,
    queries: str,
    *,
    out: Path,
    split: str = "train",
    restart: bool = False,
    as_json: bool = False,
    **settings: Any,
) -> None:
    """Search an index with training queries, and write the results as candidate lists.

    A list holds the query's relevant documents, then the hard negatives that the search returned.
    Re-running the command resumes interrupted mining.

    Args:
        queries: judged queries: a BEIR folder (its corpus is not needed) or an ir_datasets name.
        out: file for the candidate lists (.jsonl); must not exist.
    """
    from lexicept.candidates import mining
    from lexicept.candidates.lists import from_qrels
    from lexicept.corpora import read_qrels, read_queries
    from lexicept.index.reader import IndexReader
    from lexicept.progress import ProgressLine

    mining_settings = mining.MiningSettings(**settings)
    with ProgressLine() as progress:
        opened = IndexReader.open(index)
        judged = from_qrels(read_qrels(queries, split))
        lists = mining.mine(
            opened,
            dict(read_queries(queries, split)),
            {item.query_id: item.documents for item in judged},
            out,
            mining_settings,
            restart=restart,
            progress=progress,
        )
    print_report({"lists": len(lists), "file": str(out)}, as_json)


def score(
    lists: Path,
    documents: str,
    queries: str,
    *,
    teacher: list[str],
    out: Path,
    split: str = "train",
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    batch_size: int = 32,
    cache: Path | None = None,
    restart: bool = False,
    as_json: bool = False,
) -> None:
    """Score the documents of candidate lists with a teacher model.

    Re-running the command resumes interrupted scoring.

    Args:
        lists: candidate lists: a file of `lexicept data mine`, or another's, such as ColBERT's.
        queries: judged queries: a BEIR folder (its corpus is not needed) or an ir_datasets name.
        teacher: KIND[:NAME][=WEIGHT]: bm25, bm25:LANGUAGE, dense (all-MiniLM-L6-v2), dense:MODEL
            or cross-encoder:MODEL. With several teachers, standardised scores are added by weight.
        out: file for the candidate lists (.jsonl); must not exist.
        dtype: type of the weights of dense and cross-encoder teachers. By default the type that
            they were saved in.
        batch_size: texts or pairs that go through such a teacher at once.
        cache: folder to cache embeddings in, for later runs.
    """
    from lexicept.candidates.lists import Lists
    from lexicept.candidates.teachers import score_lists
    from lexicept.corpora import read_documents, read_queries
    from lexicept.progress import ProgressLine

    check_count("batch_size", batch_size)
    scorer = _teacher(teacher, dtype, batch_size)
    with ProgressLine() as progress:
        opened = Lists.open(lists)
        texts = dict(read_queries(queries, split))
        contents = {document.id: document.content for document in read_documents(documents)}
        scored = score_lists(
            opened, texts, contents, scorer, out, cache, restart=restart, progress=progress
        )
    print_report({"lists": len(scored), "file": str(out)}, as_json)


def _teacher(names: list[str], dtype: str | None, batch_size: int) -> Teacher:
    """Return the teacher that the options name, a blend if there are several."""
    from lexicept.candidates.teachers import Blend

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
    named = [name] if name else []
    if kind == "bm25":
        from lexicept.candidates.teachers import BM25Teacher

        return BM25Teacher(*named)
    if kind not in ("dense", "cross-encoder") or (kind == "cross-encoder" and not name):
        raise InputError(
            f"--teacher {text!r}: only bm25, bm25:LANGUAGE, dense, dense:MODEL, cross-encoder:MODEL"
        )
    require_training()
    from lexicept.training.ranking.neural_teachers import CrossEncoderTeacher, DenseTeacher

    network: Any = DenseTeacher if kind == "dense" else CrossEncoderTeacher
    teacher: Teacher = network(*named, dtype=dtype, batch_size=batch_size)
    return teacher

"""Commands that make training data: pseudo-queries, import, mine, score."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lexicept.checks import Count, Seed, check
from lexicept.cli.common import print_report, require_training


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

    per_document, seed = check("per_document", per_document, Count), check("seed", seed, Seed)
    count = write(out, generate(read_documents(documents), kind, per_document, seed))
    print_report({"queries": count, "folder": str(out)}, as_json)


def import_texts(
    source: Path, *, out: Path, scored_only: bool = False, as_json: bool = False
) -> None:
    """Turn a dataset of texts into a BEIR folder with candidate lists.

    Args:
        source: JSON Lines file, or folder of such files, with query, pos, neg, pos_scores and
            neg_scores (BGE).
        out: new BEIR folder, with lists.jsonl in it.
        scored_only: leave out lists without scores (SPLARE).
    """
    from lexicept.candidates.text_datasets import import_texts

    lists = import_texts(source, out, scored_only=scored_only)
    print_report({"lists": len(lists), "folder": str(out)}, as_json)


def mine(
    index: Path,
    queries: str,
    *,
    out: Path,
    split: str = "train",
    depth: int = 100,
    vocabulary: str | None = None,
    restart: bool = False,
    as_json: bool = False,
) -> None:
    """Search an index with training queries, and write the results as candidate lists.

    A list holds the query's relevant documents, then the hard negatives that the search returned.
    Re-running the command resumes interrupted mining.

    Args:
        queries: judged queries: a BEIR folder (its corpus is not needed) or an ir_datasets name.
        out: file for the candidate lists (.jsonl); must not exist.
        depth: most candidates of a query; documents with score 0 are left out.
        vocabulary: vocabulary to search; all by default.
    """
    from lexicept.candidates.lists import from_qrels
    from lexicept.candidates.mining import mine
    from lexicept.corpora import read_qrels, read_queries
    from lexicept.index.reader import IndexReader
    from lexicept.progress import ProgressLine

    check("depth", depth, Count)
    with ProgressLine() as progress:
        judged = from_qrels(read_qrels(queries, split))
        lists = mine(
            IndexReader.open(index),
            dict(read_queries(queries, split)),
            {item.query_id: item.documents for item in judged},
            out,
            depth,
            vocabulary,
            restart=restart,
            progress=progress,
        )
    print_report({"lists": len(lists), "file": str(out)}, as_json)


def score(
    lists: Path,
    documents: str,
    queries: str,
    *,
    teacher: str,
    out: Path,
    split: str = "train",
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    batch_size: int = 32,
    restart: bool = False,
    as_json: bool = False,
) -> None:
    """Score the documents of candidate lists with a cross-encoder.

    Re-running the command resumes interrupted scoring.

    Args:
        lists: candidate lists: a file of `lexicept data mine`, or another's, such as ColBERT's.
        queries: judged queries: a BEIR folder (its corpus is not needed) or an ir_datasets name.
        teacher: cross-encoder of sentence-transformers, by its folder or name on the hub.
        out: file for the candidate lists (.jsonl); must not exist.
        dtype: type of the teacher's weights. By default the type that they were saved in.
        batch_size: pairs that go through the teacher at once.
    """
    from lexicept.candidates.lists import Lists
    from lexicept.candidates.teachers import score_lists
    from lexicept.corpora import read_documents, read_queries
    from lexicept.progress import ProgressLine

    check("batch_size", batch_size, Count)
    require_training()
    from lexicept.training.ranking.neural_teachers import CrossEncoderTeacher

    scorer = CrossEncoderTeacher(teacher, dtype, batch_size)
    with ProgressLine() as progress:
        opened = Lists.open(lists)
        texts = dict(read_queries(queries, split))
        contents = {document.id: document.content for document in read_documents(documents)}
        scored = score_lists(
            opened, texts, contents, scorer, out, restart=restart, progress=progress
        )
    print_report({"lists": len(scored), "file": str(out)}, as_json)

"""MTEB's tasks with an encoder and top-k limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lexicept.corpora import Document
from lexicept.errors import InputError
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.progress import Progress
from lexicept.storage.files import read_json, write_json
from reproduction.data import MissingDataError, full_disk


def evaluate_tasks(
    encoder: Any,
    tasks: Sequence[str],
    query_dims: int | None,
    document_dims: int | None,
    path: Path,
    progress: Progress,
) -> dict[str, float]:
    """Return ``<task> main score`` of each task, the mean over splits and languages.

    Args:
        encoder: a lexicept ``Encoder`` is indexed with the limits; with any other model
            MTEB itself encodes, without limits.
        path: file of the encoder's scores with these limits, written after each task: an
            interrupted run resumes at the next task.

    Raises:
        MissingDataError: MTEB is not installed.
        InputError: a task can't be fetched or fails.
    """
    try:
        import mteb
    except ImportError:
        raise MissingDataError("MTEB's tasks need pip install 'lexicept[mteb]'") from None
    scores: dict[str, float] = read_json(path) if path.exists() else {}
    with TemporaryDirectory() as folder:
        model = encoder
        if isinstance(encoder, Encoder):
            from reproduction.mteb_search import LexiceptSearch

            index = index_like(encoder, query_dims, document_dims, Path(folder) / "like")
            model = LexiceptSearch(index)
        for number, name in enumerate(tasks):
            progress("tasks", number, len(tasks), name)
            if (value := f"{name} main score") in scores:
                continue
            try:
                result = mteb.evaluate(model, mteb.get_task(name), cache=None)
            except Exception as error:  # downloads, tasks and the model raise errors of many kinds
                if full_disk(error):
                    raise
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                raise InputError(f"MTEB's task {name} failed: {reason}") from error
            scores[value] = float(result.task_results[0].get_score())
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, scores)
    return {value: scores[value] for value in (f"{name} main score" for name in tasks)}


def index_like(
    encoder: Encoder, query_dims: int | None, document_dims: int | None, folder: Path
) -> IndexReader:
    """Build an index of one document with an encoder and limits, by default the encoder's limits:
    MTEB's corpora are indexed alike."""
    settings = encoder.head.settings
    weighed = VocabularySettings(
        encoder.weighting,
        query_dims or settings.query_max_active_dims,
        document_dims or settings.document_max_active_dims,
        pruning=settings.pruning,
    )
    with IndexBuilder(folder) as builder:
        builder.add_documents([Document("0", "a")], {})
        builder.add_vocabulary(ConceptVectorizer(encoder), weighed)
        return builder.commit()

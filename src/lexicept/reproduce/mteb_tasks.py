"""MTEB's tasks with an encoder and Top-K limits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lexicept.concepts import ConceptVectorizer
from lexicept.corpora import Document
from lexicept.derive import VocabularySettings
from lexicept.encoder import parts
from lexicept.indexing import IndexBuilder
from lexicept.reproduce.data import MissingDataError


def evaluate_tasks(
    encoder: Any, tasks: Sequence[str], query_dims: int | None, document_dims: int | None
) -> dict[str, float]:
    """``<task> main score`` of each; of several splits and languages the mean.

    Args:
        encoder: one that ``encoder.make_encoder`` made is indexed with its limits; any other one
            is MTEB's own to encode with, without limits.

    Raises:
        MissingDataError: MTEB is not installed, or a task can't be fetched.
    """
    try:
        import mteb

        from lexicept.integrations.mteb import LexiceptSearch
    except ImportError:
        raise MissingDataError("MTEB's tasks need pip install 'lexicept[mteb]'") from None
    found = {}
    with TemporaryDirectory() as folder:
        model = encoder
        if len(encoder) == 2 and hasattr(encoder[1], "settings"):
            settings = parts(encoder).head.settings
            limits = (
                query_dims or settings.query_max_active_dims,
                document_dims or settings.document_max_active_dims,
            )
            with closing(IndexBuilder(Path(folder) / "like")) as builder:
                builder.add_documents([Document("0", "a")], {})
                weighed = VocabularySettings(settings.weigh(), *limits)
                builder.add_vocabulary(ConceptVectorizer(encoder), weighed)
                model = LexiceptSearch(builder.commit())
        for name in tasks:
            try:
                result = mteb.evaluate(model, mteb.get_task(name), cache=None)
            except Exception as error:  # whatever its downloads raise
                reason = " ".join(str(error).split())[:200]
                raise MissingDataError(f"MTEB's task {name} can't be fetched: {reason}") from None
            found[f"{name} main score"] = float(result.task_results[0].get_score())
    return found

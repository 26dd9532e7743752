"""Pairs of one model's tokens and another's latents (SAE-SPLADE, appendix E)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lexicept.corpora import Document
from lexicept.index.impacts import VocabularySettings
from lexicept.interpretation.pairs import Group, dimension_pairs, senses, synonyms
from lexicept.models.encoder import Encoder
from lexicept.training.config import ValidationSettings
from lexicept.training.validation import RetrievalEvaluator
from lexicept.vectors import SparseVectors, Vocabulary
from lexicept.weighting import Unchanged
from reproduction.data import Data, fetching
from reproduction.jobs import PairsJob, TrainingJob
from reproduction.measuring import Measurements
from reproduction.stored import documents_of
from reproduction.trained import model_of

SHOWN = 7
"""Groups of each kind in the notes, as many as Table 8 has."""

MEMBERS = 12
"""Most members of a group in the notes."""

LIFT = 3.0
"""Lift from which pairs that were read were mostly right (reproduction/words_and_concepts.md)."""

SEED = 0


def run_pairs(job: PairsJob, data: Data) -> Measurements:
    """Train the two models where they are missing, and pair their dimensions over documents.

    Raises:
        MissingDataError: a dataset or model that is not here.
    """
    with fetching(job.dataset, data):
        corpus = documents_of(data.find(job.dataset), data.work)
    drawn = np.random.default_rng(SEED).permutation(len(corpus.ids))[: job.documents]
    documents = [corpus.stored.document(number) for number in sorted(drawn.tolist())]
    tokens, latents = (_vectors(one, documents, data) for one in (job.tokens, job.latents))
    pairs = dimension_pairs(tokens, latents)
    covering, several = synonyms(pairs), senses(pairs)
    lifts = np.array([pair.lift for pair in pairs])
    values: dict[str, float] = {
        "documents": float(pairs.num_documents),
        "associated": float(pairs.associated),
        **{relation: float(count) for relation, count in pairs.counts.items()},
        "share of lift 3": float((lifts >= LIFT).mean()) if lifts.size else 0.0,
        "latents of several tokens": float(len(covering)),
        "tokens of several latents": float(len(several)),
    }
    names = (_terms(tokens), _terms(latents))
    notes = [_note("covers", group, names[1], names[0], "token") for group in covering[:SHOWN]]
    notes += [_note("has", group, names[0], names[1], "latent") for group in several[:SHOWN]]
    return Measurements(values, notes=notes)


def _vectors(job: TrainingJob, documents: Sequence[Document], data: Data) -> SparseVectors:
    """Return documents encoded by a job's model, pruned as it prunes, with its terms."""
    _, model = model_of(job, data)
    encoder = Encoder.load(model)
    none = RetrievalEvaluator([], [], [], [], [], ValidationSettings())
    weights = none.encode(encoder, [document.content for document in documents], "document")
    limit = encoder.head.settings.document_max_active_dims
    kept = VocabularySettings(Unchanged(), document_max_active_dims=limit)
    terms = encoder.head.terms if encoder.names is None else encoder.names
    vocabulary = Vocabulary("", encoder.head.size, terms)
    ids = [document.id for document in documents]
    return SparseVectors(kept.prune_documents(weights), ids, [vocabulary])


def _terms(vectors: SparseVectors) -> Sequence[str]:
    (vocabulary,) = vectors.vocabularies
    return vocabulary.terms or [str(number) for number in range(vocabulary.size)]


def _note(verb: str, group: Group, own: Sequence[str], others: Sequence[str], side: str) -> str:
    """Return a group as Table 8 or Table 9 shows it."""
    members = [others[getattr(pair, side)] for pair in group.pairs]
    more = f", … {len(members) - MEMBERS} more" if len(members) > MEMBERS else ""
    return f"{own[group.dimension]} {verb} {len(members)}: {', '.join(members[:MEMBERS])}{more}"

"""Pairs of one model's tokens and another's latents (SAE-SPLADE, appendix E)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lexicept.corpora import Document
from lexicept.index.impacts import VocabularySettings
from lexicept.neural.encoders.encoder import Encoder
from lexicept.training.ranking.validation import encode
from lexicept.vectors import SparseVectors, Vocabulary
from lexicept.weighting import Unchanged
from reproduction.data import Data, fetching
from reproduction.jobs import PairsJob, TrainingJob
from reproduction.measuring import Measurements
from reproduction.pairs import Group, dimension_pairs, senses, synonyms
from reproduction.stored import documents_of
from reproduction.trained import models_of

GROUPS, MEMBERS = 7, 12
"""Groups of each kind in the notes, as many as Table 8 has, and most members of a group."""

LIFT = 3.0
"""Lift from which pairs that were read were mostly right (reproduction/words_and_concepts.md)."""

SEED = 0


def run_pairs(job: PairsJob, data: Data) -> Measurements:
    """Train the two models if missing, and pair their dimensions over documents.

    Raises:
        MissingDataError: a dataset or model that is missing.
    """
    with fetching(job.dataset, data):
        corpus = documents_of(data.find(job.dataset), data.work)
    drawn = np.random.default_rng(SEED).permutation(len(corpus.ids))[: job.documents]
    documents = [corpus.stored.document(number) for number in sorted(drawn.tolist())]
    tokens, latents = (_vectors(each, documents, data) for each in (job.tokens, job.latents))
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
    terms, labels = _terms(tokens), _terms(latents)
    notes = [_note("covers", group, labels, terms, "token") for group in covering[:GROUPS]]
    notes += [_note("has", group, terms, labels, "latent") for group in several[:GROUPS]]
    return Measurements(values, notes=notes)


def _vectors(job: TrainingJob, documents: Sequence[Document], data: Data) -> SparseVectors:
    """Return documents encoded and pruned by a job's model of the first seed, with its terms."""
    encoder = Encoder.load(next(models_of(job, data)).path)
    weights = encode(encoder, [document.content for document in documents], "document")
    limit = encoder.head.settings.document_max_active_dims
    weights = VocabularySettings(Unchanged(), None, limit).prune_documents(weights)
    terms = encoder.head.terms if encoder.names is None else encoder.names
    vocabulary = Vocabulary("", encoder.head.size, terms)
    return SparseVectors(weights, [document.id for document in documents], [vocabulary])


def _terms(vectors: SparseVectors) -> Sequence[str]:
    (vocabulary,) = vectors.vocabularies
    return vocabulary.terms or [str(number) for number in range(vocabulary.size)]


def _note(
    verb: str, group: Group, names: Sequence[str], member_names: Sequence[str], side: str
) -> str:
    """Return a group as in Table 8 or Table 9."""
    members = [member_names[getattr(pair, side)] for pair in group.pairs]
    more = f", … {len(members) - MEMBERS} more" if len(members) > MEMBERS else ""
    return f"{names[group.dimension]} {verb} {len(members)}: {', '.join(members[:MEMBERS])}{more}"

"""What one row of a table computes: frozen dataclasses, read from a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lexicept.errors import InputError
from lexicept.rra import TRANSFORMS
from lexicept.training.config import TrainingConfig
from lexicept.training.pretraining import PretrainingSettings
from lexicept.training.sae.settings import SAESettings


@dataclass(frozen=True)
class DatasetSettings:
    """Judged queries and their documents."""

    name: str
    """A folder of the data, or a name that ir_datasets knows; see ``reproduce.data``."""
    split: str = "test"
    """Which judgements."""
    queries: int | None = None
    """So many of the judged queries at most, drawn once; null takes all."""
    language: str = "en"
    """Of BM25's words."""
    column: str | None = None
    """The name that its values get, where vectors of one dataset are in several folders; null for
    its own."""

    @property
    def title(self) -> str:
        """What its values are named after."""
        return self.column or self.name


@dataclass(frozen=True)
class RRAChoice:
    """Rational Retrieval Acts over the whole collection."""

    alpha: float | None = None
    """α; null chooses the best of ``indexing.ALPHAS`` on known-item queries."""
    documents: int = 500
    """To choose α: so many documents, one query each (RRA, section 3.1)."""
    generator: str | None = None
    """To choose α: a causal language model that writes these queries; null takes a sentence of the
    document, or, where there are vectors alone, some of its strongest dimensions."""
    iterations: int = 1
    """Pairs of speaker and listener."""
    transform: str = "1+x"
    """f of a weight."""

    def __post_init__(self) -> None:
        if self.transform not in TRANSFORMS:
            known = ", ".join(TRANSFORMS)
            raise InputError(f"transform is one of {known}, not {self.transform!r}")
        if self.alpha is not None and not self.alpha > 0:
            raise InputError(f"alpha must be above 0, not {self.alpha}")


@dataclass(frozen=True)
class RetrievalJob:
    """A system without training, on some datasets."""

    datasets: tuple[DatasetSettings, ...] = ()
    mteb: tuple[str, ...] = ()
    """Tasks of MTEB, for the system ``encoder``."""
    system: Literal["bm25", "vectors", "encoder"] = "bm25"
    """BM25 over words; published sparse vectors, which the dataset's folder holds; or an encoder
    of sentence-transformers' ``SparseEncoder``."""
    model: str | None = None
    """Of the system ``encoder``: a hub name or a folder."""
    vocabulary: str | None = None
    """Of the system ``vectors``: the dataset folder with ``vocab.txt``; null for the terms that the
    vectors have."""
    weight: float = 1.0
    """Of the system ``vectors``: what a stored document weight of 1 is worth."""
    k1: float = 0.9
    """Of BM25."""
    b: float = 0.4
    """Of BM25."""
    rra: RRAChoice | None = None
    """Re-weighting of the documents."""
    query_max_active_dims: int | None = None
    """Dimensions left in a query; null keeps all."""
    document_max_active_dims: int | None = None
    """Dimensions left in a document; null keeps all."""

    def __post_init__(self) -> None:
        if not (self.datasets or self.mteb):
            raise InputError("a retrieval needs datasets or mteb")
        if (self.system == "encoder") != (self.model is not None):
            raise InputError("a retrieval has a model where its system is encoder, and only there")
        if self.mteb and self.system != "encoder":
            raise InputError("tasks of MTEB are for the system encoder")


@dataclass(frozen=True)
class PretrainingStage:
    """Pretraining before the training: of a vocabulary's head, or of a decoder."""

    corpus: str = ""
    """Whose texts."""
    head: Literal["mlm", "expanded", "random"] = "mlm"
    """Rows at first: the backbone's own, means over words' sub-words (ESPLADE), or random."""
    words: int | None = None
    """Dimensions: the most frequent words of the corpus; null for the backbone's sub-words."""
    settings: PretrainingSettings = field(default_factory=PretrainingSettings)

    def __post_init__(self) -> None:
        if not self.corpus:
            raise InputError("pretraining.corpus is missing: whose texts")
        if (self.words is None) == (self.settings.masking == "words"):
            raise InputError("pretraining.words is a number where settings.masking is words")


@dataclass(frozen=True)
class TrainingJob:
    """A model that is trained, or averaged from several trainings, and its retrieval.

    Rows with one ``config`` share the model; rows that differ in model or loss alone share what
    trainings prepare.
    """

    config: TrainingConfig
    test: tuple[DatasetSettings, ...] = ()
    mteb: tuple[str, ...] = ()
    """Tasks of MTEB."""
    pretraining: PretrainingStage | None = None
    """Made first; its model is the training's start or, of a decoder, its backbone."""
    seeds: tuple[int, ...] = ()
    """Trainings whose mean is the model; empty for the config's own seed alone."""
    rra: RRAChoice | None = None
    """Re-weighting of the documents."""
    query_max_active_dims: int | None = None
    """Dimensions left in a query; null for the model's own."""
    document_max_active_dims: int | None = None
    """Dimensions left in a document; null for the model's own."""

    def __post_init__(self) -> None:
        if not (self.test or self.mteb):
            raise InputError("a training needs test or mteb")


@dataclass(frozen=True)
class PooledJob:
    """CL-SR (Park et al. 2025): an SAE over a dense retriever's pooled vectors."""

    datasets: tuple[DatasetSettings, ...]
    model: str
    """The dense retriever, a ``SentenceTransformer``."""
    sae: SAESettings = field(default_factory=SAESettings)
    query_k: int | None = None
    """Latents of a query; null for the SAE's k."""
    document_k: int | None = None
    """Latents of a document; null for the SAE's k."""
    dense: bool = False
    """Whether the dense vectors themselves are searched, the baseline."""


@dataclass(frozen=True)
class OverlapJob:
    """What translations of documents share (SAE-SPLADE, Table 7)."""

    dataset: str
    """A folder with a BEIR folder for each language."""
    languages: tuple[str, ...]
    model: TrainingConfig | None = None
    """A model that another row trains too; null for each language's words."""
    documents: int | None = None
    """The first ones; null takes all."""


@dataclass(frozen=True)
class EffectJob:
    """What RRA does to weights (RRA, the case study)."""

    dataset: str
    """Published sparse vectors."""
    rra: RRAChoice
    vocabulary: str | None = None
    """See ``RetrievalJob``."""
    weight: float = 1.0
    """See ``RetrievalJob``."""
    terms: tuple[str, ...] = ()
    """Of the first document that has them all; the first is compared with the others."""
    frequent: int = 20
    """So many of the most frequent dimensions, whose mean rank is followed."""


@dataclass(frozen=True)
class E2Job:
    """E² computed from a table's printed MRR and QD-FLOPs, against its printed ΔE²."""

    table: str
    """A recipe, ``sae_splade/table3`` say."""
    mrr: str
    """Its column of MRR@10."""
    flops: str
    """Its column of QD-FLOPs."""
    printed: str
    """Its column of ΔE², × 100."""
    baseline_mrr: float
    """BM25's MRR@10, in the table's units."""
    baseline_flops: float
    """BM25's QD-FLOPs."""


Job = RetrievalJob | TrainingJob | PooledJob | OverlapJob | EffectJob | E2Job

JOBS: dict[str, type[Job]] = {
    "retrieval": RetrievalJob,
    "training": TrainingJob,
    "pooled": PooledJob,
    "overlap": OverlapJob,
    "effect": EffectJob,
    "e2": E2Job,
}
"""A job in a recipe is a mapping with one of these names."""

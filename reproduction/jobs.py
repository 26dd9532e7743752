"""Jobs: the computation of one row of a table, as settings of a recipe."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from lexicept.errors import InputError
from lexicept.rra import TRANSFORMS
from lexicept.training.config import TrainingConfig
from lexicept.training.head_kinds import LanguageHead
from lexicept.training.pretraining.settings import (
    PretrainingSettings,
    masking_of,
    words_of,
)
from lexicept.training.sae.settings import SAESettings
from lexicept.training.settings import (
    Count,
    Flag,
    Items,
    NotNegative,
    Number,
    Positive,
    Seed,
    Share,
    Text,
    settings,
)


@settings
class DatasetSettings:
    """Judged queries and their documents."""

    name: Text
    """A folder of the data, or a name that ir_datasets knows; see ``reproduction.data``."""
    split: Text = "test"
    """Split of the judgements."""
    queries: Count | None = None
    """Largest number of judged queries, drawn at random; null for all."""
    language: Text = "en"
    """Language of BM25's words."""
    max_query_tokens: Count | None = None
    """Length at which a trained model cuts queries; null for the model's length."""
    tau: NotNegative = 5.0
    """E²'s τ, the QD-FLOPs from which cost is penalised steeply; 5 is for MS MARCO."""
    column: Text | None = None
    """Name in results, where vectors of one dataset are in several folders; null for ``name``."""

    @property
    def title(self) -> str:
        """The first word of the names of values."""
        return self.column or self.name


@settings
class RRAChoice:
    """Rational Retrieval Acts over the whole collection."""

    alpha: Positive | None = None
    """α; null chooses α on known-item queries, see ``evaluation.alpha``."""
    folds: Count | None = None
    """Folds of the judged queries, each searched with the best α of the other folds; null for
    none."""
    split: Text | None = None
    """Another split of the judgements, such as ``train``, to choose α on; null for none."""
    documents: Count = 500
    """Documents to choose α on, with one query each (RRA, section 3.1)."""
    generator: Text | None = None
    """Causal language model that writes known-item queries (RRA: Llama 3 8B); null takes half of a
    sentence's words or, of published vectors, some of the strongest dimensions."""
    iterations: Count = 1
    """Pairs of speaker and listener."""
    transform: Text = "1+x"
    """f, the transformation of a weight."""

    def __post_init__(self) -> None:
        if self.transform not in TRANSFORMS:
            known = ", ".join(TRANSFORMS)
            raise InputError(f"transform is one of {known}, not {self.transform!r}")
        ways = ("alpha", "folds", "split", "generator")
        if len(set_ := [name for name in ways if getattr(self, name) is not None]) > 1:
            raise InputError(f"{' and '.join(set_)}: only one of {', '.join(ways)} sets α")
        if self.folds == 1:
            raise InputError("folds must be at least 2: the others choose α")


@settings
class RetrievalJob:
    """The retrieval of a system without training, on some datasets."""

    datasets: Items[DatasetSettings] = ()
    mteb: Items[Text] = ()
    """MTEB tasks, for the system ``encoder``."""
    system: Literal["bm25", "vectors", "encoder"] = "bm25"
    """BM25 over words, published sparse vectors in the dataset's folder, or a ``SparseEncoder``."""
    model: Text | None = None
    """Model of the system ``encoder``: a hub name, a folder, or ``lexicept-mini``."""
    vocabulary: Text | None = None
    """Dataset folder with ``vocab.txt``, for the system ``vectors``; null for their terms."""
    weight: Number = 1.0
    """Value of a stored document weight of 1, for the system ``vectors``."""
    k1: NotNegative = 0.9
    """BM25's k1 (saturation)."""
    b: Share = 0.4
    """BM25's b (length normalisation)."""
    rra: RRAChoice | None = None
    """Re-weighting of the documents by RRA; null for none."""
    query_max_active_dims: Count | None = None
    """Largest number of dimensions of a query; null keeps all."""
    document_max_active_dims: Count | None = None
    """Largest number of dimensions of a document; null keeps all."""
    curve: Flag = False
    """True adds searches with many limits of dimensions, for values at equal cost:
    ``NAME nDCG@10 at 2`` (QD-FLOPs); see ``estimates.CostCurve``."""

    def __post_init__(self) -> None:
        if not (self.datasets or self.mteb):
            raise InputError("a retrieval needs datasets or mteb")
        if (self.system == "encoder") != (self.model is not None):
            raise InputError("model requires system: encoder, and system: encoder requires a model")
        if self.mteb and self.system != "encoder":
            raise InputError("mteb requires system: encoder")
        if self.system == "vectors" and self.rra is not None and self.rra.generator:
            raise InputError("rra.generator needs texts, which the system vectors does not have")


@settings
class PretrainingStage:
    """Pretraining of a language head or of a decoder, before the training."""

    corpus: Text = ""
    """Dataset of the texts."""
    head: LanguageHead = "mlm"
    """Initial rows of the head: of the backbone, means over words' sub-words (ESPLADE), random."""
    words: Count | None = None
    """Number of most frequent words that are dimensions, with masking ``words``; null for the
    default."""
    vocabulary: Literal["corpus", "training"] = "corpus"
    """Texts to count words in: the corpus, or the training's documents and queries (ESPLADE,
    3.1.3)."""
    shared: Flag = False
    """True if trainings of all seeds start from one pretrained model, as the papers start from one
    published checkpoint; False for a pretraining per seed."""
    settings: PretrainingSettings = field(default_factory=PretrainingSettings)

    def __post_init__(self) -> None:
        if not self.corpus:
            raise InputError("corpus is missing: the dataset of the texts")
        words = words_of(masking_of(self.head, self.settings.masking), self.words)
        if self.vocabulary == "training" and words is None:
            raise InputError("vocabulary: training requires masking: words")


@settings
class TuningChoice:
    """Values chosen on held-out training queries, with the first seed."""

    vary: Items[Text] = ()
    """``NAME=VALUE,VALUE,...`` each, such as ``optimizer.learning_rate=0.0003,0.001``; every
    combination is tried."""
    steps: Count = 100
    """Optimiser steps of a trial."""

    def __post_init__(self) -> None:
        if not self.vary:
            raise InputError("vary is missing: the values to try")


@settings
class TrainingJob:
    """The training of a model, or of several models that are averaged, and retrieval with it.

    Rows of one ``config`` share the model; rows that differ in model or loss alone share prepared
    data.
    """

    config: TrainingConfig
    test: Items[DatasetSettings] = ()
    mteb: Items[Text] = ()
    """MTEB tasks."""
    pretraining: PretrainingStage | None = None
    """Pretraining of the training's start or, for a decoder, of the backbone."""
    seeds: Items[Seed] = ()
    """Seeds of separate trainings, from the SAE or the pretraining on, whose values are averaged;
    empty for the config's seed. Data and token states are shared."""
    averaged: Items[Seed] = ()
    """Seeds of the trainings whose mean is the model (SPLARE); empty for the config's seed."""
    tuning: TuningChoice | None = None
    """Values to choose by short trainings before; null for the config's values."""
    rra: RRAChoice | None = None
    """Re-weighting of the documents by RRA; null for none."""
    query_max_active_dims: Count | None = None
    """Largest number of dimensions of a query; null for the model's limit."""
    document_max_active_dims: Count | None = None
    """Largest number of dimensions of a document; null for the model's limit."""
    curve: Flag = False
    """True adds searches with many limits of dimensions, for values at equal cost:
    ``NAME nDCG@10 at 2`` (QD-FLOPs); see ``estimates.CostCurve``."""

    def __post_init__(self) -> None:
        if not (self.test or self.mteb):
            raise InputError("a training needs test or mteb")
        if self.seeds and self.averaged:
            raise InputError("seeds are of separate trainings, averaged of one model: set either")


@settings
class PooledJob:
    """CL-SR (Park et al. 2025): an SAE over a dense retriever's pooled vectors."""

    datasets: Items[DatasetSettings]
    model: Text
    """Dense retriever, a ``SentenceTransformer``."""
    sae: SAESettings = field(default_factory=SAESettings)
    unseen: Share = 0.1
    """Share of the documents that the SAE does not learn from, for ``unseen FVU``."""
    query_k: Count | None = None
    """Number of latents of a query; null for the SAE's k."""
    document_k: Count | None = None
    """Number of latents of a document; null for the SAE's k."""
    dense: Flag = False
    """True searches the dense vectors, the baseline."""


@settings
class OverlapJob:
    """The dimensions that translations of documents share (SAE-SPLADE, Table 7)."""

    dataset: Text
    """A folder with a BEIR folder for each language."""
    languages: Items[Text]
    training: TrainingJob | None = None
    """Training of the model, which another table may share; null for words of each language."""
    documents: Count | None = None
    """Number of first documents; null for all."""
    queries: Count | None = None
    """Number of judged queries of each language, searched in the language's documents as a control;
    null for all."""


@settings
class PairsJob:
    """Pairs of one model's tokens and another's latents (SAE-SPLADE, Tables 8 and 9)."""

    dataset: Text
    """Dataset of the documents that both encode."""
    tokens: TrainingJob
    """Training of the model whose dimensions are tokens."""
    latents: TrainingJob
    """Training of the model whose dimensions are latents."""
    documents: Count = 10_000
    """Number of documents, drawn at random (appendix E: 10,000)."""


@settings
class EffectJob:
    """The effect of RRA on weights (RRA, the case study)."""

    dataset: Text
    """Dataset of published sparse vectors."""
    rra: RRAChoice
    vocabulary: Text | None = None
    """See ``RetrievalJob``."""
    weight: Number = 1.0
    """See ``RetrievalJob``."""
    terms: Items[Text] = ()
    """Terms whose weights are followed, in the first document that has all of them."""
    frequent: Count = 20
    """Number of the most frequent dimensions, whose mean rank is followed."""


@settings
class E2Job:
    """E² from a table's printed MRR and QD-FLOPs, against its printed ΔE²."""

    table: Text
    """Recipe of the table, such as ``sae_splade/table3``."""
    mrr: Text
    """The table's column of MRR@10."""
    flops: Text
    """The table's column of QD-FLOPs."""
    printed: Text
    """The table's column of ΔE², × 100."""
    baseline_mrr: Number
    """BM25's MRR@10, in the table's units."""
    baseline_flops: Number
    """BM25's QD-FLOPs."""


@settings
class ExampleJob:
    """The numbers of a worked example (the SPLADE chapter)."""

    heads: Items[Items[Number]] = ()
    """Masked-language heads X_i of a document's tokens: γ is pooled from them."""
    weights: Items[Items[Number]] = ()
    """Weights γ of a batch of documents, in place of ``heads``."""
    l1_weight: NotNegative = 1.0
    """λ of L1."""

    def __post_init__(self) -> None:
        if bool(self.heads) == bool(self.weights):
            raise InputError("an example needs either heads or weights")
        if len({len(row) for row in self.heads or self.weights}) != 1:
            raise InputError("all tokens or documents need as many terms")


Job = (
    RetrievalJob | TrainingJob | PooledJob | OverlapJob | EffectJob | E2Job | ExampleJob | PairsJob
)

JOBS: dict[str, type[Job]] = {
    "retrieval": RetrievalJob,
    "training": TrainingJob,
    "pooled": PooledJob,
    "overlap": OverlapJob,
    "effect": EffectJob,
    "e2": E2Job,
    "example": ExampleJob,
    "pairs": PairsJob,
}
"""Name of a job in a recipe → its settings."""

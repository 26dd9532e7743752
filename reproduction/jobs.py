"""Jobs: the computation of a table's row, as settings of a recipe."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from lexicept.checks import Count, Items, NotNegative, Number, Positive, Seed, Share, settings
from lexicept.errors import InputError
from lexicept.rra import TRANSFORMS
from lexicept.training.pretraining.head_kinds import LanguageHead
from lexicept.training.pretraining.settings import PretrainingSettings, masking_of, words_of
from lexicept.training.ranking.config import TrainingConfig
from lexicept.training.sae.settings import SAESettings


@settings
class DatasetSettings:
    """Judged queries and their documents."""

    name: str
    """A folder of the data, or a name in ir_datasets; see ``reproduction.data``."""
    split: str = "test"
    queries: Count | None = None
    """Largest number of judged queries, drawn at random; null for all."""
    language: str = "en"
    """Language of BM25's words."""
    max_query_tokens: Count | None = None
    """Length at which a trained model cuts queries; null for the model's length."""
    tau: NotNegative = 5.0
    """E²'s τ, the QD-FLOPs from which cost is penalised steeply; 5 is for MS MARCO."""
    column: str | None = None
    """Name in results, if vectors of a dataset are in several folders; null for ``name``."""

    @property
    def title(self) -> str:
        """The first word of the names of values."""
        return self.column or self.name


@settings
class RRAChoice:
    """Rational Retrieval Acts over the whole collection."""

    alpha: Positive | None = None
    """α; null chooses α on known-item queries, see ``reproduction.alpha``."""
    folds: Count | None = None
    """Folds of the judged queries, each searched with the best α of the remaining folds."""
    split: str | None = None
    """Another split of the judgements, such as ``train``, to choose α on."""
    generator: str | None = None
    """Causal language model that writes known-item queries (RRA: Llama 3 8B); null takes half of a
    sentence's words or, of published vectors, some of the strongest dimensions."""
    transform: str = "1+x"
    """f, the transformation of a weight."""

    def __post_init__(self) -> None:
        if self.transform not in TRANSFORMS:
            transforms = ", ".join(TRANSFORMS)
            raise InputError(f"transform is one of {transforms}, not {self.transform!r}")
        ways = ("alpha", "folds", "split", "generator")
        if len(set_ := [name for name in ways if getattr(self, name) is not None]) > 1:
            raise InputError(f"{' and '.join(set_)}: only one of {', '.join(ways)} sets α")
        if self.folds == 1:
            raise InputError("folds must be at least 2: the others choose α")


@settings
class RetrievalJob:
    """The retrieval of a system without training, on some datasets."""

    datasets: Items[DatasetSettings] = ()
    mteb: Items[str] = ()
    """MTEB tasks, for the system ``encoder``."""
    system: Literal["bm25", "vectors", "encoder"] = "bm25"
    """BM25 over words, published sparse vectors in the dataset's folder, or a ``SparseEncoder``."""
    model: str | None = None
    """Model of the system ``encoder``: a hub name, a folder, or ``lexicept-mini``."""
    vocabulary: str | None = None
    """Dataset folder with ``vocab.txt``, for the system ``vectors``; null for own terms."""
    weight: Number = 1.0
    """Value of a stored document weight of 1, for the system ``vectors``."""
    words: NotNegative = 0.0
    """Weight of BM25's words beside the dimensions of the system ``encoder``; 0 for none."""
    rra: RRAChoice | None = None
    """Re-weighting of the documents by RRA; null for none."""
    document_max_active_dims: Count | None = None
    """Largest number of dimensions of a document; null keeps all."""

    def __post_init__(self) -> None:
        if not (self.datasets or self.mteb):
            raise InputError("a retrieval needs datasets or mteb")
        if self.words and self.system != "encoder":
            raise InputError("words requires system: encoder")
        if (self.system == "encoder") != (self.model is not None):
            raise InputError("model requires system: encoder, and system: encoder requires a model")
        if self.mteb and self.system != "encoder":
            raise InputError("mteb requires system: encoder")
        if self.system == "vectors" and self.rra is not None and self.rra.generator:
            raise InputError("rra.generator needs texts, which the system vectors does not have")


@settings
class PretrainingStage:
    """Pretraining of a language head or of a decoder, before the training."""

    corpus: str = ""
    """Dataset of the texts."""
    head: LanguageHead = "mlm"
    """Initial head: the backbone's, means over words' sub-words (ESPLADE), or random."""
    words: Count | None = None
    """Number of most frequent words that are dimensions, with masking ``words``."""
    vocabulary: Literal["corpus", "training"] = "corpus"
    """Texts to count words in: the corpus, or the training's documents and queries (ESPLADE,
    3.1.3)."""
    shared: bool = False
    """True if trainings of all seeds start from the same pretrained model, as the papers start from
    a published checkpoint; False for a pretraining per seed."""
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

    vary: Items[str] = ()
    """``NAME=VALUE,VALUE,...`` each, such as ``optimizer.learning_rate=0.0003,0.001``; every
    combination is tried."""
    steps: Count = 100
    """Optimiser steps of a trial."""

    def __post_init__(self) -> None:
        if not self.vary:
            raise InputError("vary is missing: the values to try")


@settings
class TrainingJob:
    """The training of a model, or of several models with averaged weights, and retrieval.

    Jobs of the same ``config`` share the model; jobs that differ in model or loss alone share
    prepared data.
    """

    config: TrainingConfig
    test: Items[DatasetSettings] = ()
    mteb: Items[str] = ()
    """MTEB tasks."""
    pretraining: PretrainingStage | None = None
    """Pretraining of the training's start or, for a decoder, of the backbone."""
    seeds: Items[Seed] = ()
    """Seeds of separate trainings, from the SAE or the pretraining on, whose values are averaged;
    empty for the config's seed. Data and token states are shared."""
    averaged: Items[Seed] = ()
    """Seeds of the trainings whose mean is the model (SPLARE); empty for the config's seed."""
    rounds: Count = 1
    """Number of trainings in a row, each from the model of the training before, with other samples
    and the schedules anew."""
    tuning: TuningChoice | None = None
    """Values to choose by short trainings before; null for the config's values."""
    rra: RRAChoice | None = None
    """Re-weighting of the documents by RRA; null for none."""
    query_max_active_dims: Count | None = None
    """Largest number of dimensions of a query; null for the model's limit."""
    document_max_active_dims: Count | None = None
    """Largest number of dimensions of a document; null for the model's limit."""
    curve: bool = False
    """True adds searches with many limits of dimensions, for values at equal cost:
    ``NAME nDCG@10 at 2`` (QD-FLOPs); see ``estimates.CostCurve``."""

    def __post_init__(self) -> None:
        if not (self.test or self.mteb):
            raise InputError("a training needs test or mteb")
        if self.seeds and self.averaged:
            raise InputError("seeds are of separate trainings, averaged of one model: set either")


SEARCH = ("test", "mteb", "rra", "query_max_active_dims", "document_max_active_dims", "curve")
"""Fields of a ``TrainingJob`` that change the search, not the trained models."""


@settings
class PooledJob:
    """CL-SR (Park et al. 2025): an SAE over a dense retriever's pooled vectors."""

    datasets: Items[DatasetSettings]
    model: str
    """Dense retriever, a ``SentenceTransformer``."""
    sae: SAESettings = field(default_factory=SAESettings)
    unseen: Share = 0.1
    """Share of the documents that the SAE does not learn from, for ``unseen FVU``."""
    dense: bool = False
    """True searches the dense vectors, the baseline."""


@settings
class PublishedLatents:
    """The latents of a published SAE of a dense model's states, without training for ranking, in
    BM25 weights of activations pooled by the root of the sum."""

    backbone: str
    """Dense model: a dataset folder or a hub name, with its prompts."""
    sae: str
    """SAE of the states: a dataset folder or a hub name."""
    k: Count = 8
    """Latents per token."""
    untrained: Items[Seed] = ()
    """Seeds of random rows in place of the SAE's, each measured, with the mean of the values."""


@settings
class OverlapJob:
    """The dimensions shared by translations of documents (SAE-SPLADE, Table 7)."""

    dataset: str
    """A folder with a BEIR folder for each language."""
    languages: Items[str]
    training: TrainingJob | None = None
    """Training of the model, which another table may share; null for words of each language."""
    latents: PublishedLatents | None = None
    """A published SAE in place of words and of a training."""
    subwords: str | None = None
    """Model, a dataset folder or a hub name, whose tokens are counted in place of words."""
    document_max_active_dims: Count | None = None
    """Largest number of dimensions of a document; null keeps all."""
    queries: Count | None = None
    """Number of judged queries of each language, searched in the language's documents as a control;
    null for all."""


@settings
class PairsJob:
    """Pairs of one model's tokens and another's latents (SAE-SPLADE, Tables 8 and 9)."""

    dataset: str
    """Dataset of the documents that both encode."""
    tokens: TrainingJob
    """Training of the model whose dimensions are tokens."""
    latents: TrainingJob
    """Training of the model whose dimensions are latents."""
    documents: Count = 10_000
    """Number of documents, drawn at random (appendix E: 10,000)."""


@settings
class EffectJob:
    """The effect of RRA on weights (RRA, the case study); see ``RetrievalJob``."""

    dataset: str
    """Dataset of published sparse vectors."""
    rra: RRAChoice
    vocabulary: str | None = None
    weight: Number = 1.0
    terms: Items[str] = ()
    """Terms whose weights are followed, in the first document that has all of them."""


@settings
class E2Job:
    """E² from a table's printed MRR and QD-FLOPs, against the printed ΔE²."""

    table: str
    """Recipe of the table, such as ``sae_splade/table3``."""
    mrr: str
    """The table's column of MRR@10."""
    flops: str
    """The table's column of QD-FLOPs."""
    printed: str
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
    flops_weight: NotNegative = 1.0
    """Factor on FLOPS: a query's α."""

    def __post_init__(self) -> None:
        if bool(self.heads) == bool(self.weights):
            raise InputError("an example needs either heads or weights")
        if len({len(weights) for weights in self.heads or self.weights}) != 1:
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
"""Name of a job in a recipe → settings."""


def datasets_of(job: Job) -> list[DatasetSettings]:
    """Return the datasets that a job reads."""
    match job:
        case RetrievalJob():
            names = [job.vocabulary] if job.vocabulary else []
            return [*job.datasets, *map(DatasetSettings, names)]
        case TrainingJob():
            return [*job.test, *_learned_from(job)]
        case PooledJob():
            return list(job.datasets)
        case OverlapJob():
            learned = [] if job.training is None else _learned_from(job.training)
            return [DatasetSettings(job.dataset), *learned]
        case EffectJob():
            return [DatasetSettings(job.dataset)]
        case PairsJob():
            both = [*datasets_of(job.tokens), *datasets_of(job.latents)]
            return [DatasetSettings(job.dataset), *both]
        case E2Job() | ExampleJob():
            return []


def _learned_from(job: TrainingJob) -> list[DatasetSettings]:
    validation = job.config.validation
    collections = [each.data for each in job.config.collections]
    names = [name for each in collections for name in (each.corpus, each.queries, each.lists)]
    names += [validation.queries, validation.corpus]
    names += [] if job.pretraining is None else [job.pretraining.corpus]
    return [DatasetSettings(name) for name in names if isinstance(name, str) and name]


def inputs_of(job: Job | str) -> set[str]:
    """Return the names of all datasets and models that a job reads."""
    if isinstance(job, str):
        return set()
    names: set[str | None] = {dataset.name for dataset in datasets_of(job)}
    match job:
        case PairsJob():
            names |= inputs_of(job.tokens) | inputs_of(job.latents)
        case TrainingJob(config=config) | OverlapJob(training=TrainingJob(config=config)):
            model = config.model
            names |= {model.backbone, model.start, model.pretrained}
        case OverlapJob():
            names |= {
                job.subwords,
                *([job.latents.backbone, job.latents.sae] if job.latents else []),
            }
        case RetrievalJob() | PooledJob():
            names.add(job.model)
    if isinstance(job, RetrievalJob | TrainingJob) and job.rra is not None:
        names.add(job.rra.generator)
    return {name for name in names if name}

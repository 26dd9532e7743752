"""Training of a recipe's models, which rows share, as they share prepared data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import scipy.sparse as sp
import yaml

from lexicept.corpora import read_documents, read_queries
from lexicept.models.backbone import Backbone
from lexicept.models.cached_states import CachedStates
from lexicept.models.encoder import Encoder
from lexicept.models.heads.sae import SAEHead
from lexicept.models.language_heads import language_head
from lexicept.models.sae.quality import anisotropy
from lexicept.models.soup import soup
from lexicept.pipelines.pretrain import pretrain
from lexicept.progress import Progress
from lexicept.storage.files import fingerprint, replace_file
from lexicept.training.config import TrainingConfig, ValidationSettings, load_config
from lexicept.training.settings import to_mapping
from lexicept.training.tuning import tune
from lexicept.training.validation import RetrievalEvaluator, Texts
from reproduction.data import Data, fetching, judged
from reproduction.jobs import DatasetSettings, TrainingJob, TuningChoice
from reproduction.latency import BMP_METRIC, METRIC, measure_bmp, measure_latency
from reproduction.launch import train_on_all
from reproduction.measuring import (
    Collection,
    Measurements,
    measure,
    measure_curve,
    pruned,
)
from reproduction.stored import documents_of, encoded_rows
from reproduction.systems import judged_vectors, known_items

SHARED = (
    *("words", "documents", "validation-words", "validation-documents"),
    "lists.jsonl",
)
"""Files and folders that trainings prepare of the same data, for any backbone, head and loss."""

CACHES = {"states": "states", "teacher": "embeddings"}
"""Caches of trainings, by their name in a run's folder, and their folder for all runs: what is in
them is kept apart by its model and texts, so that a pretrained head does not part them."""

ANISOTROPY_TEXTS = 1000
"""Number of documents, the first ones, whose tokens are compared."""


def run_training(job: TrainingJob, data: Data, metrics: Container[str] = ()) -> Measurements:
    """Train a job's model where it is missing, and test it.

    Args:
        metrics: measures that a table has, among those that are not always taken: ``anisotropy``
            of the states that an SAE reads (SAE-SPLADE, Table 2), ``latency.METRIC`` of every
            dataset, and ``<dataset> latency.BMP_METRIC``.

    Raises:
        MissingDataError: a dataset or model that is not here.
    """
    config, changes = _chosen(job, data)
    if not job.seeds:
        return _trained_and_tested(job, config, changes, data, metrics)
    trainings = {}
    for number, seed in enumerate(job.seeds):
        data.progress("trainings", number, len(job.seeds), f"seed {seed}")
        trainings[seed] = _trained_and_tested(job, seeded(config, seed), changes, data, metrics)
    return Measurements.mean_of(trainings)


def model_of(job: TrainingJob, data: Data) -> tuple[TrainingConfig, Path]:
    """Return a job's configuration with the paths here, and its model, trained where missing; that
    of the first seed where it has several."""
    return next(models_of(job, data))


def models_of(job: TrainingJob, data: Data) -> Iterator[tuple[TrainingConfig, Path]]:
    """Yield the configuration and model of each seed, trained where missing; one without seeds."""
    config, changes = _chosen(job, data)
    for one in [seeded(config, seed) for seed in job.seeds] or [config]:
        yield _model(job, one, changes, data)


def _chosen(job: TrainingJob, data: Data) -> tuple[TrainingConfig, list[str]]:
    """Return a job's configuration with the paths here, and the values that tuning chooses."""
    config = located(job.config, data)
    if job.tuning is None:
        return config, []
    first = seeded(config, job.seeds[0]) if job.seeds else config
    begun = _pretrained(job, first, data)
    return config, _tuned(begun, job.tuning, data.work, data.progress)


def _model(
    job: TrainingJob, config: TrainingConfig, changes: Sequence[str], data: Data
) -> tuple[TrainingConfig, Path]:
    """Train a model, or several and average them."""
    config = load_config(_pretrained(job, config, data), changes)
    folders = [
        trained(
            replace(config, optimizer=replace(config.optimizer, seed=seed)),
            data.work,
            data.progress,
        )
        for seed in job.averaged or (config.optimizer.seed,)
    ]
    return config, folders[0] if len(folders) == 1 else _averaged(folders, data.work)


def seeded(config: TrainingConfig, seed: int) -> TrainingConfig:
    """Return a configuration whose training has another seed, from the SAE on, on the same data."""
    return replace(
        config,
        data=replace(config.data, seed=config.data_seed),
        model=replace(config.model, sae=replace(config.model.sae, seed=seed)),
        optimizer=replace(config.optimizer, seed=seed),
    )


def _trained_and_tested(
    job: TrainingJob,
    config: TrainingConfig,
    changes: Sequence[str],
    data: Data,
    metrics: Container[str],
) -> Measurements:
    """Measure a model, trained where it is missing, on the job's datasets."""
    config, model = _model(job, config, changes, data)
    encoder, measurements = Encoder.load(model), Measurements()
    lengths = (encoder.backbone.max_query_tokens, encoder.backbone.max_document_tokens)
    measurements.notes += [f"chosen on held-out queries: {', '.join(changes)}"] if changes else []
    frozen = config.model.trained == "head"
    limits = encoder.head.settings
    query_dims = job.query_max_active_dims or limits.query_max_active_dims
    document_dims = job.document_max_active_dims or limits.document_max_active_dims
    for dataset in job.test:
        with fetching(dataset.name, data):
            source = data.find(dataset.name)
            states = data.work / "states" if frozen else None
            encoder.cut(dataset.max_query_tokens or lengths[0], lengths[1])
            collection = encoded(encoder, model, dataset, states, config, data)
        ignored = data.ignores_identical_ids(dataset.name)
        collection = replace(collection, ignore_identical_ids=ignored, tau=dataset.tau)
        if job.curve:
            measure_curve(collection, measurements, limits.pruning)
        if job.rra is not None and job.rra.alpha is None:
            corpus, vectors = documents_of(source, data.work), partial(_queries, encoder)
            known = known_items(job.rra, corpus, vectors, data)
            split = partial(judged_vectors, source, vectors)
            collection = replace(collection, known=known, split=split)
        measure(collection, measurements, job.rra, query_dims, document_dims, limits.pruning)
        if f"{dataset.title} {BMP_METRIC}" in metrics:
            shown = pruned(collection, query_dims, document_dims, limits.pruning)
            measure_bmp(shown, measurements)
        if METRIC in metrics:
            shown = pruned(collection, query_dims, document_dims, limits.pruning)
            measure_latency(shown, measurements)
        if "anisotropy" in metrics and isinstance(encoder.head, SAEHead):
            measurements.values |= _anisotropy(encoder, config, source, dataset.title)
    encoder.cut(*lengths)
    if job.mteb:
        from reproduction.mteb_tasks import evaluate_tasks

        kept = data.work / "mteb" / f"{key([str(model), query_dims, document_dims])}.json"
        measurements.values |= evaluate_tasks(
            encoder, job.mteb, query_dims, document_dims, kept, data.progress
        )
    return measurements


def _anisotropy(encoder: Any, config: TrainingConfig, source: str, title: str) -> dict[str, float]:
    """Return the anisotropy of the states that an SAE reads, after and before training."""
    texts = [document.content for document in islice(read_documents(source), ANISOTROPY_TEXTS)]
    backbone, head = encoder.backbone, encoder.head

    def of(backbone: Backbone, inner: Any) -> float:
        transform = None if inner is None else inner.transform
        return anisotropy(backbone, texts, transform=transform)[-1]

    after = of(backbone, head.inner)
    values = {f"{title} anisotropy": after}
    if config.model.trained == "head" and head.inner is None:
        values[f"{title} base anisotropy"] = after
    elif config.model.start is None:
        model = config.model
        base = Backbone.from_pretrained(
            model.backbone,
            backbone.num_layers,
            bidirectional=model.bidirectional,
            dtype=model.dtype,
            special_tokens=model.special_tokens,
        )
        inner = None if head.inner is None else language_head(model.backbone).to(base.model.device)
        values[f"{title} base anisotropy"] = of(base, inner)
    return values


def located(config: TrainingConfig, data: Data) -> TrainingConfig:
    """Return a configuration with the paths that its data and models have here."""

    def of(name: str | None, find: Any) -> Any:
        return None if name is None else find(name)

    return replace(
        config,
        data=replace(
            config.data,
            corpus=data.find(config.data.corpus),
            queries=of(config.data.queries, data.find),
            lists=of(config.data.lists, data.find),
        ),
        model=replace(
            config.model,
            backbone=data.place(config.model.backbone),
            start=of(config.model.start, data.place),
            pretrained=of(config.model.pretrained, data.place),
        ),
        validation=replace(
            config.validation,
            corpus=of(config.validation.corpus, data.find),
            queries=of(config.validation.queries, data.find),
        ),
    )


def key(content: Any) -> str:
    """Return a name of a folder for JSON values: part of their fingerprint."""
    return fingerprint([json.dumps(content, sort_keys=True)])[:16]


def _backbone_key(config: TrainingConfig) -> str:
    model = config.model
    read = (model.layer, model.bidirectional, model.dtype, model.special_tokens)
    return key([model.start, model.backbone, *read])


def trained(config: TrainingConfig, work: Path, progress: Progress) -> Path:
    """Return the model of a configuration, trained where it is missing."""
    folder = work / "runs" / key(asdict(config))
    if (folder / "model").exists():
        return folder / "model"
    prepared = folder.with_name(f"{folder.name}.prepared")
    shared = _shared(config, work / "prepared")
    _link(shared, prepared)
    train_on_all(config, folder, progress, prepared)
    _keep(shared, prepared)
    shutil.rmtree(prepared)
    shutil.rmtree(folder / "work")
    return folder / "model"


def _shared(config: TrainingConfig, folder: Path) -> dict[str, Path]:
    """Return the places of prepared data, by their names in a run's folder; an SAE is shared by
    those with the same settings of it."""
    model, optimizer = config.model, config.optimizer
    prepared = [asdict(config.data), asdict(config.teacher), asdict(config.validation)]
    common = folder / key([*prepared, config.data_seed, optimizer.bf16])
    read = [model.sae_input, model.sae_queries, model.max_document_tokens]
    sae = key([asdict(model.sae), *read, model.trained == "head", _backbone_key(config)])
    caches = {name: folder.with_name(place) for name, place in CACHES.items()}
    for place in caches.values():
        place.mkdir(parents=True, exist_ok=True)
    own = {"sae": common / f"sae-{sae}", **caches}
    return {name: common / name for name in SHARED} | own


def _averaged(models: Sequence[Path], work: Path) -> Path:
    """Average models as SPLARE does, into a folder of its own: its vectors are kept beside it."""
    out = work / "soups" / key([str(model) for model in models]) / "model"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        soup(models, out)
    return out


def _tuned(
    config: TrainingConfig, tuning: TuningChoice, work: Path, progress: Progress
) -> list[str]:
    """Return the best ``NAME=VALUE`` of short trainings; long ones share what they prepare."""
    place = work / "tuned" / key([asdict(config), asdict(tuning)])
    place.mkdir(parents=True, exist_ok=True)
    path, out = place / "config.yaml", place / "trials"
    replace_file(path, yaml.safe_dump(to_mapping(config), sort_keys=False).encode())
    shared, prepared = _shared(config, work / "prepared"), place / "prepared"
    _link(shared, prepared)
    best = tune(path, tuning.vary, tuning.steps, out, progress=progress, prepared=prepared)[0]
    _keep(shared, prepared)
    shutil.rmtree(prepared)
    return best.changes


def _link(shared: dict[str, Path], prepared: Path) -> None:
    """Link what other trainings have prepared into a folder."""
    prepared.mkdir(parents=True, exist_ok=True)
    for name, place in shared.items():
        if place.exists() and not (prepared / name).exists():
            (prepared / name).symlink_to(place.resolve())


def _keep(shared: dict[str, Path], prepared: Path) -> None:
    """Move what a training has prepared to where others find it."""
    for name, place in shared.items():
        own = prepared / name
        if own.exists() and not own.is_symlink() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            own.rename(place)


def _pretrained(job: TrainingJob, config: TrainingConfig, data: Data) -> TrainingConfig:
    """Return the configuration with the pretrained model as its start or, for a decoder, its
    backbone; the same where the job pretrains none."""
    stage = job.pretraining
    if stage is None:
        return config
    if job.seeds and not stage.shared:
        stage = replace(stage, settings=replace(stage.settings, seed=config.optimizer.seed))
    source = data.find(stage.corpus)
    model, settings = config.model, stage.settings
    of_training = stage.vocabulary == "training"
    learned = [config.data.corpus, config.data.queries, config.data.split] if of_training else []
    out = data.work / "pretrained" / key([asdict(stage), source, model.backbone, *learned])
    if not out.exists():
        with fetching(stage.corpus, data):
            pretrain(
                source,
                out,
                backbone=model.backbone,
                head=stage.head,
                size=stage.words,
                vocabulary=_learned_texts(config) if of_training else None,
                **asdict(settings),
                progress=data.progress,
            )
    if settings.shifted:
        return replace(config, model=replace(model, backbone=str(out)))
    return replace(config, model=replace(model, start=str(out)))


def _learned_texts(config: TrainingConfig) -> Iterator[str]:
    """Yield the documents and queries that a training learns from."""
    yield from (document.content for document in read_documents(config.data.corpus))
    if config.data.queries is not None:
        for query in read_queries(config.data.queries, config.data.split):
            yield query.text


def encoded(
    encoder: Any,
    model: Path,
    dataset: DatasetSettings,
    states: Path | None,
    config: TrainingConfig,
    data: Data,
) -> Collection:
    """Encode a dataset with a trained encoder; the documents' activations are kept beside it.

    Args:
        model: the encoder's folder.
        states: a folder for cached states of a frozen backbone; None caches none.
    """
    source = data.find(dataset.name)
    corpus = documents_of(source, data.work)
    queries, qrels = judged(source, dataset.split, dataset.queries)
    evaluator = RetrievalEvaluator([], [], [], [], [], ValidationSettings())

    def read(texts: Sequence[str], task: str) -> sp.csr_array:
        inputs: Texts = texts
        if states is not None and not (encoder.lookup and task == "query"):
            inputs = CachedStates.build(
                states / fingerprint(texts)[:16],
                encoder.backbone,
                texts,
                data.progress,
                bf16=config.optimizer.bf16,
                task=task,
            )
        return evaluator.pooled(encoder, inputs, task)

    contents = corpus.contents
    return Collection(
        dataset.title,
        corpus.ids,
        encoded_rows(
            model.parent / "vectors" / fingerprint(contents)[:16],
            contents,
            encoder.head.size,
            lambda texts: read(texts, "document"),
            data.progress,
        ),
        [query.id for query in queries],
        encoder.weighting.queries(read([query.text for query in queries], "query")),
        qrels,
        weighting=encoder.weighting,
        folder=data.work / "postings",
    )


def _queries(encoder: Any, texts: Sequence[str]) -> sp.csr_array:
    evaluator = RetrievalEvaluator([], [], [], [], [], ValidationSettings())
    return evaluator.encode(encoder, texts, "query")

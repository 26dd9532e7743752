"""Training of a recipe's models, shared by rows as prepared data are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import scipy.sparse as sp
import yaml

from lexicept.corpora import read_documents, read_queries
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.pipelines.pretrain import pretrain
from lexicept.progress import Progress
from lexicept.storage.files import fingerprint, replace_file
from lexicept.training.ranking.config import TrainingConfig, load_config
from lexicept.training.ranking.run import train
from lexicept.training.ranking.validation import Texts, pooled
from reproduction.anisotropy import anisotropy
from reproduction.data import Data, fetching
from reproduction.jobs import DatasetSettings, RRAChoice, TrainingJob
from reproduction.latency import BMP_METRIC, METRIC, measure_bmp, measure_latency
from reproduction.measuring import Collection, Measurements, measure, measure_curve, pruned
from reproduction.soup import soup
from reproduction.stored import documents_of, encoded_vectors
from reproduction.systems import text_collection
from reproduction.tuning import tune

SHARED = ("words", "documents", "validation-words", "validation-documents", "lists.jsonl")
"""Files and folders that trainings prepare of the same data, for any backbone, head and loss."""

CACHES = {"states": "states", "teacher": "embeddings"}
"""Folders of a run's caches → folders of the caches of all runs; a cache has a folder for each
model and texts."""

ROUND_SEEDS = 1000
"""Difference of the seeds of a training and of the next round."""

ANISOTROPY_TEXTS = 1000
"""Number of first documents whose tokens are compared."""


class TrainedModel(NamedTuple):
    """A job's model of a seed."""

    config: TrainingConfig
    """With the paths of this machine."""
    path: Path
    changes: Sequence[str]
    """Values chosen by tuning, ``NAME=VALUE``."""


def run_training(job: TrainingJob, data: Data, metrics: Container[str] = ()) -> Measurements:
    """Train a job's model if it is missing, and test the model.

    Args:
        metrics: measures of a table, among those that are not always taken: ``anisotropy`` of the
            states that an SAE reads (SAE-SPLADE, Table 2), ``latency.METRIC`` of every dataset,
            and ``<dataset> latency.BMP_METRIC``.

    Raises:
        MissingDataError: a dataset or model that is missing.
    """
    measured = {
        model.config.optimizer.seed: _tested(job, model, data, metrics)
        for model in models_of(job, data)
    }
    if job.seeds:
        return Measurements.mean_of(measured)
    (measurements,) = measured.values()
    return measurements


def models_of(job: TrainingJob, data: Data) -> Iterator[TrainedModel]:
    """Yield the model of each seed, trained if missing; one model without seeds."""
    config, changes = located(job.config, data), list[str]()
    if job.tuning is not None:
        first = seeded(config, job.seeds[0]) if job.seeds else config
        changes = _tuned(job, _pretrained(job, first, data), data)
    for number, seed in enumerate(job.seeds or (None,)):
        if seed is not None:
            data.progress("trainings", number, len(job.seeds), f"seed {seed}")
        base = config if seed is None else seeded(config, seed)
        final = load_config(_pretrained(job, base, data), changes)
        paths = [
            _trained_in_rounds(
                replace(final, optimizer=replace(final.optimizer, seed=each)), job.rounds, data
            )
            for each in job.averaged or (final.optimizer.seed,)
        ]
        path = paths[0] if len(paths) == 1 else _averaged(paths, data.work)
        yield TrainedModel(final, path, changes)


def seeded(config: TrainingConfig, seed: int) -> TrainingConfig:
    """Return a configuration whose training has another seed, from the SAE on, on the same data."""
    return replace(
        config,
        data=replace(config.data, seed=config.data_seed),
        more_data=tuple(replace(each.data, seed=each.data_seed) for each in config.collections[1:]),
        model=replace(config.model, sae=replace(config.model.sae, seed=seed)),
        optimizer=replace(config.optimizer, seed=seed),
    )


def _tested(
    job: TrainingJob, model: TrainedModel, data: Data, metrics: Container[str]
) -> Measurements:
    """Measure a model on the job's datasets."""
    encoder, measurements = Encoder.load(model.path), Measurements()
    lengths = (encoder.backbone.max_query_tokens, encoder.backbone.max_document_tokens)
    if model.changes:
        measurements.notes.append(f"chosen on held-out queries: {', '.join(model.changes)}")
    limits = encoder.head.settings
    query_dims = job.query_max_active_dims or limits.query_max_active_dims
    document_dims = job.document_max_active_dims or limits.document_max_active_dims
    for dataset in job.test:
        with fetching(dataset.name, data):
            encoder.backbone.cut(dataset.max_query_tokens or lengths[0], lengths[1])
            collection = encoded(encoder, model, dataset, job.rra, data)
        if job.curve:
            measure_curve(collection, measurements, limits.pruning)
        measure(collection, measurements, job.rra, query_dims, document_dims, limits.pruning)
        timed: dict[str, Callable[[Collection, Measurements], None]] = {
            METRIC: measure_latency,
            f"{dataset.title} {BMP_METRIC}": measure_bmp,
        }
        for metric, measure_time in timed.items():
            if metric in metrics:
                searched = pruned(collection, query_dims, document_dims, limits.pruning)
                measure_time(searched, measurements)
        if "anisotropy" in metrics and isinstance(encoder.head, SAEHead):
            measurements.values |= _anisotropy(encoder, model.config, dataset, data)
    encoder.backbone.cut(*lengths)
    if job.mteb:
        from reproduction.mteb_tasks import evaluate_tasks

        name = key([str(model.path), query_dims, document_dims])
        scores = data.work / "mteb" / f"{name}.json"
        measurements.values |= evaluate_tasks(
            encoder, job.mteb, query_dims, document_dims, scores, data.progress
        )
    return measurements


def _anisotropy(
    encoder: Any, config: TrainingConfig, dataset: DatasetSettings, data: Data
) -> dict[str, float]:
    """Return the anisotropy of the states that an SAE reads, after and before training."""
    documents = islice(read_documents(data.find(dataset.name)), ANISOTROPY_TEXTS)
    texts = [document.content for document in documents]
    backbone, inner, model = encoder.backbone, encoder.head.inner, config.model

    def of(backbone: Backbone, head: Any) -> float:
        transform = None if head is None else head.transform
        return anisotropy(backbone, texts, transform=transform)[-1]

    values = {f"{dataset.title} anisotropy": of(backbone, inner)}
    base_title = f"{dataset.title} base anisotropy"
    if model.trained == "head" and inner is None:
        values[base_title] = values[f"{dataset.title} anisotropy"]
    elif model.start is None:
        base = Backbone.from_pretrained(
            model.backbone,
            backbone.num_layers,
            bidirectional=model.bidirectional,
            dtype=model.dtype,
            special_tokens=model.special_tokens,
        )
        head = None if inner is None else language_head(model.backbone).to(base.model.device)
        values[base_title] = of(base, head)
    return values


def located(config: TrainingConfig, data: Data) -> TrainingConfig:
    """Return a configuration with the paths of data and models on this machine."""

    def paths(settings: Any, find: Callable[[str], str], *names: str) -> Any:
        values = {name: getattr(settings, name) for name in names}
        changed = {name: find(value) for name, value in values.items() if value is not None}
        return replace(settings, **changed)

    def found(settings: Any) -> Any:
        return paths(settings, data.find, "corpus", "queries", "lists")

    return replace(
        config,
        data=found(config.data),
        more_data=tuple(map(found, config.more_data)),
        model=paths(config.model, data.place, "backbone", "start", "pretrained"),
        validation=paths(config.validation, data.find, "corpus", "queries"),
    )


def key(content: Any) -> str:
    """Return a name of a folder for JSON values: part of their fingerprint."""
    return fingerprint([json.dumps(content, sort_keys=True)])[:16]


def trained(config: TrainingConfig, work: Path, progress: Progress) -> Path:
    """Return the model of a configuration, trained if missing."""
    folder = work / "runs" / key(asdict(config))
    if not (folder / "model").exists():
        prepared = folder.with_name(f"{folder.name}.prepared")
        shared = _shared(config, work / "prepared")
        _link(shared, prepared)
        train(config, folder, progress, prepared)
        _unlink(shared, prepared)
        shutil.rmtree(folder / "work")
    return folder / "model"


def _trained_in_rounds(config: TrainingConfig, rounds: int, data: Data) -> Path:
    """Return the model of the last round of a configuration; see ``TrainingJob.rounds``."""
    path = trained(config, data.work, data.progress)
    for index in range(1, rounds):
        data.progress("rounds", index, rounds)
        again = replace(
            config,
            model=replace(config.model, start=str(path), initial_active_dims=None),
            optimizer=replace(config.optimizer, seed=config.optimizer.seed + ROUND_SEEDS * index),
        )
        path = trained(again, data.work, data.progress)
    return path


def _shared(config: TrainingConfig, folder: Path) -> dict[str, Path]:
    """Return the paths of prepared data, by name in a run's folder; trainings with the same
    settings of the SAE share the SAE."""
    model, optimizer = config.model, config.optimizer
    prepared = [asdict(config.data), asdict(config.teacher), asdict(config.validation)]
    common = folder / key([*prepared, config.data_seed, optimizer.bf16])
    states = (model.layer, model.bidirectional, model.dtype, model.special_tokens)
    backbone = key([model.start, model.backbone, *states])
    texts = [model.sae_input, model.sae_queries, model.max_document_tokens]
    sae = key([asdict(model.sae), *texts, model.trained == "head", backbone])
    caches = {name: folder.with_name(place) for name, place in CACHES.items()}
    for place in caches.values():
        place.mkdir(parents=True, exist_ok=True)
    return {**{name: common / name for name in SHARED}, "sae": common / f"sae-{sae}", **caches}


def _link(shared: dict[str, Path], prepared: Path) -> None:
    """Link data prepared by other trainings into a folder."""
    prepared.mkdir(parents=True, exist_ok=True)
    for name, place in shared.items():
        if place.exists() and not (prepared / name).exists():
            (prepared / name).symlink_to(place.resolve())


def _unlink(shared: dict[str, Path], prepared: Path) -> None:
    """Move newly prepared data to the shared paths, and remove the folder."""
    for name, place in shared.items():
        path = prepared / name
        if path.exists() and not path.is_symlink() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            path.rename(place)
    shutil.rmtree(prepared)


def _averaged(models: Sequence[Path], work: Path) -> Path:
    """Average models as SPLARE does, into a new folder, beside which vectors are stored."""
    out = work / "soups" / key([str(model) for model in models]) / "model"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        soup(models, out)
    return out


def _tuned(job: TrainingJob, config: TrainingConfig, data: Data) -> list[str]:
    """Return the best ``NAME=VALUE`` of short trainings, which share prepared data with long
    trainings."""
    assert job.tuning is not None
    folder = data.work / "tuned" / key([asdict(config), asdict(job.tuning)])
    folder.mkdir(parents=True, exist_ok=True)
    path, prepared = folder / "config.yaml", folder / "prepared"
    replace_file(path, yaml.safe_dump(asdict(config), sort_keys=False).encode())
    shared = _shared(config, data.work / "prepared")
    _link(shared, prepared)
    trials = tune(
        path,
        job.tuning.vary,
        job.tuning.steps,
        folder / "trials",
        progress=data.progress,
        prepared=prepared,
    )
    _unlink(shared, prepared)
    return trials[0].changes


def _pretrained(job: TrainingJob, config: TrainingConfig, data: Data) -> TrainingConfig:
    """Return the configuration with the pretrained model as the start or, of a decoder, as the
    backbone; the same configuration if the job pretrains none."""
    stage = job.pretraining
    if stage is None:
        return config
    if job.seeds and not stage.shared:
        stage = replace(stage, settings=replace(stage.settings, seed=config.optimizer.seed))
    source = data.find(stage.corpus)
    model, training = config.model, config.data
    of_training = stage.vocabulary == "training"
    learned = [training.corpus, training.queries, training.split] if of_training else []
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
                **asdict(stage.settings),
                progress=data.progress,
            )
    part = "backbone" if stage.settings.masking == "mntp" else "start"
    changes: dict[str, Any] = {part: str(out)}
    return replace(config, model=replace(model, **changes))


def _learned_texts(config: TrainingConfig) -> Iterator[str]:
    """Yield the documents and queries of a training."""
    assert isinstance(config.data.corpus, str)
    yield from (document.content for document in read_documents(config.data.corpus))
    if config.data.queries is not None:
        for query in read_queries(config.data.queries, config.data.split):
            yield query.text


def encoded(
    encoder: Any, model: TrainedModel, dataset: DatasetSettings, rra: RRAChoice | None, data: Data
) -> Collection:
    """Encode a dataset with a trained encoder; the documents' activations are stored beside the
    model, and the states of a frozen backbone with the states of trainings."""
    corpus = documents_of(data.find(dataset.name), data.work)

    def activations(texts: Sequence[str], task: str) -> sp.csr_array:
        inputs: Texts = texts
        if model.config.model.trained == "head":
            inputs = CachedStates.build(
                data.work / "states" / fingerprint(texts)[:16],
                encoder.backbone,
                texts,
                data.progress,
                bf16=model.config.optimizer.bf16,
                task=task,
            )
        return pooled(encoder, inputs, task)

    place = model.path.parent / "vectors" / fingerprint(corpus.contents)[:16]
    read = partial(activations, task="document")
    size = encoder.head.size
    documents = encoded_vectors(place, corpus.contents, size, read, data.progress)

    def queries(texts: Sequence[str]) -> sp.csr_array:
        return encoder.weighting.queries(activations(texts, "query"))

    collection = text_collection(dataset, corpus, documents, queries, rra, data)
    return replace(collection, weighting=encoder.weighting)

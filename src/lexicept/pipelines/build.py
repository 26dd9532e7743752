"""Build an index: words, concepts, or both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lexicept.engines.inverted import check_weight_bits
from lexicept.errors import InputError, check_count
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.parallel.ray import joined_cluster
from lexicept.pipelines.arguments import checked_arguments
from lexicept.pipelines.concept_source import ConceptSource, Fitted, check_parameters
from lexicept.pipelines.documents import Documents, as_documents, folder_of, skippable
from lexicept.pipelines.index import Index
from lexicept.progress import Progress, reporting
from lexicept.vectorizers.words import WordVectorizer
from lexicept.vectors import Pruning
from lexicept.weighting import BM25, Unchanged

if TYPE_CHECKING:
    from lexicept.models.backbone import Backbone
    from lexicept.parallel.ray import Cluster
    from lexicept.training.sae.settings import SAESettings
    from lexicept.vectorizers.concepts import ConceptVectorizer

VOCABULARIES = {
    "words": ("words",),
    "concepts": ("concepts",),
    "both": ("words", "concepts", "texts"),
}

TEXTS = VocabularySettings(Unchanged(query_scale=5.0))
"""Settings of whole texts; the factor was chosen on CACM, Vaswani, MedQuAD and SQuAD's training
questions."""


@checked_arguments
def build(
    documents: Documents,
    path: str | os.PathLike[str],
    *,
    vocabulary: Literal["words", "concepts", "both"] = "both",
    language: str = "en",
    model: str | os.PathLike[str] | None = None,
    concepts: Literal["adapted", "fixed"] | None = None,
    sae: str | os.PathLike[str] | None = None,
    width: int | None = None,
    explanations: str | os.PathLike[str] | None = None,
    train_concepts: bool | SAESettings = False,
    backbone: str | os.PathLike[str] | None = None,
    layer: int | None = None,
    bidirectional: bool | None = None,
    precision: Literal["float32", "bfloat16"] = "bfloat16",
    max_query_tokens: int | None = None,
    max_document_tokens: int | None = None,
    embed_model: bool = False,
    weighting: Literal["bm25", "splade"] | None = None,
    query_max_active_dims: int | None = None,
    query_max_qd_flops: float | None = None,
    document_max_active_dims: int | None = None,
    pruning: Literal["weight", "impact"] | None = None,
    weight_bits: int = 32,
    skip_errors: bool = False,
    ray: str | None = None,
    ray_workers: int | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: bool | Progress = False,
) -> Index:
    """Build an index of documents and return it, opened.

    Concepts come from one source: lexicept-mini (the model in the package, which is adapted to the
    documents unless ``concepts`` is "fixed"), another saved ``model``, a pretrained ``sae``, or an
    SAE that ``train_concepts`` trains on the documents.
    Calling it again with the same arguments resumes an interrupted build.

    Args:
        documents: texts, dicts (``text``, and optionally ``id`` and ``title``), ``Document``
            tuples, a data frame or Hugging Face data set with these columns, or a corpus by its
            path or data set name: a folder of files, or a file. A document without an id gets its
            number: "1", "2", and so on.
        path: the folder of the index.
        vocabulary: "words" needs no model; "concepts" needs torch; "both" has words, concepts and,
            where lexicept-mini is adapted, whole texts.
        language: ISO 639-1 code for the words' stop words and stemming.
        model: a saved concept model, a folder or a hub's name.
        concepts: "adapted" lets the latents of lexicept-mini, or of an SAE in another ``model``, go
            on learning from the documents before these are encoded (a minute or two for 5,000
            abstracts; nothing for some hundred documents, which are too few to learn from);
            "fixed" takes them as they are. By default lexicept-mini is adapted and another model is
            fixed.
        sae: a pretrained SAE of the backbone, a folder or a hub's name.
        width: the number of latents, to choose among several pretrained SAEs.
        explanations: labels of the SAE's latents: Neuronpedia's export, a .jsonl file or a folder.
        train_concepts: train an SAE on the documents; True takes the default ``SAESettings``.
        backbone: the Hugging Face model that an SAE reads; all-MiniLM-L6-v2 by default.
        layer: the number of blocks of the backbone to run; by default all, or those before the
            pretrained SAE.
        bidirectional: whether a decoder's tokens attend to those after them. By default, a
            pretrained SAE decides (if it does not say, they attend to earlier tokens only), and an
            SAE that is trained here reads tokens that attend to both sides.
        precision: number format of the backbone while it reads documents.
        max_query_tokens: the tokens, special ones included, after which the model cuts queries; by
            default the model's own length. lexicept-mini, and any model without lengths, reads
            whole texts, in windows.
        max_document_tokens: the tokens after which it cuts documents, likewise.
        embed_model: copy the backbone into the index. By default an index refers to one in a
            package or on the hub by its name and checksum, which is verified whenever it is loaded;
            one from a folder is always copied.
        weighting: how concept activations become weights; by default as their model was trained.
        query_max_active_dims: the most concepts of a query; by default the model's limit.
        query_max_qd_flops: the most QD-FLOPs of a query's concepts: the shares of all documents
            that have each of them, added up; by default the model's limit.
        document_max_active_dims: the most concepts of a document; by default the model's limit.
        pruning: the concepts of a query that limits keep: those of the largest "weight", or of the
            largest "impact", the weight times the concept's largest document weight; by default as
            the model says.
        weight_bits: bits of a posting's weight: 32, or 8 for half the size.
        skip_errors: skip documents that can't be read instead of stopping at the first, and warn of
            them at the end.
        ray: the HOST:PORT of a Ray cluster that encodes documents and derives postings, or "local".
        ray_workers: the number of Ray processes; by default one for each processor, or GPU.
        overwrite: replace an index at ``path``, in one step; those who have opened the old one
            keep reading that.
        restart: discard an interrupted build instead of resuming it.
        progress: True shows bars on standard error; a callback gets the reports.

    Raises:
        InputError: parameters that do not go together, a bad document, something at ``path``, an
            interrupted build with other arguments, or a package or model that is missing.
        IndexFormatError: with ``overwrite``, what is at ``path`` is no index.
    """
    names = VOCABULARIES[vocabulary]
    source = ConceptSource.of(
        concepts,
        model,
        sae,
        width,
        backbone,
        layer,
        precision,
        bidirectional,
        max_query_tokens,
        max_document_tokens,
        embed_model,
        train_concepts,
    )
    check_parameters(
        names,
        {"model": model, "sae": sae, "train_concepts": train_concepts},
        {"backbone": backbone, "layer": layer, "bidirectional": bidirectional},
        {
            "concepts": concepts,
            "width": width,
            "explanations": explanations,
            "max_query_tokens": max_query_tokens,
            "max_document_tokens": max_document_tokens,
            "embed_model": embed_model or None,
            "weighting": weighting,
            "query_max_active_dims": query_max_active_dims,
            "query_max_qd_flops": query_max_qd_flops,
            "document_max_active_dims": document_max_active_dims,
            "pruning": pruning,
        },
    )
    check_weight_bits(weight_bits)
    for name, length in (
        ("max_query_tokens", max_query_tokens),
        ("max_document_tokens", max_document_tokens),
    ):
        check_count(name, 1 if length is None else length)
    # Refused before any work: an unknown language, and limits out of range.
    words = WordVectorizer(language)
    limits = VocabularySettings(
        BM25(), query_max_active_dims, document_max_active_dims, query_max_qd_flops
    )
    if "concepts" in names:
        source.check_installed()
    with (
        joined_cluster(ray, ray_workers) as cluster,
        IndexBuilder(path, cluster, restart=restart, overwrite=overwrite) as builder,
        reporting(progress) as report,
    ):
        folder = folder_of(documents, places_of(path))
        fresh = as_documents(documents if folder is None else folder, skip_errors=skip_errors)
        # Whatever can be refused is loaded before the first pass over the documents.
        loaded = source.load() if "concepts" in names else None
        labels = _labels(explanations, loaded)
        with skippable():
            builder.add_documents(fresh, asdict(source) if "concepts" in names else {})
        if folder is not None:
            builder.add_files(folder.checksums)
        fitted = None if loaded is None else source.fit(loaded, builder, report)
        if "words" in names:
            # BM25's queries count words: their weights say little about which matter.
            settings = VocabularySettings(BM25(), pruning="impact")
            builder.add_vocabulary(words, settings, progress=report)
        if fitted is not None:
            settings = _settings(fitted, weighting, pruning, limits)
            if "texts" not in names:
                fitted = fitted._replace(texts=None)
            _add_concepts(builder, fitted, settings, language, labels, report, cluster)
        return Index(builder.commit(weight_bits=weight_bits))


def places_of(path: str | os.PathLike[str]) -> list[str]:
    """Return the folders of an index and of its unfinished work."""
    return [os.fspath(path), f"{os.fspath(path)}.partial"]


def _add_concepts(
    builder: IndexBuilder,
    fitted: Fitted,
    settings: VocabularySettings,
    language: str,
    labels: Mapping[int, str] | None,
    progress: Progress,
    cluster: Cluster | None,
) -> None:
    """Encode the documents, and describe concepts that have no labels, and lexicept-mini's."""
    from lexicept.interpretation.activations import reading_on
    from lexicept.interpretation.describe import describe, names_for

    concepts = fitted.concepts
    if fitted.texts is None:
        activations = builder.add_vocabulary(concepts, settings, progress=progress)
    else:
        activations = builder.add_vocabulary(fitted.texts.joint, settings, TEXTS, progress=progress)
    if concepts.named and labels is None and fitted.names is None:
        return
    # States that adaptation left here are not computed again elsewhere.
    nodes = cluster if fitted.read is None else None
    with reading_on(nodes, concepts.encoder, builder.folder(concepts.name)) as read:
        findings = describe(
            concepts.encoder,
            builder.contents,
            activations,
            language=language,
            explanations=labels,
            among=fitted.read,
            read=read,
            progress=progress,
        )
    if fitted.names is not None and fitted.rows is not None:
        findings = names_for(findings, fitted.names, fitted.rows, concepts.head.rows.detach())
    builder.add_atlas(findings)


def _labels(
    path: str | os.PathLike[str] | None, loaded: ConceptVectorizer | Backbone | None
) -> dict[int, str] | None:
    """Read the labels of an SAE's latents."""
    if path is None:
        return None
    from lexicept.models.sae.explanations import read_explanations
    from lexicept.vectorizers.concepts import ConceptVectorizer

    sae = loaded.head.autoencoder if isinstance(loaded, ConceptVectorizer) else None
    if sae is None:
        raise InputError(f"{path}: explanations label an SAE's latents, and this model has no SAE")
    return read_explanations(Path(path), sae)


def _settings(
    fitted: Fitted,
    weighting: Literal["bm25", "splade"] | None,
    pruning: Pruning | None,
    limits: VocabularySettings,
) -> VocabularySettings:
    """Return the settings of the call, and for those not given the model's."""
    head, trained = fitted.concepts.head.settings, fitted.concepts.encoder.index_settings
    if weighting is not None:
        trained = replace(trained, weighting=weighting)
    return VocabularySettings(
        trained.weigh(head.pooling, head.query_scale),
        limits.query_max_active_dims or head.query_max_active_dims,
        limits.document_max_active_dims or head.document_max_active_dims,
        limits.query_max_qd_flops or trained.query_max_qd_flops,
        None if fitted.effort is None else asdict(fitted.effort),
        pruning or head.pruning,
    )

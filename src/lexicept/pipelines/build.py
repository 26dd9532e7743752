"""Build an index of words and concepts."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexicept.checks import Count, checked_arguments
from lexicept.encoding.words import QUERY_STOP_WORDS, WordVectorizer, missing_analysis
from lexicept.engines.inverted import check_weight_bits
from lexicept.errors import InputError, LexiceptWarning, require
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.parallel.ray import joined_cluster
from lexicept.pipelines.concept_source import ConceptSource, Fitted, check_together
from lexicept.pipelines.documents import Documents, as_documents, folder_of
from lexicept.pipelines.index import Index
from lexicept.pipelines.settings import ConceptSettings, Limits
from lexicept.progress import Progress, reporting
from lexicept.weighting import BM25

if TYPE_CHECKING:
    import scipy.sparse as sp

    from lexicept.encoding.encoded import EncodedConcepts
    from lexicept.neural.backbones.backbone import Backbone

VOCABULARIES = {"words": ("words",), "concepts": ("concepts",), "all": ("words", "concepts")}


@checked_arguments
def build(
    documents: Documents,
    out: str | os.PathLike[str],
    *,
    vocabulary: Literal["words", "concepts", "all"] = "all",
    language: str = "en",
    model: str | os.PathLike[str] | None = None,
    concepts: ConceptSettings = ConceptSettings(),
    limits: Limits = Limits(),
    weight_bits: Count = 32,
    include: Sequence[str] = (),
    strict: bool = False,
    ray: str | None = None,
    ray_workers: Count | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: bool | Progress = False,
) -> Index:
    """Build an index of documents and return it, opened.

    Concepts come from one source: lexicept-mini (the model in the package), another saved
    ``model``, the SAE that ``concepts`` names or trains on the documents, or a named backbone,
    learned from the documents. All but lexicept-mini as it is need ``lexicept[train]``.
    Calling it again with the same arguments resumes an interrupted build. A new index is there, for
    searches by words, as soon as the words are counted; concepts follow in its next generation.

    Args:
        documents: texts, dicts (``text``, and optionally ``id`` and ``title``), ``Document``
            tuples, a data frame or Hugging Face data set with these columns, or a corpus by its
            path or data set name: a folder of files, or a file. A document without an id gets its
            number: "1", "2", and so on.
        out: the folder of the new index; must not exist.
        vocabulary: what to index: "words" needs no model; "all" has words, concepts and, where
            these are lexicept-mini's or learned from the documents, a vector of each text.
        language: language of the documents (ISO 639-1 code), for stop words, stems and letter case.
        model: a saved concept model, a folder or a Hugging Face name; by default lexicept-mini, in
            the package.
        concepts: the source of the concepts, and how their model reads texts.
        limits: weighting of concepts, and the most concepts of a query or document.
        weight_bits: bits of a posting's weight: 32, or 8 for half the size.
        include: patterns of further files of a folder to read, as text, such as "*.py" for source
            code; matched with the path in the folder, where * stands for any characters. ``sync``
            repeats them.
        strict: stop at the first file or document that can't be read; else a warning at the end
            lists these, with the reasons.
        ray: the HOST:PORT of a Ray cluster that encodes documents and derives postings, or "local".
        ray_workers: the number of Ray processes; by default one for each processor, or GPU.
        overwrite: replace an index at ``out``, in one step, even one that is damaged or of another
            version; those who have opened the old one keep reading that.
        restart: discard an interrupted build instead of resuming it.
        progress: True shows a line on standard error; a callback gets the reports.

    Raises:
        InputError: parameters that do not go together, a bad document, something at ``out``, an
            interrupted build with other arguments, a package or model that is missing, or a model
            that finds no concept in any document.
        IndexFormatError: with ``overwrite``, what is at ``out`` is no index.

    Examples:
        >>> index = lexicept.build(["Cats sleep.", "Dogs bark."], "new.index")
        >>> index.search("cat")[0].id
        '1'
    """
    names = VOCABULARIES[vocabulary]
    check_together(names, model, concepts, limits)
    source = ConceptSource.of(model, concepts)
    check_weight_bits(weight_bits)
    # Refused before any work: an unknown language, and limits out of range.
    words = WordVectorizer(language, (), QUERY_STOP_WORDS.get(language, ""))
    if missing := missing_analysis(language):
        warnings.warn(missing, LexiceptWarning, stacklevel=3)
    VocabularySettings(
        BM25(),
        query_max_active_dims=limits.query_max_active_dims,
        document_max_active_dims=limits.document_max_active_dims,
        query_max_qd_flops=limits.query_max_qd_flops,
    )
    if "concepts" in names and (source.settings.adapt or not source.packaged):
        require("train", "sentence_transformers", hint=", or build with lexicept-mini as it is")
    with (
        joined_cluster(ray, ray_workers) as cluster,
        IndexBuilder(out, cluster, restart=restart, overwrite=overwrite) as builder,
        reporting(progress, _shares if source.packaged or source.learned else None) as report,
    ):
        folder = folder_of(documents, index_folders(out), include)
        fresh = as_documents(documents if folder is None else folder, strict=strict)
        # A source that may be refused is loaded before the first pass over the documents.
        loaded = source.load() if "concepts" in names and not source.packaged else None
        labels = _labels(concepts.explanations, loaded)
        recorded = {"vocabulary": vocabulary, "language": language, "weight_bits": weight_bits}
        recorded |= asdict(limits) | (source.record() if "concepts" in names else {})
        builder.add_documents(fresh, recorded)
        if folder is not None:
            builder.add_files(folder.checksums)
        if "words" in names:
            # BM25's queries count words: their weights say little about which matter.
            settings = VocabularySettings(BM25(), pruning="impact")
            tf = builder.add_vocabulary(words, settings, progress=report)
            _check_postings(builder, "words", tf)
        if "concepts" in names:
            if "words" in names and builder.publish_early(["concepts"], weight_bits):
                report("searchable by words", 0, 0, f"lexicept search {os.fspath(out)} …")
            if loaded is None:
                report("model", 0, 1)
                loaded = source.load()
            fitted = source.fit(loaded, builder, report)
            if "words" not in names:
                fitted = fitted._replace(vectors=False)
            settings = _settings(fitted, limits)
            _add_concepts(builder, fitted, settings, language, labels, report)
        return Index(builder.commit(weight_bits=weight_bits))


def _shares(totals: Mapping[str, float]) -> dict[str, float]:
    """Return the relative times of a default build's stages; 1 is to read the documents."""
    read = {"words": 0.02, "model": 0.01, "concepts": 1.0}
    if "states" in totals:  # of the documents that an adaptation learns from
        read |= {"states": 1.0, "training": 1.0}
    return {**read, "naming": 0.1, "neighbours": 0.02}


def index_folders(path: str | os.PathLike[str]) -> list[str]:
    """Return the folders of an index and of its unfinished work."""
    return [os.fspath(path), f"{Path(path)}.partial"]


def _add_concepts(
    builder: IndexBuilder,
    fitted: Fitted,
    settings: VocabularySettings,
    language: str,
    labels: Mapping[int, str] | None,
    progress: Progress,
) -> None:
    """Encode the documents, and describe concepts that have no labels, and lexicept-mini's."""
    from lexicept.concepts.describe import describe, names_for
    from lexicept.encoding.text_vectors import ConceptsAndVectors

    concepts = fitted.concepts
    concepts.encoder.kept = fitted.kept  # which descriptions will read again
    vectorizer: Any = ConceptsAndVectors(concepts) if fitted.vectors else concepts
    vector_size = vectorizer.d if fitted.vectors else 0
    activations = builder.add_vocabulary(
        vectorizer, settings, progress, vector_size=vector_size, fitted=fitted.scaled
    )
    _check_postings(builder, concepts.name, activations, stacklevel=5)
    if fitted.named and labels is None and fitted.names is None:
        return
    findings = describe(
        concepts.encoder,
        builder.contents,
        activations,
        language=language,
        explanations=labels,
        among=fitted.read,
        progress=progress,
    )
    if fitted.names is not None and fitted.rows is not None:
        findings = names_for(findings, fitted.names, fitted.rows, concepts.encoder.head.directions)
    builder.add_atlas(findings)


def _check_postings(
    builder: IndexBuilder, name: str, tf: sp.csr_array, stacklevel: int = 4
) -> None:
    """Warn if no document has a posting. Raises InputError for concepts if any has a word."""
    if tf.nnz:
        return
    message = f"no {name} in any document"
    if name == "concepts" and any(re.search(r"\w", text) for text in builder.contents):
        raise InputError(f"{message}: the model gives empty vectors, its training has collapsed")
    warnings.warn(f"{message}: searches by {name} find nothing", LexiceptWarning, stacklevel)


def _labels(
    path: str | os.PathLike[str] | None, loaded: EncodedConcepts | Backbone | None
) -> dict[int, str] | None:
    """Read the labels of an SAE's latents."""
    if path is None:
        return None
    from lexicept.neural.sae.explanations import read_explanations
    from lexicept.neural.vectorizers.concepts import ConceptVectorizer

    sae = loaded.head.autoencoder if isinstance(loaded, ConceptVectorizer) else None
    if sae is None:
        raise InputError(f"{path}: explanations label an SAE's latents, and this model has no SAE")
    return read_explanations(Path(path), sae)


def _settings(fitted: Fitted, limits: Limits) -> VocabularySettings:
    """Return the settings of the call, and for those not given the model's."""
    encoder = fitted.concepts.encoder
    head, trained = encoder.head.settings, encoder.index_settings
    if limits.weighting is not None:
        trained = replace(trained, weighting=limits.weighting)
    return VocabularySettings(
        trained.weigh(head.pooling, head.query_scale),
        query_max_active_dims=limits.query_max_active_dims or head.query_max_active_dims,
        document_max_active_dims=limits.document_max_active_dims or head.document_max_active_dims,
        query_max_qd_flops=limits.query_max_qd_flops or trained.query_max_qd_flops,
        adapted=None if fitted.effort is None else asdict(fitted.effort),
        pruning=limits.pruning or head.pruning,
    )

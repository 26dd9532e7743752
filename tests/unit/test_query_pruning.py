"""The Top-K of a query: the same dimensions from every implementation."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from lexicept.corpora import Qrel, Query
from lexicept.encoding.index_settings import IndexSettings
from lexicept.evaluation.effectiveness import JudgedQueries
from lexicept.evaluation.sweep import SweepGrid, sweep
from lexicept.index.impacts import VocabularySettings
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.base import _largest
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.training.ranking.config import ValidationSettings
from lexicept.training.ranking.validation import NamedTexts, RetrievalEvaluator
from lexicept.vectors import largest_weights, prune_rows
from lexicept.weighting import Splade
from reproduction.measuring import Collection, pruned
from reproduction.mteb_tasks import index_like
from support.indexes import build_of

K = 3
QUERIES = ["how do I join two file paths", "a sleeping kitten", "statistics of queues", ""]


def top_k(weights: np.ndarray, importance: np.ndarray) -> np.ndarray:
    """Return each row's K first weights by weight × importance, float64."""
    result = np.zeros(weights.shape)
    for vector, out in zip(weights.astype(np.float64), result, strict=True):
        order = sorted(np.flatnonzero(vector), key=lambda t: (-vector[t] * importance[t], t))[:K]
        out[order] = vector[order]
    return result


@pytest.mark.parametrize("pruning", ["weight", "impact"])
def test_everything_keeps_the_same_dimensions(encoder, texts, tmp_path, pruning):
    parts = encoder.backbone, SAEHead(encoder.head.sae, encoder.head.settings)
    encoder = Encoder.of(*parts, index_settings=IndexSettings("splade"))
    whole = encoder.encode_query(QUERIES).to_dense().numpy()
    encoder.head.configure(query_max_active_dims=K, pruning=pruning)
    documents = {str(n): text for n, text in enumerate(texts)}
    settings = VocabularySettings(encoder.weighting, K, pruning=pruning)
    index = build_of(tmp_path / "index", documents, (ConceptVectorizer(encoder), settings))
    documents = sp.csr_array(index.document_vectors().weights)
    bounds = largest_weights(documents).astype(np.float64)
    by_weight = top_k(whole, np.ones_like(bounds))
    expected = by_weight if pruning == "weight" else top_k(whole, bounds)
    searched = index.query_vectors(QUERIES)
    np.testing.assert_allclose(searched.toarray(), expected, atol=1e-4)
    # An encoder does not know the largest weights of documents, and leaves the choice to the index.
    encoded = encoder.encode_query(QUERIES).to_dense().numpy()
    np.testing.assert_allclose(encoded, expected if pruning == "weight" else whole, atol=1e-4)
    ids = [str(i) for i in range(len(texts))]
    names = [f"q{i}" for i in range(len(QUERIES))]
    unpruned = Collection("tiny", ids, documents, names, sp.csr_array(whole), [])
    vector = pruned(unpruned, K, None, pruning)
    np.testing.assert_allclose(vector.queries.toarray(), expected, atol=1e-4)
    length = searched.nnz / len(QUERIES)
    qrels = [Qrel(name, "0", 1) for name in names]
    validation = RetrievalEvaluator(
        NamedTexts(names, QUERIES),
        NamedTexts(ids, texts),
        qrels,
        ValidationSettings(query_max_active_dims=K),
    )(encoder)
    assert validation["query_length"] == pytest.approx(length)
    cost = float((searched.astype(bool).astype(float) @ documents.astype(bool).T).sum())
    assert validation["qd_flops"] == pytest.approx(cost / len(QUERIES) / len(texts))
    queries = [Query(name, text) for name, text in zip(names, QUERIES, strict=True)]
    (point,) = sweep(index, JudgedQueries(queries, qrels), SweepGrid((K,)), tmp_path / "sweep")
    assert point.qd_flops == pytest.approx(validation["qd_flops"])
    task = index_like(encoder, K, None, tmp_path / "like")
    assert task.settings["concepts"] == index.settings["concepts"]


def test_ties_are_the_same_dimensions_in_an_encoder_and_an_index():
    weights = np.random.default_rng(0).integers(0, 3, size=(20, 40)).astype(np.float32)
    pruned_weights = prune_rows(sp.csr_array(weights), 5).toarray()
    np.testing.assert_array_equal(_largest(torch.from_numpy(weights), 5).numpy(), pruned_weights)
    assert (np.count_nonzero(pruned_weights, axis=1) == 5).all()


def test_top_k_of_splare_s_query():
    """SPLARE, section 3.2: the 40 largest activations, whatever documents weigh."""
    random = np.random.default_rng(1)
    weights = random.exponential(size=(4, 500))
    documents = random.exponential(size=(30, 500)) ** 3
    limits = VocabularySettings(Splade(), 40)
    kept, same = limits.prune(sp.csr_array(weights), sp.csr_array(documents))
    least = np.sort(weights, axis=1)[:, -40]
    np.testing.assert_array_equal(kept.toarray(), np.where(weights >= least[:, None], weights, 0))
    np.testing.assert_array_equal(same.toarray(), documents)
    by_impact, _ = replace(limits, pruning="impact").prune(
        sp.csr_array(weights), sp.csr_array(documents)
    )
    common = np.count_nonzero((kept.toarray() > 0) & (by_impact.toarray() > 0)) / 160
    assert 0.2 < common < 0.9

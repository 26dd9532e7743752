"""MaxSim: equal to a loop over tokens, whatever texts are beside it, and a teacher of training."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from lexicept.models.cached_states import CachedStates
from lexicept.training.candidates import late_interaction as module
from lexicept.training.candidates.late_interaction import LateInteraction, max_sim
from support.tiny import text

DOCUMENTS = [text(1, 2, 3), "", text(*range(40)), text(7), text(5, 5, 6, 2), text(9, 8)]
QUERIES = [text(2, 3), text(7), "", text(30, 31, 9)]
LIMITS = (64, 256)


@pytest.fixture(scope="module")
def cached(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    return (CachedStates.build(folder, bert, QUERIES), CachedStates.build(folder, bert, DOCUMENTS))


def brute_force(queries: list[Tensor], documents: list[Tensor], mean: Tensor) -> list[list[float]]:
    """The mean over a query's tokens of the best cosine with a document's, pair by pair."""
    scores = []
    for query in queries:
        row = []
        for document in documents:
            best = [
                max(
                    (float(cosine_similarity(q - mean, d - mean, dim=0)) for d in document),
                    default=0.0,
                )
                for q in query
            ]
            row.append(sum(best) / max(len(best), 1))
        scores.append(row)
    return scores


def tokens(states: CachedStates, limit: int) -> list[Tensor]:
    return [states.read([number], limit)[0] for number in range(len(states))]


def test_max_sim_by_hand():
    queries = torch.tensor([[1.0, 0], [0, 1], [0.6, 0.8]])
    documents = torch.tensor([[0, 1.0], [0.8, 0.6], [-1, 0]])
    scores = max_sim(queries, documents, [2, 0, 1], [2, 1, 0])
    # The first query's tokens match .8 and 1 in the first document, -1 and 0 in the second.
    expected = torch.tensor([[0.9, -0.5, 0], [0, 0, 0], [0.96, -0.6, 0]])
    assert torch.allclose(scores, expected)


@pytest.mark.parametrize("limits", [LIMITS, (1, 2), (2, 1)])
@pytest.mark.parametrize("block", [1, 2, 100])
def test_it_equals_a_loop_over_tokens(cached, monkeypatch, limits, block):
    monkeypatch.setattr(module, "QUERIES", block)
    monkeypatch.setattr(module, "DOCUMENTS", block)
    queries, documents = cached
    late = LateInteraction(queries, documents, limits)
    everything, _ = documents.read(range(len(documents)))
    assert torch.allclose(late.mean, everything.mean(dim=0), atol=1e-5)
    expected = brute_force(tokens(queries, limits[0]), tokens(documents, limits[1]), late.mean)
    scores = late.scores(range(4), range(6))
    assert scores.dtype == torch.float32
    assert torch.allclose(scores, torch.tensor(expected), atol=1e-5)
    assert scores.abs().amax() <= 1 + 1e-6
    assert scores.std() > 0.1


def test_scores_of_a_text_itself_and_of_texts_without_tokens(cached, bert, tmp_path):
    _, documents = cached
    own = LateInteraction(documents, documents, LIMITS).scores(range(6), range(6)).diagonal()
    assert own.tolist() == pytest.approx([1, 0, 1, 1, 1, 1], abs=1e-5)
    scores = LateInteraction(*cached, LIMITS).scores(range(4), range(6))
    assert scores[2].tolist() == [0] * 6
    assert scores[:, 1].tolist() == [0] * 4
    assert scores[[0, 1, 3]][:, [0, 2, 3, 4, 5]].all()
    empty = CachedStates.build(tmp_path, bert, ["", ""])
    late = LateInteraction(empty, empty, LIMITS)
    assert late.scores([0], [1, 0]).tolist() == [[0, 0]]
    assert late.scores([], []).shape == (0, 0)


def test_other_texts_of_a_batch_and_its_order_change_nothing(cached, bert, tmp_path):
    late = LateInteraction(*cached, LIMITS)
    everything = late.scores(range(4), range(6))
    some = late.scores([3, 0, 3], [5, 1, 2, 5])
    assert torch.allclose(some, everything[[3, 0, 3]][:, [5, 1, 2, 5]], atol=1e-6)
    # States that were computed beside other texts, with other padding.
    other = CachedStates.build(tmp_path, bert, DOCUMENTS[::-1])
    reverse = LateInteraction(cached[0], other, LIMITS).scores(range(4), range(6))
    assert torch.allclose(reverse.flip(1), everything, atol=2e-3)


def test_the_mean_of_many_texts_is_that_of_evenly_spaced_ones(cached, monkeypatch):
    monkeypatch.setattr(module, "MEAN_TEXTS", 3)
    _, documents = cached
    expected = documents.read([0, 2, 4])[0].mean(dim=0)
    assert torch.allclose(LateInteraction(documents, documents, LIMITS).mean, expected, atol=1e-5)

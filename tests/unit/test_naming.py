"""What is found out about concepts is what brute force finds."""

from collections.abc import Sequence
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sentence_transformers import SparseEncoder

from lexicept import naming
from lexicept.atlas import SOURCES, Findings
from lexicept.encoder import encode_activations, make_encoder
from lexicept.heads import SAEHead, VocabularyHead
from lexicept.naming import describe, label_of, nearest, strongest_documents, weighted_log_odds
from lexicept.sae import SAESettings
from lexicept.sae.training import initial_sae
from lexicept.words import Tokenizer
from tiny import WORDS, text, tiny_backbone

# The last has two windows.
TEXTS = [*(text(n, 3 * n + 1, n * n, 7 * n) + "." for n in range(30)), "", text(*range(90))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> SparseEncoder:
    backbone = tiny_backbone(tmp_path_factory.mktemp("bert"))
    states = torch.cat([s for _, s in backbone.token_states(backbone.windows(TEXTS))])
    sae = initial_sae(states.clone(), SAESettings(num_latents=48, k=3)).eval()
    return make_encoder(backbone, SAEHead(sae.requires_grad_(False)))


@pytest.fixture(scope="module")
def frequencies(tiny: SparseEncoder) -> sp.csr_array:
    return encode_activations(tiny, TEXTS)


Fired = dict[int, dict[int, list[tuple[float, int, int]]]]


def brute_force(encoder: SparseEncoder, texts: Sequence[str]) -> tuple[Fired, dict[int, int], int]:
    """Concept → text → activation, start and end of its words; firings; tokens."""
    fired: Fired = {}
    firings: dict[int, int] = {}
    tokens = 0
    for window in encoder[0].windows(texts):
        for _, states in encoder[0].token_states([window]):
            places = [p for p, special in enumerate(window.special) if not special]
            tokens += len(places)
            for place, acts, latents in zip(places, *encoder[1].encode(states), strict=True):
                same = [p for p in places if window.words[p] == window.words[place]]
                start, end = window.offsets[same[0]][0], window.offsets[same[-1]][1]
                for act, latent in zip(acts.tolist(), latents.tolist(), strict=True):
                    if act > 0:
                        firings[latent] = firings.get(latent, 0) + 1
                        seen = fired.setdefault(latent, {}).setdefault(window.text, [])
                        seen.append((act, start, end))
    return fired, firings, tokens


def row(matrix: sp.csr_array, number: int) -> tuple[list[int], list[float]]:
    part = slice(matrix.indptr[number], matrix.indptr[number + 1])
    return matrix.indices[part].tolist(), matrix.data[part].tolist()


def assert_examples(found: Findings, fired: Fired, concept: int) -> None:
    """The examples are the largest activations, one of a text, at the words that have them."""
    best = sorted(max(words)[0] for words in fired[concept].values())[::-1][: naming.EXAMPLES]
    documents, activations = row(found.examples, concept)
    assert activations == pytest.approx(best, rel=1e-4)
    assert len(set(documents)) == len(documents)
    first = found.examples.indptr[concept]
    for place, (document, act) in enumerate(zip(documents, activations, strict=True), first):
        start, end = found.spans[place]
        assert (pytest.approx(act, rel=1e-4), start, end) in fired[concept][document]


def test_weighted_log_odds() -> None:
    counts = sp.csr_array([[3.0, 0.0, 1.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    background = np.array([3.0, 2.0, 995.0])

    def z(y: float, n: float, c: float) -> float:
        prior = 500 * c / 1000
        own = log((y + prior) / (n + 500 - y - prior))
        others = log((c + prior) / (1000 + 500 - c - prior))
        return (own - others) / sqrt(1 / (y + prior) + 1 / (c + prior))

    found = weighted_log_odds(counts, background)
    assert found.indptr.tolist() == [0, 1, 2, 2]  # the third word is used less than by the sample
    assert found.indices.tolist() == [0, 1]
    assert found.data == pytest.approx([z(3, 4, 3), z(2, 2, 2)])
    assert found.data == pytest.approx([1.64491, 1.34552], abs=1e-5)


def test_the_strongest_word_comes_first_and_a_lone_word_says_nothing() -> None:
    counts = sp.csr_array([[2.0, 9.0, 9.0]])
    found = weighted_log_odds(counts, np.array([2.0, 9.0, 900.0]))
    assert found.indices.tolist() == [1, 0]
    assert weighted_log_odds(sp.csr_array([[2.0]]), np.array([5.0])).nnz == 0


@pytest.mark.parametrize(
    ("ranked", "label"),
    [
        ([("paths", 9.0), ("path", 8.0), ("pathlib", 7.0), ("file", 6.0)], "paths file"),
        ([("join", 9.0), ("link", 8.0), ("merge", 7.0), ("unite", 6.0)], "join link merge"),
        ([("join", 9.0), ("link", 2.2), ("merge", 2.0)], "join"),
        ([("the", 9.0), ("cats", 8.0), (",", 8.0)], "cats"),
        ([("the", 90.0), ("of", 80.0), ("cats", 8.0)], "the of"),
        ([("b", 9.0)], "b"),
        ([("cats", 1.0), ("dogs", 0.9)], "cats"),
        ([], ""),
    ],
)
def test_labels(ranked: list[tuple[str, float]], label: str) -> None:
    assert label_of(ranked, Tokenizer("en")) == label


def test_describe_is_brute_force(tiny: SparseEncoder, frequencies: sp.csr_array) -> None:
    found = describe(tiny, TEXTS, frequencies, explanations={5: "five\nthings"})
    fired, firings, tokens = brute_force(tiny, TEXTS)
    assert found.tokens == tokens
    assert dict(enumerate(found.firings.tolist())) == {n: firings.get(n, 0) for n in range(48)}
    for concept in fired:
        assert_examples(found, fired, concept)
        words, z = row(found.log_odds, concept)
        assert z == sorted(z, reverse=True)
        spelled = {TEXTS[t][s:e] for t, places in fired[concept].items() for _, s, e in places}
        assert {found.words[word] for word in words} <= spelled
    rows = tiny[1].sae.W_dec / tiny[1].sae.W_dec.norm(dim=1, keepdim=True)
    cosines = (rows @ rows.T).fill_diagonal_(-2)
    for concept in range(48):
        near, values = row(found.nearest, concept)
        alive = [n for n in fired if n != concept] if concept in fired else []
        expected = sorted((cosines[concept, n].item() for n in alive), reverse=True)
        assert values == pytest.approx(expected[: naming.NEAREST], abs=1e-5)
        assert [cosines[concept, n].item() for n in near] == pytest.approx(values, abs=1e-5)
    assert found.labels[5] == "five things"
    assert found.sources.tolist() == [2 if n == 5 else 0 for n in range(48)]
    assert len(set(found.labels)) == 48


def test_small_buffers_change_nothing(
    tiny: SparseEncoder, frequencies: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = describe(tiny, TEXTS, frequencies)
    for name, value in {"BUFFER": 50, "COSINES": 100, "READ": 4}.items():
        monkeypatch.setattr(naming, name, value)
    found = describe(tiny, TEXTS, frequencies)
    assert found.labels == expected.labels
    assert (found.spans == expected.spans).all()
    for name in ("examples", "log_odds", "nearest"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.indptr.tolist() == other.indptr.tolist()
        assert one.data == pytest.approx(other.data, rel=1e-4, abs=1e-5)


def test_concepts_that_the_sample_misses_have_examples(
    tiny: SparseEncoder, frequencies: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "SAMPLE_TOKENS", 60)
    read = list(naming.sample(TEXTS))
    assert len(read) < len(TEXTS) // 2
    found = describe(tiny, TEXTS, frequencies)
    fired, _, _ = brute_force(tiny, TEXTS)
    sampled, firings, tokens = brute_force(tiny, [TEXTS[n] for n in read])
    assert found.tokens == tokens
    assert found.firings.sum() == sum(firings.values())
    missed = fired.keys() - sampled.keys()
    assert missed
    for concept in fired:
        assert row(found.examples, concept)[0]
    for concept in missed:  # its first example is its largest activation in the collection
        best = max(max(words)[0] for words in fired[concept].values())
        assert row(found.examples, concept)[1][0] == pytest.approx(best, rel=1e-4)
        assert found.firings[concept] == 0


def spelled(found: Findings, concept: int) -> dict[str, float]:
    """The words of a concept, with their z-scores."""
    words, z = row(found.log_odds, concept)
    return dict(zip((found.words[word] for word in words), z, strict=True))


def test_words_are_compared_with_the_text_that_they_were_counted_in(
    tiny: SparseEncoder, frequencies: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "WORDS", 1000)
    with monkeypatch.context() as small:
        small.setattr(naming, "SAMPLE_TOKENS", 60)
        read = list(naming.sample(TEXTS))
        found = describe(tiny, TEXTS, frequencies)
    # What the sample has is described as if there were nothing else.
    alone = describe(tiny, [TEXTS[n] for n in read], frequencies[read])
    sampled = found.firings > 0
    for concept in np.flatnonzero(sampled):
        assert spelled(found, concept) == pytest.approx(spelled(alone, concept))
    # What it misses is described as if the documents it was found in were of the sample.
    missed = np.zeros(48, bool)
    missed[frequencies.indices] = True
    missed &= ~sampled
    read += strongest_documents(frequencies, missed, 0).tolist()
    together = describe(tiny, [TEXTS[n] for n in read], frequencies[read])
    assert missed.any()
    for concept in np.flatnonzero(missed):
        assert spelled(found, concept) == pytest.approx(spelled(together, concept))
        assert spelled(found, concept)


def test_strongest_documents() -> None:
    frequencies = sp.csr_array([[1.0, 0, 5], [3.0, 0, 2], [3.0, 0, 9]])
    assert strongest_documents(frequencies, np.array([True, True, False]), 0).tolist() == [1]
    assert strongest_documents(frequencies, np.ones(3, bool), 0).tolist() == [1, 2]
    assert strongest_documents(frequencies, np.ones(3, bool), 2).tolist() == [0, 1]


def test_neighbours_of_few() -> None:
    rows = torch.tensor([[1.0, 0], [0, 1], [2, 2]])
    found = nearest(rows, np.array([True, False, True]))
    assert found.indices.tolist() == [2, 0]
    assert found.data == pytest.approx([sqrt(0.5)] * 2)
    assert nearest(rows, np.array([True, False, False])).nnz == 0
    assert nearest(rows, np.zeros(3, bool)).nnz == 0


def test_a_vocabulary_keeps_its_terms(tmp_path: Path) -> None:
    backbone = tiny_backbone(tmp_path)
    d = backbone.get_embedding_dimension()
    head = VocabularyHead(torch.randn(25, d), None, WORDS, activation=None)
    encoder = make_encoder(backbone, head)
    frequencies = encode_activations(encoder, TEXTS)
    found = describe(encoder, TEXTS, frequencies)
    assert found.labels == WORDS
    assert set(found.sources) == {SOURCES.index("vocabulary")}
    counts = np.bincount(frequencies.indices, minlength=25)
    assert np.diff(found.examples.indptr).tolist() == np.minimum(counts, naming.EXAMPLES).tolist()
    rows = head.rows[torch.from_numpy(counts > 0)]
    rows = rows / rows.norm(dim=1, keepdim=True)
    largest = (rows @ rows.T).fill_diagonal_(-2).max().item()
    assert found.nearest.data.max() == pytest.approx(largest, abs=1e-5)


def test_words_are_one_line_and_not_endless(tiny: SparseEncoder) -> None:
    texts = ["ba\x1b[31m de", "k" * 99 + " lo", "   "]
    found = describe(tiny, texts, encode_activations(tiny, texts))
    assert all(word.isprintable() and len(word) <= naming.LONGEST_WORD for word in found.words)
    assert all(label.isprintable() for label in found.labels)

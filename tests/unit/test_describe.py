"""Findings about concepts equal those of brute force."""

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from lexicept.concepts import activations
from lexicept.concepts import describe as describing
from lexicept.concepts.describe import describe
from lexicept.encoding.light_encoder import LightEncoder
from lexicept.encoding.pooled import KeptActivations
from lexicept.index.atlas import SOURCES, Findings
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.progress import silent
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import initial_sae
from support.tiny import WORDS, text, tiny_backbone

# The last has two windows.
TEXTS = [*(text(n, 3 * n + 1, n * n, 7 * n) + "." for n in range(30)), "", text(*range(90))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    backbone = tiny_backbone(tmp_path_factory.mktemp("bert"))
    states = torch.cat([s for _, s in backbone.token_states(backbone.windows(TEXTS))])
    sae = initial_sae(states.clone(), SAESettings(num_latents=48, k=3)).eval()
    return Encoder.of(backbone, SAEHead(sae.requires_grad_(False)))


@pytest.fixture(scope="module")
def light(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    tiny.save(str(folder), create_model_card=False)
    return LightEncoder.load(folder)


@pytest.fixture(scope="module")
def frequencies(tiny):
    return tiny.encode_activations(TEXTS)


Fired = dict[int, dict[int, list[tuple[float, int, int]]]]


def activations_of(encoder, windows):
    """Token → latent → activation."""
    results = {}
    for batch in encoder.token_activations(windows):
        assert (batch.acts.dtype, batch.dimensions.dtype) == (np.float32, np.int64)
        for acts, latents, token in zip(*batch, strict=True):
            results[token] = dict(zip(latents.tolist(), acts.tolist(), strict=True))
    return results


def test_activations_without_torch_are_those_of_the_encoder(tiny, light, monkeypatch):
    windows = tiny.windows(TEXTS)
    assert light.windows(TEXTS) == windows
    expected = activations_of(tiny, windows)
    close = {token: pytest.approx(acts, rel=1e-4, abs=1e-5) for token, acts in expected.items()}
    assert activations_of(light, windows) == close
    monkeypatch.setattr(light, "kept", KeptActivations(windows[::2]))
    light.encode_with_means(TEXTS, "document")
    assert activations_of(light, windows) == close
    assert len(expected) == sum(window.left_out.count(0) for window in windows)


def test_kept_activations_are_those_that_the_head_finds(tiny, monkeypatch):
    windows, reading = tiny.windows(TEXTS), tiny.backbone.token_states
    expected, half = activations_of(tiny, windows), windows[::2]
    monkeypatch.setattr(tiny, "kept", KeptActivations(half))
    tiny.encode_with_means(TEXTS, "document")
    read = []
    monkeypatch.setattr(tiny.backbone, "token_states", lambda w, *_: read.extend(w) or reading(w))
    result = activations_of(tiny, windows)
    assert result == {token: pytest.approx(acts, rel=1e-5) for token, acts in expected.items()}
    assert not {window.key() for window in read} & {window.key() for window in half}


def brute_force(encoder: Encoder, texts: Sequence[str]) -> tuple[Fired, dict[int, int], int]:
    """Concept → text → activation, start and end of its words; firings; tokens."""
    fired: Fired = {}
    counts: dict[int, int] = {}
    tokens = 0
    for window in encoder[0].windows(texts):
        for _, states in encoder[0].token_states([window]):
            positions = [p for p, left_out in enumerate(window.left_out) if not left_out]
            tokens += len(positions)
            for position, acts, latents in zip(positions, *encoder[1].encode(states), strict=True):
                same = [p for p in positions if window.words[p] == window.words[position]]
                start, end = window.offsets[same[0]][0], window.offsets[same[-1]][1]
                for act, latent in zip(acts.tolist(), latents.tolist(), strict=True):
                    if act > 0:
                        counts[latent] = counts.get(latent, 0) + 1
                        spans_fired = fired.setdefault(latent, {}).setdefault(window.text, [])
                        spans_fired.append((act, start, end))
    return fired, counts, tokens


def row(matrix: sp.csr_array, concept: int) -> tuple[list[int], list[float]]:
    span = slice(matrix.indptr[concept], matrix.indptr[concept + 1])
    return matrix.indices[span].tolist(), matrix.data[span].tolist()


def assert_examples(description: Findings, fired: Fired, concept: int) -> None:
    """The examples are the largest activations, one of a text, at the words that have them, and
    further texts, the largest first."""
    best = sorted(max(words)[0] for words in fired[concept].values())[::-1][: activations.EXAMPLES]
    documents, acts = row(description.examples, concept)
    assert acts[: activations.EXAMPLES] == pytest.approx(best, rel=1e-4)
    drawn = acts[activations.EXAMPLES :]
    assert drawn == sorted(drawn, reverse=True)
    assert len(drawn) <= min(activations.EXAMPLES, len(fired[concept]) - len(best))
    assert len(set(documents)) == len(documents)
    first = description.examples.indptr[concept]
    for position, (document, act) in enumerate(zip(documents, acts, strict=True), first):
        start, end = description.spans[position]
        assert (pytest.approx(act, rel=1e-4), start, end) in fired[concept][document]


def test_describe_is_brute_force(tiny, frequencies):
    actual = describe(tiny, TEXTS, frequencies, explanations={5: "five\nthings"})
    fired, counts, tokens = brute_force(tiny, TEXTS)
    assert actual.tokens == tokens
    assert dict(enumerate(actual.firings.tolist())) == {n: counts.get(n, 0) for n in range(48)}
    for concept in fired:
        assert_examples(actual, fired, concept)
        words, z = row(actual.log_odds, concept)
        assert z == sorted(z, reverse=True)
        spelled = {
            TEXTS[t][s:e] for t, positions in fired[concept].items() for _, s, e in positions
        }
        assert {actual.words[word] for word in words} <= spelled
    weights = tiny[1].sae.W_dec / tiny[1].sae.W_dec.norm(dim=1, keepdim=True)
    cosines = (weights @ weights.T).fill_diagonal_(-2)
    for concept in range(48):
        near, values = row(actual.nearest, concept)
        alive = [n for n in fired if n != concept] if concept in fired else []
        expected = sorted((cosines[concept, n].item() for n in alive), reverse=True)
        assert values == pytest.approx(expected[: describing.NEAREST], abs=1e-5)
        assert [cosines[concept, n].item() for n in near] == pytest.approx(values, abs=1e-5)
    assert actual.labels[5] == "five things"
    for concept, label in enumerate(actual.labels):
        source = SOURCES[actual.sources[concept]]
        assert (source == "none") == (label == f"#{concept}")
        assert (source == "explanations") == (concept == 5)
    assert len(set(actual.labels)) == 48


def counted_octaves(description: Findings) -> dict[tuple[int, int], int]:
    """Concept and octave → number of words: the start of a histogram depends on its batches."""
    concepts, bins = description.histogram.nonzero()
    pairs = zip(concepts.tolist(), (bins + description.octave).tolist(), strict=True)
    return dict(zip(pairs, description.histogram[concepts, bins].tolist(), strict=True))


def test_a_description_without_torch_is_that_of_the_encoder(tiny, light, frequencies):
    there = describe(tiny, TEXTS, frequencies)
    here = describe(light, TEXTS, light.encode_activations(TEXTS))
    assert (here.labels, here.tokens) == (there.labels, there.tokens)
    assert counted_octaves(here) == counted_octaves(there)
    for name in ("sources", "firings", "spans"):
        assert getattr(here, name).tolist() == getattr(there, name).tolist()
    assert here.detection == pytest.approx(there.detection, rel=1e-4, nan_ok=True)
    assert here.examples.indptr.tolist() == there.examples.indptr.tolist()
    assert here.examples.indices.tolist() == there.examples.indices.tolist()
    assert here.examples.data == pytest.approx(there.examples.data, rel=1e-4)
    for concept in range(48):
        assert spelled(here, concept) == pytest.approx(spelled(there, concept), rel=1e-3)


def test_neighbours_without_torch_are_those_of_encoder_rows(tiny, light, frequencies):
    weights = tiny[1].sae.W_enc / tiny[1].sae.W_enc.norm(dim=1, keepdim=True)
    cosines = (weights @ weights.T).numpy()
    actual = describe(light, TEXTS, frequencies).nearest.tocoo()
    assert actual.nnz
    assert actual.data == pytest.approx(cosines[actual.row, actual.col], abs=1e-5)


def test_small_buffers_change_nothing(tiny, frequencies, monkeypatch):
    expected = describe(tiny, TEXTS, frequencies)
    monkeypatch.setattr(activations, "BUFFER", 50)
    monkeypatch.setattr(activations, "READ", 4)
    monkeypatch.setattr(describing, "COSINES", 100)
    actual = describe(tiny, TEXTS, frequencies)
    assert actual.labels == expected.labels
    assert (actual.spans == expected.spans).all()
    for name in ("examples", "log_odds", "nearest"):
        left, other = getattr(actual, name), getattr(expected, name)
        assert left.indptr.tolist() == other.indptr.tolist()
        assert left.data == pytest.approx(other.data, rel=1e-4, abs=1e-5)


def test_concepts_that_the_sample_misses_have_examples(tiny, frequencies, monkeypatch):
    monkeypatch.setattr(describing, "SAMPLE_TOKENS", 60)
    read = list(describing.spread(TEXTS, range(len(TEXTS)), 4 * 60))
    assert len(read) < len(TEXTS) // 2
    actual = describe(tiny, TEXTS, frequencies)
    fired, _, _ = brute_force(tiny, TEXTS)
    sampled, counts, tokens = brute_force(tiny, [TEXTS[n] for n in read])
    assert actual.tokens == tokens
    assert actual.firings.sum() == sum(counts.values())
    missed = fired.keys() - sampled.keys()
    assert missed
    for concept in fired:
        assert row(actual.examples, concept)[0]
    for concept in missed:  # its first example is its largest activation in the collection
        best = max(max(words)[0] for words in fired[concept].values())
        assert row(actual.examples, concept)[1][0] == pytest.approx(best, rel=1e-4)
        assert actual.firings[concept] == 0


def spelled(description: Findings, concept: int) -> dict[str, float]:
    """The words of a concept, with z-scores."""
    words, z = row(description.log_odds, concept)
    return dict(zip((description.words[word] for word in words), z, strict=True))


def test_words_are_compared_with_the_text_that_they_were_counted_in(tiny, frequencies, monkeypatch):
    monkeypatch.setattr(describing, "WORDS", 1000)
    with monkeypatch.context() as small:
        small.setattr(describing, "SAMPLE_TOKENS", 60)
        read = list(describing.spread(TEXTS, range(len(TEXTS)), 4 * 60))
        actual = describe(tiny, TEXTS, frequencies)
    # What the sample has is described as if there were nothing else.
    alone = describe(tiny, [TEXTS[n] for n in read], frequencies[read])
    reader = activations.FiringReader(tiny, TEXTS)
    reader.read(read, "", silent)
    sampled = reader.texts_fired >= describing.TEXTS
    for concept in np.flatnonzero(sampled):
        assert spelled(actual, concept) == pytest.approx(spelled(alone, concept))
    missed = np.bincount(frequencies.indices, minlength=48) > 0
    missed &= ~sampled
    assert missed.any()
    for concept in np.flatnonzero(missed):  # compared with all that was read
        assert spelled(actual, concept)


def test_only_some_documents_are_read(tiny, frequencies, monkeypatch):
    monkeypatch.setattr(describing, "SAMPLE_TOKENS", 10)
    read: list[str] = []
    windows = type(tiny.backbone).windows

    def reading(self, texts, **options):
        read.extend(texts)
        return windows(self, texts, **options)

    monkeypatch.setattr(type(tiny.backbone), "windows", reading)
    actual = describe(tiny, TEXTS, frequencies, among=[7, 20, 3, 12])
    assert read[:2] == [TEXTS[3], TEXTS[12]]
    assert set(read[2:]) == {TEXTS[7], TEXTS[20]}  # for concepts that the sample missed
    assert set(actual.examples.indices.tolist()) == {3, 7, 12, 20}


def test_what_is_read_for_missed_concepts_is_limited(tiny, frequencies, monkeypatch):
    monkeypatch.setattr(describing, "SAMPLE_TOKENS", 60)
    monkeypatch.setattr(describing, "READ_TOGETHER", 1)
    everything = describe(tiny, TEXTS, frequencies)
    monkeypatch.setattr(describing, "MISSED_TOKENS", 1)
    actual = describe(tiny, TEXTS, frequencies)
    sampled = {*describing.spread(TEXTS, range(len(TEXTS)), 4 * 60)}
    assert len({*actual.examples.indices.tolist()} - sampled) == 1
    assert len({*everything.examples.indices.tolist()} - sampled) > 1
    assert actual.firings.tolist() == everything.firings.tolist()


def test_a_vocabulary_keeps_its_terms(tmp_path):
    backbone = tiny_backbone(tmp_path)
    d = backbone.get_embedding_dimension()
    head = VocabularyHead(torch.randn(25, d), None, WORDS, activation=None)
    encoder = Encoder.of(backbone, head)
    frequencies = encoder.encode_activations(TEXTS)
    vectors = describe(encoder, TEXTS, frequencies)
    assert vectors.labels == WORDS
    assert set(vectors.sources) == {SOURCES.index("vocabulary")}
    counts = np.bincount(frequencies.indices, minlength=25)
    assert (np.diff(vectors.examples.indptr) >= np.minimum(counts, activations.EXAMPLES)).all()
    weights = head.rows[torch.from_numpy(counts > 0)]
    weights = weights / weights.norm(dim=1, keepdim=True)
    largest = (weights @ weights.T).fill_diagonal_(-2).max().item()
    assert vectors.nearest.data.max() == pytest.approx(largest, abs=1e-5)


def test_words_are_one_line_and_not_endless(tiny):
    texts = ["ba\x1b[31m de", "k" * 99 + " lo", "   "]
    vectors = describe(tiny, texts, tiny.encode_activations(texts))
    assert all(
        word.isprintable() and len(word) <= activations.LONGEST_WORD for word in vectors.words
    )
    assert all(label.isprintable() for label in vectors.labels)

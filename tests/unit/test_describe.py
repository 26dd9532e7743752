"""What is found out about concepts is what brute force finds."""

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from lexicept.concepts import activations
from lexicept.concepts import describe as describing
from lexicept.concepts.describe import describe, strongest_documents
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
    found = {}
    for batch in encoder.token_activations(windows):
        assert (batch.acts.dtype, batch.dimensions.dtype) == (np.float32, np.int64)
        for acts, latents, token in zip(*batch, strict=True):
            found[token] = dict(zip(latents.tolist(), acts.tolist(), strict=True))
    return found


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
    expected, some = activations_of(tiny, windows), windows[::2]
    monkeypatch.setattr(tiny, "kept", KeptActivations(some))
    tiny.encode_with_means(TEXTS, "document")
    read = []
    monkeypatch.setattr(tiny.backbone, "token_states", lambda w, *_: read.extend(w) or reading(w))
    found = activations_of(tiny, windows)
    assert found == {token: pytest.approx(acts, rel=1e-5) for token, acts in expected.items()}
    assert not {window.key() for window in read} & {window.key() for window in some}


def brute_force(encoder: Encoder, texts: Sequence[str]) -> tuple[Fired, dict[int, int], int]:
    """Concept → text → activation, start and end of its words; firings; tokens."""
    fired: Fired = {}
    counts: dict[int, int] = {}
    tokens = 0
    for window in encoder[0].windows(texts):
        for _, states in encoder[0].token_states([window]):
            places = [p for p, left_out in enumerate(window.left_out) if not left_out]
            tokens += len(places)
            for place, acts, latents in zip(places, *encoder[1].encode(states), strict=True):
                same = [p for p in places if window.words[p] == window.words[place]]
                start, end = window.offsets[same[0]][0], window.offsets[same[-1]][1]
                for act, latent in zip(acts.tolist(), latents.tolist(), strict=True):
                    if act > 0:
                        counts[latent] = counts.get(latent, 0) + 1
                        seen = fired.setdefault(latent, {}).setdefault(window.text, [])
                        seen.append((act, start, end))
    return fired, counts, tokens


def row(matrix: sp.csr_array, number: int) -> tuple[list[int], list[float]]:
    part = slice(matrix.indptr[number], matrix.indptr[number + 1])
    return matrix.indices[part].tolist(), matrix.data[part].tolist()


def assert_examples(found: Findings, fired: Fired, concept: int) -> None:
    """The examples are the largest activations, one of a text, at the words that have them, and
    others of further texts, the largest first."""
    best = sorted(max(words)[0] for words in fired[concept].values())[::-1][: activations.EXAMPLES]
    documents, acts = row(found.examples, concept)
    assert acts[: activations.EXAMPLES] == pytest.approx(best, rel=1e-4)
    drawn = acts[activations.EXAMPLES :]
    assert drawn == sorted(drawn, reverse=True)
    assert len(drawn) <= min(activations.EXAMPLES, len(fired[concept]) - len(best))
    assert len(set(documents)) == len(documents)
    first = found.examples.indptr[concept]
    for place, (document, act) in enumerate(zip(documents, acts, strict=True), first):
        start, end = found.spans[place]
        assert (pytest.approx(act, rel=1e-4), start, end) in fired[concept][document]


def test_describe_is_brute_force(tiny, frequencies):
    found = describe(tiny, TEXTS, frequencies, explanations={5: "five\nthings"})
    fired, counts, tokens = brute_force(tiny, TEXTS)
    assert found.tokens == tokens
    assert dict(enumerate(found.firings.tolist())) == {n: counts.get(n, 0) for n in range(48)}
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
        assert values == pytest.approx(expected[: describing.NEAREST], abs=1e-5)
        assert [cosines[concept, n].item() for n in near] == pytest.approx(values, abs=1e-5)
    assert found.labels[5] == "five things"
    for concept, label in enumerate(found.labels):
        source = SOURCES[found.sources[concept]]
        assert (source == "none") == (label == f"#{concept}")
        assert (source == "explanations") == (concept == 5)
    assert len(set(found.labels)) == 48


def counted_octaves(found: Findings) -> dict[tuple[int, int], int]:
    """Concept and octave → number of words: where a histogram starts depends on its batches."""
    concepts, bins = found.histogram.nonzero()
    pairs = zip(concepts.tolist(), (bins + found.octave).tolist(), strict=True)
    return dict(zip(pairs, found.histogram[concepts, bins].tolist(), strict=True))


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
    rows = tiny[1].sae.W_enc / tiny[1].sae.W_enc.norm(dim=1, keepdim=True)
    cosines = (rows @ rows.T).numpy()
    found = describe(light, TEXTS, frequencies).nearest.tocoo()
    assert found.nnz
    assert found.data == pytest.approx(cosines[found.row, found.col], abs=1e-5)


def test_small_buffers_change_nothing(tiny, frequencies, monkeypatch):
    expected = describe(tiny, TEXTS, frequencies)
    monkeypatch.setattr(activations, "BUFFER", 50)
    monkeypatch.setattr(activations, "READ", 4)
    monkeypatch.setattr(describing, "COSINES", 100)
    found = describe(tiny, TEXTS, frequencies)
    assert found.labels == expected.labels
    assert (found.spans == expected.spans).all()
    for name in ("examples", "log_odds", "nearest"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.indptr.tolist() == other.indptr.tolist()
        assert one.data == pytest.approx(other.data, rel=1e-4, abs=1e-5)


def test_concepts_that_the_sample_misses_have_examples(tiny, frequencies, monkeypatch):
    monkeypatch.setattr(describing, "SAMPLE_TOKENS", 60)
    read = list(describing.spread(TEXTS, range(len(TEXTS)), 4 * 60))
    assert len(read) < len(TEXTS) // 2
    found = describe(tiny, TEXTS, frequencies)
    fired, _, _ = brute_force(tiny, TEXTS)
    sampled, counts, tokens = brute_force(tiny, [TEXTS[n] for n in read])
    assert found.tokens == tokens
    assert found.firings.sum() == sum(counts.values())
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


def test_words_are_compared_with_the_text_that_they_were_counted_in(tiny, frequencies, monkeypatch):
    monkeypatch.setattr(describing, "WORDS", 1000)
    with monkeypatch.context() as small:
        small.setattr(describing, "SAMPLE_TOKENS", 60)
        read = list(describing.spread(TEXTS, range(len(TEXTS)), 4 * 60))
        found = describe(tiny, TEXTS, frequencies)
    # What the sample has is described as if there were nothing else.
    alone = describe(tiny, [TEXTS[n] for n in read], frequencies[read])
    reader = activations.FiringReader(tiny, TEXTS)
    reader.read(read, "", silent)
    sampled = reader.texts_fired >= describing.TEXTS
    for concept in np.flatnonzero(sampled):
        assert spelled(found, concept) == pytest.approx(spelled(alone, concept))
    missed = np.bincount(frequencies.indices, minlength=48) > 0
    missed &= ~sampled
    assert missed.any()
    for concept in np.flatnonzero(missed):  # compared with all that was read
        assert spelled(found, concept)


def test_strongest_documents():
    frequencies = sp.csr_array([[1.0, 0, 5], [3.0, 0, 2], [3.0, 0, 9]])

    def found(wanted, among):
        pairs = strongest_documents(frequencies, np.array(wanted), np.array(among))
        return [*zip(*(part.tolist() for part in pairs), strict=True)]

    assert found([True, True, False], [True] * 3) == [(0, 1)]
    assert found([True] * 3, [True] * 3) == [(0, 1), (2, 2)]
    assert found([True] * 3, [True, True, False]) == [(0, 1), (2, 0)]
    assert found([True] * 3, [False] * 3) == []


def test_only_some_documents_are_read(tiny, frequencies, monkeypatch):
    monkeypatch.setattr(describing, "SAMPLE_TOKENS", 10)
    read: list[str] = []
    windows = type(tiny.backbone).windows

    def reading(self, texts, **options):
        read.extend(texts)
        return windows(self, texts, **options)

    monkeypatch.setattr(type(tiny.backbone), "windows", reading)
    found = describe(tiny, TEXTS, frequencies, among=[7, 20, 3, 12])
    assert read[:2] == [TEXTS[3], TEXTS[12]]
    assert set(read[2:]) == {TEXTS[7], TEXTS[20]}  # for concepts that the sample missed
    assert set(found.examples.indices.tolist()) == {3, 7, 12, 20}


def test_what_is_read_for_missed_concepts_is_limited(tiny, frequencies, monkeypatch):
    monkeypatch.setattr(describing, "SAMPLE_TOKENS", 60)
    monkeypatch.setattr(describing, "READ_TOGETHER", 1)
    everything = describe(tiny, TEXTS, frequencies)
    monkeypatch.setattr(describing, "MISSED_TOKENS", 1)
    found = describe(tiny, TEXTS, frequencies)
    sampled = {*describing.spread(TEXTS, range(len(TEXTS)), 4 * 60)}
    assert len({*found.examples.indices.tolist()} - sampled) == 1
    assert len({*everything.examples.indices.tolist()} - sampled) > 1
    assert found.firings.tolist() == everything.firings.tolist()


def test_a_vocabulary_keeps_its_terms(tmp_path):
    backbone = tiny_backbone(tmp_path)
    d = backbone.get_embedding_dimension()
    head = VocabularyHead(torch.randn(25, d), None, WORDS, activation=None)
    encoder = Encoder.of(backbone, head)
    frequencies = encoder.encode_activations(TEXTS)
    found = describe(encoder, TEXTS, frequencies)
    assert found.labels == WORDS
    assert set(found.sources) == {SOURCES.index("vocabulary")}
    counts = np.bincount(frequencies.indices, minlength=25)
    assert (np.diff(found.examples.indptr) >= np.minimum(counts, activations.EXAMPLES)).all()
    rows = head.rows[torch.from_numpy(counts > 0)]
    rows = rows / rows.norm(dim=1, keepdim=True)
    largest = (rows @ rows.T).fill_diagonal_(-2).max().item()
    assert found.nearest.data.max() == pytest.approx(largest, abs=1e-5)


def test_words_are_one_line_and_not_endless(tiny):
    texts = ["ba\x1b[31m de", "k" * 99 + " lo", "   "]
    found = describe(tiny, texts, tiny.encode_activations(texts))
    assert all(word.isprintable() and len(word) <= activations.LONGEST_WORD for word in found.words)
    assert all(label.isprintable() for label in found.labels)

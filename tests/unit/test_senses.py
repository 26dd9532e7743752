"""Senses of a word from plain numbers, and the occurrences that an encoder finds."""

import numpy as np
import pytest

from lexicept.analysis import senses
from lexicept.analysis.senses import Occurrence, find_senses
from lexicept.corpora import Document
from lexicept.errors import InputError
from lexicept.interpretation.occurrences import word_occurrences


def occurrence(number: int, *latents: int) -> Occurrence:
    return Occurrence(f"d{number}", 0, 4, dict.fromkeys(latents, 1 + number / 100))


# Latent 9 is the word's own; 1 and 2 are money's, 5 a river's.
BANK = [occurrence(n, 9, 1, 2) for n in range(4)] + [occurrence(n, 9, 5) for n in (4, 5)]


def test_two_senses_by_hand() -> None:
    money, river = find_senses(BANK, 2)
    assert {found.document_id for found in money.occurrences} == {"d0", "d1", "d2", "d3"}
    assert {found.document_id for found in river.occurrences} == {"d4", "d5"}
    assert money.latents == ((1, 1.0, 0.0), (2, 1.0, 0.0))
    assert river.latents == ((5, 1.0, 0.0),)
    assert money.silhouette == pytest.approx(1, abs=1e-6)


def test_equal_occurrences_are_not_split() -> None:
    assert [len(sense.occurrences) for sense in find_senses([occurrence(1, 3)] * 4, 3)] == [4]
    (alone,) = find_senses([occurrence(1, 3)], 5)
    assert (alone.silhouette, alone.latents) == (0.0, ((3, 1.0, 0.0),))
    assert find_senses([], 2) == []
    assert len(find_senses([occurrence(1), occurrence(2)], 2)) == 1
    with pytest.raises(InputError, match="0"):
        find_senses(BANK, 0)


def test_silhouettes_against_the_definition() -> None:
    random = np.random.default_rng(0)
    vectors, groups = random.random((12, 3)), np.array([1] * 5 + [2] * 4 + [3] * 2 + [7])
    expected = []
    for i in range(12):
        gaps = np.linalg.norm(vectors - vectors[i], axis=1)
        own = (groups == groups[i]) & (np.arange(12) != i)
        b = min(gaps[groups == other].mean() for other in (1, 2, 3, 7) if other != groups[i])
        a = gaps[own].mean() if own.any() else 0
        expected.append((b - a) / max(a, b) if own.any() else 0)
    assert senses._silhouettes(vectors, groups) == pytest.approx(np.array(expected))


def test_more_occurrences_than_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senses, "MOST", 3)
    found = find_senses(BANK, 2)
    assert [[o.document_id for o in sense.occurrences] for sense in found] == [["d0", "d2"], ["d5"]]


def test_occurrences_of_a_word(encoder) -> None:
    texts = ["The Bank, a riverbank; the bank's unbanked", "", "no money", "bank"]
    documents = [Document(f"d{n}", text) for n, text in enumerate(texts)]
    found = list(word_occurrences(encoder, documents, "BANK"))
    assert [(o.document_id, o.start, o.end) for o in found] == [
        ("d0", 4, 8),
        ("d0", 27, 31),
        ("d3", 0, 4),
    ]
    (window,) = encoder[0].windows(["bank"])
    ((acts, latents, _, _),) = encoder.token_activations([window])
    expected = dict(zip(latents[0].tolist(), acts[0].tolist(), strict=True))
    assert found[2].active == pytest.approx(expected, rel=1e-4)


def test_pieces_and_overlapping_windows_are_one_occurrence(encoder) -> None:
    longest = "antidisestablishmentarianism"
    document = Document("d", "long " * 240 + longest + " long" * 240, "Title")
    assert len(encoder[0].windows([document.content])) > 1
    (found,) = word_occurrences(encoder, [document], longest)
    assert document.content[found.start : found.end] == longest
    assert len(found.active) > 4  # of several tokens of 4 latents each
    longs = list(word_occurrences(encoder, [document], "long"))
    assert len(longs) == len({o.start for o in longs}) == 480


@pytest.mark.parametrize("word", ["", " ", "two words", " bank"])
def test_what_is_not_a_word(encoder, word: str) -> None:
    with pytest.raises(InputError, match="not one word"):
        list(word_occurrences(encoder, [], word))

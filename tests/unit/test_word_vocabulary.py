"""Expanded vocabularies: words, order, sub-words, and spans."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BertTokenizer, PreTrainedTokenizerFast

from lexicept.encoding.windows import Window
from lexicept.errors import InputError
from lexicept.training.pretraining.word_vocabulary import WordFinder, WordSpan, expanded_words

TOKENS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", ".", "+"),
    *("the", "cat", "##s", "lov", "##e", "##ly", "cafe", "c", "3"),
]
ID = {token: token_id for token_id, token in enumerate(TOKENS)}


def word_piece(lower: bool = True) -> Any:
    return BertTokenizer(vocab=dict(ID), do_lower_case=lower, model_max_length=32)


def byte_level() -> Any:
    """A tokenizer as RoBERTa's: a space before a word is part of its first sub-word."""
    tokens = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "Ġ", *"catsd!", "Ġc", "Ġca", "Ġcat", "ca"]
    merges = [("Ġ", "c"), ("Ġc", "a"), ("Ġca", "t"), ("c", "a")]
    tokenizer = Tokenizer(models.BPE({t: n for n, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


def windows(tokenizer: Any, text: str, **kwargs: Any) -> list[Window]:
    encoded = tokenizer(
        text, return_overflowing_tokens=True, return_special_tokens_mask=True, **kwargs
    )
    return [
        Window(0, ids, encoded["special_tokens_mask"][n], encoded.word_ids(n), [])
        for n, ids in enumerate(encoded["input_ids"])
    ]


def test_frequency_then_alphabet():
    texts = ["lovely the cats, the", "the Café c cats"]
    words, tokens = expanded_words(texts, word_piece(), 9)
    assert words == ["the", "cats", "c", "cafe", "lovely"]
    assert [[TOKENS[i] for i in ids] for ids in tokens] == [
        ["the"],
        ["cat", "##s"],
        ["c"],
        ["cafe"],
        ["lov", "##e", "##ly"],
    ]
    # The third of "c", "cafe" and "lovely" with equal counts is left out, and so on.
    for size in range(1, 6):
        assert expanded_words(texts, word_piece(), size) == (words[:size], tokens[:size])


def test_words_are_the_tokenizer_s():
    # Marks, words with unknown sub-words, and special tokens that a text spells out.
    texts = ["the , . + c++ dogs [MASK] [SEP] 東 3 🎉", "", " "]
    assert expanded_words(texts, word_piece(), 99)[0] == ["3", "c", "the"]
    for nothing in ([], [""], ["dogs , [MASK]"]):
        with pytest.raises(InputError, match="no words"):
            expanded_words(nothing, word_piece(), 5)
    with pytest.raises(InputError, match="at least 1 word, not 0"):
        expanded_words(["the"], word_piece(), 0)
    assert expanded_words(["the The THE"], word_piece(), 9)[0] == ["the"]
    assert expanded_words(["the The THE the"], word_piece(lower=False), 9)[0] == ["the"]
    with pytest.raises(InputError, match="no words"):
        expanded_words(["The THE"], word_piece(lower=False), 9)


def test_one_word_with_and_without_a_space_before():
    tokenizer = byte_level()
    names = tokenizer.convert_ids_to_tokens
    words, tokens = expanded_words(["cat cat cat!", "cats cat"], tokenizer, 9)
    assert words == ["cat", "cats"]
    assert [names(ids) for ids in tokens] == [["Ġcat"], ["ca", "t", "s"]]
    (window,) = windows(tokenizer, "cat cat!")
    assert names(window.token_ids) == ["ca", "t", "Ġcat", "!"]
    result = WordFinder(words, tokenizer).spans(window, cut_start=False, cut_end=False)
    assert result == [WordSpan(0, 2, 0), WordSpan(2, 3, 0)]


def test_texts_are_a_stream_that_is_read_once(monkeypatch):
    monkeypatch.setattr("lexicept.training.pretraining.word_vocabulary.BATCH", 2)
    read = []

    def stream():
        for i in range(5):
            read.append(i)
            yield "cats the" if i else "cats"

    assert expanded_words(stream(), word_piece(), 9)[0] == ["cats", "the"]
    assert read == [0, 1, 2, 3, 4]


def test_words_are_found_where_they_are():
    tokenizer = word_piece()
    finder = WordFinder(["lovely", "cats", "cat"], tokenizer)
    (window,) = windows(tokenizer, "the cats, LOVELY dogs cat [MASK]")
    assert [TOKENS[i] for i in window.token_ids] == [
        *("[CLS]", "the", "cat", "##s", ",", "lov", "##e", "##ly", "[UNK]", "cat", "[MASK]"),
        "[SEP]",
    ]
    expected = [WordSpan(2, 4, 1), WordSpan(5, 8, 0), WordSpan(9, 10, 2)]
    for _ in range(2):  # the second time from memory
        assert finder.spans(window, cut_start=False, cut_end=False) == expected
    (ends,) = windows(tokenizer, "cats the lovely")
    assert finder.spans(ends, cut_start=True, cut_end=False) == [WordSpan(4, 7, 0)]
    assert finder.spans(ends, cut_start=False, cut_end=True) == [WordSpan(1, 3, 1)]
    (empty,) = windows(tokenizer, "")
    assert finder.spans(empty, cut_start=True, cut_end=True) == []


def test_a_word_that_a_window_cuts_is_not_taken_for_another():
    tokenizer = word_piece()
    finder = WordFinder(["cat", "cats"], tokenizer)
    first, second = windows(tokenizer, "the the cats", truncation=True, max_length=5, stride=1)
    assert [TOKENS[i] for i in first.token_ids][-2] == "cat"
    assert finder.spans(first, cut_start=False, cut_end=False) == [WordSpan(3, 4, 0)]
    assert finder.spans(first, cut_start=False, cut_end=True) == []
    assert [TOKENS[i] for i in second.token_ids][1:3] == ["cat", "##s"]


PARTS = ["the", "cats", "cat", "lovely", ",", "café", "dogs", "C++", ".", "c"]


@given(st.lists(st.sampled_from(PARTS), max_size=12))
def test_masking_finds_exactly_the_vocabulary_s_words(parts):
    tokenizer = word_piece()
    text = " ".join(parts)
    by_hand = {"the": 0, "cats": 1, "cat": 2, "lovely": 3, "cafe": 4, "c": 5}
    finder = WordFinder(list(by_hand), tokenizer)
    (window,) = windows(tokenizer, text)
    spans = finder.spans(window, cut_start=False, cut_end=False)
    spelled = [fragment.lower().replace("é", "e").removesuffix("++") for fragment in parts]
    assert [span.dimension for span in spans] == [by_hand[w] for w in spelled if w in by_hand]
    if spans:
        words, tokens = expanded_words([text], tokenizer, 99)
        assert set(words) == {w for w in spelled if w in by_hand}
        for start, end, dimension in spans:
            assert window.token_ids[start:end] == tokens[words.index(list(by_hand)[dimension])]

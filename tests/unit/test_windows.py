"""Windows: cut as the tokenizer itself would cut them, by threads too, and rows that hold them."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from lexicept.encoding.windows import BORDERS, Cut, cut_windows, keep_whole
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.window_tensors import join_windows, pad_windows, split_rows
from support.tiny import WORDS, decoder_tokenizer, save_bert

TEXTS = st.lists(
    st.lists(st.sampled_from([*WORDS, "xyz"]), max_size=40).map(" ".join), min_size=1, max_size=4
)


@cache
def tokenizer(layout: str, side: str) -> Any:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "x", "##y", "##z"]
    makers = {
        "two special tokens": lambda: BertTokenizerFast(vocab={n: i for i, n in enumerate(names)}),
        "one special token": decoder_tokenizer,
        "no special token": lambda: decoder_tokenizer(start=False),
    }
    encoder = makers[layout]()
    encoder.truncation_side = side
    return encoder


def windows_of(texts, fast, cut):
    special = {getattr(fast, f"{name}_id") for name in BORDERS}
    left = fast.truncation_side == "left"
    return cut_windows(texts, fast(texts).encodings, cut, special=special, left=left)


@given(TEXTS, st.integers(4, 30), st.integers(0, 32))
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("layout", ["two special tokens", "one special token", "no special token"])
def test_windows_are_those_of_the_tokenizer(layout, side, texts, length, overlap):
    overlap = min(overlap, length - 3)
    fast = tokenizer(layout, side)
    options = {"return_overflowing_tokens": True, "return_offsets_mapping": True}
    expected = fast(texts, truncation=True, max_length=length, stride=overlap, **options)
    keep_whole(fast)
    windows = windows_of(texts, fast, Cut(length, overlap))
    assert [window.text for window in windows] == expected["overflow_to_sample_mapping"]
    assert [window.token_ids for window in windows] == expected["input_ids"]
    assert [window.offsets for window in windows] == expected["offset_mapping"]
    assert fast.backend_tokenizer.truncation is None
    pairs = [(w.text, *pair) for w in windows for pair in zip(w.offsets, w.left_out, strict=True)]
    whole = fast(texts, return_offsets_mapping=True)["offset_mapping"]
    spans = [(text, span) for text, of in enumerate(whole) for span in of if span != (0, 0)]
    assert sorted((text, span) for text, span, left_out in pairs if not left_out) == spans


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_token_of_two_windows_counts_where_it_has_more_context(side):
    fast = tokenizer("two special tokens", side)
    keep_whole(fast)
    cut = partial(windows_of, [" ".join(WORDS[:9])], fast)
    first, second = sorted(cut(Cut(8, 3)), key=lambda window: window.offsets[1])
    assert first.token_ids[1:7] == [5, 6, 7, 8, 9, 10]
    assert second.token_ids[1:7] == [8, 9, 10, 11, 12, 13]
    assert first.left_out == [1, 0, 0, 0, 0, 1, 1, 1]
    assert second.left_out == [1, 1, 0, 0, 0, 0, 0, 1]
    (only,) = cut(Cut(8, 3, 1))
    assert only.left_out == [1, 0, 0, 0, 0, 0, 0, 1]


@given(TEXTS, st.integers(4, 30))
@pytest.mark.parametrize("layout", ["two special tokens", "no special token"])
def test_rows_hold_the_windows_of_their_texts(layout, texts, length):
    fast = tokenizer(layout, "right")
    keep_whole(fast)
    windows = windows_of(texts, fast, Cut(length, 1))
    joined = join_windows(windows, 7)
    assert {len(values) for values in joined.values()} == {len(texts)}
    result = split_rows(joined, 7)
    assert result.pop("window_text").tolist() == [window.text for window in windows]
    expected = pad_windows(windows, 7)
    assert result.keys() == expected.keys()
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_threads_with_limits_of_their_own_share_a_tokenizer(tmp_path):
    backbone = Backbone.from_pretrained(save_bert(tmp_path))
    texts = [" ".join(WORDS[i:] * 8) for i in range(20)]
    limits = [10, None, 30, 64] * 8
    expected = [backbone.windows(texts, limit) for limit in limits]
    with ThreadPoolExecutor(8) as pool:
        for windows, text in zip(
            pool.map(lambda limit: backbone.windows(texts, limit), limits), expected, strict=True
        ):
            assert windows == text


@pytest.mark.parametrize("load", [Backbone.from_pretrained, Backbone.load])
@pytest.mark.parametrize("length", [2, "x", True])
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
    ],
)
def test_impossible_lengths_are_refused(file, name, length, load, tmp_path):
    set_length(tmp_path, file, name, length)
    with pytest.raises(InputError, match=r"must be above 2, the number of special|a bad config"):
        load(str(tmp_path))


@pytest.mark.parametrize("length", [65, 10**30])
def test_windows_fit_the_table_of_positions(length, tmp_path):
    set_length(tmp_path, "sentence_bert_config.json", "max_seq_length", length)
    backbone = Backbone.load(str(tmp_path))
    assert backbone.window == 64
    assert backbone(backbone.preprocess([" ".join(WORDS * 4)]))["token_embeddings"].shape[1] == 64


def test_a_limit_that_leaves_no_room(tmp_path):
    backbone = Backbone.from_pretrained(save_bert(tmp_path))
    assert [len(window.token_ids) for window in backbone.windows(["ba de"], 3)] == [3]
    with pytest.raises(InputError, match="windows of 2 tokens have no room"):
        backbone.windows(["ba de"], 2)


def set_length(folder: Path, file: str, name: str, length: object) -> None:
    save_bert(folder)
    before = json.loads((folder / file).read_bytes()) if (folder / file).exists() else {}
    (folder / file).write_text(json.dumps({**before, name: length}))

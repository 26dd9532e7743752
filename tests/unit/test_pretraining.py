"""Masking by count and by chance, resumable batches, and heads that learn."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.training import loop
from lexicept.training.pretraining import trainer as pretraining
from lexicept.training.pretraining import windows
from lexicept.training.pretraining.settings import PretrainingSettings
from lexicept.training.pretraining.trainer import MaskedLoop, pretrain
from lexicept.training.pretraining.windows import (
    MaskableWindow,
    Masked,
    StreamPosition,
    WindowStream,
    mask,
)
from lexicept.training.pretraining.word_vocabulary import WordSpan, expanded_words
from support.language_models import TEXT, VOCABULARY, save
from support.processes import KilledError
from support.tiny import decoder_tokenizer, save_decoder, text

MASK = VOCABULARY.index("[MASK]")
REPLACEMENTS = np.arange(5, len(VOCABULARY))
TEXTS = [
    "the cat sat on a mat",
    "",
    "a dog ran away from the lovely cats",
    "it sat and the dog ran.",
    "running from a lovely dog!",
    " ".join(VOCABULARY[5 + i * i % 61 % 12] for i in range(60)),
    "the mats",
]
SMALL = PretrainingSettings(steps=12, batch_size=3, warmup_steps=2, learning_rate=1e-2)


@pytest.fixture
def model(tmp_path):
    """Make a tiny BERT, the same each time, and its head over the words of ``TEXTS``."""
    save(tmp_path / "bert", "Bert")

    def make():
        backbone = Backbone.from_pretrained(str(tmp_path / "bert"))
        words, tokens = expanded_words(TEXTS, backbone.tokenizer, 100)
        return backbone, language_head(str(tmp_path / "bert")).expanded(tokens, words)

    return make


@pytest.fixture
def subwords(tmp_path):
    """The same BERT with its language head."""
    save(tmp_path / "bert", "Bert")
    folder = str(tmp_path / "bert")
    return Backbone.from_pretrained(folder), language_head(folder)


def masked(ids: list[int], spans: list[WordSpan], share: float = 0.15, seed: int = 0) -> Masked:
    return mask(ids, spans, share, MASK, REPLACEMENTS, np.random.default_rng(seed))


# Masking


def spans_of(ids):
    """Return a span for each token, special tokens aside."""
    return [WordSpan(p, p + 1, i) for p, i in enumerate(ids) if i not in (2, 3)]


@pytest.mark.parametrize(
    ("tokens", "share", "count"),
    [(1, 0.15, 1), (3, 0.15, 1), (9, 0.15, 1), (12, 0.15, 2), (20, 0.15, 3), (100, 0.15, 15),
     (200, 0.15, 30), (7, 1.0, 7), (10, 0.52, 5)],
)  # fmt: skip
def test_an_exact_share_of_the_tokens_is_masked(tokens, share, count):
    ids = [2, *[5 + i % 20 for i in range(tokens)], 3]
    spans = spans_of(ids)
    counts = Counter[int]()
    for seed in range(50):
        window = masked(ids, spans, share, seed)
        assert len(set(window.positions)) == len(window.positions) == len(window.labels) == count
        assert [ids[position] for position in window.positions] == window.labels
        others = set(range(len(ids))) - set(window.positions)
        assert all(window.token_ids[position] == ids[position] for position in others)
        counts.update(window.positions)
    assert set(counts) <= set(range(1, tokens + 1))
    if 50 * count > 20 * tokens:  # every place is chosen now and then
        assert len(counts) == tokens


def test_eighty_ten_ten():
    ids = [6] * 500  # 6 is one of 20 replacements
    spans = spans_of(ids)
    random = np.random.default_rng(0)
    result = Counter[int]()
    for _ in range(100):
        window = mask(ids, spans, 0.2, MASK, REPLACEMENTS, random)
        result.update(window.token_ids[position] for position in window.positions)
    total = 100 * 100
    assert result.total() == total
    # Standard deviations of these shares are at most 0.004.
    assert result[MASK] / total == pytest.approx(0.8, abs=0.016)
    assert result[6] / total == pytest.approx(0.1 + 0.1 / 20, abs=0.016)
    others = [result[i] / total for i in REPLACEMENTS.tolist() if i != 6]
    assert sum(others) == pytest.approx(0.1 * 19 / 20, abs=0.016)
    assert min(others) > 0
    assert set(result) == {MASK, *REPLACEMENTS.tolist()}


def test_what_is_not_hidden_is_predicted_as_it_stands():
    ids = [2, *[6] * 90, 3]
    spans = spans_of(ids)
    random = np.random.default_rng(0)
    shown = mask(ids, spans, 1.0, MASK, REPLACEMENTS, random, hidden_share=0.0)
    assert shown.token_ids == ids
    assert sorted(shown.positions) == list(range(1, 91))
    assert shown.labels == [6] * 90
    hidden = mask(ids, spans, 1.0, MASK, np.array([7]), random, hidden_share=1.0)
    assert set(hidden.token_ids[1:-1]) == {MASK, 7}


def test_words_are_masked_whole_and_share_one_fate():
    ids = [2, *[17, 18, 19] * 40, 3]
    spans = [WordSpan(1 + 3 * n, 4 + 3 * n, 1000 + n) for n in range(40)]
    random = np.random.default_rng(0)
    for _ in range(50):
        window = mask(ids, spans, 0.15, MASK, REPLACEMENTS, random)
        assert len(window.positions) == 3 * 6
        for first in range(0, len(window.positions), 3):
            start, label = window.positions[first], window.labels[first]
            assert window.positions[first : first + 3] == [start, start + 1, start + 2]
            assert window.labels[first : first + 3] == [label] * 3
            assert label == 1000 + (start - 1) // 3
            now = window.token_ids[start : start + 3]
            assert now == [MASK] * 3 or MASK not in now


# Batches


def stream(backbone: Backbone, head: VocabularyHead, **changes: Any) -> WindowStream:
    return WindowStream(backbone, head, TEXTS, replace(SMALL, **changes))


def test_sub_words_of_a_batch_are_all_but_special_tokens(subwords):
    backbone, head = subwords
    texts = ["the cats [SEP] sat unknown", ""]
    settings = replace(SMALL, masking="subwords")
    _, batch = next(WindowStream(backbone, head, texts, settings).batches(StreamPosition()))
    (example,) = batch
    names = [VOCABULARY[i] for i in example.token_ids]
    assert names == ["[CLS]", "the", "cat", "##s", "[SEP]", "sat", "[UNK]", "[SEP]"]
    the, cat, plural, sat = (VOCABULARY.index(t) for t in ("the", "cat", "##s", "sat"))
    expected = [
        WordSpan(1, 2, the),
        WordSpan(2, 3, cat),
        WordSpan(3, 4, plural),
        WordSpan(5, 6, sat),
    ]
    assert example.spans == expected


def test_words_of_a_batch_are_the_head_s(model):
    backbone, head = model()
    terms = list(head.terms)
    assert "lovely" in terms
    for _, batch in islice(stream(backbone, head).batches(StreamPosition()), 20):
        for example in batch:
            for start, end, dimension in example.spans:
                tokens = [VOCABULARY[i].removeprefix("##") for i in example.token_ids[start:end]]
                assert "".join(tokens) == terms[dimension]
    few = head.with_rows(head.rows[:1], head.bias[:1], ["lovely"])
    batches = stream(backbone, few).batches(StreamPosition())
    result = [example for _, batch in islice(batches, 4) for example in batch]
    assert all([span.dimension for span in example.spans] == [0] for example in result)


def test_every_window_once_an_epoch_and_words_that_windows_cut_are_left_out(subwords, model):
    backbone, head = subwords
    windows = [w for w in backbone.windows(TEXTS) if len(w.token_ids) > 2]
    assert len(windows) == len({tuple(w.token_ids) for w in windows}) > len(TEXTS)
    batches = stream(backbone, head, masking="subwords").batches(StreamPosition())
    epochs: dict[int, list[MaskableWindow]] = {0: [], 1: [], 2: []}
    for position, batch in batches:
        if position.epoch == 3:
            break
        assert 1 <= len(batch) <= SMALL.batch_size
        epochs[position.epoch] += batch
    orders = [[tuple(example.token_ids) for example in epoch] for epoch in epochs.values()]
    for order in orders:
        assert Counter(order) == Counter(tuple(window.token_ids) for window in windows)
    assert orders[0] != orders[1] != orders[2]
    # The long text's windows: the first word of the later ones is not sure to be whole.
    _, head = model()
    spans = {
        tuple(example.token_ids): [span.start for span in example.spans]
        for _, batch in islice(stream(backbone, head).batches(StreamPosition()), 20)
        for example in batch
    }
    long = [w for w in windows if w.text == 5]
    assert [spans[tuple(w.token_ids)][0] for w in long] == [1, *[2] * (len(long) - 1)]
    ends = [spans[tuple(w.token_ids)][-1] - len(w.token_ids) for w in long]
    assert ends == [*[-3] * (len(long) - 1), -2]


def test_a_stream_goes_on_anywhere(model, monkeypatch):
    monkeypatch.setattr(windows, "SHUFFLED_BATCHES", 1)  # 3 texts together
    backbone, head = model()
    unbroken = list(islice(stream(backbone, head).batches(StreamPosition()), 15))
    assert {position.epoch for position, _ in unbroken} >= {0, 1}
    assert {position.document for position, _ in unbroken} == {0, 3, 6}
    for i, (position, _) in enumerate(unbroken[:-1]):
        assert next(stream(backbone, head).batches(position)) == unbroken[i + 1]
    assert list(islice(stream(backbone, head, seed=1).batches(StreamPosition()), 15)) != unbroken


@pytest.mark.parametrize("texts", [[], ["", " "], ["unknown . !"]])
def test_texts_with_nothing_to_mask(model, texts):
    with pytest.raises(InputError, match="no words to mask"):
        pretrain(*model(), texts, SMALL)  # type: ignore[call-arg]


# Training


def parameters(*modules: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        f"{i}.{name}": value.detach().clone()
        for i, module in enumerate(modules)
        for name, value in module.state_dict().items()
    }


def loss_of(detail: str) -> float:
    return float(detail.split()[1])


def losses(
    models: tuple[Backbone, VocabularyHead],
    settings: PretrainingSettings,
    checkpoints: Path | None = None,
    texts: Sequence[str] = TEXTS,
) -> list[float]:
    """The losses of the steps of a whole pretraining."""
    results: list[float] = []

    def watch(stage: str, done: int, total: int, detail: str = "") -> None:
        results.append(loss_of(detail))

    pretrain(*models, texts, settings, checkpoints, watch)
    return results


def test_the_loss_is_cross_entropy_at_the_masked_places(model):
    backbone, head = model()
    backbone.unreadable = {5, 6}  # never drawn in place of a token
    task = MaskedLoop(backbone, head, SMALL)
    assert not {5, 6} & {*task._replacements.tolist()}
    window = backbone.windows([TEXT])[0]
    short = Masked([2, 6, MASK, 3], [2], [4])
    long = Masked(list(window.token_ids), [1, 4, 5], [0, 7, 7])
    with torch.no_grad():
        total, right = task._loss([long, short])
        expected, best = [], []
        for item in (long, short):  # one by one: no padding
            ids = torch.tensor([item.token_ids])
            states = backbone.states(ids, torch.ones_like(ids))[0, item.positions]
            logits = F.linear(head.transform(states), head.rows, head.bias)
            labels = torch.tensor(item.labels)
            expected.append(float(-logits.log_softmax(1)[range(len(labels)), labels].sum()))
            best += (logits.argmax(1) == labels).tolist()
    assert float(total) == pytest.approx(sum(expected), rel=1e-5)
    assert right == sum(best)
    with torch.no_grad():
        labels = torch.cat([logits.argmax(1)])
        assert task._loss([short._replace(labels=labels.tolist())])[1] == 1


def first_batch(backbone: Backbone, head: VocabularyHead, batch_size: int) -> list[MaskableWindow]:
    settings = replace(SMALL, batch_size=batch_size)
    _, batch = next(WindowStream(backbone, head, TEXTS, settings).batches(StreamPosition()))
    return batch


def test_matrices_alone_decay(model):
    backbone, head = model()
    trainer = MaskedLoop(backbone, head, replace(SMALL, trained="all", weight_decay=0.25))
    decays = {
        id(parameter): group["weight_decay"]
        for group in trainer.optimizer.param_groups
        for parameter in group["params"]
    }
    named = [*backbone.named_parameters(), *head.named_parameters()]
    assert decays == {id(p): 0.25 if p.ndim > 1 else 0.0 for _, p in named}


def test_every_step_masks_anew_and_never_with_special_tokens(model, monkeypatch):
    results = []

    def watched(ids, spans, share, mask_id, *more):
        others, _, hidden = more
        assert (share, mask_id, others.tolist(), hidden) == (0.15, MASK, REPLACEMENTS.tolist(), 0.9)
        results.append(mask(ids, spans, share, mask_id, *more))
        return results[-1]

    monkeypatch.setattr(pretraining, "mask", watched)
    for _ in range(2):
        backbone, head = model()
        trainer = MaskedLoop(backbone, head, SMALL)
        batch = first_batch(backbone, head, 3)
        trainer.step(batch)
        trainer.step(batch)
    assert results[:6] == results[6:]
    assert results[:3] != results[3:6]


def test_a_frozen_backbone_has_no_dropout(model):
    backbone, head = model()
    backbone.train()
    short = replace(SMALL, steps=3)
    assert losses((backbone, head), short) == losses(model(), short)


def test_a_batch_in_parts_has_the_gradient_of_the_whole(model, monkeypatch):
    monkeypatch.setattr(loop, "MAX_GRAD_NORM", 1e9)
    changed = []
    for tokens in (10**6, 10):
        monkeypatch.setattr(pretraining, "BATCH_TOKENS", tokens)
        backbone, head = model()
        for dropout in backbone.modules():
            if isinstance(dropout, torch.nn.Dropout):
                dropout.p = 0.0
        settings = replace(SMALL, trained="all", batch_size=8)
        backbone.model.config._attn_implementation = "eager"
        trainer = MaskedLoop(backbone, head, settings)
        _, batch = next(WindowStream(backbone, head, TEXTS[:5], settings).batches(StreamPosition()))
        assert len({len(example.token_ids) for example in batch}) > 2
        monkeypatch.setattr(trainer.optimizer, "step", lambda: None)
        detail = trainer.step(batch)
        gradients = {
            f"{i}.{name}": parameter.grad
            for i, module in enumerate((backbone, head))
            for name, parameter in module.named_parameters()
            if parameter.grad is not None
        }
        changed.append((detail.split("tokens")[0].split("  ")[:2], gradients))
    (shown, whole), (again, parts) = changed
    assert shown == again
    assert whole.keys() == parts.keys()
    for name, gradient in whole.items():
        assert torch.allclose(gradient, parts[name], atol=1e-5), name


@pytest.mark.parametrize(("trained", "masking"), [("head", "words"), ("all", "subwords")])
def test_heads_learn_from_the_context_and_a_frozen_backbone_stays(
    model, subwords, trained, masking
):
    backbone, head = model() if masking == "words" else subwords
    settings = replace(SMALL, masking=masking, trained=trained, steps=100, batch_size=16)
    before = parameters(backbone, head)
    state = torch.random.get_rng_state()
    texts = ["the cat sat on a mat", "it ran away from the dogs"] * 8
    actual = losses((backbone, head), settings, texts=texts)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert len(actual) == 100
    # Of the 12 words one comes twice: who knows no more than that has a loss of 2.37.
    frequencies_alone = math.log(12) - math.log(2) / 6
    assert sum(actual[-20:]) / 20 < 0.6 * frequencies_alone
    changed = {n for n, v in parameters(backbone, head).items() if not torch.equal(v, before[n])}
    assert any(name.startswith("0.") for name in changed) == (trained == "all")
    assert {n.split(".")[1] for n in changed if n[0] == "1"} == {
        "dense",
        "norm",
        "weight",
        "offset",
    }
    assert not backbone.training
    assert not head.training
    assert all(p.grad is None for module in (backbone, head) for p in module.parameters())


def test_training_resumes_to_the_same_losses_and_weights(model, tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "SHUFFLED_BATCHES", 1)
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0)
    settings = replace(SMALL, trained="all")  # with dropout
    unbroken = model()
    expected = losses(unbroken, settings)
    assert len(expected) == 12
    done_before = []
    for stop in (1, 7, 11):

        def watch(stage, done, total, detail="", stop=stop):
            assert (stage, total) == ("pretraining", 12)
            assert loss_of(detail) == expected[done - 1]
            done_before.append(done)
            if done > stop:  # the step is lost: there is no checkpoint of it yet
                raise KilledError

        with pytest.raises(KilledError):
            pretrain(*model(), TEXTS, settings, tmp_path / "work", watch)  # type: ignore[call-arg]
    assert done_before == [1, 2, *range(2, 9), *range(8, 13)]
    resumed = model()
    assert losses(resumed, settings, tmp_path / "work") == expected[-1:]
    weights = parameters(*resumed)
    assert all(torch.equal(value, weights[n]) for n, value in parameters(*unbroken).items())
    finished = model()
    assert losses(finished, settings, tmp_path / "work") == []  # nothing left to do
    again = parameters(*finished)
    assert all(torch.equal(value, again[n]) for n, value in weights.items())
    backbone, head = model()
    with pytest.raises(InputError, match=r"can't be read: .*size mismatch"):
        pretrain(backbone, head.random(3), TEXTS, settings, tmp_path / "work")


def test_bfloat16_is_close(model, bfloat16):
    settings = replace(SMALL, trained="all", steps=4)
    whole, (backbone, head) = losses(model(), settings), model()
    half = losses((backbone, head), replace(settings, bf16=True))
    assert {p.dtype for m in (backbone, head) for p in m.parameters()} == {torch.float32}
    assert half == pytest.approx(whole, rel=0.1)
    assert half != whole


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mask_share": 1.1}, r"mask_share must be at most 1, not 1\.1"),
        ({"hidden_share": -0.1}, "hidden_share must be at least 0, not -0.1"),
        ({"schedule_steps": 9}, "schedule_steps must be at least steps, 1000"),
        ({"masking": "letters"}, "'subwords', 'words' or 'mntp', not 'letters'"),
    ],
)
def test_impossible_settings(wrong, message):
    with pytest.raises(InputError, match=message):
        PretrainingSettings(**wrong)


def test_models_that_can_t_be_pretrained(model, decoder):
    backbone, head = model()
    with pytest.raises(InputError, match=f"size {head.size} over {len(VOCABULARY)} sub-words"):
        pretrain(backbone, head, TEXTS, replace(SMALL, masking="subwords"))
    backbone.tokenizer.mask_token = None
    with pytest.raises(InputError, match="no mask token and no '_'"):
        pretrain(backbone, head, TEXTS, SMALL)
    backbone, head = decoder()
    size = backbone.model.config.vocab_size
    with pytest.raises(InputError, match=f"a head of size 5 over {size} sub-words"):
        pretrain(backbone, head.random(5), SENTENCES, replace(SMALL, masking="mntp"))
    with pytest.raises(InputError, match="the texts have no sub-words to mask"):
        pretrain(backbone, head, ["", "</s>"], replace(SMALL, masking="mntp"))


# Decoders

SENTENCES = [text(0, 1, 2, 3, 4, 5), text(6, 7, 8, 9, 10, 11)] * 8


@pytest.fixture
def decoder(tmp_path):
    """Make a tiny Llama, the same each time, and its head."""
    folder = save_decoder(tmp_path / "llama")

    return lambda: (Backbone.from_pretrained(folder), language_head(folder))


def test_masked_tokens_are_recognised_from_the_place_before(decoder):
    backbone, head = decoder()
    settings = replace(SMALL, masking="mntp")
    assert (settings.share, SMALL.share) == (0.2, 0.15)
    assert replace(settings, mask_share=0.5).share == 0.5
    task = MaskedLoop(backbone, head, settings)
    texts = [text(*range(20))]
    _, (example,) = next(WindowStream(backbone, head, texts, settings).batches(StreamPosition()))
    tokens = example.token_ids
    assert [span.start for span in example.spans] == list(range(1, 21))
    found = task._hidden(example, np.random.default_rng(0))
    assert len(found.positions) == 4
    assert [tokens[position + 1] for position in found.positions] == found.labels
    hidden = {position + 1 for position in found.positions}
    pairs = enumerate(zip(tokens, found.token_ids, strict=True))
    assert {position for position, (before, now) in pairs if now != before} <= hidden
    assert backbone.tokenizer.convert_tokens_to_ids("_") in found.token_ids


def test_nothing_is_before_the_first_token(tmp_path):
    folder = save_decoder(tmp_path, "Qwen3", decoder_tokenizer(start=False))
    backbone, head = Backbone.from_pretrained(folder), language_head(folder)
    texts, settings = [text(1, 2, 3), text(4), ""], replace(SMALL, masking="mntp")
    _, batch = next(WindowStream(backbone, head, texts, settings).batches(StreamPosition()))
    assert [[span.start for span in example.spans] for example in batch] == [[1, 2]]


def test_a_padding_token_may_have_no_embedding(tmp_path):
    tokenizer = decoder_tokenizer()
    size = len(tokenizer)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    folder = save_decoder(tmp_path, "Llama", tokenizer, vocab_size=size)
    models = Backbone.from_pretrained(folder), language_head(folder)
    assert losses(models, replace(SMALL, masking="mntp", steps=2))


def test_adapters_of_a_decoder_learn_and_leave_the_head_alone(decoder):
    backbone, head = decoder()
    settings = replace(SMALL, masking="mntp", trained="lora", steps=40, batch_size=16)
    names, before = set(backbone.state_dict()), parameters(head)
    actual = losses((backbone, head), settings, texts=SENTENCES)
    # A sentence has six words: who knows all twelve and no more has a loss of 2.48.
    assert sum(actual[-10:]) / 10 < 0.5 * math.log(12)
    assert set(backbone.state_dict()) == names  # adapters are merged
    assert all(torch.equal(value, before[name]) for name, value in parameters(head).items())
    assert not head.bias.any()


def test_adapters_resume_to_the_same_losses_and_weights(decoder, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0)
    settings = replace(SMALL, masking="mntp", trained="lora", lora_rank=4, steps=6)
    unbroken = decoder()
    expected = losses(unbroken, settings, texts=SENTENCES)

    def watch(stage, done, total, detail=""):
        if done > 3:
            raise KilledError

    with pytest.raises(KilledError):
        pretrain(*decoder(), SENTENCES, settings, tmp_path / "work", watch)  # type: ignore[call-arg]
    checkpoint = torch.load(tmp_path / "work" / "checkpoint.pt", weights_only=True)
    assert all("lora" in name for name in checkpoint["task"]["trained"])
    resumed = decoder()
    assert losses(resumed, settings, tmp_path / "work", SENTENCES) == expected[3:]
    weights = parameters(*resumed)
    assert all(torch.equal(value, weights[n]) for n, value in parameters(*unbroken).items())


def test_texts_are_cut_and_so_is_no_word(model):
    """Of 8 tokens two are special; "lovely" is lov, ##e, ##ly, and is cut after 6 others or 5."""
    backbone, head = model()
    terms = list(head.terms)
    settings = replace(SMALL, batch_size=1, max_tokens=8)
    texts = ["the cat sat on lovely mats", "a dog ran on a lovely dog", "the cat sat on a mat"]
    results = {}
    stream = WindowStream(backbone, head, texts, settings)
    for _, (example,) in islice(stream.batches(StreamPosition()), 9):
        assert len(example.token_ids) <= 8
        results[tuple(example.token_ids)] = [terms[span.dimension] for span in example.spans]
    ids = backbone.tokenizer.convert_tokens_to_ids
    cut = [["the", "cat", "sat", "on"], ["a", "dog", "ran", "on", "a"]]
    whole = ["the", "cat", "sat", "on", "a", "mat"]
    tokens = (["lov", "##e"], ["lov"], [])
    assert results == {
        (2, *ids(words + more), 3): words for words, more in zip([*cut, whole], tokens, strict=True)
    }

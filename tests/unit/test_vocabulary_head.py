"""Masked-language heads: those of the library's models, means over sub-words, random rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from transformers import BertTokenizer

from lexicept.backbone import Backbone, quiet_transformers
from lexicept.errors import InputError
from lexicept.heads import HeadSettings, VocabularyHead, masked_language_head

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "cat", "dog", "sat", "on", "a", "mat", "and", "ran", "away", "from", "it"),
    *("lov", "##e", "##ly", "run", "##ning", "##s", ".", "!"),
]
TEXT = "the lovely cats sat on a mat and ran away"
SMALL = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 34,
    "pad_token_id": 0,
}
SPECIAL = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
CONFIGS: dict[str, Callable[[], Any]] = {
    "Bert": lambda: transformers.BertConfig(**SMALL),
    "DistilBert": lambda: transformers.DistilBertConfig(
        vocab_size=len(VOCABULARY),
        dim=16,
        n_layers=2,
        n_heads=2,
        hidden_dim=32,
        max_position_embeddings=34,
        activation="relu",
    ),
    "Roberta": lambda: transformers.RobertaConfig(**SMALL),
    "ModernBert": lambda: transformers.ModernBertConfig(**SMALL, **SPECIAL),
    "MPNet": lambda: transformers.MPNetConfig(**SMALL),
}


def save(folder: Path, architecture: str, kind: str = "ForMaskedLM") -> Any:
    """A tiny model with weights that are all different, saved with a WordPiece tokenizer."""
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    torch.manual_seed(0)
    with quiet_transformers():
        model = getattr(transformers, architecture + kind)(CONFIGS[architecture]()).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.save_pretrained(folder)
        BertTokenizer(vocab=vocabulary, model_max_length=32).save_pretrained(folder)
    return model


def logits(head: VocabularyHead, states: torch.Tensor) -> torch.Tensor:
    return F.linear(head.transform(states), head.rows, head.bias)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    save(tmp_path / "bert", "Bert")
    return tmp_path / "bert"


@pytest.mark.parametrize("architecture", CONFIGS)
def test_the_head_is_the_library_s(architecture: str, tmp_path: Path) -> None:
    model = save(tmp_path, architecture)
    backbone, head = Backbone.from_pretrained(str(tmp_path)), masked_language_head(str(tmp_path))
    ids = torch.tensor([window.token_ids for window in backbone.windows([TEXT])])
    mask = torch.ones_like(ids)
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).logits[0]
        found = logits(head, backbone.states(ids, mask)[0])
        acts, dimensions = head.encode(backbone.states(ids, mask)[0])
    assert expected.std() > 0.1
    assert torch.allclose(found, expected, atol=1e-5)
    assert list(head.terms) == VOCABULARY
    assert torch.allclose(
        torch.zeros_like(expected).scatter(1, dimensions, acts), expected.relu(), atol=1e-5
    )


@pytest.mark.parametrize("architecture", CONFIGS)
def test_a_checkpoint_without_a_head_has_its_input_embeddings(
    architecture: str, tmp_path: Path
) -> None:
    model = save(tmp_path, architecture, "Model")
    head = masked_language_head(str(tmp_path))
    assert torch.equal(head.rows, model.get_input_embeddings().weight)
    assert not head.bias.any()
    assert torch.equal(head.dense.weight, torch.eye(16))
    assert not head.dense.bias.any()
    if architecture == "ModernBert":  # whose last block's states go through one more norm
        assert torch.equal(head.final.weight, model.final_norm.weight)
        assert head.final.eps == model.final_norm.eps


def test_saved_and_loaded(bert: Path, tmp_path: Path) -> None:
    save(tmp_path / "modern", "ModernBert")
    for folder in (bert, tmp_path / "modern"):
        head = masked_language_head(str(folder))
        head.settings = HeadSettings(pooling="sum", document_k=3)
        head.save(str(tmp_path / "head"))
        loaded = VocabularyHead.read(tmp_path / "head")
        states = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
        assert torch.equal(logits(loaded, states), logits(head, states))
        assert (list(loaded.terms), loaded.settings) == (VOCABULARY, head.settings)


def test_expanded_rows_are_means_by_hand(bert: Path) -> None:
    head = masked_language_head(str(bert))
    pieces = [VOCABULARY.index(token) for token in ("lov", "##e", "##ly")]
    expanded = head.expanded([pieces[:1] + pieces[2:], [6], pieces], ["lovly", "cat", "lovely"])
    assert list(expanded.terms) == ["lovly", "cat", "lovely"]
    first, second, third = pieces
    by_hand = [
        (head.rows[first] + head.rows[third]) / 2,
        head.rows[6],
        (head.rows[first] + head.rows[second] + head.rows[third]) / 3,
    ]
    assert torch.allclose(expanded.rows, torch.stack(by_hand), atol=1e-6)
    biases = [
        (head.bias[first] + head.bias[third]) / 2,
        head.bias[6],
        (head.bias[first] + head.bias[second] + head.bias[third]) / 3,
    ]
    assert torch.allclose(expanded.bias, torch.stack(biases), atol=1e-6)
    # The rows are linear: a word's logit is the mean of its sub-words'.
    states = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    mean = logits(head, states)[:, pieces].mean(dim=1)
    assert torch.allclose(logits(expanded, states)[:, 2], mean, atol=1e-5)


@pytest.mark.parametrize("pieces", [[], [len(VOCABULARY)], [-1, 3]])
def test_words_without_sub_words_of_the_head(bert: Path, pieces: list[int]) -> None:
    with pytest.raises(InputError, match=f"'word' has no pieces .* {len(VOCABULARY)}"):
        masked_language_head(str(bert)).expanded([[5], pieces], ["the", "word"])


def test_random_rows_are_a_function_of_the_seed(bert: Path) -> None:
    head = masked_language_head(str(bert))
    drawn, again, other = head.random(2000, 3), head.random(2000, 3), head.random(2000, 4)
    assert torch.equal(drawn.rows, again.rows)
    assert not torch.equal(drawn.rows, other.rows)
    deviation = float(head.rows.detach().std())
    assert float(drawn.rows.detach().std()) == pytest.approx(deviation, rel=0.05)
    assert not drawn.bias.any()
    assert (drawn.size, list(drawn.terms)[:2]) == (2000, ["#0", "#1"])
    states = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(drawn.transform(states), head.transform(states))


def test_changing_a_derived_head_leaves_the_first_alone(bert: Path) -> None:
    head = masked_language_head(str(bert))
    before = {name: value.clone() for name, value in head.state_dict().items()}
    for derived in (head.expanded([[5]], ["the"]), head.random(2)):
        with torch.no_grad():
            for parameter in derived.parameters():
                parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


def test_models_that_have_no_such_head(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no masked language model"):
        masked_language_head(str(tmp_path))

"""Language heads: the library's models, means over sub-words, random rows."""

import pytest
import torch
import torch.nn.functional as F
import transformers

from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.loading import quiet_transformers
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.vocabulary import VocabularyHead
from support.language_models import CONFIGS, TEXT, VOCABULARY, save
from support.tiny import DECODERS, decoder_tokenizer, save_decoder, text


def logits(head: VocabularyHead, states: torch.Tensor) -> torch.Tensor:
    return F.linear(head.transform(states), head.rows, head.bias)


@pytest.fixture
def bert(tmp_path):
    save(tmp_path / "bert", "Bert")
    return tmp_path / "bert"


@pytest.mark.parametrize("architecture", CONFIGS)
def test_the_head_is_the_library_s(architecture, tmp_path):
    model = save(tmp_path, architecture)
    backbone, head = Backbone.from_pretrained(str(tmp_path)), language_head(str(tmp_path))
    ids = torch.tensor([window.token_ids for window in backbone.windows([TEXT])])
    mask = torch.ones_like(ids)
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).logits[0]
        actual = logits(head, backbone.states(ids, mask)[0])
        acts, dimensions = head.encode(backbone.states(ids, mask)[0])
    assert expected.std() > 0.1
    assert torch.allclose(actual, expected, atol=1e-5)
    assert list(head.terms) == VOCABULARY
    assert torch.allclose(
        torch.zeros_like(expected).scatter(1, dimensions, acts), expected.relu(), atol=1e-5
    )


@pytest.mark.parametrize("architecture", CONFIGS)
def test_a_checkpoint_without_a_head_has_its_input_embeddings(architecture, tmp_path):
    model = save(tmp_path, architecture, "Model")
    head = language_head(str(tmp_path))
    assert torch.equal(head.rows, model.get_input_embeddings().weight)
    assert not head.bias.any()
    assert torch.equal(head.dense.weight, torch.eye(16))
    assert not head.dense.bias.any()
    if architecture == "ModernBert":  # whose last block's states go through one more norm
        assert torch.equal(head.final.weight, model.final_norm.weight)
        assert head.final.eps == model.final_norm.eps


def test_expanded_rows_are_means_by_hand(bert):
    head = language_head(str(bert))
    tokens = [VOCABULARY.index(token) for token in ("lov", "##e", "##ly")]
    expanded = head.expanded([tokens[:1] + tokens[2:], [6], tokens], ["lovly", "cat", "lovely"])
    assert list(expanded.terms) == ["lovly", "cat", "lovely"]
    first, second, third = tokens
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
    mean = logits(head, states)[:, tokens].mean(dim=1)
    assert torch.allclose(logits(expanded, states)[:, 2], mean, atol=1e-5)


@pytest.mark.parametrize("fragments", [[], [len(VOCABULARY)], [-1, 3]])
def test_words_without_sub_words_of_the_head(bert, fragments):
    with pytest.raises(InputError, match=f"'word' has no sub-words .* {len(VOCABULARY)}"):
        language_head(str(bert)).expanded([[5], fragments], ["the", "word"])


def test_random_and_derived_heads_leave_the_first_alone(bert):
    head = language_head(str(bert))
    drawn, again, other = head.random(2000, 3), head.random(2000, 3), head.random(2000, 4)
    assert torch.equal(drawn.rows, again.rows)
    assert not torch.equal(drawn.rows, other.rows)
    deviation = float(head.rows.detach().std())
    assert float(drawn.rows.detach().std()) == pytest.approx(deviation, rel=0.05)
    assert not drawn.bias.any()
    assert (drawn.size, list(drawn.terms)[:2]) == (2000, ["#0", "#1"])
    states = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(drawn.transform(states), head.transform(states))
    before = {name: value.clone() for name, value in head.state_dict().items()}
    for derived in (head.expanded([[5]], ["the"]), head.random(2)):
        with torch.no_grad():
            for parameter in derived.parameters():
                parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


def test_models_without_a_head(tmp_path):
    with pytest.raises(InputError, match="no language model can be made of"):
        language_head(str(tmp_path))
    folder = save_decoder(tmp_path / "model")
    Backbone.from_pretrained(folder).save(str(tmp_path / "cut"))
    with pytest.raises(InputError, match="cut: this checkpoint has no language-model head"):
        language_head(str(tmp_path / "cut"))
    backbone, head = Backbone.from_pretrained(folder, 2), language_head(folder).random(4)
    Encoder.of(backbone, head).save(str(tmp_path / "saved"), create_model_card=False)
    assert list(language_head(str(tmp_path / "saved")).terms) == ["#0", "#1", "#2", "#3"]


# Decoders


@pytest.mark.parametrize(
    ("architecture", "tied"), [*((name, False) for name in DECODERS), ("Llama", True)]
)
def test_a_decoder_s_head_is_the_library_s(architecture, tied, tmp_path):
    folder = save_decoder(tmp_path, architecture, tie_word_embeddings=tied)
    with quiet_transformers():
        model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied
    head = language_head(folder)
    ids = torch.tensor([Backbone.from_pretrained(folder).windows([text(*range(8))])[0].token_ids])
    mask = torch.ones_like(ids)
    for layer in (2, 4):
        backbone = Backbone.from_pretrained(folder, layer, bidirectional=False)
        with torch.no_grad():
            actual = logits(head, backbone.states(ids, mask)[0])
            every = model(ids, attention_mask=mask, output_hidden_states=True)
            # At an intermediate block the model's norm and output layer are applied to its state.
            state = model.model.norm(every.hidden_states[2])
            expected = model.lm_head(state)[0] if layer == 2 else every.logits[0]
        if architecture == "Gemma2" and layer == 4:
            actual = 30 * torch.tanh(actual / 30)
        assert expected.std() > 0.1
        assert torch.allclose(actual, expected, atol=1e-4)


def test_a_decoder_s_head_has_norm_and_rows_alone(tmp_path):
    head = language_head(save_decoder(tmp_path / "model", "Gemma3"))
    assert [name for name, _ in head.named_parameters()] == ["weight", "final.weight"]
    head.save(str(tmp_path / "head"))
    states = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    every = [[i] for i in range(head.size)]
    for derived in (VocabularyHead.read(tmp_path / "head"), head.expanded(every, head.terms)):
        assert torch.equal(logits(derived, states), logits(head, states))
        assert list(derived.terms) == list(head.terms)
        assert [name for name, _ in derived.named_parameters()] == ["weight", "final.weight"]
    assert head.random(3).bias.tolist() == [0.0] * 3


def test_tokens_of_bytes_are_shown_as_text(tmp_path):
    tokenizer = decoder_tokenizer()
    terms = list(language_head(save_decoder(tmp_path)).terms)
    names = {token: terms[token_id] for token, token_id in tokenizer.get_vocab().items()}
    assert names["bade"] == "bade"
    assert names["Ġbade"] == "▁bade"
    assert (names["<s>"], names["Ċ"], names["Ã"]) == ("<s>", "Ċ", "Ã")  # no whole character
    size = len(tokenizer)
    assert terms[size:] == [f"#{size}", f"#{size + 1}"]

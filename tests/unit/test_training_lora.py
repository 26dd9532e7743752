"""Runs of a backbone under a frozen head, as SPLARE trains."""

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SparseEncoder

from lexicept.corpora import read_documents, read_queries
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.model import SAE
from lexicept.training.ranking.run import train
from support.runs import LORA, configuration, tensors
from support.tiny import save_decoder

pytestmark = pytest.mark.usefixtures("_hasty")


@pytest.fixture
def frozen(unbroken):
    """A run that trained adapters under a frozen head."""
    return unbroken("frozen head")


def vectors(encoder, positions):
    documents = [document.text for document in read_documents(str(positions / "beir"))]
    queries = [query.text for query in read_queries(str(positions / "beir"), "dev")]
    encoded = [*encoder.encode_document(documents), *encoder.encode_query(queries)]
    return torch.stack(encoded).to_dense()


def test_a_frozen_head_stays_and_the_backbone_moves(inputs, frozen):
    before, after = tensors(inputs / "start"), tensors(frozen / "model")
    changed = {name for name, value in before.items() if not torch.equal(after[name], value)}
    assert changed
    assert all("encoder.layer" in name and name.endswith("weight") for name in changed)


def test_a_checkpoint_holds_what_learns(frozen):
    state = load_file(frozen / "work" / "checkpoints" / "checkpoint-5" / "model.safetensors")
    model = {name for name in state if name.startswith("model.")}
    assert len(model) == 2 * 2 * 6  # two matrices for each of two blocks' six
    assert all("lora_" in name for name in model)
    assert {"objective.log_scale", "objective.word_weight"} <= state.keys() - model


def test_adapters_and_merged_weights_are_published(inputs, frozen):
    expected = vectors(Encoder.load(frozen / "model"), inputs)
    assert (expected - vectors(Encoder.load(inputs / "start"), inputs)).abs().max() > 1e-3
    loaded = Encoder.load(frozen / "adapter")
    library = SparseEncoder(str(frozen / "adapter"), trust_remote_code=True)
    for encoder in (loaded, library):
        torch.testing.assert_close(vectors(encoder, inputs), expected, atol=1e-5, rtol=1e-5)
    assert loaded[1].settings == Encoder.load(frozen / "model")[1].settings
    assert len(load_file(frozen / "adapter" / "adapter_model.safetensors")) == 24
    card = (frozen / "adapter" / "README.md").read_text()
    assert card == (frozen / "model" / "README.md").read_text()


def test_adapters_of_a_model_that_is_adapters(inputs, frozen, tmp_path):
    start = str(frozen / "adapter")
    config = configuration(inputs, model={**LORA, "start": start}, optimizer={"steps": 1})
    train(config, tmp_path / "run")
    paths = [tmp_path / "run" / name for name in ("model", "adapter")]
    actual = [vectors(Encoder.load(path), inputs) for path in paths]
    torch.testing.assert_close(*actual, atol=1e-5, rtol=1e-5)


def test_a_head_that_stays_in_training_sees_whole_vectors():
    head = VocabularyHead(torch.eye(8), torch.zeros(8), ["w"] * 8)
    head.configure(query_max_active_dims=2, document_max_active_dims=3)
    features = {
        "token_embeddings": torch.eye(8)[None, :4],
        "token_mask": torch.ones(1, 4, dtype=torch.bool),
        "window_text": torch.zeros(1, dtype=torch.long),
    }
    for task, limit in (("query", 2), ("document", 3)):
        shown = head.eval()(dict(features), task=task)["sentence_embedding"]
        learned = head.train()(dict(features), task=task)["sentence_embedding"]
        assert (int((shown > 0).sum()), int((learned > 0).sum())) == (limit, 4)


def test_a_decoder_under_an_sae(inputs, tmp_path):
    """Adapters of the first three of four blocks, loaded with attention as in training."""
    torch.manual_seed(0)
    sae = SAE(32, 60, None)
    with torch.no_grad():
        sae.threshold += 0.5
    sae.save(tmp_path / "sae")
    model = {**LORA, "start": None, "backbone": save_decoder(tmp_path / "llama"), "layer": 3}
    model |= {"pretrained": str(tmp_path / "sae")}
    train(configuration(inputs, model=model, optimizer={"steps": 1}), tmp_path / "run")
    merged, adapted = (Encoder.load(tmp_path / "run" / name) for name in ("model", "adapter"))
    actual = [vectors(encoder, inputs) for encoder in (merged, adapted)]
    torch.testing.assert_close(*actual, atol=1e-5, rtol=1e-5)
    assert actual[0].any(dim=1).all()
    for encoder in (merged, adapted):
        assert encoder[0].num_layers == 3
        assert encoder[0].bidirectional
    adapters = load_file(tmp_path / "run" / "adapter" / "adapter_model.safetensors")
    assert len(adapters) == 2 * 3 * 7  # two matrices for each of three blocks' seven


def test_a_causal_backbone_in_half_precision_under_adapters(inputs, tmp_path):
    """Weights stay in bfloat16, beneath adapters that learn in single precision."""
    model = {**LORA, "start": None, "backbone": save_decoder(tmp_path / "llama"), "head": "mlm"}
    model |= {"dtype": "bfloat16", "bidirectional": False}
    train(configuration(inputs, model=model, optimizer={"steps": 1}), tmp_path / "run")
    for name in ("model", "adapter"):
        encoder = Encoder.load(tmp_path / "run" / name)
        assert (encoder[0].dtype, encoder[0].bidirectional) == ("bfloat16", False)
        assert vectors(encoder, inputs).isfinite().all()
    adapters = load_file(tmp_path / "run" / "adapter" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in adapters.values()} == {torch.float32}

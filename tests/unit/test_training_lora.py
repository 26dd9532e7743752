"""Runs of a backbone under a frozen head, as SPLARE trains."""

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SparseEncoder

from lexicept.corpora import read_documents, read_queries
from lexicept.errors import InputError
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.model import SAE
from lexicept.training.ranking.run import train
from support.runs import (
    assert_same_model,
    configuration,
    kill_at_the_end,
    kill_in_step,
    killed_run,
    metrics,
    tensors,
)
from support.tiny import save_decoder

pytestmark = pytest.mark.usefixtures("_hasty")

LORA = {"trained": "lora", "freeze_head": True, "lora_rank": 3}


@pytest.fixture(scope="module")
def unbroken(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    train(configuration(inputs, model=LORA), folder)
    return folder


def vectors(encoder, positions):
    documents = [document.text for document in read_documents(str(positions / "beir"))]
    queries = [query.text for query in read_queries(str(positions / "beir"), "dev")]
    encoded = [*encoder.encode_document(documents), *encoder.encode_query(queries)]
    return torch.stack(encoded).to_dense()


def test_a_frozen_head_stays_and_the_backbone_moves(inputs, unbroken):
    before, after = tensors(inputs / "start"), tensors(unbroken / "model")
    changed = {name for name, value in before.items() if not torch.equal(after[name], value)}
    assert changed
    assert all("encoder.layer" in name and name.endswith("weight") for name in changed)


def test_a_checkpoint_holds_what_learns(unbroken):
    state = load_file(unbroken / "work" / "checkpoints" / "checkpoint-10" / "model.safetensors")
    model = {name for name in state if name.startswith("model.")}
    assert len(model) == 2 * 2 * 6  # two matrices for each of two blocks' six
    assert all("lora_" in name for name in model)
    assert {"objective.log_scale", "objective.word_weight"} <= state.keys() - model


def test_adapters_and_merged_weights_are_published(inputs, unbroken):
    expected = vectors(Encoder.load(unbroken / "model"), inputs)
    assert (expected - vectors(Encoder.load(inputs / "start"), inputs)).abs().max() > 1e-3
    loaded = Encoder.load(unbroken / "adapter")
    library = SparseEncoder(str(unbroken / "adapter"), trust_remote_code=True)
    for encoder in (loaded, library):
        torch.testing.assert_close(vectors(encoder, inputs), expected, atol=1e-5, rtol=1e-5)
    assert loaded[1].settings == Encoder.load(unbroken / "model")[1].settings
    assert len(load_file(unbroken / "adapter" / "adapter_model.safetensors")) == 24
    card = (unbroken / "adapter" / "README.md").read_text()
    assert card == (unbroken / "model" / "README.md").read_text()


def test_a_killed_run_goes_on_to_the_same_adapters(inputs, unbroken, tmp_path):
    config, folder = configuration(inputs, model=LORA), tmp_path / "run"
    for kill in ((kill_in_step, 5.5), (kill_at_the_end, 0)):
        killed_run(config, folder, *kill)
    train(config, folder)
    assert metrics(folder) == metrics(unbroken)
    for name in ("model", "adapter"):
        assert_same_model(folder / name, unbroken / name)


def test_adapters_of_a_model_that_is_adapters(inputs, unbroken, tmp_path):
    start = str(unbroken / "adapter")
    config = configuration(inputs, model={**LORA, "start": start}, optimizer={"steps": 2})
    train(config, tmp_path / "run")
    paths = [tmp_path / "run" / name for name in ("model", "adapter")]
    actual = [vectors(Encoder.load(path), inputs) for path in paths]
    torch.testing.assert_close(*actual, atol=1e-5, rtol=1e-5)


def test_limits_are_those_of_the_trained_model_alone(inputs, tmp_path):
    """Top-K is for inference (SPLARE 3.2): the same weights are learned with and without."""
    limits = {"query_max_active_dims": 2, "document_max_active_dims": 3}
    results = []
    for name, model in (("whole", LORA), ("limited", {**LORA, **limits})):
        config = configuration(inputs, model=model, optimizer={"steps": 2})
        train(config, tmp_path / name)
        results.append(tensors(tmp_path / name / "model"))
    whole, limited = results
    assert all(torch.equal(limited[name], value) for name, value in whole.items())
    encoder = Encoder.load(tmp_path / "limited" / "model")
    assert encoder[1].settings.document_max_active_dims == 3
    assert int((vectors(encoder, inputs) > 0).sum(dim=1).max()) == 3


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


@pytest.mark.parametrize("layer", [None, 1])
def test_a_pretrained_sae_under_which_the_backbone_learns(inputs, tmp_path, layer):
    torch.manual_seed(0)
    sae = SAE(32, 60, 5)
    sae.save(tmp_path / "sae")
    model = {**LORA, "start": None, "backbone": str(inputs / "bert"), "layer": layer}
    model |= {"head": "sae", "pretrained": str(tmp_path / "sae")}
    train(configuration(inputs, model=model, optimizer={"steps": 2}), tmp_path / "run")
    encoder = Encoder.load(tmp_path / "run" / "model")
    assert encoder[0].num_layers == (layer or 2)
    assert (encoder[1].settings.query_k, encoder[1].settings.document_k) == (5, 5)
    for name, value in sae.state_dict().items():
        assert torch.equal(encoder[1].sae.state_dict()[name], value)


@pytest.mark.parametrize("bidirectional", [None, False])
def test_a_decoder_under_an_sae(inputs, tmp_path, bidirectional):
    """Adapters of the first three of four blocks, loaded with attention as in training."""
    torch.manual_seed(0)
    sae = SAE(32, 60, None)
    with torch.no_grad():
        sae.threshold += 0.5
    sae.save(tmp_path / "sae")
    model = {**LORA, "start": None, "backbone": save_decoder(tmp_path / "llama"), "layer": 3}
    model |= {"pretrained": str(tmp_path / "sae"), "bidirectional": bidirectional}
    train(configuration(inputs, model=model, optimizer={"steps": 2}), tmp_path / "run")
    merged, adapted = (Encoder.load(tmp_path / "run" / name) for name in ("model", "adapter"))
    actual = [vectors(encoder, inputs) for encoder in (merged, adapted)]
    torch.testing.assert_close(*actual, atol=1e-5, rtol=1e-5)
    assert actual[0].any(dim=1).all()
    for encoder in (merged, adapted):
        assert encoder[0].num_layers == 3
        assert encoder[0].bidirectional is (bidirectional is None)
    adapters = load_file(tmp_path / "run" / "adapter" / "adapter_model.safetensors")
    assert len(adapters) == 2 * 3 * 7  # two matrices for each of three blocks' seven


def test_a_backbone_in_half_precision_under_adapters(inputs, tmp_path):
    """Weights stay in bfloat16, beneath adapters that learn in single precision."""
    backbone = save_decoder(tmp_path / "llama")
    model = {**LORA, "start": None, "backbone": backbone, "head": "mlm", "dtype": "bfloat16"}
    train(configuration(inputs, model=model, optimizer={"steps": 2}), tmp_path / "run")
    encoder = Encoder.load(tmp_path / "run" / "model")
    assert encoder[0].dtype == "bfloat16"
    adapters = load_file(tmp_path / "run" / "adapter" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in adapters.values()} == {torch.float32}
    assert vectors(encoder, inputs).isfinite().all()


def test_a_pretrained_sae_of_another_size(inputs, tmp_path):
    SAE(16, 60, 5).save(tmp_path / "sae")
    model = {**LORA, "start": None, "backbone": str(inputs / "bert"), "head": "sae"}
    config = configuration(inputs, model={**model, "pretrained": str(tmp_path / "sae")})
    with pytest.raises(InputError, match=r"states of size 16, .* size 32"):
        train(config, tmp_path / "run")

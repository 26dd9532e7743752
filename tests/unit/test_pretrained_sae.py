"""Layouts of pretrained SAEs: read as their formulas say, or refused in one sentence."""

import json
import shutil
import zipfile
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from lexicept.errors import InputError
from lexicept.neural.sae.model import SAE, block_of, layer_of
from lexicept.neural.sae_formats.files import Tensors
from lexicept.neural.sae_formats.libraries import save_dictionary_learning, save_saelens
from lexicept.neural.sae_formats.pretrained import find_pretrained_sae, require_fit
from support import sae_files
from support.sae_files import D, K, M

LAYOUTS = {
    "Llama Scope": (sae_files.llama_scope, None, 25),
    "Llama Scope, transcoder": (sae_files.transcoder, None, None),
    "Llama Scope, centred": (
        partial(sae_files.llama_scope, apply_decoder_bias_to_pre_encoder=True),
        None,
        25,
    ),
    "Llama Scope, without norms": (
        partial(sae_files.llama_scope, norm_activation="none", sparsity_include_decoder_norm=False),
        None,
        25,
    ),
    "Gemma Scope": (sae_files.gemma_scope, None, 21),
    "Gemma Scope 2": (sae_files.gemma_scope_2, None, 13),
    "SAELens standard": (partial(sae_files.saelens, architecture="standard"), None, 8),
    "SAELens, not centred": (partial(sae_files.saelens, apply_b_dec_to_input=False), None, 8),
    "SAELens jumprelu": (sae_files.saelens, None, 8),
    "SAELens topk": (partial(sae_files.saelens, architecture="topk"), K, 8),
    "SAELens topk, rescaled": (
        partial(sae_files.saelens, architecture="topk", rescale_acts_by_decoder_norm=True),
        K,
        8,
    ),
    "SAELens gated": (partial(sae_files.saelens, architecture="gated"), None, 8),
    "SAELens batchtopk": (partial(sae_files.saelens, architecture="batchtopk"), None, 8),
    "SAELens, normalised": (
        partial(
            sae_files.saelens,
            normalize_activations="expected_average_only_in",
            norm_scaling_factor=0.375,
        ),
        None,
        8,
    ),
    "SAELens gated, normalised": (
        partial(
            sae_files.saelens,
            architecture="gated",
            normalize_activations="expected_average_only_in",
            norm_scaling_factor=0.375,
        ),
        None,
        8,
    ),
    "SAELens 5": (sae_files.old_saelens, K, 8),
    "sparsify": (sae_files.sparsify, K, 6),
    **{
        class_name: (partial(sae_files.dictionary_learning, kind=class_name), k, 9)
        for class_name, k in {
            "AutoEncoder": None,
            "AutoEncoderNew": None,
            "AutoEncoderTopK": K,
            "BatchTopKSAE": None,
            "MatryoshkaBatchTopKSAE": None,
            "GatedAutoEncoder": None,
            "JumpReluAutoEncoder": None,
        }.items()
    },
}


def dense(sae: SAE, states: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        acts, latents = sae.encode(torch.from_numpy(states).float())
    actual = torch.zeros(len(states), sae.num_latents)
    return actual.scatter_reduce(1, latents, acts, "amax").numpy()


def reconstruct(sae: SAE, states: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return sae(torch.from_numpy(states).float()).numpy()


def load(source, *arguments, **options):
    return find_pretrained_sae(source, *arguments, pickles=True, **options).load()


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_its_formula(name, tmp_path):
    write, k, layer = LAYOUTS[name]
    checkpoint = write(tmp_path)
    sae = load(checkpoint.folder)
    states = sae_files.states()
    expected = checkpoint.activations(states)
    assert 0.1 < (expected > 0).mean() < 0.9
    np.testing.assert_allclose(dense(sae, states), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        reconstruct(sae, states), checkpoint.reconstruction(states), rtol=1e-5, atol=1e-4
    )
    assert (sae.d_in, sae.num_latents, sae.k) == (D, M, k)
    assert sae.origin["layer"] == layer
    assert sae.threshold is None or bool((sae.threshold >= 0).all())
    assert not any(p.requires_grad for p in sae.parameters())


def test_half_and_double_precision(tmp_path):
    checkpoint = sae_files.sparsify(tmp_path)
    path = checkpoint.folder / "sae.safetensors"
    expected = checkpoint.activations(sae_files.states())
    for dtype in (torch.float16, torch.float64):
        save_file({name: tensor.to(dtype) for name, tensor in load_file(path).items()}, path)
        sae = load(checkpoint.folder)
        assert {p.dtype for p in sae.parameters()} == {torch.float32}
        np.testing.assert_allclose(dense(sae, sae_files.states()), expected, rtol=2e-3, atol=2e-3)


def test_what_old_saelens_files_hold(tmp_path):
    checkpoint = sae_files.saelens(tmp_path)
    path = checkpoint.folder / "sae_weights.safetensors"
    tensors = load_file(path)
    tensors["log_threshold"] = tensors.pop("threshold").log()
    tensors["scaling_factor"] = torch.linspace(0.5, 2, M)  # of activations that are decoded
    save_file(tensors, path)
    sae, states = load(checkpoint.folder), sae_files.states()
    expected = checkpoint.activations(states)
    np.testing.assert_allclose(dense(sae, states), expected, rtol=1e-5, atol=1e-5)
    decoded = expected * tensors["scaling_factor"].numpy() @ checkpoint.decoder + checkpoint.bias
    np.testing.assert_allclose(reconstruct(sae, states), decoded, rtol=1e-5, atol=1e-4)


# Saving to other libraries' layouts.


def random_sae(k, centred):
    """An SAE with random weights and a normalisation, folded into the weights by these layouts."""
    sae = SAE(D, M, k, centred=centred)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in sae.state_dict().values():
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        sae.scale.fill_(2.5)
        if k is None:
            sae.threshold.abs_()
    sae.origin = {"hook": "blocks.3.hook_resid_post", "model": "tiny", "layer": 4}
    return sae


def assert_same(result, sae):
    states = sae_files.states()
    np.testing.assert_allclose(dense(result, states), dense(sae, states), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        reconstruct(result, states), reconstruct(sae, states), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("save", "k"),
    [(save, k) for save in (save_dictionary_learning, save_saelens) for k in (K, None)],
)
@pytest.mark.parametrize("centred", [True, False])
def test_written_for_a_library_and_read_again_it_is_the_same(save, k, centred, tmp_path):
    sae = random_sae(k, centred)
    save(sae, tmp_path)
    result = load(tmp_path)
    assert_same(result, sae)
    assert (result.k, result.origin["layer"]) == (k, 4)
    assert result.origin["model"] == "tiny"


def test_files_that_are_written_for_libraries(tmp_path):
    """The names that the libraries' own classes load, no more and no fewer."""
    matrices = {"W_enc", "b_enc", "W_dec", "b_dec"}
    for k in (K, None):
        sae, folder = random_sae(k, True), tmp_path / str(k)
        save_dictionary_learning(sae, folder / "dl")
        state = torch.load(folder / "dl" / "ae.pt", weights_only=True)
        linear = {"encoder.weight", "encoder.bias", "decoder.weight", "b_dec", "k", "threshold"}
        assert state.keys() == (matrices | {"threshold"} if k is None else linear)
        assert json.loads((folder / "dl" / "config.json").read_text())["trainer"]["layer"] == 3
        save_saelens(sae, folder / "lens")
        config = json.loads((folder / "lens" / "cfg.json").read_text())
        assert (config["architecture"], config.get("k")) == (("topk", K) if k else ("jumprelu", k))
        tensors = load_file(folder / "lens" / "sae_weights.safetensors")
        assert tensors["W_enc"].shape == tensors["W_dec"].T.shape == (D, M)
        assert tensors.keys() == (matrices if k else matrices | {"threshold"})


# Choosing.


def test_hooks():
    assert layer_of("blocks.24.hook_resid_post") == 25
    assert layer_of("blocks.8.hook_resid_pre") == 8
    assert layer_of("blocks.24.hook_out") == 25
    assert layer_of("blocks.8.hook_in") == block_of("blocks.8.hook_in") == 8
    assert layer_of("blocks.8.attn.hook_out") is layer_of("blocks.8.ln2.hook_in") is None
    assert layer_of("model.layers.17.output") == 18
    assert layer_of("layers.5") == layer_of("h.5") == 6
    assert layer_of("model.layers.5.pre_feedforward_layernorm.output") is None
    assert layer_of("blocks.8.hook_mlp_out") is layer_of("hook_embed") is layer_of(None) is None
    assert block_of("blocks.8.hook_mlp_out") == block_of("blocks.8.hook_resid_pre") == 8


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub of folders: a name is a path below a folder; only requested files come."""
    root, cache = tmp_path / "hub", tmp_path / "cache"

    def files(name):
        if not (root / name).is_dir():
            raise ConnectionError(f"404 for {name}\nmore")
        paths = [str(p.relative_to(root / name)) for p in (root / name).rglob("*") if p.is_file()]
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=path) for path in paths])

    def folder(name, allow_patterns):
        for file in allow_patterns:
            (cache / name / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name / file, cache / name / file)
        return cache / name

    monkeypatch.setattr(huggingface_hub, "model_info", files)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", folder)
    return root


def test_gemma_scope_on_the_hub(hub, tmp_path):
    name = "google/gemma-scope-2b-pt-res"
    for path in (
        "embedding/width_4k/average_l0_100",
        "layer_19/width_16k/average_l0_100",
        "layer_20/width_16k/average_l0_38",
        "layer_20/width_16k/average_l0_71",
        "layer_20/width_16k/average_l0_139",
        "layer_20/width_65k/average_l0_99",
    ):
        sae_files.gemma_scope(hub / name, path)
    path = "layer_20/width_16k/average_l0_71"
    # The names promise 16,384 latents; the files are small.
    with pytest.raises(InputError, match=f"{path}: this SAE has {M} latents, not 16384"):
        load(name, layer=21, width=16384)
    downloaded = {p.name for p in (tmp_path / "cache").rglob("*") if p.is_file()}
    assert downloaded == {"params.npz"}
    sae = load(f"{name}/layer_20/width_16k")
    assert sae.origin["source"] == f"{name}/layer_20/width_16k/average_l0_71"
    assert (sae.origin["layer"], sae.origin["model"]) == (21, "google/gemma-2-2b")
    assert load(f"{name}/layer_20/width_16k", l0=40).origin["source"].endswith("_38")
    assert load(f"{name}/layer_20/width_16k", l0=1000).origin["source"].endswith("_139")
    for arguments, message in (
        ({}, "choose a layer of 20, 21"),
        ({"layer": 21}, "choose a width of 16384, 65536"),
        ({"layer": 22}, "no SAE of layer 22; there is 20, 21"),
        ({"layer": 21, "width": 4096}, "no SAE of width 4096; there is 16384, 65536"),
    ):
        with pytest.raises(InputError, match=message):
            load(name, **arguments)
    with pytest.raises(InputError, match=r"google/none: .*404 for google/none$"):
        load("google/none")
    with pytest.raises(InputError, match="no SAE of a known layout"):
        load(f"{name}/nowhere")


def test_gemma_scope_2_on_the_hub(hub):
    name = "google/gemma-scope-2-1b-pt"
    for path in (
        "mlp_out/layer_12_width_16k_l0_big",
        "resid_post/layer_12_width_16k_l0_big",
        "resid_post/layer_12_width_16k_l0_small",
        "resid_post_all/layer_12_width_16k_l0_big",
        "transcoder_all/layer_12_width_16k_l0_big_affine",
    ):
        sae_files.gemma_scope_2(hub / name, path)
    assert load(name, 13).origin["source"] == f"{name}/resid_post/layer_12_width_16k_l0_big"
    assert load(name, 13, l0=20).origin["source"].endswith("_small")
    with pytest.raises(InputError, match=r"reads blocks\.12\.hook_mlp_out, not the state"):
        load(f"{name}/mlp_out/layer_12_width_16k_l0_big", 13)


def test_folders_of_several(tmp_path):
    sae_files.sparsify(tmp_path)
    shutil.copytree(tmp_path / "layers.5", tmp_path / "layers.6")
    sae_files.llama_scope(tmp_path)
    with pytest.raises(InputError, match="choose a layer of 6, 7, 25"):
        load(tmp_path)
    assert load(tmp_path, layer=7).origin["layer"] == 7
    assert load(tmp_path, layer=25).origin["layout"] == "Llama Scope"
    checkpoint = sae_files.dictionary_learning(tmp_path / "many")
    shutil.copytree(checkpoint.folder, checkpoint.folder.with_name("trainer_1"))
    with pytest.raises(InputError, match=r"add the folder to the name: .*trainer_0, .*trainer_1"):
        load(tmp_path / "many", layer=9)


def test_a_layer_that_nobody_knows_is_taken_from_the_caller(tmp_path):
    checkpoint = sae_files.gemma_scope(tmp_path, "my/copy")
    assert load(checkpoint.folder).origin["layer"] is None
    assert load(checkpoint.folder, layer=7).origin["layer"] == 7


def test_what_was_asked_for_is_checked_before_weights_are_read(tmp_path, monkeypatch):
    checkpoint = sae_files.llama_scope(tmp_path)
    transcoder = sae_files.transcoder(tmp_path)

    def read(self, name):
        raise AssertionError(name)

    monkeypatch.setattr(Tensors, "read", read)
    result = find_pretrained_sae(checkpoint.folder, layer=25, width=M)
    assert (result.layer, result.layout.d_in, result.layout.num_latents) == (25, D, M)
    for arguments, message in (
        ({"layer": 24}, "no SAE of layer 24; there is 25"),
        ({"width": 32768}, f"has {M} latents, not 32768"),
    ):
        with pytest.raises(InputError, match=message):
            load(checkpoint.folder, **arguments)
    with pytest.raises(InputError, match=r"reads blocks\.24\.ln2"):
        load(transcoder.folder, layer=25)


def test_an_sae_fits_its_backbone_only(backbone):
    d = backbone.get_embedding_dimension()
    require_fit({}, d, backbone)
    require_fit({"hook": "blocks.1.hook_resid_post", "layer": 2}, d, backbone)
    with pytest.raises(InputError, match="after 3 blocks, the backbone runs 2"):
        require_fit({"hook": "blocks.2.hook_resid_post", "layer": 3}, d, backbone)
    with pytest.raises(InputError, match=r"reads blocks\.1\.hook_mlp_out"):
        require_fit({"hook": "blocks.1.hook_mlp_out", "layer": None}, d, backbone)
    with pytest.raises(InputError, match="size 6, but the backbone has states of size 384"):
        require_fit({}, 6, backbone)


# What is refused.


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (partial(sae_files.llama_scope, d_model=4096), f"d_model is 4096, but {D}"),
        (partial(sae_files.llama_scope, act_fn="relu"), "act_fn is 'relu'"),
        (partial(sae_files.llama_scope, norm_activation="token-wise"), "'token-wise'"),
        (partial(sae_files.llama_scope, jump_relu_threshold=-0.5), "-0.5 is below 0"),
        (partial(sae_files.llama_scope, jump_relu_threshold=float("nan")), "not nan"),
        (
            partial(sae_files.llama_scope, dataset_average_activation_norm={"in": 1, "out": 0}),
            "norms must be above 0",
        ),
        (partial(sae_files.llama_scope, dataset_average_activation_norm={"in": 1}), "out is miss"),
        (partial(sae_files.saelens, normalize_activations="layer_norm"), "'layer_norm' scales"),
        (
            partial(sae_files.saelens, normalize_activations="expected_average_only_in"),
            "needs norm_scaling_factor",
        ),
        (partial(sae_files.saelens, apply_b_dec_to_input="yes"), "true or false, not 'yes'"),
        (partial(sae_files.saelens, architecture="topk", k=11), "k is 11, of 10 latents"),
        (partial(sae_files.sparsify, transcode=True), "transcode is True"),
        (partial(sae_files.sparsify, activation="groupmax"), "activation is 'groupmax'"),
        (partial(sae_files.sparsify, num_latents=0), f"num_latents is 192, but {M}"),
        (partial(sae_files.sparsify, k=0), "k must be at least 1, not 0"),
        (partial(sae_files.dictionary_learning, k=4), "k is 4 in config.json, but 3"),
        (partial(sae_files.dictionary_learning, dict_class="CrossCoder"), "'CrossCoder'"),
    ],
)
def test_configs_that_are_refused(write, message, tmp_path):
    with pytest.raises(InputError, match=message):
        load(write(tmp_path).folder)


def test_weights_that_are_refused(tmp_path):
    checkpoint = sae_files.saelens(tmp_path)
    path = checkpoint.folder / "sae_weights.safetensors"
    whole = load_file(path)

    def refused(message, **changes):
        tensors = {**whole, **changes}
        save_file({n: t.contiguous() for n, t in tensors.items() if t is not None}, path)
        with pytest.raises(InputError, match=message):
            load(checkpoint.folder)

    refused(r"threshold is missing; there is W_dec, W_enc, b_dec, b_enc$", threshold=None)
    refused(r"W_dec is \[6, 10\], expected \[10, 6\]", W_dec=whole["W_dec"].T)
    refused(r"b_enc is \[9\], expected \[10\]", b_enc=whole["b_enc"][:9])
    refused(r"b_dec is \[1, 6\], expected 1 dimensions above 0", b_dec=whole["b_dec"][None])
    refused(r"W_enc is missing", W_enc=whole["W_enc"].to(torch.int32))
    refused("W_enc holds values that are not finite", W_enc=whole["W_enc"] / 0)
    refused("b_enc holds values that are not finite", b_enc=whole["b_enc"] * float("nan"))
    (checkpoint.folder / "cfg.json").write_text('["no object"]')
    refused("cfg.json: not a JSON object")


def test_factors_that_overflow(tmp_path):
    checkpoint = sae_files.saelens(tmp_path, "gated")
    path = checkpoint.folder / "sae_weights.safetensors"
    save_file({**load_file(path), "r_mag": torch.full((M,), 1000.0)}, path)
    with pytest.raises(InputError, match="W_enc does not fit float32"):
        load(checkpoint.folder)


def test_headers_that_claim_more_than_there_is(tmp_path):
    folder = tmp_path / "layer_20" / "width_16k" / "average_l0_71"
    path = sae_files.gemma_scope(tmp_path).folder / "params.npz"
    with zipfile.ZipFile(path) as archive:
        data = {name: archive.read(name) for name in archive.namelist()}
    small, large = b"(6, 10), }" + b" " * 11, b"(6, 1" + b"0" * 12 + b"), }"
    data["W_enc.npy"] = data["W_enc.npy"].replace(small, large)
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in data.items():
            archive.writestr(name, member)
    with pytest.raises(InputError, match=r"W_enc\.npy claims"):
        find_pretrained_sae(folder)


def test_pickles_are_for_convert_only(tmp_path):
    checkpoint = sae_files.dictionary_learning(tmp_path)
    with pytest.raises(InputError, match="is a pickle: lexicept model convert"):
        find_pretrained_sae(checkpoint.folder).load()

    class Evil:
        def __reduce__(self):
            return print, ("owned",)

    torch.save({"encoder.weight": Evil()}, checkpoint.folder / "ae.pt")
    with pytest.raises(InputError, match=r"ae\.pt: can't be read: "):
        load(checkpoint.folder)
    torch.save([1, 2], checkpoint.folder / "ae.pt")
    with pytest.raises(InputError, match="a list, not a state dict"):
        load(checkpoint.folder)


def test_sources_that_are_none(tmp_path):
    (tmp_path / "file").write_text("x")
    for source in (tmp_path / "file", "one_word"):
        with pytest.raises(InputError, match="neither a folder nor a hub's name"):
            load(source)
    for source in (tmp_path / "nowhere", "../a/b"):
        with pytest.raises(InputError, match="no such folder"):
            load(source)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no SAE of a known layout \(lexicept with sae"):
        load(tmp_path / "empty")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@pytest.mark.parametrize("name", ["Llama Scope", "SAELens topk", "sparsify", "AutoEncoderTopK"])
def test_configs_of_any_values_are_refused_or_understood(name, tmp_path_factory):
    folder = LAYOUTS[name][0](tmp_path_factory.mktemp("config")).folder
    (path,) = folder.glob("*.json")
    whole = json.loads(path.read_text())
    inner = whole.get("trainer", whole)
    names = st.sampled_from([*inner, "norm_scaling_factor", "activation_fn_kwargs"])

    @settings(max_examples=20)
    @given(st.dictionaries(names, JSON | st.just(10**400), min_size=1, max_size=2))
    def check(changes):
        changed = {**inner, **changes}
        path.write_text(
            json.dumps({**whole, "trainer": changed} if inner is not whole else changed)
        )
        with suppress(InputError):
            assert load(folder).d_in == D

    check()

"""Synthetic pretrained SAEs in every layout, and what they do, in float64, from the formulas.

Norms, thresholds and scales all differ, so that one wrong factor shows.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

D, M, K = 6, 10, 3

Array = np.ndarray
Activations = Callable[[Array], Array]


@dataclass
class Synthetic:
    """A folder, and the reference of its SAE: raw states [n, D] to activations [n, M]."""

    folder: Path
    activations: Activations
    decoder: Array
    """[M, D], of these activations."""
    bias: Array

    def reconstruction(self, states: Array) -> Array:
        return self.activations(states) @ self.decoder + self.bias


def states(n: int = 40, seed: int = 9) -> Array:
    # Halves and quarters, which float32 holds exactly.
    return np.round(np.random.default_rng(seed).normal(0, 3, (n, D)) * 4) / 4


def numbers(*shape: int, seed: int, scale: float = 1.0) -> Array:
    """Float64 values exact in bfloat16."""
    drawn = np.random.default_rng(seed).normal(0, scale, shape)
    return torch.from_numpy(drawn).bfloat16().double().numpy()


def parameters(seed: int = 0) -> tuple[Array, Array, Array, Array, Array]:
    """W_enc [M, D], b_enc, W_dec [M, D], b_dec and thresholds; decoder norms from 0.3 to 3."""
    directions = numbers(M, D, seed=seed + 2)
    lengths = np.linspace(0.3, 3, M)[:, None] / np.linalg.norm(directions, axis=1, keepdims=True)
    W_dec = torch.from_numpy(directions * lengths).bfloat16().double().numpy()
    threshold = np.abs(numbers(M, seed=seed + 4)) + 0.25
    return (
        numbers(M, D, seed=seed),
        numbers(M, seed=seed + 1),
        W_dec,
        numbers(D, seed=seed + 3),
        threshold,
    )


def jump(pre: Array, threshold: Array | float) -> Array:
    return np.where(pre > threshold, np.maximum(pre, 0), 0)


def top(pre: Array, k: int = K) -> Array:
    largest = np.argsort(-pre, axis=1)[:, :k]
    mask = np.zeros_like(pre)
    np.put_along_axis(mask, largest, 1, axis=1)
    return np.maximum(pre, 0) * mask


def gated(x: Array, W: Array, b_gate: Array, r_mag: Array, b_mag: Array) -> Array:
    gate = x @ W.T + b_gate > 0
    return gate * np.maximum(np.exp(r_mag) * (x @ W.T) + b_mag, 0)


def save_tensors(path: Path, dtype: torch.dtype = torch.float32, **arrays: Array) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {n: torch.from_numpy(np.array(a)).to(dtype).contiguous() for n, a in arrays.items()}
    save_file(tensors, path)


def save_config(path: Path, **values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


def llama_scope(
    root: Path, hook: str = "hook_resid_post", site: str = "R", out: float = 29.125, **changes: Any
) -> Synthetic:
    folder = root / f"Llama3_1-8B-Base-L24{site}-32x"
    W_enc, b_enc, W_dec, b_dec, _ = parameters()
    theta, mean = 0.75390625, 29.125
    config = {
        "hook_point_in": f"blocks.24.{hook}",
        "use_decoder_bias": True,
        "apply_decoder_bias_to_pre_encoder": False,
        "expansion_factor": 32,
        "d_model": D,
        "d_sae": M,
        "act_fn": "jumprelu",
        "jump_relu_threshold": theta,
        "norm_activation": "dataset-wise",
        "dataset_average_activation_norm": {"in": mean, "out": out},
        "sparsity_include_decoder_norm": True,
        "use_glu_encoder": False,
        "top_k": 50,
    }
    config |= changes
    save_config(folder / "hyperparams.json", **config)
    save_tensors(
        folder / "checkpoints" / "final.safetensors",
        torch.bfloat16,
        **{
            "encoder.weight": W_enc,
            "encoder.bias": b_enc,
            "decoder.weight": W_dec.T,
            "decoder.bias": b_dec,
        },
    )
    s_in, s_out = math.sqrt(D) / mean, math.sqrt(D) / out
    if config["norm_activation"] != "dataset-wise":
        s_in = s_out = 1.0
    decoder = W_dec * s_in / s_out
    norms = np.linalg.norm(decoder, axis=1)
    if not config["sparsity_include_decoder_norm"]:
        norms = np.ones(M)
    centre = b_dec / s_out * config["apply_decoder_bias_to_pre_encoder"]

    def activations(h: Array) -> Array:
        return jump(((h - centre) @ W_enc.T + b_enc / s_in) * norms, theta)

    return Synthetic(folder, activations, decoder / norms[:, None], b_dec / s_out)


def transcoder(root: Path) -> Synthetic:
    return llama_scope(root, "ln2.hook_normalized", "TC", 3.390625)


def gemma_scope(root: Path, path: str = "layer_20/width_16k/average_l0_71") -> Synthetic:
    folder = root / path
    W_enc, b_enc, W_dec, b_dec, threshold = parameters(10)
    threshold = np.where(np.arange(M) == 3, -50.0, threshold)
    folder.mkdir(parents=True)
    arrays = {"W_enc": W_enc.T, "b_enc": b_enc, "W_dec": W_dec, "b_dec": b_dec}
    arrays["threshold"] = threshold
    np.savez(folder / "params.npz", **{n: a.astype(np.float32) for n, a in arrays.items()})
    return Synthetic(folder, lambda h: jump(h @ W_enc.T + b_enc, threshold), W_dec, b_dec)


def gemma_scope_2(root: Path, path: str = "resid_post/layer_12_width_16k_l0_big") -> Synthetic:
    folder = root / path
    W_enc, b_enc, W_dec, b_dec, threshold = parameters(20)
    site = "output" if "resid_post" in path else "mlp.output"
    save_config(
        folder / "config.json",
        hf_hook_point_in=f"model.layers.12.{site}",
        width=M,
        model_name="google/gemma-3-1b-pt",
        architecture="jump_relu",
        l0=100,
        affine_connection=False,
        type="sae",
    )
    arrays = {"w_enc": W_enc.T, "b_enc": b_enc, "w_dec": W_dec, "b_dec": b_dec}
    save_tensors(folder / "params.safetensors", **arrays, threshold=threshold)
    return Synthetic(folder, lambda h: jump(h @ W_enc.T + b_enc, threshold), W_dec, b_dec)


def saelens(root: Path, architecture: str = "jumprelu", **changes: Any) -> Synthetic:
    """``changes`` of the config; ``norm_scaling_factor`` is its own, as are norms."""
    folder = root / "blocks.8.hook_resid_pre"
    W_enc, b_enc, W_dec, b_dec, threshold = parameters(30)
    config: dict[str, Any] = {
        "architecture": architecture,
        "d_in": D,
        "d_sae": M,
        "dtype": "float32",
        "device": "cuda",
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {
            "sae_lens_version": "6.21.0",
            "hook_name": "blocks.8.hook_resid_pre",
            "model_name": "gpt2-small",
            "hook_head_index": None,
        },
    }
    if architecture == "topk":
        config["k"] = K
    config |= changes
    arrays = {"W_enc": W_enc.T, "W_dec": W_dec, "b_dec": b_dec}
    b_gate, r_mag = numbers(M, seed=36), numbers(M, seed=37, scale=0.5)
    if architecture == "gated":
        arrays |= {"b_gate": b_gate, "r_mag": r_mag, "b_mag": b_enc}
    else:
        arrays["b_enc"] = b_enc
    if architecture == "jumprelu":
        arrays["threshold"] = threshold
    if architecture == "batchtopk":
        arrays["topk_threshold"] = np.array(0.625)
    save_config(folder / "cfg.json", **config)
    save_tensors(folder / "sae_weights.safetensors", **arrays)
    s = config.get("norm_scaling_factor", 1.0)
    norms = np.linalg.norm(W_dec, axis=1)
    rescaled = config.get("rescale_acts_by_decoder_norm", architecture == "batchtopk")
    gain = norms if rescaled else np.ones(M)

    def activations(h: Array) -> Array:
        x = s * h - b_dec * config["apply_b_dec_to_input"]
        pre = (x @ W_enc.T + b_enc) * gain
        result = {
            "jumprelu": lambda: jump(pre, threshold),
            "standard": lambda: np.maximum(pre, 0),
            "topk": lambda: top(pre),
            "batchtopk": lambda: jump(pre, 0.625),
            "gated": lambda: gated(x, W_enc, b_gate, r_mag, b_enc),
        }[architecture]
        return result() / s

    return Synthetic(folder, activations, W_dec / gain[:, None], b_dec / s)


def old_saelens(root: Path) -> Synthetic:
    """Before version 6: names at the top level, TopK as an activation function."""
    checkpoint = saelens(root, "topk")
    save_config(
        checkpoint.folder / "cfg.json",
        d_in=D,
        d_sae=M,
        hook_name="blocks.8.hook_resid_pre",
        model_name="gpt2-small",
        activation_fn_str="topk",
        activation_fn_kwargs={"k": K},
        normalize_activations=False,
    )
    return checkpoint


def sparsify(root: Path, **changes: Any) -> Synthetic:
    folder = root / "layers.5"
    W_enc, b_enc, W_dec, b_dec, _ = parameters(50)
    config = {
        "activation": "topk",
        "expansion_factor": 32,
        "normalize_decoder": True,
        "num_latents": M,
        "k": K,
        "multi_topk": False,
        "skip_connection": False,
        "transcode": False,
        "d_in": D,
    }
    save_config(folder / "cfg.json", **{**config, **changes})
    arrays = {"encoder.weight": W_enc, "encoder.bias": b_enc, "W_dec": W_dec, "b_dec": b_dec}
    save_tensors(folder / "sae.safetensors", **arrays)
    return Synthetic(folder, lambda h: top((h - b_dec) @ W_enc.T + b_enc), W_dec, b_dec)


def dictionary_learning(root: Path, kind: str = "AutoEncoderTopK", **changes: Any) -> Synthetic:
    folder = root / "resid_post_layer_8" / "trainer_0"
    W_enc, b_enc, W_dec, b_dec, threshold = parameters(60)
    linear = {"encoder.weight": W_enc, "encoder.bias": b_enc, "decoder.weight": W_dec.T}
    matrices = {"W_enc": W_enc.T, "b_enc": b_enc, "W_dec": W_dec, "b_dec": b_dec}
    b_gate, r_mag = numbers(M, seed=66), numbers(M, seed=67, scale=0.5)
    norms, decoder = np.linalg.norm(W_dec, axis=1), W_dec

    def pre(h: Array) -> Array:
        return (h - b_dec) @ W_enc.T + b_enc

    if kind == "AutoEncoder":
        arrays, decoder = {**linear, "bias": b_dec}, W_dec / norms[:, None]
        activations: Activations = lambda h: np.maximum(pre(h) * norms, 0)  # noqa: E731
    elif kind == "AutoEncoderNew":
        arrays = {**linear, "decoder.bias": b_dec}
        activations = lambda h: np.maximum(h @ W_enc.T + b_enc, 0)  # noqa: E731
    elif kind == "AutoEncoderTopK":
        arrays = {**linear, "b_dec": b_dec, "k": np.array(K), "threshold": np.array(0.5)}
        activations = lambda h: top(pre(h))  # noqa: E731
    elif kind == "BatchTopKSAE":
        arrays = {**linear, "b_dec": b_dec, "k": np.array(K), "threshold": np.array(0.5)}
        activations = lambda h: jump(pre(h), 0.5)  # noqa: E731
    elif kind == "MatryoshkaBatchTopKSAE":
        arrays = {**matrices, "k": np.array(K), "threshold": np.array(-1.0)}
        arrays["group_sizes"] = np.array([4, 6])
        activations = lambda h: np.maximum(pre(h), 0)  # noqa: E731
    elif kind == "GatedAutoEncoder":
        arrays = {name: linear[name] for name in ("encoder.weight", "decoder.weight")}
        arrays |= {"decoder_bias": b_dec, "gate_bias": b_gate, "r_mag": r_mag, "mag_bias": b_enc}
        activations = lambda h: gated(h - b_dec, W_enc, b_gate, r_mag, b_enc)  # noqa: E731
    else:
        arrays = {**matrices, "threshold": threshold}
        activations = lambda h: jump(h @ W_enc.T + b_enc, threshold)  # noqa: E731
    trainer = {
        "dict_class": kind,
        "activation_dim": D,
        "dict_size": M,
        "k": K,
        "layer": 8,
        "lm_name": "EleutherAI/pythia-70m-deduped",
        "submodule_name": "resid_post_layer_8",
    }
    save_config(folder / "config.json", trainer={**trainer, **changes}, buffer={"ctx_len": 128})
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    whole = ("k", "group_sizes")
    torch.save({n: t if n in whole else t.float() for n, t in tensors.items()}, folder / "ae.pt")
    return Synthetic(folder, activations, decoder, b_dec)

"""The interface of the layouts of pretrained SAEs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.errors import InputError
from lexicept.neural.sae.model import SAE, block_of, layer_of
from lexicept.neural.sae_formats.files import Config, Npz, Pickled, Safetensors, Tensors
from lexicept.storage.files import replace_file, write_json

_READERS: dict[str, type[Tensors]] = {".safetensors": Safetensors, ".npz": Npz, ".pt": Pickled}


class PathFacts(NamedTuple):
    """Properties of an SAE in the path of its folder; None for absent properties."""

    hook: str | None = None
    width: int | None = None
    """Number of latents."""
    l0: float | None = None
    """Mean number of active latents of a token."""


class WeightNames(NamedTuple):
    """Names of an SAE's tensors in a file, and the orientation of both matrices."""

    W_enc: str
    b_enc: str
    W_dec: str
    b_dec: str
    encoder_by_latent: bool = True
    """True for W_enc as [num_latents, d], False for [d, num_latents]."""
    decoder_by_latent: bool = True
    """The same of W_dec."""


class Weights(NamedTuple):
    """The weights of an SAE over raw states h.

    Activations are ``p · [p > threshold]``, or the k largest p, with ``p = W_enc h + b_enc``, or
    ``p = W_enc (h − b_dec) + b_enc`` in centred layouts.
    """

    W_enc: Tensor
    """[num_latents, d]"""
    b_enc: Tensor
    """[num_latents]"""
    W_dec: Tensor
    """[num_latents, d]"""
    b_dec: Tensor
    """[d]"""
    threshold: Tensor | None = None
    """[num_latents], at least 0; None for an SAE with k."""


class Layout(ABC):
    """An SAE in the files of a release: opening checks sizes and settings, ``load`` reads weights.
    ``path`` is the folder's name in the release, of which ``folder`` may be a copy. Raises
    InputError if files are missing or damaged, disagree on a size, or have a setting unknown to
    ``SAE``."""

    name: ClassVar[str]
    config_file: ClassVar[str | None]
    weights_file: ClassVar[str]
    pickled: ClassVar[bool] = False

    architecture: str = "jumprelu"
    d_in: int
    num_latents: int
    k: int | None = None
    """Active latents per token; None for an SAE with thresholds."""
    centred: bool = False
    hook: str | None = None
    model: str | None = None
    """Name of the language model of the states."""
    bidirectional: bool | None = None
    """True if tokens attend to later tokens; None if unknown."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        self.hook = self.path_facts(path).hook
        empty = Config(str(folder), {})
        self.config = Config.read(folder / self.config_file) if self.config_file else empty
        weights = folder / self.weights_file
        self.tensors = _READERS[weights.suffix](weights)

    @classmethod
    def path_facts(cls, path: str) -> PathFacts:
        """Return the properties in a folder's path: here the hook, if the last name is a hook."""
        name = path.rpartition("/")[2]
        return PathFacts(name if block_of(name) is not None else None)

    @property
    def layer(self) -> int | None:
        """Number of blocks before the SAE; None if unknown, or not between two blocks."""
        return layer_of(self.hook)

    @abstractmethod
    def load(self) -> SAE:
        """Load the SAE, not trainable; see ``PretrainedSAE.load``."""

    def _require_sizes(self, config: Config, d_in: str, num_latents: str) -> None:
        for name, actual in ((d_in, self.d_in), (num_latents, self.num_latents)):
            said = config.get(name, int, actual)
            if said != actual:
                file = self.tensors.path.name
                raise InputError(f"{config.source}: {name} is {said}, but {actual} in {file}")

    def _use_top(self, k: int) -> None:
        if k > self.num_latents:
            raise InputError(f"{self.folder}: k is {k}, of {self.num_latents} latents")
        self.k, self.architecture = k, "topk"


class LexiceptLayout(Layout):
    """The files ``sae.json`` and ``sae.safetensors`` of ``SAE.save``, for all architectures."""

    name = "lexicept"
    config_file = "sae.json"
    weights_file = "sae.safetensors"

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        self.num_latents, self.d_in = self.tensors.shape("W_enc")
        self._require_sizes(self.config, "d_in", "num_latents")
        self.architecture = self.config.get("architecture", str)
        if self.config.values.get("k") is not None:
            self._use_top(self.config.get("k", int))
        self.origin = self.config.section("origin")
        self.hook = self.origin.text("hook")
        self.model = self.origin.text("model")
        bidirectional = self.origin.values.get("bidirectional")
        self.bidirectional = bidirectional if isinstance(bidirectional, bool) else None

    @property
    def layer(self) -> int | None:
        recorded = self.origin.values.get("layer") is not None
        return self.origin.get("layer", int) if recorded else layer_of(self.hook)

    def load(self) -> SAE:
        return SAE.load(self.folder).eval().requires_grad_(False)


class Release(Layout):
    """A layout of another library, whose weights are converted to ``Weights``."""

    def load(self) -> SAE:
        try:
            weights = self.weights()
        except RuntimeError as error:  # a factor that float32 can't hold
            raise InputError(f"{self.folder}: weights that can't be scaled: {error}") from None
        options: dict[str, Any] = {"architecture": self.architecture, "centred": self.centred}
        with torch.device("meta"):  # the initial weights are replaced below
            sae = SAE(self.d_in, self.num_latents, self.k, **options)
        state = {name: value for name, value in weights._asdict().items() if value is not None}
        for name, value in state.items():
            if not bool(torch.isfinite(value).all()):
                raise InputError(f"{self.folder}: {name} does not fit float32 once it is scaled")
        state |= {"mean": torch.zeros(self.d_in), "scale": torch.ones(())}
        sae.load_state_dict(state, assign=True)
        return sae.eval().requires_grad_(False)

    @abstractmethod
    def weights(self) -> Weights:
        """Read and convert the weights."""

    @classmethod
    def write(cls, folder: Path, config: dict[str, Any], weights: bytes) -> None:
        replace_file(folder / cls.weights_file, weights)
        write_json(folder / str(cls.config_file), config)

    def _open_tensors(self, names: WeightNames, per_latent: Sequence[str] = ()) -> None:
        """Take the sizes from W_enc's shape, and check the shapes of all other tensors, those
        ``per_latent`` of one number for each latent."""
        self.names, shape = names, self.tensors.shape(names.W_enc)
        by_latent = shape if names.encoder_by_latent else shape[::-1]
        self.num_latents, self.d_in = by_latent
        self.tensors.expect(names.W_dec, *by_latent[:: 1 if names.decoder_by_latent else -1])
        self.tensors.expect(names.b_dec, self.d_in)
        for name in (names.b_enc, *per_latent):
            self.tensors.expect(name, self.num_latents)

    def _read_matrices(self) -> Weights:
        """Read matrices and biases, with one row per latent and without thresholds."""
        W_enc, b_enc, W_dec, b_dec = map(self.tensors.read, self.names[:4])
        W_enc = W_enc if self.names.encoder_by_latent else W_enc.T.contiguous()
        W_dec = W_dec if self.names.decoder_by_latent else W_dec.T.contiguous()
        return Weights(W_enc, b_enc, W_dec, b_dec)

    def _fold_gate(self, weights: Weights, gate_bias: str) -> Tensor:
        """Turn a gated SAE (Rajamanoharan et al. 2024a) into one with thresholds [num_latents], and
        return these: ``[W x + b_gate > 0] · ReLU(p)`` with ``p = exp(r_mag) W x + b_enc`` is p
        above a threshold. W is scaled in place to W_enc."""
        b_gate, gain = self.tensors.read(gate_bias), self.tensors.read("r_mag").exp()
        weights.W_enc.mul_(gain[:, None])
        return F.relu(weights.b_enc - gain * b_gate)


def raw_weights(sae: SAE, *, centred: bool) -> Weights:
    """Return the weights of an SAE over raw states, with normalisation folded in and ``h − b_dec``
    as W_enc's input if ``centred``; activations stay. Raises InputError for an SAE without decoder.
    """
    sae.need_decoder()
    with torch.no_grad():
        # In units of h: σ p = W_enc (h − h̄ − σ b_dec) + σ b_enc.
        b_enc, b_dec = sae.b_enc * sae.scale, sae.mean + sae.scale * sae.b_dec
        if not sae.centred:
            b_enc = b_enc - sae.W_enc @ sae.mean
        if centred != sae.centred:
            shift = sae.W_enc @ b_dec
            b_enc = b_enc + shift if centred else b_enc - shift
        threshold = None if sae.threshold is None else sae.threshold * sae.scale
    return Weights(sae.W_enc.detach(), b_enc, sae.W_dec.detach(), b_dec, threshold)


def contiguous(**tensors: Tensor) -> dict[str, Tensor]:
    """Return tensors as files hold them: float32, contiguous, sharing no memory."""
    return {name: tensor.float().clone().contiguous() for name, tensor in tensors.items()}


def fold_norms(weights: Weights) -> None:
    """Scale decoder rows to norm 1, in place, and activations by the rows' norms.

    The reconstruction stays the same.
    """
    norms = weights.W_dec.norm(dim=1)
    weights.W_enc.mul_(norms[:, None])
    weights.b_enc.mul_(norms)
    weights.W_dec.div_(norms.clamp_min(torch.finfo(norms.dtype).tiny)[:, None])

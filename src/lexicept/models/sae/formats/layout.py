"""The interface of the layouts of pretrained SAEs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from lexicept.errors import InputError
from lexicept.models.sae.formats.config import Config
from lexicept.models.sae.formats.tensors import Npz, Pickled, Safetensors, Tensors
from lexicept.models.sae.model import SAE, block_of, layer_of

Scale = Literal["raw", "normalised"]

_READERS: dict[str, type[Tensors]] = {".safetensors": Safetensors, ".npz": Npz, ".pt": Pickled}


class Place(NamedTuple):
    """Properties of an SAE that its folder's path tells; None for those it does not."""

    hook: str | None = None
    width: int | None = None
    """Number of latents."""
    l0: float | None = None
    """Mean number of active latents of a token."""


class Weights(NamedTuple):
    """The weights of an SAE over raw states h.

    Activations are ``p · [p > threshold]``, or the k largest p, with ``p = W_enc h + b_enc``; where
    the layout is centred, W_enc multiplies ``h − b_dec``.
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
    """One SAE in the files of a release.

    Opening it reads and checks its sizes and settings; ``load`` reads its weights.

    Args:
        folder: holds ``config_file``, if the layout has one, and ``weights_file``.
        path: the folder's name in its release, where ``folder`` may be a copy.

    Raises:
        InputError: files are missing or damaged, disagree on a size, or have a setting that ``SAE``
            can't express.
    """

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
    input_scale: float = 1.0
    """Factor s, where the SAE was trained on scaled states s·h."""
    hook: str | None = None
    model: str | None = None
    """Name of the language model whose states it reads."""
    bidirectional: bool | None = None
    """True if the tokens of these states attend to those after them; None if unknown."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        self.hook = self.place(path).hook
        empty = Config(str(folder), {})
        self.config = Config.read(folder / self.config_file) if self.config_file else empty
        weights = folder / self.weights_file
        self.tensors = _READERS[weights.suffix](weights)

    @classmethod
    def place(cls, path: str) -> Place:
        """Return what a folder's path tells: by default the hook, if its last part names one."""
        name = path.rpartition("/")[2]
        return Place(name if block_of(name) is not None else None)

    @property
    def layer(self) -> int | None:
        """Number of blocks before the SAE; None if unknown, or not between two blocks."""
        return layer_of(self.hook)

    @abstractmethod
    def load(self, scale: Scale | None) -> SAE:
        """Load the SAE, not trainable.

        Args:
            scale: the unit of activations: ``raw``, the default, gives those of raw states h;
                ``normalised`` gives those of s·h, which are s times as large.

        Raises:
            InputError: the weights are damaged or not finite.
        """

    def _require_sizes(self, config: Config, d_in: str, num_latents: str) -> None:
        """Raise InputError if the weights' sizes differ from those under two names of a config."""
        for name, actual in ((d_in, self.d_in), (num_latents, self.num_latents)):
            said = config.integer(name, actual)
            if said != actual:
                file = self.tensors.path.name
                raise InputError(f"{config.place}: {name} is {said}, but {actual} in {file}")

    def _use_top(self, k: int) -> None:
        if k > self.num_latents:
            raise InputError(f"{self.folder}: k is {k}, of {self.num_latents} latents")
        self.k, self.architecture = k, "topk"


class Release(Layout):
    """A layout of another library, whose weights are converted to ``Weights``."""

    def load(self, scale: Scale | None) -> SAE:
        try:
            weights = self.weights()
        except RuntimeError as error:  # a factor that float32 can't hold
            raise InputError(f"{self.folder}: weights that can't be scaled: {error}") from None
        if scale == "normalised" and self.input_scale != 1:
            _multiply(weights, self.input_scale)
        with torch.device("meta"):  # its initial weights are replaced below
            sae = SAE(
                self.d_in,
                self.num_latents,
                self.k,
                architecture=self.architecture,
                centred=self.centred,
            )
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


def raw_weights(sae: SAE, *, centred: bool) -> Weights:
    """Return the weights of an SAE over raw states: its normalisation is folded into them.

    Args:
        centred: whether W_enc shall multiply ``h − b_dec``; the activations are the same.

    Raises:
        InputError: the SAE has no decoder.
    """
    sae.need_decoder()
    with torch.no_grad():
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


def fold_norms(W_enc: Tensor, b_enc: Tensor, W_dec: Tensor) -> None:
    """Scale decoder rows to norm 1, in place, and activations by the rows' norms.

    The reconstruction stays the same.
    """
    norms = W_dec.norm(dim=1)
    W_enc.mul_(norms[:, None])
    b_enc.mul_(norms)
    W_dec.div_(norms.clamp_min(torch.finfo(norms.dtype).tiny)[:, None])


def _multiply(weights: Weights, s: float) -> None:
    """Multiply activations by s, in place."""
    for tensor in (weights.W_enc, weights.b_enc, weights.threshold):
        if tensor is not None:
            tensor.mul_(s)
    weights.W_dec.div_(s)

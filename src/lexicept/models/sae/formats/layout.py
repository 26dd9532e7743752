"""What every layout of pretrained SAEs has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from lexicept.errors import InputError
from lexicept.models.sae.formats.config import Config
from lexicept.models.sae.formats.tensors import Npz, Pickled, Safetensors, Tensors
from lexicept.models.sae.hooks import block_of, layer_of
from lexicept.models.sae.model import SAE

Scale = Literal["raw", "normalised"]

_READERS: dict[str, type[Tensors]] = {".safetensors": Safetensors, ".npz": Npz, ".pt": Pickled}


class Place(NamedTuple):
    """What the path of an SAE's folder says about it; None where it says nothing."""

    hook: str | None = None
    width: int | None = None
    """Number of latents."""
    l0: float | None = None
    """Mean number of active latents of a token."""


class Weights(NamedTuple):
    """An SAE over raw states: ``f = p · [p > threshold]`` of ``p = W_enc h + b_enc``, or its k
    largest; W_enc takes ``h − b_dec`` where the layout is centred."""

    W_enc: Tensor
    """[num_latents, d]"""
    b_enc: Tensor
    """[num_latents]"""
    W_dec: Tensor
    """[num_latents, d]"""
    b_dec: Tensor
    """[d]"""
    threshold: Tensor | None = None
    """[num_latents], at least 0; None where k counts."""


class Layout(ABC):
    """One SAE in the files of a release. What it is, is read and checked when it is opened; its
    weights by ``load``.

    Args:
        folder: holds ``config_file``, if the layout has one, and ``weights_file``.
        path: the folder's name in its release, where ``folder`` may be a copy.

    Raises:
        InputError: files that are missing or damaged, that disagree on a size, or that say what
            this layout can't express.
    """

    name: ClassVar[str]
    config_file: ClassVar[str | None]
    weights_file: ClassVar[str]
    pickled: ClassVar[bool] = False

    architecture: str = "jumprelu"
    d_in: int
    num_latents: int
    k: int | None = None
    """Active latents per token; None where thresholds decide."""
    centred: bool = False
    input_scale: float = 1.0
    """s of the states s·h that the SAE was trained on."""
    hook: str | None = None
    model: str | None = None
    """The language model that the states are of."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        self.hook = self.place(path).hook
        empty = Config(str(folder), {})
        self.config = Config.read(folder / self.config_file) if self.config_file else empty
        weights = folder / self.weights_file
        self.tensors = _READERS[weights.suffix](weights)

    @classmethod
    def place(cls, path: str) -> Place:
        """What a folder's path says: by default, whether its last part is a hook's name."""
        name = path.rpartition("/")[2]
        return Place(name if block_of(name) is not None else None)

    @property
    def layer(self) -> int | None:
        """Blocks that are run before the SAE; None where that is unknown, or it reads no state."""
        return layer_of(self.hook)

    @abstractmethod
    def load(self, scale: Scale | None) -> SAE:
        """The SAE, not trainable.

        Args:
            scale: of the activations: ``raw``, the default, for those of the weights on raw
                states, ``normalised`` for those on s·h, which are s times as large.

        Raises:
            InputError: weights that are damaged or not finite.
        """

    def _require_sizes(self, config: Config, d_in: str, num_latents: str) -> None:
        """Compare the sizes of the weights with those under two names of a config."""
        for name, found in ((d_in, self.d_in), (num_latents, self.num_latents)):
            said = config.integer(name, found)
            if said != found:
                file = self.tensors.path.name
                raise InputError(f"{config.place}: {name} is {said}, but {found} in {file}")

    def _use_top(self, k: int) -> None:
        if k > self.num_latents:
            raise InputError(f"{self.folder}: k is {k}, of {self.num_latents} latents")
        self.k, self.architecture = k, "topk"


class Release(Layout):
    """A layout whose weights are brought to ``Weights``' form."""

    def load(self, scale: Scale | None) -> SAE:
        try:
            weights = self.weights()
        except RuntimeError as error:  # a factor that float32 can't hold
            raise InputError(f"{self.folder}: weights that can't be scaled: {error}") from None
        if scale == "normalised" and self.input_scale != 1:
            _multiply(weights, self.input_scale)
        with torch.device("meta"):  # the weights that it starts with are never needed
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
        """Read the weights."""


def fold_norms(W_enc: Tensor, b_enc: Tensor, W_dec: Tensor) -> None:
    """Bring decoder rows to norm 1, in place, without a change of the reconstruction: a latent's
    activation takes its row's norm."""
    norms = W_dec.norm(dim=1)
    W_enc.mul_(norms[:, None])
    b_enc.mul_(norms)
    W_dec.div_(norms.clamp_min(torch.finfo(norms.dtype).tiny)[:, None])


def _multiply(weights: Weights, s: float) -> None:
    """Make activations s times as large, in place."""
    for tensor in (weights.W_enc, weights.b_enc, weights.threshold):
        if tensor is not None:
            tensor.mul_(s)
    weights.W_dec.div_(s)

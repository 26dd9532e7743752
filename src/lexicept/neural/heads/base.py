"""Heads: hidden states of tokens → one sparse vector per text.

Every head is a linear map over a vocabulary, ``v_i = rows · transform(h_i) + bias``, followed by
ReLU or thresholds, the k largest activations of every token, pooling and log1p. Heads differ in
the vocabulary and in the origin of the rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from safetensors import SafetensorError
from sentence_transformers.base.modules import Module
from torch import Tensor

from lexicept.encoding.head_settings import HeadSettings
from lexicept.errors import IndexFormatError, InputError
from lexicept.neural.kernels.linear_outputs import fire, top_activations
from lexicept.neural.kernels.pooling import Activations, pool_max, pool_sum, root_of_sums
from lexicept.vectors import Floats, Integers

if TYPE_CHECKING:
    from lexicept.neural.sae.model import SAE

DAMAGED = (SafetensorError, IndexFormatError)


class Head(Module):  # type: ignore[misc]
    """The last module of an encoder: hidden states of tokens → sparse vectors.

    ``forward`` turns ``token_embeddings`` [windows, length, d] into ``sentence_embedding``
    [texts, size], without padding and special tokens, and without a tokens × vocabulary array.
    """

    forward_kwargs: ClassVar[set[str]] = {"task", "max_active_dims"}
    settings: HeadSettings

    @abstractmethod
    def transform(self, states: Tensor) -> Tensor:
        """Return the input of the linear map [n, d] for states [n, d]."""

    @property
    @abstractmethod
    def rows(self) -> Tensor:
        """One row per dimension of the vocabulary [size, d]."""

    @property
    @abstractmethod
    def bias(self) -> Tensor:
        """Bias of every dimension [size]."""

    @property
    def threshold(self) -> Tensor | None:
        """Threshold of v [size], at least 0; None for ReLU."""
        return None

    @property
    def gain(self) -> Tensor | float:
        """Factor on all activations, above 0."""
        return 1.0

    @property
    def terms(self) -> Sequence[str] | None:
        """Readable name of each dimension; None for dimensions without names."""
        return None

    @property
    def autoencoder(self) -> SAE | None:
        """SAE whose latents are the dimensions; None for other heads."""
        return None

    @property
    def before_autoencoder(self) -> Callable[[Tensor], Tensor] | None:
        """Transform of the states [n, d] that the SAE reads; None for the states themselves."""
        return None

    @property
    def directions(self) -> Floats:
        """Direction of each dimension in the space of states, f32 [size, d]."""
        return self.rows.float().numpy(force=True)

    def dimension_kind(self, num_tokens: int) -> str:
        """Return concepts, sub-words or words: the dimensions over ``num_tokens`` sub-words."""
        return "concepts"

    def reconstruct(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return an SAE's normalised input for token states [n, d], and the reconstruction [n, d].
        Raises InputError for a head without an SAE."""
        raise InputError("only a head over an SAE reconstructs states")

    def freeze_unused(self, decoder: bool) -> None:
        """Freeze the parameters that no vector depends on, with ``decoder`` also an SAE's decoder,
        which only reconstruction needs."""

    @property
    def size(self) -> int:
        """Number of dimensions."""
        return len(self.rows)

    @property
    def d_in(self) -> int:
        """Size d of a state."""
        return int(self.rows.shape[1])

    @torch.no_grad()
    def calibrate(self, states: Tensor, active_dims: int) -> None:
        """Shift all biases by a number so that the tokens of a sample of states [n, d] have
        ``active_dims`` active dimensions on average; the order of a token's dimensions, and a
        language head's cross entropy, stay. Raises InputError for no states, for a head with
        thresholds, and for ``active_dims`` below 1 or not below the size."""
        if self.threshold is not None:
            raise InputError("only a head without thresholds can be calibrated")
        if not 0 < active_dims < self.size:
            raise InputError(
                f"{active_dims} active dimensions: the number must be above 0 and below the head's "
                f"{self.size} dimensions"
            )
        if not len(states):
            raise InputError("a head can't be calibrated: the texts have no tokens")
        # The largest active_dims · n of all values of v stay above 0.
        pre = torch.addmm(self.bias, self.transform(states), self.rows.T).ravel()
        self.bias.sub_(pre.kthvalue(len(pre) - active_dims * len(states)).values)

    def encode(self, states: Tensor, k: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the k largest activations of every token of states [n, d], at least 0, and the
        dimensions, both [n, k]; k is by default the documents', or else the largest number of
        active dimensions of a token. The dimension of an activation of 0 is arbitrary."""
        limit = k or self.settings.document_k
        x = self.transform(states)
        acts, dimensions = top_activations(x, self.rows, self.bias, limit, self.threshold)
        return self.scaled(acts), dimensions

    @torch.inference_mode()
    def token_addends(self, states: Tensor, dimensions: Sequence[int], task: str) -> Floats:
        """Return the addends of ``pool`` [n, m]: each token's activations of m dimensions, with
        pooling ``sum`` the logarithms log1p; 0 also where a dimension is not among the token's k.
        """
        x, k, threshold = self.transform(states), self.settings.k(task), self.threshold
        columns = torch.tensor(dimensions, dtype=torch.long, device=x.device)
        if k is None or k >= self.size:
            of_these = None if threshold is None else threshold[columns]
            acts = fire(torch.addmm(self.bias[columns], x, self.rows[columns].T), of_these)
        else:
            fired_acts, fired = top_activations(x, self.rows, self.bias, k, threshold)
            # A column for each dimension asked for, and one more for all others.
            outside = len(columns)
            column = columns.new_full((self.size,), outside)
            column[columns] = torch.arange(outside, device=columns.device)
            acts = fired_acts.new_zeros(len(x), outside + 1)
            acts = acts.scatter(1, column[fired], fired_acts)[:, :outside]
        return self.addends(self.scaled(acts)).cpu().numpy()

    @torch.inference_mode()
    def largest_acts(self, states: Tensor) -> tuple[Floats, Integers]:
        """Return the documents' activations and dimensions of ``encode`` as arrays."""
        acts, dimensions = self.encode(states)
        return acts.cpu().numpy(), dimensions.cpu().numpy()

    @torch.inference_mode()
    def largest_addends(self, states: Tensor, k: int) -> tuple[Floats, Integers]:
        """Return the addends of tokens' k largest activations, and the dimensions, both [n, k]."""
        acts, dimensions = self.encode(states, k)
        return self.addends(acts).cpu().numpy(), dimensions.cpu().numpy()

    @torch.inference_mode()
    def pool_batch(self, states: Tensor, texts: Integers, task: str) -> tuple[Integers, Floats]:
        """Return cells of [texts, size] and the values of pooled activations; only without k."""
        present, inverse = torch.unique(torch.from_numpy(texts), return_inverse=True)
        pooled = self.pool(states, inverse.to(states.device), len(present), task).cpu()
        text, dimension = torch.nonzero(pooled, as_tuple=True)
        cells = present[text] * self.size + dimension
        return cells.numpy(), pooled[text, dimension].numpy()

    def pool(self, states: Tensor, text: Tensor, num_texts: int, task: str | None = None) -> Tensor:
        """Pool the activations of states [n, d], of texts by number [n]: maximum, sum of logarithms
        (pooling ``sum``), or sum (``sqrt_sum``), [num_texts, size]. Long texts may be pooled in
        pieces, whose maxima or sums are combined before ``finish``."""
        x, k, threshold = self.transform(states), self.settings.k(task), self.threshold
        tokens = Activations(x, text, num_texts, self.rows, self.bias, k, threshold)
        if self.settings.pooling == "max":
            # Activations rise with v, so the maximum of v may be taken first.
            return self.scaled(pool_max(tokens))
        if self.settings.pooling == "sqrt_sum":
            return self.scaled(pool_sum(tokens, log=False))
        # ReLU and thresholds commute with a positive gain, so the linear map may carry the gain.
        tokens = tokens._replace(
            matrix=self.rows * self.gain,
            bias=self.bias * self.gain,
            threshold=None if threshold is None else threshold * self.gain,
        )
        return pool_sum(tokens, log=True)

    def finish(self, pooled: Tensor) -> Tensor:
        """Return the pooled activations of whole texts, of any shape: the root of the sums of
        ``pool`` with pooling ``sqrt_sum``, else unchanged."""
        return root_of_sums(pooled) if self.settings.pooling == "sqrt_sum" else pooled

    def scaled(self, fired: Tensor) -> Tensor:
        """Return activations from the outputs of ReLU or thresholds."""
        acts = fired * self.gain
        return torch.log1p(acts) if self.settings.double_log else acts

    def addends(self, acts: Tensor) -> Tensor:
        """Return the addends of pooling from activations."""
        return torch.log1p(acts) if self.settings.pooling == "sum" else acts

    def forward(
        self,
        features: dict[str, Any],
        task: str | None = None,
        max_active_dims: int | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Add ``sentence_embedding`` [texts, size]. Raises InputError without a ``Backbone``."""
        if "token_mask" not in features:
            raise InputError(
                "a head needs the token_mask of the Backbone of lexicept.neural before it"
            )
        mask = features["token_mask"]
        text = features["window_text"][:, None].expand(mask.shape)[mask]
        # The trainer's collator drops plain numbers; every text has at least one window.
        num_texts = int(features["window_text"].max()) + 1
        pooled = self.finish(self.pool(features["token_embeddings"][mask], text, num_texts, task))
        vectors = torch.log1p(pooled) if self.settings.pooling == "max" else pooled
        limit = max_active_dims
        if not limit and not self.training:
            limit = self.settings.max_active_dims(task)
        if limit is not None and limit < self.size:
            vectors = _largest(vectors, limit)
        if task == "query" and self.settings.query_scale != 1:
            vectors = vectors * self.settings.query_scale
        features["sentence_embedding"] = vectors
        return features

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move the head, but keep float32: the library would apply the backbone's type."""
        args = tuple(argument for argument in args if not isinstance(argument, torch.dtype))
        kwargs.pop("dtype", None)
        return super().to(*args, **kwargs) if args or kwargs else self

    def get_embedding_dimension(self) -> int:
        return self.size

    def configure(self, **changes: Any) -> None:
        """Change some settings. Raises InputError for values out of range."""
        self.settings = replace(self.settings, **changes)

    def get_config_dict(self) -> dict[str, Any]:
        return asdict(self.settings)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Head:
        """Read a head from the module folder of a model here or on the hub. Raises InputError for a
        folder without such a head."""
        hub = {
            name: kwargs[name]
            for name in ("token", "cache_folder", "revision", "local_files_only")
            if name in kwargs
        }
        folder = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **hub)
        if folder is None:
            raise InputError(f"{model_name_or_path}: no head in {subfolder!r}")
        return cls.read(Path(folder))

    @classmethod
    @abstractmethod
    def read(cls, folder: Path) -> Head:
        """Read a head from a local module folder. Raises InputError for any other folder."""


def _largest(vectors: Tensor, limit: int) -> Tensor:
    """Keep the ``limit`` largest weights of every row [n, size], the lower dimension among equal
    weights, as ``vectors.prune_rows`` does."""
    order = vectors.sort(dim=1, descending=True, stable=True).indices[:, :limit]
    return torch.zeros_like(vectors).scatter(1, order, vectors.gather(1, order))

"""The training objective: ranking losses and regularisers of one batch."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lexicept.errors import InputError
from lexicept.neural.heads.base import Head
from lexicept.training.ranking import losses, regularizers
from lexicept.training.ranking.config import TrainingConfig
from lexicept.training.ranking.regularizers import DocumentFrequencies

Batch = dict[str, Any]


class _TextOutputs(NamedTuple):
    """The model's outputs for a mini-batch of texts."""

    vectors: Tensor
    """Vectors of the texts [texts, V]."""
    states: Tensor | None
    """States of all tokens [n, d], for the reconstruction loss."""


class Objective(nn.Module):
    """Weighted losses of an encoder on a batch; training minimises the sum.

    With ``optimizer.mini_batch``, gradients are cached: a batch goes through the model twice, in
    mini-batches, with the activations of one mini-batch in memory (Gao et al. 2021). Raises
    InputError for a reconstruction loss with a head without an SAE.

    Args:
        head: the model's head.
    """

    def __init__(self, model: nn.Module, head: Head, config: TrainingConfig) -> None:
        super().__init__()
        loss = config.loss
        if loss.reconstruction and head.autoencoder is None:
            raise InputError("loss.reconstruction requires a head over an SAE")
        self.model = model
        self.settings = loss
        self.cached = config.optimizer.mini_batch is not None
        self._reconstruct = head.reconstruct if loss.reconstruction else None
        learns = loss.scale_learning_rate > 0
        self.log_scale = nn.Parameter(torch.tensor(math.log(loss.scale)), requires_grad=learns)
        self.word_weight = nn.Parameter(
            torch.tensor(float(loss.words)), requires_grad=learns and loss.words > 0
        )
        self.sides = {"query": config.query_regularizer, "document": config.document_regularizer}
        self._joint = config.joint_regularizer
        self.df = nn.ModuleDict(
            {
                side: DocumentFrequencies(head.size, settings.df_texts)
                for side, settings in self.sides.items()
                if settings.kind == "df_flops"
            }
        )
        self._own_losses = [own.make() for own in loss.own]
        self._regularizer_of = {
            side: getattr(regularizers, settings.kind)
            if isinstance(settings.kind, str)
            else settings.kind.make()
            for side, settings in self.sides.items()
        }
        parts = (*self._own_losses, *self._regularizer_of.values())
        # Their parameters are learned, and saved in checkpoints.
        self.own_parts = nn.ModuleList(part for part in parts if isinstance(part, nn.Module))
        self.step = 0
        """Number of optimiser steps so far; the trainer sets it."""

    def own_state(self) -> dict[str, Tensor]:
        """Return the learnable factors and document frequencies, for a checkpoint."""
        state = self.state_dict()
        return {name: value for name, value in state.items() if not name.startswith("model.")}

    def load_own_state(self, state: dict[str, Tensor]) -> None:
        """Continue from ``own_state``. Raises InputError for the state of another objective."""
        missing, unexpected = self.load_state_dict(state, strict=False)
        lost = [name for name in missing if not name.startswith("model.")]
        if lost or unexpected:
            raise InputError(f"a checkpoint of another objective: {[*lost, *unexpected]}")

    @property
    def query_scale(self) -> float:
        """Factor on query weights beside words of weight 1."""
        if not self.settings.words:
            return 1.0
        scale = float(self.log_scale.detach().exp()) / self.settings.temperature
        return scale / max(float(self.word_weight.detach()), 1e-6)

    def forward(self, batch: Batch, _labels: None = None) -> dict[str, Tensor]:
        """Compute the weighted losses of a batch of ``Collator``. Raises InputError for ``loss.kl``
        or ``loss.margin_mse`` without a teacher or scored lists."""
        queries = torch.cat([self._run(features, "query").vectors for features in batch["query"]])
        outputs = [self._run(features, "document") for features in batch["document"]]
        documents = torch.cat([output.vectors for output in outputs])
        terms = self.components(queries, documents, batch["targets"])
        return terms | self._reconstruction(outputs)

    def components(
        self, queries: Tensor, documents: Tensor, targets: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Compute the weighted losses of query vectors [B, V] and document vectors [D, V]."""
        # Sums over a large vocabulary lose too much in half precision.
        with torch.autocast(queries.device.type, enabled=False):
            queries, documents = queries.float(), documents.float()
            terms = self._ranking_losses(queries, documents, targets)
            return terms | self._regularizers(queries, documents)

    def scores(self, queries: Tensor, documents: Tensor, targets: dict[str, Tensor]) -> Tensor:
        """Return the student's score of every pair [B, D]."""
        scores = self.log_scale.exp() / self.settings.temperature * (queries @ documents.T)
        return scores + self.word_weight * targets["words"] if self.settings.words else scores

    def _run(self, features: dict[str, Any], task: str) -> _TextOutputs:
        if not (self.cached and torch.is_grad_enabled()):
            return self._outputs(features, task)
        # With the same dropout, and a mini-batch's activations freed before the next one's.
        outputs: _TextOutputs = checkpoint(self._outputs, features, task, use_reentrant=False)
        return outputs

    def _outputs(self, features: dict[str, Any], task: str) -> _TextOutputs:
        features = self.model(dict(features), task=task, max_active_dims=sys.maxsize)
        vectors = features["sentence_embedding"]
        if self._reconstruct is None or task == "query":
            return _TextOutputs(vectors, None)
        return _TextOutputs(vectors, features["token_embeddings"][features["token_mask"]].detach())

    def _reconstruction(self, outputs: Sequence[_TextOutputs]) -> dict[str, Tensor]:
        """Compute the error of the SAE on the documents' states, see ``reconstruction_error``."""
        if self._reconstruct is None:
            return {}
        states = torch.cat([output.states for output in outputs if output.states is not None])
        with torch.autocast(states.device.type, enabled=False):
            x, x_hat = self._reconstruct(states.float())
            loss = losses.fraction_unexplained(x, x_hat)
            if self.settings.reconstruction_error == "squared":
                loss = (x_hat - x.detach()).square().sum() / max(len(x), 1)
        return {"reconstruction": self.settings.reconstruction * loss}

    def _ranking_losses(
        self, queries: Tensor, documents: Tensor, targets: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        q_top_k, d_top_k = self.settings.query_top_k, self.settings.document_top_k
        ranked = self._ranked(queries, documents, targets)
        if q_top_k is None and d_top_k is None:
            return self._rank(ranked, targets)
        # ESPLADE: the ranking of vectors cut to their largest weights, and of whole vectors (dual).
        masked_q = queries if q_top_k is None else losses.mask_top_k(queries, q_top_k)
        masked_d = documents if d_top_k is None else losses.mask_top_k(documents, d_top_k)
        masked = self._ranked(masked_q, masked_d, targets)
        terms = {f"masked_{name}": loss for name, loss in self._rank(masked, targets).items()}
        if self.settings.dual:
            terms |= self._rank(ranked, targets)
        if self.settings.mask_divergence:
            # The whole vectors teach the cut vectors (ESPLADE, after Yang et al. 2021).
            divergence = losses.kl_divergence(masked.scores, ranked.scores)
            terms["mask_divergence"] = self.settings.mask_divergence * divergence
        return terms

    def _ranked(
        self, queries: Tensor, documents: Tensor, targets: dict[str, Tensor]
    ) -> losses.Ranked:
        scores, columns = self.scores(queries, documents, targets), targets["columns"]
        taught = targets.get("scores")
        if taught is None and "teacher" in targets:
            taught = targets["teacher"].gather(1, columns)
        return losses.Ranked(
            queries,
            documents,
            scores,
            targets["known"],
            scores.gather(1, columns),
            targets["mask"],
            targets["relevant"],
            taught,
        )

    def _rank(self, ranked: losses.Ranked, targets: dict[str, Tensor]) -> dict[str, Tensor]:
        settings, terms = self.settings, {}
        lists, mask, taught = ranked.lists, ranked.mask, ranked.taught
        if settings.kl:
            if "teacher" in targets:
                kl = losses.kl_divergence(ranked.scores, targets["teacher"])
            elif taught is not None:
                kl = losses.kl_divergence(lists, taught, mask=mask)
            else:
                raise InputError("loss.kl requires a teacher, or lists with scores")
            terms["kl"] = settings.kl * kl
        if settings.margin_mse:
            if taught is None:
                raise InputError("loss.margin_mse requires a teacher, or lists with scores")
            pairs = mask & ranked.relevant[:, None]
            terms["margin_mse"] = settings.margin_mse * losses.margin_mse(lists, taught, mask=pairs)
        if settings.in_batch:
            judged = torch.nonzero(ranked.relevant).ravel()
            terms["in_batch"] = settings.in_batch * losses.in_batch_softmax(
                ranked.scores[judged],
                targets["columns"][judged, 0],
                excluded=None if settings.in_batch_known else ranked.known[judged],
            )
        for index, (own, loss) in enumerate(zip(settings.own, self._own_losses, strict=True)):
            terms[f"{own.name}_{index}"] = own.weight * self._scalar(own.name, loss(ranked))
        return terms

    def _regularizers(self, queries: Tensor, documents: Tensor) -> dict[str, Tensor]:
        terms = {}
        for side, vectors in (("query", queries), ("document", documents)):
            settings = self.sides[side]
            weight = settings.weight_at(self.step)
            # Frequencies first, so that the penalties of a first batch are not all 0.
            if side in self.df and self.training and settings.df_source == "batches":
                self._df(side).update(vectors.detach())
            if weight:
                if settings.kind == "df_flops":
                    ratios = self._df(side).ratios
                    penalties = regularizers.df_penalties(ratios, settings.alpha, settings.beta)
                    sparsity = regularizers.df_flops(vectors, penalties)
                else:
                    sparsity = self._regularizer_of[side](vectors)
                name = settings.kind if isinstance(settings.kind, str) else settings.kind.name
                terms[f"{side}_{name}"] = weight * self._scalar(name, sparsity)
        joint = self._joint.weight_at(self.step)
        if joint:
            terms["joint_flops"] = joint * regularizers.joint_flops(queries, documents)
        return terms

    def _scalar(self, name: str, loss: Any) -> Tensor:
        """Return a loss as a tensor. Raises InputError if it is no single number."""
        if not isinstance(loss, Tensor | Real) or (value := torch.as_tensor(loss)).numel() != 1:
            raise InputError(f"{name}: {loss!r:.80} is no single number, as a loss is")
        return value.to(self.log_scale).reshape(()) + 0 * self.log_scale

    def _df(self, side: str) -> DocumentFrequencies:
        module = self.df[side]
        assert isinstance(module, DocumentFrequencies)
        return module

    def recount(
        self, side: Literal["query", "document"], batches: Iterable[dict[str, Any]]
    ) -> None:
        """Replace ``df_flops``' document frequencies by a sample's frequencies; see ``encode``."""
        self._df(side).recount(self.encode(side, batches))

    @torch.no_grad()
    def encode(
        self, side: Literal["query", "document"], batches: Iterable[dict[str, Any]]
    ) -> Iterator[Tensor]:
        """Yield the vectors [texts, V] of batches of features."""
        training = self.model.training
        self.model.eval()  # no dropout, which would also use up random numbers
        try:
            for features in batches:
                yield self._run(features, side).vectors
        finally:
            self.model.train(training)

"""Training of a language head and a backbone to predict masked tokens.

Sub-words are masked as in BERT, words of an expanded vocabulary as in ESPLADE (section 3.1). A
decoder learns to attend in both directions by masked next-token prediction (SPLARE, section 4;
BehnamGhader et al. 2024): masked sub-words are predicted from the previous position, as in the
decoder's own training. The whole decoder is pretrained, and cut to fewer blocks afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lexicept.encoding.windows import group_windows
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import BATCH_TOKENS, Backbone
from lexicept.neural.backbones.blocks import autocast, check_checkpointing, checkpoint_blocks
from lexicept.neural.backbones.lora import add_adapters, merge_adapters
from lexicept.neural.converters.reading import check_backbone
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.progress import Progress, silent
from lexicept.training.loop import Checkpoint, Loop, StepLoss
from lexicept.training.pretraining.settings import PretrainingSettings
from lexicept.training.pretraining.windows import (
    MaskableWindow,
    Masked,
    StreamPosition,
    WindowStream,
    mask,
    mask_token,
)


def load_backbone_and_head(
    backbone: str, layer: int | None, settings: PretrainingSettings
) -> tuple[Backbone, VocabularyHead]:
    """Load a backbone, cut to ``layer`` blocks (all by default), and its language head. Raises
    InputError for an unreadable model, or a model that does not fit the settings."""
    check_backbone(backbone, own_head=True)
    loaded = Backbone.from_pretrained(
        backbone,
        layer,
        bidirectional=True if settings.masking == "mntp" else None,
        dtype=settings.dtype,
    )
    if settings.gradient_checkpointing and settings.trained != "head":
        check_checkpointing(loaded)
    if mask_token(loaded.tokenizer) in loaded.unreadable:
        raise InputError(f"{backbone}: its mask token has no embedding")
    return loaded, language_head(backbone)


def pretrain(
    backbone: Backbone,
    head: VocabularyHead,
    texts: Sequence[str],
    settings: PretrainingSettings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
) -> None:
    """Train a head over the units to mask, a backbone or adapters, in place, to predict masked
    tokens. The detail of progress is the cross entropy in nats, the accuracy on masked tokens, and
    tokens per second. Interrupted training resumes from ``checkpoints`` and ends with the weights
    of an unbroken run; another model, corpus or settings need another folder.

    Raises InputError for nothing to mask in any text, no mask token and no "_" in the tokenizer, or
    a head over other units. Raises NotFiniteError if the loss is not finite; the last checkpoint is
    kept."""
    loop, start = MaskedLoop(backbone, head, settings), StreamPosition()
    checkpoint = Checkpoint.find(checkpoints, settings, loop.device)
    if checkpoint is not None:
        start = StreamPosition(*loop.load(checkpoint))
    batches = WindowStream(backbone, head, texts, settings).batches(start)
    try:
        loop.run(batches, checkpoints, progress)
    finally:
        loop.finish()


class MaskedLoop(Loop[list[MaskableWindow]]):
    """Prediction of masked tokens; see ``pretrain`` for errors."""

    title = "pretraining"
    stage = "pretraining"

    def __init__(
        self, backbone: Backbone, head: VocabularyHead, settings: PretrainingSettings
    ) -> None:
        tokenizer = backbone.tokenizer
        subwords = backbone.model.get_input_embeddings().num_embeddings
        if settings.masking != "words" and head.size != subwords:
            raise InputError(f"pretraining: a head of size {head.size} over {subwords} sub-words")
        self._mask_id = mask_token(tokenizer)
        self.backbone = backbone
        self.head = head
        self.settings: PretrainingSettings = settings
        self.device: torch.device = backbone.model.device
        unread = [*tokenizer.all_special_ids, *backbone.unreadable]
        self._replacements = np.setdiff1d(np.arange(len(tokenizer)), unread)
        self._correct = 0.0
        """Accuracy on the last batch's masked tokens."""
        head.to(self.device)
        backbone.eval()
        self.trained = self._trained()
        if settings.gradient_checkpointing and settings.trained != "head":
            checkpoint_blocks(backbone)
        self.trained.train()
        learned = list(self._learned().values())
        groups: list[dict[str, Any]] = [
            {"params": [p for p in learned if p.ndim > 1]},
            {"params": [p for p in learned if p.ndim <= 1], "weight_decay": 0.0},
        ]
        super().__init__(settings, groups)

    def _trained(self) -> nn.ModuleList:
        """Return the modules to train, with adapters in the backbone if adapters learn."""
        settings, backbone, head = self.settings, self.backbone, self.head
        if settings.trained != "lora":
            both = settings.trained == "all"
            return nn.ModuleList([head, backbone] if both else [head]).requires_grad_()
        head.requires_grad_(False)
        with torch.random.fork_rng(self._devices):
            torch.manual_seed(settings.seed)
            backbone.model = add_adapters(backbone.model, backbone.source, settings.lora_rank)
        return nn.ModuleList([backbone])

    def backward(self, batch: Sequence[MaskableWindow]) -> StepLoss:
        random = np.random.default_rng((self.settings.seed, 3, self.steps))
        # Masks depend on seed and step alone, so that a resumed run draws the same.
        masked = [self._hidden(example, random) for example in batch]
        count = sum(len(window.positions) for window in masked)
        loss, correct = 0.0, 0
        with torch.random.fork_rng(self._devices):
            torch.manual_seed(int(random.integers(2**63)))  # dropout depends on the step alone
            for indices in group_windows(masked, BATCH_TOKENS):
                total, hits = self._loss([masked[index] for index in indices])
                (total / count).backward()
                loss += float(total.detach()) / count
                correct += hits
        self._correct = correct / count
        return StepLoss(loss, sum(len(window.token_ids) for window in masked))

    def after_step(self) -> str:
        return f"recognised {self._correct:.1%}"

    def done(self) -> tuple[int, int]:
        return self.steps, self.settings.steps

    def state(self) -> dict[str, Any]:
        return {"trained": self._learned()}

    def restore(self, state: dict[str, Any]) -> None:
        if state["trained"].keys() != self._learned().keys():
            raise InputError("a checkpoint of another model; use another folder")
        self.trained.load_state_dict(state["trained"], strict=False)

    def finish(self) -> None:
        for parameter in self.trained.parameters():
            parameter.grad = None
        self.backbone.model = merge_adapters(self.backbone.model)
        self.backbone.eval()
        self.head.eval()

    def _learned(self) -> dict[str, nn.Parameter]:
        named = self.trained.named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}

    @property
    def _devices(self) -> list[torch.device]:
        """Devices with a random state beside the processor's."""
        return [self.device] if self.device.type == "cuda" else []

    def _hidden(self, example: MaskableWindow, random: np.random.Generator) -> Masked:
        """Mask a window; with shifted prediction, move the positions to the previous position."""
        tokens, spans = example
        masked = mask(
            tokens,
            spans,
            self.settings.share,
            self._mask_id,
            self._replacements,
            random,
            self.settings.hidden_share,
        )
        if self.settings.masking == "mntp":
            return masked._replace(positions=[position - 1 for position in masked.positions])
        return masked

    def _loss(self, windows: Sequence[Masked]) -> tuple[Tensor, int]:
        """Return the sum of the cross entropy at the masked positions, and the number of correct
        predictions. Logits exist at the masked positions only."""
        device = self.device
        lengths = torch.tensor([len(window.token_ids) for window in windows], device=device)
        ids = pad_sequence(
            [torch.tensor(window.token_ids) for window in windows],
            batch_first=True,
            padding_value=self.backbone.padding_id,
        ).to(device)
        attention = (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()
        window_indices = [index for index, window in enumerate(windows) for _ in window.positions]
        positions = [position for window in windows for position in window.positions]
        labels = torch.tensor([i for window in windows for i in window.labels], device=device)
        with autocast(device, self.settings.bf16):
            with torch.set_grad_enabled(self.settings.trained != "head"):
                states = self.backbone.states(ids, attention)[window_indices, positions]
            logits = F.linear(self.head.transform(states), self.head.rows, self.head.bias)
        total = F.cross_entropy(logits.float(), labels, reduction="sum")
        return total, int((logits.detach().argmax(dim=1) == labels).sum())

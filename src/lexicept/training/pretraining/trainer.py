"""Training of a language head and its backbone to predict what a text hides.

Sub-words are masked as in BERT, words of an expanded vocabulary as in ESPLADE (section 3.1). A
decoder learns to attend in both directions by masked next-token prediction (SPLARE, section 4;
BehnamGhader et al. 2024): sub-words are masked and predicted from the place before them, where its
head has always predicted them. The whole decoder is pretrained, and cut to fewer blocks afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lexicept.errors import InputError
from lexicept.models.backbone import BATCH_TOKENS, Backbone
from lexicept.models.heads.vocabulary import VocabularyHead
from lexicept.models.lora import add_adapters, merge_adapters
from lexicept.models.precision import autocast
from lexicept.models.resources import checkpoint_blocks
from lexicept.progress import Progress, silent
from lexicept.training.loop import Checkpoint, Loop, StepLoss, Task
from lexicept.training.pretraining.settings import PretrainingSettings
from lexicept.training.pretraining.windows import (
    Example,
    Masked,
    Position,
    WindowStream,
    mask,
    mask_token,
)


def pretrain(
    backbone: Backbone,
    head: VocabularyHead,
    texts: Sequence[str],
    settings: PretrainingSettings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
) -> None:
    """Train a head, in place, to predict what is masked in the windows of texts.

    Args:
        backbone: also trained where the settings say so, frozen otherwise.
        head: its terms are what the settings mask; moved to the backbone's device, and trained
            unless the settings say that adapters are.
        texts: any sequence, such as one that reads from disk.
        checkpoints: folder of the checkpoint. Interrupted training resumes from there and ends
            with the weights of an unbroken run; another model, corpus or settings need another
            folder.
        progress: called after every step; the detail is the cross entropy in nats, the share of
            masked tokens that were predicted correctly, and tokens per second.

    Raises:
        InputError: no text has anything to mask, the tokenizer has no mask token and no "_", the
            head is not one over the sub-words that are to be masked, or tokens of ``causal``
            pretraining would see what they are to predict.
        NotFiniteError: the loss is not finite; the last checkpoint is kept.
    """
    task = MaskedTask(backbone, head, settings)
    loop, start = Loop(task), Position()
    checkpoint = Checkpoint.find(checkpoints, settings, task.device)
    if checkpoint is not None:
        start = Position(*loop.load(checkpoint))
    batches = WindowStream(backbone, head, texts, settings).batches(start)
    try:
        loop.run(batches, checkpoints, progress)
    finally:
        task.finish()


class MaskedTask(Task[list[Example]]):
    """Prediction of masked tokens by a head, over its backbone or the backbone's adapters.

    Raises:
        InputError: the tokenizer has no mask token, the head is not one over sub-words, or the
            backbone attends to what ``causal`` pretraining is to predict.
    """

    title = "pretraining"
    stage = "pretraining"

    def __init__(
        self, backbone: Backbone, head: VocabularyHead, settings: PretrainingSettings
    ) -> None:
        tokenizer = backbone.tokenizer
        _check(backbone, head, settings)
        if settings.masking != "causal":
            self._mask_id = mask_token(tokenizer)
        self.backbone = backbone
        self.head = head
        self.settings: PretrainingSettings = settings
        self.device: torch.device = backbone.model.device
        self._replacements = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
        self._correct = 0.0
        """Share of the last batch's masked tokens that were predicted."""
        head.to(self.device)
        backbone.eval()
        self.trained = self._trained()
        if settings.gradient_checkpointing and settings.trained != "head":
            checkpoint_blocks(backbone)
        self.trained.train()

    def _trained(self) -> nn.ModuleList:
        """Return the modules that learn, with adapters added to the backbone where they do."""
        settings, backbone, head = self.settings, self.backbone, self.head
        if settings.trained != "lora":
            both = settings.trained == "all"
            return nn.ModuleList([head, backbone] if both else [head]).requires_grad_()
        head.requires_grad_(False)
        with torch.random.fork_rng(self._devices):
            torch.manual_seed(settings.seed)
            backbone.model = add_adapters(backbone.model, backbone.source, settings.lora_rank)
        return nn.ModuleList([backbone])

    def groups(self) -> list[dict[str, Any]]:
        parameters = list(self._learned().values())
        return [
            {"params": [p for p in parameters if p.ndim > 1]},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]

    def parameters(self) -> Iterable[nn.Parameter]:
        return self.trained.parameters()

    def backward(self, batch: Sequence[Example], step: int) -> StepLoss:
        random = np.random.default_rng((self.settings.seed, 3, step))
        masked = [self._hidden(example, random) for example in batch]
        count = sum(len(window.places) for window in masked)
        loss, correct = 0.0, 0
        with torch.random.fork_rng(self._devices):
            torch.manual_seed(int(random.integers(2**63)))  # dropout is the step's own
            for part in by_length(masked):
                total, right = self._loss(part)
                (total / count).backward()
                loss += float(total.detach()) / count
                correct += right
        self._correct = correct / count
        return StepLoss(loss, sum(len(window.token_ids) for window in masked))

    def after_step(self) -> str:
        return f"recognised {self._correct:.1%}"

    def done(self, steps: int) -> tuple[int, int]:
        return steps, self.settings.steps

    def state(self) -> dict[str, Any]:
        return {"trained": self._learned()}

    def restore(self, state: dict[str, Any]) -> None:
        if state["trained"].keys() != self._learned().keys():
            raise InputError("a checkpoint of another model; use another folder")
        self.trained.load_state_dict(state["trained"], strict=False)

    def finish(self) -> None:
        """Leave the models as they are used: adapters merged, in evaluation mode."""
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
        """Devices with random numbers of their own, beside the processor."""
        return [self.device] if self.device.type == "cuda" else []

    def _hidden(self, example: Example, random: np.random.Generator) -> Masked:
        """Mask a window, and move the places to predict from where they are shifted."""
        tokens, spans = example
        if self.settings.masking == "causal":
            masked = Masked(tokens, [s.start for s in spans], [s.dimension for s in spans])
        else:
            fixed = (self.settings.share, self._mask_id, self._replacements)
            masked = mask(tokens, spans, *fixed, random, self.settings.hidden_share)
        if self.settings.shifted:
            return masked._replace(places=[place - 1 for place in masked.places])
        return masked

    def _loss(self, windows: Sequence[Masked]) -> tuple[Tensor, int]:
        """Return the sum of the cross entropy at the masked places, and the number of places where
        the label's logit is the largest. No other place has logits."""
        device = self.device
        lengths = torch.tensor([len(window.token_ids) for window in windows], device=device)
        ids = pad_sequence(
            [torch.tensor(window.token_ids) for window in windows],
            batch_first=True,
            padding_value=self.backbone.tokenizer.pad_token_id or 0,
        ).to(device)
        attention = (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()
        rows = [row for row, window in enumerate(windows) for _ in window.places]
        places = [place for window in windows for place in window.places]
        labels = torch.tensor([i for window in windows for i in window.labels], device=device)
        with autocast(device, self.settings.bf16):
            with torch.set_grad_enabled(self.settings.trained != "head"):
                states = self.backbone.states(ids, attention)[rows, places]
            logits = F.linear(self.head.transform(states), self.head.rows, self.head.bias)
        total = F.cross_entropy(logits.float(), labels, reduction="sum")
        return total, int((logits.detach().argmax(dim=1) == labels).sum())


def _check(backbone: Backbone, head: VocabularyHead, settings: PretrainingSettings) -> None:
    """Raise InputError where head or backbone do not suit the masking."""
    subwords = backbone.model.get_input_embeddings().num_embeddings
    if settings.masking != "words" and head.size != subwords:
        raise InputError(f"pretraining: a head of size {head.size} over {subwords} sub-words")
    if settings.masking == "causal" and backbone.bidirectional:
        raise InputError("pretraining: causal requires a backbone with bidirectional=False")


def by_length(windows: Sequence[Masked]) -> Iterator[Sequence[Masked]]:
    """Yield windows of similar length together, as many as go through a backbone at once."""
    order = sorted(windows, key=lambda window: -len(window.token_ids))
    while order:
        count = max(1, BATCH_TOKENS // len(order[0].token_ids))
        yield order[:count]
        order = order[count:]

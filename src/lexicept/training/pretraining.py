"""Pretraining of a vocabulary head and its backbone to recognise what a text hides.

Sub-words are masked as BERT does it, words of an expanded vocabulary as ESPLADE does (section 3.1).
A decoder learns to attend in both directions by masked next-token prediction (SPLARE, section 4;
BehnamGhader et al. 2024): sub-words are masked and recognised from the place before them, which is
where its head has always predicted them. The whole decoder is pretrained, and cut afterwards.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lexicept.errors import InputError, LexiceptError
from lexicept.models.backbone import BATCH_TOKENS, Backbone
from lexicept.models.heads.vocabulary import VocabularyHead
from lexicept.models.lora import add_adapters, merge_adapters
from lexicept.models.windows import Window
from lexicept.models.word_vocabulary import Span, WordFinder
from lexicept.progress import Progress, silent
from lexicept.storage.files import replace_file

CHECKPOINT_SECONDS = 60
"""Time between two checkpoints."""

BLANK = "_"
"""What stands for a masked token where a tokenizer has no mask token (BehnamGhader et al. 2024)."""

SHUFFLED_BATCHES = 8
"""Texts are read and shuffled together for so many batches, if each were one window."""


@dataclass(frozen=True)
class PretrainingSettings:
    """How a head or a backbone is pretrained. ESPLADE (3.1.3): 600,000 steps of 1024 titles, all is
    trained, a learning rate of 1.6e-4 after 10,000 steps of warm-up. SPLARE (4): masking ``mntp``,
    10,000 steps, adapters."""

    masking: Literal["subwords", "words", "mntp", "causal"] = "words"
    """What is masked, and recognised by the head: the backbone's sub-words (BERT), the words that
    are the head's terms (ESPLADE), or sub-words from the place before them (SPLARE). ``causal``
    masks nothing: every sub-word is recognised from the place before it, as decoders are made."""
    mask_share: float | None = None
    """Share of a window's sub-words or words that is masked, at least one of them. None is 0.2 for
    ``mntp`` (SPLARE) and 0.15 otherwise (BERT, ESPLADE)."""
    trained: Literal["head", "lora", "all"] = "head"
    """The head on a frozen backbone, low-rank adapters of the backbone under a frozen head, which
    are added to its weights at the end, or head and backbone."""
    lora_rank: int = 64
    """Of the adapters (SPLARE, Table 4)."""
    steps: int = 1000
    """Optimiser steps."""
    batch_size: int = 32
    """Windows of a step."""
    learning_rate: float = 1e-3
    """Of AdamW, after warm-up; it falls linearly to 0. For a head; a backbone needs less."""
    warmup_steps: int = 100
    """Steps of linear warm-up."""
    weight_decay: float = 0.01
    """Of AdamW, on matrices."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm, of all parameters together."""
    bf16: bool = False
    """Whether matrices are multiplied in bfloat16; weights stay in single precision."""
    seed: int = 0
    """Of the order of texts, of what is masked, and of dropout."""

    def __post_init__(self) -> None:
        if self.masking not in ("subwords", "words", "mntp", "causal"):
            raise InputError(f"masking is subwords, words, mntp or causal, not {self.masking!r}")
        if self.trained not in ("head", "lora", "all"):
            raise InputError(f"trained is head, lora or all, not {self.trained!r}")
        for name in ("steps", "batch_size", "lora_rank"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("warmup_steps", "weight_decay", "seed"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must be at least 0, not {getattr(self, name)}")
        for name in ("learning_rate", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.mask_share is not None and not 0 < self.mask_share <= 1:
            raise InputError(f"mask_share is above 0 and at most 1, not {self.mask_share}")

    @property
    def share(self) -> float:
        """What ``mask_share`` means."""
        return self.mask_share or (0.2 if self.masking == "mntp" else 0.15)

    @property
    def shifted(self) -> bool:
        """Whether tokens are recognised from the place before them."""
        return self.masking in ("mntp", "causal")


class Masked(NamedTuple):
    """A window in which some tokens are to be recognised."""

    token_ids: list[int]
    places: list[int]
    """Where they are recognised: where they are, or the place before that."""
    labels: list[int]
    """The dimension of each."""


def subword_spans(token_ids: Sequence[int], ordinary: Sequence[bool]) -> list[Span]:
    """Every token by itself, as its own dimension.

    Args:
        ordinary: whether a token is no special one.
    """
    return [
        Span(place, place + 1, token)
        for place, (token, is_ordinary) in enumerate(zip(token_ids, ordinary, strict=True))
        if is_ordinary
    ]


def mask(
    token_ids: Sequence[int],
    spans: Sequence[Span],
    share: float,
    mask_id: int,
    replacements: np.ndarray,
    random: np.random.Generator,
) -> Masked:
    """Mask a share of the spans: exactly ``round(share · spans)`` of them, at least one.

    All tokens of a chosen span become ``mask_id`` (80 %) or random tokens (10 %), or stay as they
    are (10 %; BERT). The label is the span's dimension, at each of its tokens (ESPLADE, 3.1.2).

    Args:
        token_ids: of a window, special tokens included.
        spans: at least one; sub-words or words, which do not overlap.
        replacements: what random tokens are drawn from.
    """
    masked = Masked(list(token_ids), [], [])
    chosen = random.choice(len(spans), max(1, round(share * len(spans))), replace=False)
    for number, fate in zip(chosen, random.random(len(chosen)), strict=True):
        start, end, dimension = spans[number]
        if fate < 0.8:
            masked.token_ids[start:end] = [mask_id] * (end - start)
        elif fate < 0.9:
            masked.token_ids[start:end] = random.choice(replacements, end - start).tolist()
        masked.places.extend(range(start, end))
        masked.labels.extend([dimension] * (end - start))
    return masked


def pretrain(
    backbone: Backbone,
    head: VocabularyHead,
    texts: Sequence[str],
    settings: PretrainingSettings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
) -> None:
    """Train a head, in place, to recognise what is masked in the windows of texts.

    Args:
        backbone: also trained where the settings say so, frozen otherwise.
        head: its terms are what the settings mask; moved to the backbone's device, and trained
            unless the settings say that adapters are.
        texts: any sequence, such as one that reads from disk.
        checkpoints: a folder. Training that was stopped goes on from there and ends with the
            weights of an unbroken run; another model, corpus or settings need another folder.
        progress: called after every step; the detail is the cross entropy in nats, the share of
            masked tokens that were recognised, and tokens per second.

    Raises:
        InputError: no text has anything to mask, the tokenizer has no mask token and no "_", the
            head is not one over the sub-words that are to be masked, or tokens of ``causal``
            pretraining would see what they are to predict.
        LexiceptError: a loss that is not finite; the last checkpoint is kept.
    """
    trainer = Trainer(backbone, head, settings)
    path = None if checkpoints is None else checkpoints / "checkpoint.pt"
    start = Position()
    if path is not None and path.exists():
        start = trainer.load(path)
    saved = time.monotonic()
    batches = WindowStream(backbone, head, texts, settings).batches(start)
    try:
        while trainer.steps < settings.steps:
            position, batch = next(batches)
            detail = trainer.step(batch)
            progress("pretraining", trainer.steps, settings.steps, detail)
            last = trainer.steps == settings.steps
            if path is not None and (last or time.monotonic() - saved > CHECKPOINT_SECONDS):
                trainer.save(path, position)
                saved = time.monotonic()
    finally:
        trainer.finish()


class Position(NamedTuple):
    """Where a stream of batches stands: enough to go on with the same batches."""

    epoch: int = 0
    document: int = 0
    """How many texts of the epoch came before those that are shuffled together now."""
    batch: int = 0
    """How many of their batches were used."""


class Example(NamedTuple):
    """A window and what can be masked in it."""

    token_ids: list[int]
    spans: list[Span]


class WindowStream:
    """Endless batches of windows of a corpus, in a new random order every epoch.

    All is a function of the seed and the position. Windows in which nothing can be masked are left
    out of their batches; the batches of texts that are shuffled together differ by one at most
    otherwise.
    """

    def __init__(
        self,
        backbone: Backbone,
        head: VocabularyHead,
        texts: Sequence[str],
        settings: PretrainingSettings,
    ) -> None:
        self._backbone = backbone
        self._texts = texts
        self._settings = settings
        self._special = set(backbone.tokenizer.all_special_ids)
        words = head.terms if settings.masking == "words" else []
        self._finder = WordFinder(words, backbone.tokenizer)

    def batches(self, start: Position) -> Iterator[tuple[Position, list[Example]]]:
        """Batches from a position on, each with the position after it.

        Raises:
            InputError: no text has anything to mask.
        """
        epoch, document, batch = start
        found = start != Position()
        texts, size = self._texts, self._settings.batch_size
        read = SHUFFLED_BATCHES * size
        while True:
            order = self._random(1, epoch).permutation(len(texts))
            for first in range(document, len(texts), read):
                together = [texts[int(i)] for i in order[first : first + read]]
                windows = self._backbone.windows(together)
                shuffled = self._random(2, epoch, first).permutation(len(windows))
                parts = np.array_split(shuffled, -(-len(windows) // size))
                for number in range(batch, len(parts)):
                    if examples := self._examples(windows, parts[number]):
                        found = True
                        yield Position(epoch, first, number + 1), examples
                batch = 0
            if not found:
                what = "words" if self._settings.masking == "words" else "sub-words"
                raise InputError(f"pretraining: the texts have no {what} to mask")
            epoch, document = epoch + 1, 0

    def _random(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self._settings.seed, *key))

    def _examples(self, windows: Sequence[Window], numbers: np.ndarray) -> list[Example]:
        examples = []
        for number in numbers.tolist():
            window = windows[number]
            if self._settings.masking == "words":
                cut_start = number > 0 and windows[number - 1].text == window.text
                cut_end = number + 1 < len(windows) and windows[number + 1].text == window.text
                spans = self._finder.spans(window, cut_start=cut_start, cut_end=cut_end)
            else:
                first = int(self._settings.shifted)  # nothing is before the first token
                places = enumerate(window.token_ids)
                ordinary = [p >= first and token not in self._special for p, token in places]
                spans = subword_spans(window.token_ids, ordinary)
            if spans:
                examples.append(Example(window.token_ids, spans))
        return examples


class Trainer:
    """The optimiser of a head, of a backbone too or of its adapters.

    Raises:
        InputError: the tokenizer has no mask token, the head is not one over sub-words, or the
            backbone attends to what ``causal`` pretraining is to predict.
    """

    def __init__(
        self, backbone: Backbone, head: VocabularyHead, settings: PretrainingSettings
    ) -> None:
        tokenizer = backbone.tokenizer
        if settings.masking != "causal":
            self._mask_id = mask_token(tokenizer)
        subwords = backbone.model.get_input_embeddings().num_embeddings
        if settings.masking != "words" and head.size != subwords:
            raise InputError(f"pretraining: a head of size {head.size} over {subwords} sub-words")
        if settings.masking == "causal" and backbone.bidirectional:
            raise InputError("pretraining: causal needs a backbone with bidirectional=False")
        self.backbone = backbone
        self.head = head
        self.settings = settings
        self.steps = 0
        self._rate = 0.0
        self._device: torch.device = backbone.model.device
        special = tokenizer.all_special_ids
        self._replacements = np.setdiff1d(np.arange(len(tokenizer)), special)
        head.to(self._device)
        backbone.eval()
        if settings.trained == "lora":
            head.requires_grad_(False)
            with torch.random.fork_rng(self._devices):
                torch.manual_seed(settings.seed)
                backbone.model = add_adapters(backbone.model, backbone.source, settings.lora_rank)
            self._trained = nn.ModuleList([backbone])
        else:
            both = settings.trained == "all"
            self._trained = nn.ModuleList([head, backbone] if both else [head]).requires_grad_()
        self._trained.train()
        parameters = list(self._learned().values())
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.ndim > 1]},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(
            groups,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def _learned(self) -> dict[str, nn.Parameter]:
        named = self._trained.named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}

    @property
    def _devices(self) -> list[torch.device]:
        """Those whose random numbers count, beside the processor's."""
        return [self._device] if self._device.type == "cuda" else []

    def step(self, batch: Sequence[Example]) -> str:
        """One optimiser step; returns what a progress bar shows.

        Raises:
            LexiceptError: a loss that is not finite; nothing has changed then.
        """
        began, settings = time.perf_counter(), self.settings
        random = np.random.default_rng((settings.seed, 3, self.steps))
        masked = [self._hidden(example, random) for example in batch]
        count = sum(len(window.places) for window in masked)
        loss, recognised = 0.0, 0
        self._optimizer.zero_grad(set_to_none=True)
        with torch.random.fork_rng(self._devices):
            torch.manual_seed(int(random.integers(2**63)))  # dropout is the step's own
            for part in by_length(masked):
                total, right = self._loss(part)
                (total / count).backward()
                loss += float(total.detach()) / count
                recognised += right
        if not math.isfinite(loss):
            raise LexiceptError(
                f"pretraining: the loss is {loss} at step {self.steps}; a lower learning rate may "
                "help"
            )
        torch.nn.utils.clip_grad_norm_(self._trained.parameters(), settings.max_grad_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self.steps, settings)
        self._optimizer.step()
        self.steps += 1
        rate = sum(len(window.token_ids) for window in masked) / (time.perf_counter() - began)
        # Smoothed, so that a person can read it.
        self._rate = 0.9 * (self._rate or rate) + 0.1 * rate
        share = recognised / count
        return f"loss {loss:.3f}  recognised {share:.1%}  {self._rate:,.0f} tokens/s"

    def _hidden(self, example: Example, random: np.random.Generator) -> Masked:
        """What is to be recognised in a window, and from where."""
        tokens, spans = example
        if self.settings.masking == "causal":
            found = Masked(tokens, [s.start for s in spans], [s.dimension for s in spans])
        else:
            fixed = (self.settings.share, self._mask_id, self._replacements)
            found = mask(tokens, spans, *fixed, random)
        if self.settings.shifted:
            return found._replace(places=[place - 1 for place in found.places])
        return found

    def _loss(self, windows: Sequence[Masked]) -> tuple[Tensor, int]:
        """Cross entropy at the masked places, summed, and how many have their label's logit as the
        largest; there are logits for no other place."""
        device = self._device
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
        with torch.autocast(device.type, torch.bfloat16, enabled=self.settings.bf16):
            with torch.set_grad_enabled(self.settings.trained != "head"):
                states = self.backbone.states(ids, attention)[rows, places]
            logits = F.linear(self.head.transform(states), self.head.rows, self.head.bias)
        total = F.cross_entropy(logits.float(), labels, reduction="sum")
        return total, int((logits.detach().argmax(dim=1) == labels).sum())

    def finish(self) -> None:
        """Leave the models as they are used."""
        self._optimizer.zero_grad(set_to_none=True)
        self.backbone.model = merge_adapters(self.backbone.model)
        self.backbone.eval()
        self.head.eval()

    def save(self, path: Path, position: Position) -> None:
        """Write a checkpoint atomically."""
        buffer = io.BytesIO()
        content = {
            "settings": asdict(self.settings),
            "position": list(position),
            "steps": self.steps,
            "trained": self._learned(),
            "optimizer": self._optimizer.state_dict(),
        }
        torch.save(content, buffer)
        replace_file(path, buffer.getvalue())

    def load(self, path: Path) -> Position:
        """Go on from a checkpoint; returns where the stream of batches does.

        Raises:
            InputError: damaged, of other settings or of another model.
        """
        try:
            content: dict[str, Any] = torch.load(path, map_location=self._device, weights_only=True)
            if content["settings"] != asdict(self.settings):
                raise InputError(f"{path}: a checkpoint of other settings; use another folder")
            if content["trained"].keys() != self._learned().keys():
                raise InputError(f"{path}: a checkpoint of another model; use another folder")
            self._trained.load_state_dict(content["trained"], strict=False)
            self._optimizer.load_state_dict(content["optimizer"])
            self.steps = content["steps"]
            return Position(*content["position"])
        except InputError:
            raise
        except Exception as error:  # torch.load raises many kinds
            raise InputError(f"{path}: this checkpoint can't be read: {error}") from None


def mask_token(tokenizer: Any) -> int:
    """The id of what stands for a masked token: the tokenizer's own, or that of ``BLANK``.

    Raises:
        InputError: it has neither.
    """
    found = tokenizer.mask_token_id
    found = tokenizer.get_vocab().get(BLANK) if found is None else found
    if found is None:
        raise InputError(f"pretraining: the tokenizer has no mask token and no {BLANK!r}")
    return int(found)


def by_length(windows: Sequence[Masked]) -> Iterator[Sequence[Masked]]:
    """Windows of similar length, as many as go through a backbone at once."""
    order = sorted(windows, key=lambda window: -len(window.token_ids))
    while order:
        count = max(1, BATCH_TOKENS // len(order[0].token_ids))
        yield order[:count]
        order = order[count:]


def learning_rate(step: int, settings: PretrainingSettings) -> float:
    """Linear warm-up, then linear to 0."""
    warm = (step + 1) / max(1, settings.warmup_steps)
    left = (settings.steps - step) / max(1, settings.steps - settings.warmup_steps)
    return settings.learning_rate * min(1.0, warm, left)

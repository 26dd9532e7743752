"""``python -m benchmarks.splare_backbone``: a small decoder for SPLARE, from nothing, on a CPU.

Trains a byte-level BPE tokenizer and a Llama of 9 million parameters as a causal language model on
the paragraphs of a corpus, then teaches it to attend in both directions by masked next-token
prediction. ``OUT/causal`` and ``OUT/mntp`` are folders that transformers reads; progress is in
``OUT/causal.log`` and ``OUT/mntp.log``. The same command goes on where a killed one stopped.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from lexicept.backbone import Backbone, quiet_transformers
from lexicept.corpora import read_documents
from lexicept.heads import VocabularyHead
from lexicept.language_heads import language_head
from lexicept.pretraining import PretrainingSettings, pretrain
from lexicept.storage import read_json, write_json

VOCABULARY, WINDOW = 8192, 256
BATCH = 16
TIMED = 6
"""Steps that tell how many fit into a time; the first one is not counted."""
LOGGED = 20
"""Steps of a line of a log."""

Stage = Literal["causal", "mntp"]
RATES: dict[Stage, float] = {"causal": 1e-3, "mntp": 5e-4}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.splare_backbone", description=__doc__
    )
    parser.add_argument("corpus", type=Path, help="Such as DATA/squad_train.")
    parser.add_argument("--out", type=Path, required=True)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, help="Of the causal model.")
    length.add_argument("--minutes", type=float, help="Of the causal model, measured beforehand.")
    parser.add_argument("--mntp-steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    texts = [document.content for document in read_documents(arguments.corpus)]
    once(out / "start", lambda folder: make(texts, folder, arguments.seed))
    if not (out / "plan.json").exists():
        steps = arguments.steps or fitting(arguments.minutes, texts, out, arguments.seed)
        write_json(out / "plan.json", {"causal": steps, "mntp": arguments.mntp_steps})
    plan = read_json(out / "plan.json")
    before = out / "start"
    stages: tuple[Stage, ...] = ("causal", "mntp")
    for stage in stages:

        def train(folder: Path, stage: Stage = stage, before: Path = before) -> None:
            settings = settings_of(stage, plan[stage], arguments.seed)
            work = out / "work" / stage
            work.mkdir(parents=True, exist_ok=True)
            watch = Log(out / f"{stage}.log")
            backbone, head = trained(before, texts, settings, work, watch)
            save(backbone, head, folder)

        once(out / stage, train)
        before = out / stage
    shutil.rmtree(out / "work", ignore_errors=True)


def once(folder: Path, make: Callable[[Path], None]) -> None:
    """Make a folder that is there only when it is whole."""
    if folder.exists():
        return
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    make(unfinished)
    unfinished.rename(folder)


def make(texts: Sequence[str], folder: Path, seed: int) -> None:
    """An untrained model and its tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", model_max_length=WINDOW
    ).save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=704,
        max_position_embeddings=WINDOW,
        bos_token_id=0,
        eos_token_id=1,
    )
    torch.manual_seed(seed)
    with quiet_transformers():
        LlamaForCausalLM(config).save_pretrained(folder)


def settings_of(stage: Stage, steps: int, seed: int) -> PretrainingSettings:
    """Batches of 16 paragraphs; a tenth of the steps, 200 at most, is warm-up."""
    return PretrainingSettings(
        masking=stage,
        trained="all",
        steps=steps,
        batch_size=BATCH,
        learning_rate=RATES[stage],
        warmup_steps=min(200, steps // 10),
        bf16=True,
        seed=seed,
    )


def fitting(minutes: float, texts: Sequence[str], out: Path, seed: int) -> int:
    """How many steps of the causal model take so long, by a few of them."""
    times: list[float] = []

    def watch(stage: str, done: int, total: int, detail: str = "") -> None:
        times.append(time.perf_counter())

    trained(out / "start", texts, settings_of("causal", TIMED, seed), None, watch)
    took = [later - earlier for earlier, later in pairwise(times)]
    return max(1, round(60 * minutes / median(took)))


class Log:
    """Every ``LOGGED``-th step and the last as a line of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        """Implements ``Progress``."""
        if done % LOGGED == 0 or done == total:
            line = f"{done}/{total}  {detail}"
            print(self._path.stem, line, flush=True)
            with self._path.open("a") as file:
                file.write(f"{line}\n")


def trained(
    start: Path,
    texts: Sequence[str],
    settings: PretrainingSettings,
    work: Path | None,
    progress: Callable[..., None],
) -> tuple[Backbone, VocabularyHead]:
    """A model after a stage of its training."""
    bidirectional = settings.masking == "mntp"
    backbone = Backbone.from_pretrained(str(start), bidirectional=bidirectional)
    head = language_head(str(start))
    pretrain(backbone, head, texts, settings, work, progress)
    return backbone, head


def save(backbone: Backbone, head: VocabularyHead, folder: Path) -> None:
    """Backbone and head as one causal language model, which attends as the backbone does."""
    with quiet_transformers():
        model = AutoModelForCausalLM.from_config(backbone.model.config)
        model.base_model.load_state_dict(backbone.model.state_dict())
        model.base_model.norm.load_state_dict(head.final.state_dict())
        model.get_output_embeddings().load_state_dict({"weight": head.rows.detach()})
        model.save_pretrained(folder)
    backbone.tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()

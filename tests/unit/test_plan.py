"""Plans of memory and time: by hand, as autograd keeps it, as a process takes it, and printed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModel, BertConfig, BertModel

from lexicept.models.loading import quiet_transformers
from lexicept.training.config import TrainingConfig
from lexicept.training.plan import (
    Kept,
    Memory,
    Shape,
    hours,
    kept_bytes,
    plan_pretraining,
    plan_training,
)
from lexicept.training.pretraining.settings import PretrainingSettings
from lexicept.training.settings import from_mapping
from support.tiny import bert_sizes, save_bert, save_decoder

LLAMA = transformers.LlamaConfig(
    hidden_size=8,
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=1,
    intermediate_size=16,
    vocab_size=100,
)
BLOCK = 8 * 8 + 8 * 4 + 8 * 4 + 8 * 8 + 3 * 8 * 16 + 2 * 8
"""Parameters: queries, keys, values, outputs, the three of the feed-forward layer, two norms."""
OTHER = 100 * 8 + 8
ADAPTERS = 2 * (16 + 12 + 12 + 16 + 24 + 24 + 24)
"""Parameters of adapters of rank 2 in a block: 2 (in + out) for each of its seven layers."""


def config(**sections: dict[str, Any]) -> TrainingConfig:
    content: dict[str, dict[str, Any]] = {
        "data": {
            "corpus": "x",
            "negatives": 1,
            "max_query_tokens": 8,
            "max_document_tokens": 16,
        },
        "model": {
            "head": "mlm",
            "layer": 3,
            "trained": "lora",
            "lora_rank": 2,
            "freeze_head": True,
            "dtype": "bfloat16",
        },
        "loss": {"kl": 0, "in_batch": 1.0},
        "optimizer": {"steps": 10, "batch_size": 4, "mini_batch": 2, "bf16": True},
    }
    for name, values in sections.items():
        content[name] = {**content[name], **values}
    return from_mapping(TrainingConfig, content)


def test_parameters_are_counted_by_hand() -> None:
    assert Shape.of(LLAMA, 3, 2) == Shape(8, 100, 3, BLOCK, OTHER, ADAPTERS)
    assert Shape.of(LLAMA, None, None).weights == 4 * BLOCK + OTHER == 3176


def test_a_training_by_hand() -> None:
    (stage,) = plan_training(config(), LLAMA)
    kept = kept_bytes(LLAMA, 2, 16, "bfloat16", 2)
    adapters = 3 * ADAPTERS
    assert stage.memory == Memory(
        weights=2 * (3 * BLOCK + OTHER) + 4 * (adapters + 100 * 8),
        copies=2 * adapters,
        gradients=4 * adapters,
        optimizer=8 * adapters,
        activations=kept.rest + 3 * kept.block,
        vectors=4 * 4 * (4 + 8) * 100 + 4 * 6 * 4 * 8,
    )
    # 160 tokens; a pass and a half more each: forward twice (caching), back once; the head twice.
    products = 10 * 160 * (3 * 2 * 3 * BLOCK + 2 * 2 * 8 * 100)
    assert stage.hours == pytest.approx(products / (989e12 * 0.35) / 3600)
    assert stage.steps == 10


def test_all_weights_in_single_precision_by_hand() -> None:
    changed = config(
        model={"trained": "all", "freeze_head": False, "dtype": None},
        optimizer={"bf16": False, "mini_batch": None, "gradient_checkpointing": True},
        loss={"query_top_k": 5},
    )
    (stage,) = plan_training(changed, LLAMA)
    learned = 3 * BLOCK + OTHER + 100 * 8
    kept = kept_bytes(LLAMA, 8, 16, "float32")
    assert kept.input == 8 * 16 * 8 * 4
    at_once = kept.rest + 3 * kept.input + kept.block
    assert stage.memory == Memory(
        weights=4 * learned,
        gradients=4 * learned,
        optimizer=8 * learned,
        activations=int(at_once * (1 + (4 * 8) / (8 * 16))),
        vectors=4 * 5 * 12 * 100 + 4 * 6 * 4 * 8,
    )
    products = 10 * 160 * (4 * 2 * 3 * BLOCK + 2 * 2 * 8 * 100)
    assert stage.hours == pytest.approx(products / (67e12 * 0.35) / 3600)


def test_checkpoints_keep_the_inputs_and_one_block() -> None:
    kept = Kept(rest=7, block=100, input=3)
    assert kept.of(5, checkpointed=False) == 507
    assert kept.of(5, checkpointed=True) == 7 + 15 + 100
    assert hours(989e12 * 0.35 * 3600, bf16=True) == pytest.approx(1)


def test_pretraining_and_an_sae_by_hand() -> None:
    settings = PretrainingSettings(
        masking="mntp", trained="lora", lora_rank=2, steps=5, batch_size=4, dtype="bfloat16"
    )
    stage = plan_pretraining(settings, LLAMA)
    kept = kept_bytes(LLAMA, 4, 512, "bfloat16", 2)
    masked = 410  # a fifth of 4 · 512 places, rounded up
    assert stage.memory.activations == 12 * masked * 100 + kept.rest + 4 * kept.block
    assert stage.memory.weights == 2 * (4 * BLOCK + OTHER) + 4 * (4 * ADAPTERS + 800)
    sae = {"num_latents": 64, "k": 4, "tokens": 1000, "batch_size": 50, "buffer_tokens": 100}
    model = {"head": "sae", "sae": sae, "freeze_head": False, "dtype": None}
    first, second = plan_training(config(model=model), LLAMA)
    assert (first.name, second.name) == ("SAE", "training")
    weights = 4 * 2 * 8 * 64
    assert first.memory == Memory(
        weights=4 * (3 * BLOCK + OTHER) + weights,
        gradients=weights,
        optimizer=2 * weights,
        activations=4 * 100 * 8,
    )
    assert first.steps == 20


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_dry_run_keeps_what_a_run_keeps(tmp_path: Path, kind: str) -> None:
    bert = kind == "bert"  # without dropout, for which the kernel on CPUs is not the fused one
    folder = save_bert(tmp_path / kind, 0.0) if bert else save_decoder(tmp_path / kind)
    with quiet_transformers():
        model: Any = AutoModel.from_pretrained(folder, attn_implementation="sdpa").train()
    known = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    ids = torch.randint(6, 60, (16, 40))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=ids, attention_mask=torch.ones(16, 1, 40, 40))
    found = sum(t.untyped_storage().nbytes() for place, t in kept.items() if place not in known)
    planned = kept_bytes(model.config, 16, 40, "float32").of(
        model.config.num_hidden_layers, checkpointed=False
    )
    assert planned == pytest.approx(found, rel=0.25)


PROGRAM = """
import gc, json, sys
import psutil, torch
from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.heads.vocabulary import VocabularyHead
from lexicept.training.config import TrainingConfig
from lexicept.training.initial_encoder import set_trainable
from lexicept.training.objective import Objective
from lexicept.training.plan import plan_training
from lexicept.training.settings import from_mapping

def part(texts, tokens):
    ids = torch.randint(6, 60, (texts, tokens))
    start = torch.zeros_like(ids)
    start[:, 0] = 1
    one = torch.ones_like(ids)
    return dict(input_ids=ids, attention_mask=one, token_mask=one.bool(), window_start=start)

def train(config, steps):
    backbone = Backbone.from_pretrained(sys.argv[1])
    size, own = config.model.size, config.optimizer
    head = VocabularyHead(torch.randn(size, 256), torch.zeros(size), ["w"] * size)
    encoder = Encoder.of(backbone, head)
    set_trainable(encoder, config)
    objective = Objective.from_config(encoder, encoder.head, config)
    optimizer = torch.optim.AdamW([p for p in encoder.parameters() if p.requires_grad], fused=True)
    encoder.train()
    queries, lists = own.batch_size, 1 + config.data.negatives
    documents = queries * lists

    def parts(texts, tokens):
        step = own.mini_batch or texts
        return [part(min(step, texts - start), tokens) for start in range(0, texts, step)]

    for _ in range(steps):
        targets = dict(
            columns=torch.arange(documents).reshape(queries, lists),
            mask=torch.ones(queries, lists, dtype=torch.bool),
            known=torch.zeros(queries, documents, dtype=torch.bool),
            relevant=torch.ones(queries, dtype=torch.bool),
            queries=torch.arange(queries),
        )
        batch = dict(
            query=parts(queries, config.data.max_query_tokens),
            document=parts(documents, config.data.max_document_tokens),
            targets=targets,
        )
        optimizer.zero_grad()
        torch.stack(list(objective(batch).values())).sum().backward()
        optimizer.step()
    return backbone.model.config

torch.set_num_threads(1)
content = json.loads(sys.argv[2])
small = {**content, "optimizer": {**content["optimizer"], "batch_size": 2}}
train(from_mapping(TrainingConfig, small), 1)  # compiles and loads what any step needs
gc.collect()
before = psutil.Process().memory_info().rss
config = from_mapping(TrainingConfig, content)
backbone = train(config, 2)
# Not ru_maxrss: it begins with the parent's size.
(line,) = (row for row in open("/proc/self/status") if row.startswith("VmHWM"))
peak = int(line.split()[1]) * 1024 - before
print(json.dumps([peak, plan_training(config, backbone)[-1].memory.total]))
"""

FACTOR = 1.4
"""A plan is at most so many times the measured memory of a step, and at least 1 / FACTOR of it."""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
@pytest.mark.parametrize("change", [{}, {"gradient_checkpointing": True}])
def test_a_plan_is_near_what_a_process_takes(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = Path(save_bert(tmp_path / "bert"))
    tokens = len(load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"])
    sizes = bert_sizes(tokens, hidden=256, blocks=6, inner=1024, positions=260)
    with quiet_transformers():
        BertModel(BertConfig(**sizes)).save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 256}))
    content = {
        "data": {"corpus": "x", "max_query_tokens": 32, "max_document_tokens": 128},
        "model": {"head": "random", "size": 500, "trained": "all"},
        "loss": {"kl": 0, "in_batch": 1.0},
        "optimizer": {"batch_size": 16, **change},
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), json.dumps(content)],
        # Freed tensors go back to the system, so that the peak is of what was held at once.
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    measured, planned = json.loads(done.stdout.splitlines()[-1])
    assert measured > 100e6
    assert 1 / FACTOR < planned / measured < FACTOR, (planned, measured)

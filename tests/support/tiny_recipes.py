"""The packaged recipes' full-size rows with tiny data and random models, through the same code."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from lexicept.progress import Progress, silent
from reproduction.data import Data, load_sources
from reproduction.recipe import RECIPES, load_recipe, merge, read_job, to_json
from reproduction.run import Outcome, run_recipe
from support.tiny import decoder_tokenizer, save_bert, save_collection, save_decoder, text

Changes = Mapping[str, Any]

FEW = {"steps": 4, "batch_size": 4, "mini_batch": 2, "warmup_steps": 1}
"""Steps of a tiny training; its batches go through the model in parts."""


def tiny_recipe(name: str, names: Mapping[str, Changes]) -> Any:
    """Return a packaged recipe with these full-size rows, and some values changed."""
    recipe = load_recipe(RECIPES, name)
    systems = []
    for system in recipe.rows:
        if system.name in names:
            job = merge(to_json(system.jobs["full"]), names[system.name])  # type: ignore[arg-type]
            systems.append(replace(system, jobs={"full": read_job(job, system.name)}, against=None))
    assert {system.name for system in systems} == names.keys()
    return replace(recipe, rows=tuple(systems))


def run(
    name: str, names: Mapping[str, Changes], data: Path, out: Path, progress: Progress = silent
) -> Outcome:
    """Run rows of a recipe on the data in a folder."""
    sources = load_sources(RECIPES / "datasets.yaml")
    recipe = tiny_recipe(name, names)
    return run_recipe(recipe, "full", Data(data, sources, out / "work", progress), out)


def save_places(data: Path, names: Sequence[str], split: str = "test") -> None:
    """Write the collection of ``support.tiny`` under each name, judged in a split."""
    for name in names:
        save_collection(data / name)
        qrels = data / name / "qrels"
        if not (qrels / f"{split}.tsv").exists():
            shutil.copy(qrels / "dev.tsv", qrels / f"{split}.tsv")


def dropped(name: str, system: str, kept: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row's test sets without the dropped ones."""
    recipe = load_recipe(RECIPES, name)
    (job,) = [one.jobs["full"] for one in recipe.rows if one.name == system]
    tests = to_json(job)["training"]["test"]  # type: ignore[arg-type]
    return [test for test in tests if test["name"] in kept]


# SAE-SPLADE

SAE_SPLADE = "sae_splade/table1"


def save_sae_splade(data: Path) -> None:
    """MS MARCO, DistilBERT and ColBERTv2's lists: [qid, [pid, score], ...]."""
    save_places(data, ["msmarco-passage", "msmarco-passage/dev/small"])
    save_bert(data / "distilbert" / "distilbert-base-uncased")
    with (data / "colbertv2_lists.jsonl").open("w") as file:
        for query in range(20):
            others = [(query + step) % 40 for step in range(1, 12)]
            scored = [[f"d{n}", 9.0 - position / 2] for position, n in enumerate([query, *others])]
            file.write(json.dumps([f"q{query}", *scored]) + "\n")


def sae_splade_rows() -> dict[str, Changes]:
    sae = {"num_latents": 64, "tokens": 4000, "batch_size": 200, "warmup_steps": 2}
    return {
        "sae_splade_k8": {
            "training": {
                "config": {
                    "model": {"sae": sae},
                    "optimizer": FEW,
                    "query_regularizer": {"steps": 2},
                    "document_regularizer": {"steps": 2},
                    "validation": {"count": 3, "documents": 30, "every": 2},
                },
                "test": dropped(SAE_SPLADE, "sae_splade_k8", ["msmarco-passage/dev/small"]),
            }
        }
    }


# SPLARE

SPLARE = "splare/table11"
LANGUAGES = ("xtreme_up/hi", "xtreme_up/ta")


def save_splare(data: Path) -> None:
    """A random Llama, an SAE over its block 1 in Llama Scope's layout, BGE's scored lists."""
    save_places(data, ["msmarco-passage", *LANGUAGES])
    save_decoder(data / "meta-llama" / "Llama-3.1-8B", tokenizer=decoder_tokenizer())
    save_llama_scope(data / "fnlp" / "Llama3_1-8B-Base-LXR-32x" / "Llama3_1-8B-Base-L1R-32x")
    lines = []
    for query in range(20):
        of = [(query * step + step) % 37 for step in range(1, 11)]
        lines.append(
            {
                "query": text(query, query + 3),
                "pos": [text(query, query + 3, of[0], 1)],
                "neg": [text(*of[n : n + 4]) + f" {n}" for n in range(9)],
                "pos_scores": [4.0],
                "neg_scores": [1 - n / 2 for n in range(9)],
            }
        )
    (data / "bge.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def save_llama_scope(folder: Path, hidden: int = 32, latents: int = 96) -> None:
    """An SAE of random weights that fires on some of a random Llama's states."""
    torch.manual_seed(1)
    encoder = torch.randn(latents, hidden) / 4
    tensors = {
        "encoder.weight": encoder,
        "encoder.bias": torch.zeros(latents),
        "decoder.weight": encoder.T.contiguous() * 4,
        "decoder.bias": torch.zeros(hidden),
    }
    (folder / "checkpoints").mkdir(parents=True)
    halves = {name: value.bfloat16() for name, value in tensors.items()}
    save_file(halves, folder / "checkpoints" / "final.safetensors")
    settings = {
        "hook_point_in": "blocks.1.hook_resid_post",
        "use_decoder_bias": True,
        "apply_decoder_bias_to_pre_encoder": False,
        "d_model": hidden,
        "d_sae": latents,
        "act_fn": "jumprelu",
        "jump_relu_threshold": 0.75390625,
        "norm_activation": "dataset-wise",
        "dataset_average_activation_norm": {"in": math.sqrt(hidden), "out": math.sqrt(hidden)},
        "sparsity_include_decoder_norm": True,
        "use_glu_encoder": False,
    }
    (folder / "hyperparams.json").write_text(json.dumps(settings))


def splare_rows() -> dict[str, Changes]:
    counted = {"df_texts": 12, "df_every": 2}
    return {
        "splare": {
            "training": {
                "config": {
                    "model": {
                        "layer": 2,
                        "lora_rank": 2,
                        "query_max_active_dims": 6,
                        "document_max_active_dims": 12,
                    },
                    "query_regularizer": counted,
                    "document_regularizer": counted,
                    "optimizer": FEW,
                    "validation": {"count": 3, "documents": 20, "every": 2},
                },
                "pretraining": {
                    "settings": {"steps": 3, "batch_size": 4, "warmup_steps": 1, "lora_rank": 2}
                },
                "averaged": [0, 1],
                "test": dropped(SPLARE, "splare", LANGUAGES),
            }
        }
    }


# ESPLADE

ESPLADE = "esplade/figure1"


def save_esplade(data: Path) -> None:
    """Clicks in clustered sets, a larger corpus, and DistilBERT."""
    save_places(data, ["msmarco-passage-v2", "orcas_titles/evaluation", "orcas_titles/test"])
    save_places(data, ["orcas_titles/train"], "train")
    save_places(data, ["orcas_titles/dev"], "dev")
    save_bert(data / "distilbert" / "distilbert-base-uncased")


def esplade_rows() -> dict[str, Changes]:
    """A row masked while training with a dual loss, and a row pruned afterwards."""
    config = {
        "loss": {"query_top_k": 4, "document_top_k": 8, "dual": True, "mask_divergence": 1.0},
        "model": {"size": 24},
        "joint_regularizer": {"steps": 2},
        "optimizer": {**FEW, "mini_batch": 3},
        "validation": {"count": 5, "every": 2},
    }
    settings = {"steps": 3, "batch_size": 4, "warmup_steps": 1}
    whole = {"config": config, "pretraining": {"words": 24, "settings": settings}}
    pruned = {**whole, "query_max_active_dims": 3, "document_max_active_dims": 5}
    return {"esplade": {"training": whole}, "esplade_q5_d10": {"training": pruned}}

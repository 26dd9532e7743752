"""Ray: the same index as on one machine, also with worker processes killed in the middle."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import lexicept
from lexicept import rra
from lexicept.corpora import Document
from lexicept.encoding.vectorizer import Vectorizer
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import IndexFormatError, InputError, LexiceptError
from lexicept.index import term_frequencies
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.updates import reweight
from lexicept.parallel import shards
from lexicept.parallel.ray import Cluster
from lexicept.parallel.shards import Shard
from lexicept.progress import Progress, silent
from lexicept.storage.files import read_json, write_json
from lexicept.weighting import BM25
from support.vowels import Vowels

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")

# Worker processes import this module: torch is imported by what needs it alone.

# Texts come again in other shards, and one is empty.
WORDS = ("baba", "deki", "lomu", "kilo", "muba")
TEXTS = [" ".join(WORDS[n % 23 * i % 5] for i in range(n % 23)) for n in range(40)]
CONCEPTS = VocabularySettings(BM25(k3=1.0), document_max_active_dims=20)
ALPHA = RRASettings(1.25, iterations=2)


@pytest.fixture(scope="module")
def cluster():
    """Two workers with the modules of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("OMP_NUM_THREADS", "1")
        started = Cluster("local", workers=2)
    yield started
    started.close()


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch):
    monkeypatch.setattr(term_frequencies, "SHARD", 4)
    monkeypatch.setattr(shards, "SIZE", 100)


@pytest.fixture(scope="module")
def concepts(tmp_path_factory):
    import torch

    from lexicept.neural.encoders.encoder import Encoder
    from lexicept.neural.heads.sae import SAEHead
    from lexicept.neural.vectorizers.concepts import ConceptVectorizer
    from lexicept.training.sae.settings import SAESettings
    from lexicept.training.sae.trainer import initial_sae
    from support.tiny import tiny_backbone

    torch.manual_seed(0)
    sae = initial_sae(torch.randn(200, 32), SAESettings(num_latents=50, k=4)).eval()
    backbone = tiny_backbone(tmp_path_factory.mktemp("bert"))
    return ConceptVectorizer(Encoder.of(backbone, SAEHead(sae.requires_grad_(False))))


def build(
    path: Path,
    vectorizer: Vectorizer,
    cluster: Cluster | None,
    settings: VocabularySettings = CONCEPTS,
    progress: Progress = silent,
) -> IndexReader:
    """Words, the vectorizer's dimensions, and RRA."""
    builder = IndexBuilder(path, cluster)
    try:
        builder.add_documents([Document(f"d{i}", t) for i, t in enumerate(TEXTS)], {})
        builder.add_vocabulary(WordVectorizer("en"), VocabularySettings(BM25()))
        builder.add_vocabulary(vectorizer, settings, progress=progress)
        return builder.commit(ALPHA)
    finally:
        builder.close()


def contents(index: IndexReader) -> dict[str, bytes]:
    """All files but the model, whose names and headers may differ."""
    files = (path for path in sorted(index.folder.rglob("*")) if path.is_file())
    result = {path.relative_to(index.folder).as_posix(): path.read_bytes() for path in files}
    return {name: data for name, data in result.items() if "/model/" not in name}


@pytest.mark.usefixtures("one_thread")
def test_an_index_is_the_same_bytes(tmp_path, cluster, concepts, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the workers are not
    here = contents(build(tmp_path / "here", concepts, None))
    assert contents(build(Path("there"), concepts, cluster)) == here
    again = reweight("there", "again", RRASettings(0.75), cluster)
    assert contents(again) == contents(reweight("here", tmp_path / "other", RRASettings(0.75)))
    assert np.isfinite(again.engine.offsets).all()


class Logged(Vowels):
    """Write down every encoded text, and kill the process at one of them, once."""

    def __init__(self, folder: Path, deadly: str | None = None) -> None:
        self.folder, self.deadly = folder, deadly

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        if self.deadly in texts:
            die_once(self.folder / "died")
        with (self.folder / "log").open("a") as log:
            log.writelines(f"{text}\n" for text in texts)
        return self.queries(texts)

    def save(self, folder: Path) -> None:
        super().save(folder)
        write_json(folder / "logged.json", {"folder": str(self.folder), "deadly": self.deadly})

    @classmethod
    def load(cls, folder: Path) -> "Logged":
        saved = read_json(folder / "logged.json")
        return cls(Path(saved["folder"]), saved["deadly"])

    def encoded(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()


def die_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_encoder_and_a_killed_build_lose_and_double_nothing(tmp_path, cluster):
    vectorizer = Logged(tmp_path, deadly=TEXTS[14])

    def interrupt(_, done, total, detail=""):
        if done == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "there", vectorizer, cluster, progress=interrupt)
    assert (tmp_path / "died").exists()
    before = vectorizer.encoded()
    assert set(before) >= set(TEXTS[:16])
    there = build(tmp_path / "there", vectorizer, cluster)
    assert sorted(vectorizer.encoded()[len(before) :]) == sorted(TEXTS[16:])
    assert contents(there) == contents(build(tmp_path / "here", vectorizer, None))


def dying_once(shard: Shard, hear: Callable[..., rra.Sums], mark: Path, *shared: Any) -> rra.Sums:
    die_once(mark)
    return hear(shard, *shared)


def test_a_process_that_is_killed_in_a_pass_of_rra_changes_nothing(tmp_path, cluster):
    def over(function, parts, *shared):
        if function.__name__ == "hear":
            return cluster.over(dying_once, parts, function, tmp_path / "died", *shared)
        return cluster.over(function, parts, *shared)

    counts = [Vowels().queries(TEXTS)]
    there = Derived.compute(counts, [CONCEPTS], ALPHA, over=over)
    here = Derived.compute(counts, [CONCEPTS], ALPHA)
    assert (tmp_path / "died").exists()
    assert len(shards.shards_of(counts)) > 1
    assert there.background.tolist() == here.background.tolist()
    for field in fields(here.engine):
        own, expected = (getattr(side.engine, field.name) for side in (there, here))
        assert own.tolist() == expected.tolist()


def test_errors_are_those_of_the_function(tmp_path, cluster):
    with pytest.raises(ZeroDivisionError):
        list(cluster.over(lambda n: 1 // n, [2, 1, 0, 1]))
    missing = partial(Vowels.load, tmp_path / "nowhere")
    with pytest.raises(IndexFormatError, match="nowhere"):
        list(cluster.encode(missing, [["a text"]]))


def always_die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_always_dies_is_given_up(cluster, monkeypatch):
    monkeypatch.setattr("lexicept.parallel.ray.RETRIES", 1)
    with pytest.raises(LexiceptError, match=r"^Ray gave up: "):
        list(cluster.over(always_die, [0]))


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="no folder that is another's")
def test_a_folder_that_workers_do_not_see_is_refused(tmp_path, cluster, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"index.partial: not seen on node .*all nodes share"):
        IndexBuilder("/proc/self/cwd/index", cluster)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:1", ""])
def test_no_cluster_at_an_address(address):
    with pytest.raises(InputError, match=f"no Ray cluster at '{address}': "):
        Cluster(address)


def test_commands_join_a_cluster(tmp_path, cluster):
    import ray

    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f'{{"_id": "{n}", "text": "{t}"}}\n' for n, t in enumerate(TEXTS)))
    more = tmp_path / "more.jsonl"
    more.write_text('{"_id": "n", "text": "zuzu baba"}\n{"_id": "3", "text": "kilo"}\n')
    options = ("--ray", ray.get_runtime_context().gcs_address, "--ray-workers", "1")
    there = tmp_path / "there"
    run("build", corpus, "--vocabulary", "words", "--out", there, *options)
    again = tmp_path / "there.rra"
    run("index", "reweight", there, "--alpha", "1.25", "--out", again, *options)
    run("add", there, more, *options)
    index = lexicept.build(corpus, tmp_path / "here", vocabulary="words")
    index.reweight(1.25, out=tmp_path / "here.rra")
    index.add(more)
    for suffix in ("", ".rra"):
        there, here = (
            IndexReader.open(tmp_path / f"{where}{suffix}") for where in ("there", "here")
        )
        assert contents(there) == contents(here)


def run(*arguments: object) -> None:
    command = [sys.executable, "-c", "from lexicept.cli import main; main()"]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_clusters_that_are_refused(monkeypatch):
    with pytest.raises(InputError, match="ray_workers must be at least 1, not 0"):
        Cluster("local", 0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"^ray missing: pip install 'lexicept\[ray\]'$"):
        Cluster("local")

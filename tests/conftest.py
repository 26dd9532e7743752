"""Fixtures shared by the tests: real text, the packaged backbone, and a small SAE on its states."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("support")

if TYPE_CHECKING:
    from lexicept.neural.backbones.backbone import Backbone
    from support.commands import Result, Run

# The first call of a compiled kernel takes longer than any deadline.
settings.register_profile("lexicept", deadline=None)
settings.load_profile("lexicept")
# Ray's workers give way to every other process by default, such as the next tests.
os.environ.setdefault("RAY_worker_niceness", "0")

TEXTS = [
    "How do I join two file paths? Use os.path.join.",
    "Cats and dogs are the most popular pets.",
    "",
    "The bank of the river was covered with spring flowers.",
    "A bank lends money and pays interest on deposits.",
    "In spring the coil of a metal spring expands.",
    "long " * 600 + "end",
    "Sorting a list takes n log n comparisons.",
]


@pytest.fixture(scope="session")
def data() -> Path:
    """Real collections, in a folder that not every machine has."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("LEXICEPT_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no collections in {folder} (LEXICEPT_DATA names another folder)")
    return folder


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return list(TEXTS)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    """A small BERT with random weights."""
    from support.tiny import tiny_backbone

    return tiny_backbone(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small masked language model with random weights."""
    from support.library_models import save_masked

    return save_masked(tmp_path_factory.mktemp("masked"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For equal bytes in other processes; after a fork the threads of parallel regions are gone."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Low precision, also on processors that emulate it."""
    monkeypatch.setattr("lexicept.neural.backbones.blocks.multiplies_bfloat16", lambda: True)


@pytest.fixture(scope="session")
def backbone():
    from lexicept.neural.backbones.backbone import Backbone

    return Backbone.from_pretrained(layer=2)


@pytest.fixture(scope="session")
def encoder(backbone, texts):
    """An untrained but sensible encoder: decoder rows are token states."""
    import torch

    from lexicept.neural.encoders.encoder import Encoder
    from lexicept.neural.heads.sae import SAEHead
    from lexicept.training.sae.settings import SAESettings
    from lexicept.training.sae.trainer import initial_sae

    states = torch.cat([s for _, s in backbone.token_states(backbone.windows(texts))])
    sae = initial_sae(states.clone(), SAESettings(num_latents=256, k=4)).eval()
    return Encoder.of(backbone, SAEHead(sae.requires_grad_(False)))


@pytest.fixture(autouse=True)
def _without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test cuts the power, and flushing takes most of a small build's time."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture(autouse=True)
def _path_of_children() -> Iterator[None]:
    """Children of a command may not import from the current folder; children of later tests may."""
    before = dict(os.environ)
    yield
    if "PYTHONSAFEPATH" not in before:
        os.environ.pop("PYTHONSAFEPATH", None)


@pytest.fixture
def _no_leaks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """No file of the test is open or mapped after it, even before garbage is collected."""
    from numba.core.event import install_recorder

    from support.handles import open_files

    with install_recorder("numba:compile") as compiled:
        yield
    request.node.funcargs.clear()  # which keep what fixtures have opened
    # A compilation by numba keeps its callers' variables: the tests after it are checked.
    if Path("/proc/self/maps").exists() and not compiled.buffer:
        assert open_files(tmp_path) == []


@pytest.fixture
def _vowels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let indexes with vowels as concepts be opened."""
    from lexicept.encoding.vectorizer import KINDS
    from support.vowels import PLACE, Vowels

    monkeypatch.setitem(KINDS, "concepts", PLACE)
    Vowels.encoded.clear()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process."""
    from lexicept.cli import main
    from support.commands import Result

    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["lexicept", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        code = exit_.value.code
        return Result(0 if code is None else int(code), *capsys.readouterr())

    return call


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """A BEIR folder of four documents; see ``support.collections.write_judged``."""
    from support.collections import write_judged

    return write_judged(tmp_path / "beir")


@pytest.fixture
def index(beir: Path, tmp_path: Path, run: Run) -> Path:
    """An index of the words of ``beir``; a module may define another."""
    path = tmp_path / "index"
    assert run("build", beir, "--vocabulary", "words", "--out", path).code == 0
    return path


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collected by every trainer takes most of a small run's time."""
    monkeypatch.setattr("accelerate.utils.memory.gc.collect", lambda: 0)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection, and an encoder to start from, with dropout and a query scale of its own."""
    import torch

    from lexicept.neural.encoders.encoder import Encoder
    from lexicept.neural.heads.vocabulary import VocabularyHead
    from support.tiny import save_collection, tiny_backbone

    folder = tmp_path_factory.mktemp("inputs")
    save_collection(folder / "beir")
    bert = tiny_backbone(folder / "bert", dropout=0.2)
    torch.manual_seed(3)
    head = VocabularyHead(torch.randn(50, 32) * 0.3, torch.zeros(50), [f"w{n}" for n in range(50)])
    head.configure(query_scale=3.0)
    Encoder.of(bert, head).save(str(folder / "start"), create_model_card=False)
    return folder


@pytest.fixture(scope="session")
def unbroken(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Uninterrupted trainings by name; see ``support.runs.UNBROKEN``."""
    from lexicept.training.ranking.run import train
    from support.runs import UNBROKEN, configuration

    folders: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name) / "run"
            train(configuration(inputs, model=UNBROKEN[name]), folders[name])
        return folders[name]

    return get


@pytest.fixture(scope="session")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.networks import save_cross_encoder

    return save_cross_encoder(tmp_path_factory.mktemp("cross-encoder"))


@pytest.fixture(scope="session")
def dense_encoder(cross_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.networks import save_dense_encoder

    return save_dense_encoder(tmp_path_factory.mktemp("dense-encoder"), cross_encoder)


@pytest.fixture(scope="session")
def served_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of words and concepts, see ``support.served``, which no test changes."""
    from support.served import save_index

    return save_index(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def served_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The words of ``served_index``, which no test changes."""
    from support.served import save_index

    return save_index(tmp_path_factory.mktemp("served"), concepts=False)

"""Fixtures shared by the tests: real text, the packaged backbone, and a small SAE on its states."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Read where Triton is first imported; 0 from outside runs its kernels on a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

# The first call of a compiled kernel takes longer than any deadline.
settings.register_profile("lexicept", deadline=None)
settings.load_profile("lexicept")

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
    """Real collections, in a folder of their own that not every machine has."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("LEXICEPT_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no collections in {folder} (LEXICEPT_DATA names another folder)")
    return folder


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return list(TEXTS)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For equal bytes in other processes; after a fork the threads of parallel regions are gone."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def backbone():
    from lexicept.models.backbone import Backbone

    return Backbone.from_pretrained(layer=2)


@pytest.fixture(scope="session")
def encoder(backbone, texts):
    """An untrained but sensible encoder: decoder rows are token states."""
    import torch

    from lexicept.models.encoder import make_encoder
    from lexicept.models.heads.sae import SAEHead
    from lexicept.training.sae.settings import SAESettings
    from lexicept.training.sae.trainer import initial_sae

    states = torch.cat([s for _, s in backbone.token_states(backbone.windows(texts))])
    sae = initial_sae(states.clone(), SAESettings(num_latents=256, k=4)).eval()
    return make_encoder(backbone, SAEHead(sae.requires_grad_(False)))

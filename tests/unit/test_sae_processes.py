"""An SAE that two processes train together is that of one process."""

import os
from itertools import islice

import pytest
import torch
from safetensors.torch import load_file

from lexicept.errors import InputError
from lexicept.models.sae.states import Position, Shuffling, StateStream
from lexicept.training.sae.processes import Processes
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_on_states
from support.processes import launch

ARCHITECTURES = ("topk", "matryoshka")

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from pathlib import Path
from safetensors.torch import save_file
sys.path.insert(0, sys.argv[2])
from test_sae_processes import ARCHITECTURES, kill_in, settings, train

dist.init_process_group("gloo")
folder, rank = Path(sys.argv[1]), dist.get_rank()
for architecture in ARCHITECTURES:
    killed = []
    try:
        train(settings(architecture), folder / architecture, kill_in(killed))
    except KeyboardInterrupt:
        assert killed
    seen = []
    sae = train(settings(architecture), folder / architecture, read=seen)
    save_file(sae.state_dict(), folder / f"{architecture}.{rank}.safetensors")
    (folder / f"{architecture}.{rank}.read").write_text(str(len(seen)))
dist.destroy_process_group()
"""


def settings(architecture):
    """Some tokens are enough to revive dead latents, and a buffer holds some of the texts."""
    return SAESettings(
        40,
        3,
        1500,
        architecture,
        batch_size=100,
        dead_tokens=200,
        buffer_tokens=300,
        normalise=True,
    )


def text(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(3 + number % 5, 8, generator=generator)


def kill_in(killed):
    """Return a report of progress that stops a training once it is half done."""

    def report(stage, done, total, detail=""):
        if done >= 700 and "loss" in detail:
            killed.append(done)
            raise KeyboardInterrupt

    return report


def train(chosen, folder=None, progress=None, read=None):
    from lexicept.models.sae import states
    from lexicept.progress import silent
    from lexicept.training import loop

    states.READ, loop.CHECKPOINT_SECONDS = 8, 0

    def reader(numbers):
        if read is not None:
            read.extend(numbers)
        return torch.cat([text(number) for number in numbers])

    return train_on_states(reader, 120, chosen, folder, progress or silent, together=True)


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("launched")
    launch(PROGRAM, folder, folder, os.path.dirname(__file__))
    return folder


@pytest.fixture
def _small(monkeypatch):
    monkeypatch.setattr("lexicept.models.sae.states.READ", 8)
    monkeypatch.setattr("lexicept.training.loop.CHECKPOINT_SECONDS", 0)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_two_processes_with_half_of_each_batch_are_one_with_all_of_it(launched, architecture):
    """Interrupted and resumed; each reads half of the texts that one process reads."""
    seen = []
    expected = train(settings(architecture), read=seen).state_dict()
    found = [load_file(launched / f"{architecture}.{rank}.safetensors") for rank in range(2)]
    assert expected.keys() == found[0].keys()
    for name, tensor in expected.items():
        assert torch.equal(found[0][name], found[1][name]), name
        torch.testing.assert_close(found[0][name], tensor, atol=2e-4, rtol=1e-3, msg=name)
    shares = [int((launched / f"{architecture}.{rank}.read").read_text()) for rank in range(2)]
    assert sum(shares) < 1.3 * len(seen)


def test_shares_of_one_and_of_many_processes():
    alone = Processes.current(torch.device("cpu"))
    assert (alone.rank, alone.count) == (0, 1)
    values = torch.tensor([1.0, 2.0])
    assert torch.equal(alone.add(alone.share(values)), values)
    batch = torch.arange(7.0)[:, None]
    shares = [Processes(rank, 3).share(batch).ravel().tolist() for rank in range(3)]
    assert shares == [[0.0, 1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    with pytest.raises(InputError, match="a batch of 7 tokens can't be shared by 8"):
        Processes(0, 8).share(batch)


class Shared:
    """Three processes whose runs of texts are all read here."""

    count = 3

    def __init__(self):
        self.runs = []

    def __call__(self, reader, runs):
        self.runs.append(runs)
        return [reader(run) if run else torch.empty(0, 0) for run in runs]


@pytest.mark.parametrize("buffer_tokens", [100, 10**6])
@pytest.mark.parametrize("start", [Position(), Position(0, 16, 1)])
def test_a_stream_of_shared_reading_is_that_of_one_process(buffer_tokens, start):
    def stream(share):
        reader = lambda numbers: torch.cat([text(number) for number in numbers])  # noqa: E731
        ignore = lambda tokens: None  # noqa: E731
        shuffling = Shuffling(40, buffer_tokens, 3, documents=8)
        return StateStream(reader, 50, shuffling, ignore, share).batches(start)

    shared = Shared()
    both = zip(islice(stream(None), 20), islice(stream(shared), 20), strict=True)
    for (position, expected), (where, found) in both:
        assert where == position
        assert torch.equal(found, expected)
    assert all(len(runs) == 3 for runs in shared.runs)

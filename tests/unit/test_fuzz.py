"""Every reader reads damaged files: a short, deterministic run of ``tests/fuzz``."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lexicept.encoding.vectorizer
from fuzz.bench import Bench, limited_memory
from fuzz.targets import TARGETS, Target, files
from lexicept.errors import InputError
from support.vowels import PLACE

EXAMPLES = 20
"""Inputs of each reader."""

PIECES = [b"", b"\x00", b"\xff", b"-1", b"1e400", b"null", b"[]", b"9" * 5000, b"[" * 3000]
EDITS = st.lists(
    st.tuples(
        st.integers(0, 2**16),  # where, in bytes, modulo the length
        st.integers(0, 40),  # bytes removed
        st.sampled_from(PIECES) | st.binary(max_size=8),  # bytes put in
    ),
    min_size=1,
    max_size=3,
)


def damaged(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for position, removed, chunk in edits:
        position %= len(data) + 1
        data = data[:position] + chunk + data[position + removed :]
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_every_reader_refuses_damage_with_its_own_errors(name, tmp_path, monkeypatch):
    monkeypatch.setitem(lexicept.encoding.vectorizer.KINDS, "concepts", PLACE)
    bench = Bench(TARGETS[name], tmp_path)
    seeds = bench.seeds()

    @settings(
        derandomize=True,
        database=None,
        max_examples=EXAMPLES,
        suppress_health_check=[HealthCheck.too_slow],  # that depends on the machine
    )
    @given(st.sampled_from(range(len(seeds))), EDITS)
    def read(file, edits):
        bench.read(seeds[file][:1] + damaged(seeds[file][1:], edits))

    with limited_memory():
        read()


def raising(error: type[Exception]) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        if (folder / "a").read_bytes() != b"fine":
            raise error("damaged")

    return read


def test_only_errors_of_lexicept_are_expected(tmp_path):
    (tmp_path / "good").mkdir()
    Bench(Target(files(a="fine"), raising(InputError)), tmp_path / "good").read(b"\0broken")
    assert (tmp_path / "good" / "a").read_bytes() == b"fine"
    (tmp_path / "bad").mkdir()
    bad = Bench(Target(files(a="fine"), raising(KeyError)), tmp_path / "bad")
    bad.read(b"\0fine")
    with pytest.raises(KeyError, match="damaged"):
        bad.read(b"\0broken")
    assert (tmp_path / "bad" / "a").read_bytes() == b"fine"


def test_a_reader_that_takes_too_much_memory_is_found():
    with limited_memory(), pytest.raises(MemoryError):
        bytearray(2**31)

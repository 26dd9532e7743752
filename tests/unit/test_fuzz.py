"""A short run of the fuzzer, and that it finds what it is for; ``tests/fuzz`` has the long one."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

from fuzz.mutator import LONGEST, mutate

ROOT = Path(__file__).parents[2]


def test_every_reader_refuses_damage_with_its_own_errors() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", "5000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].startswith("0 failures in 5,0"), done.stdout + done.stderr
    assert done.returncode == 0


ACTIONS = {
    "raise KeyError(7)": "KeyError: 7",
    "bytearray(2**31)": "MemoryError",
    "os.kill(os.getpid(), 11)": "the process ended with -11",
    "sum(range(8 * 10**7))": "it took",
}
BROKEN = """
import json, os, sys
sys.path[:0] = {paths!r}
from tests.fuzz import targets, watched

def reader(action):
    return lambda folder: (folder / "a").read_bytes() == b"fine" or exec(action)

for action in {actions!r}:
    targets.TARGETS[action] = targets.Target(targets.files(a="fine"), reader(action))
work = [watched.Watched(action, 0, range(3)) for action in {actions!r}]
print(json.dumps(watched.run_all(work, 2)))
"""


def test_what_broken_readers_do_is_found() -> None:
    paths = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]
    script = BROKEN.format(paths=paths, actions=list(ACTIONS))
    out = subprocess.check_output([sys.executable, "-c", script], text=True)
    problems: dict[str, list[str]] = {action: [] for action in ACTIONS}
    for finding in json.loads(out.splitlines()[-1]):
        problems[finding["target"]].append(finding["problem"])
    for action, expected in ACTIONS.items():
        assert problems[action]
        assert all(problem.startswith(expected) for problem in problems[action])


def test_mutations_depend_on_the_seed_alone_and_stay_short() -> None:
    pool = [b'{"a": [1, {"b": 2}]}', b"q Q0 d 1 2.5 t\n", bytes(range(256)), b""]
    for seed in range(300):
        for content in pool:
            once, twice = (mutate(Random(seed), content, pool) for _ in range(2))
            assert once == twice
            assert len(once) <= LONGEST
    assert len({mutate(Random(seed), pool[0], pool) for seed in range(300)}) > 200

"""Workers in processes of their own, which may crash or hang."""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import worker

HANG = 10.0
"""Seconds of CPU time on one input after which a worker is killed."""

PAUSE = 300.0
"""Seconds without progress after which it is killed whatever it does."""

MOST = 20
"""Crashes after which a target is given up."""


class Watched:
    """The inputs of one target; each crash is a finding, and the next input goes on.

    Args:
        coverage: a folder for what ``coverage`` measures.
    """

    def __init__(self, name: str, seed: int, numbers: range, coverage: Path | None = None) -> None:
        self.name = name
        self.found: list[dict[str, Any]] = []
        self._seed = seed
        self._numbers = numbers
        self._coverage = coverage
        self._crashes = 0

    def start(self) -> None:
        """Fork a process for the inputs that are left."""
        self._progress = mmap.mmap(-1, 8)
        self._set_progress(self._numbers.start)
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._seen, self._since, self._cpu = -1, time.monotonic(), 0.0
        self._pid = os.fork()
        if not self._pid:
            status = 1
            try:
                self._work()
                status = 0
            finally:
                os._exit(status)

    def _set_progress(self, number: int) -> None:
        self._progress[:8] = number.to_bytes(8, "little")

    def _work(self) -> None:
        faulthandler.enable(self._err)
        if self._coverage is None:
            self._read()
        else:
            import coverage

            name = str(self._coverage / f"{self.name}.{os.getpid()}")
            sources = ["lexicept"]
            measured = coverage.Coverage(data_file=name, branch=True, source_pkgs=sources)
            with measured.collect():
                self._read()
            measured.save()

    def _read(self) -> None:
        for finding in worker.run(self.name, self._seed, self._numbers, self._set_progress):
            self._out.write(json.dumps(finding) + "\n")
            self._out.flush()

    def poll(self) -> bool:
        """Whether it goes on, perhaps in another process."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        problem = None
        if not pid:
            if not self._hangs():
                return True
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            problem = "it hangs"
        elif status:
            problem = f"the process ended with {os.waitstatus_to_exitcode(status)}"
        self._out.seek(0)
        self.found += [json.loads(line) for line in self._out]
        if problem is None:
            return False
        number = int.from_bytes(self._progress[:8], "little")
        self._err.seek(0)
        said = " ".join(self._err.read().split())[:400]
        wrong = {"target": self.name, "seed": self._seed, "number": number}
        self.found.append({**wrong, "problem": f"{problem}: {said}"})
        self._crashes += 1
        self._numbers = range(number + 1, self._numbers.stop)
        if not self._numbers or self._crashes > MOST:
            return False
        self.start()
        return True

    def _hangs(self) -> bool:
        now = int.from_bytes(self._progress[:8], "little")
        cpu = cpu_seconds(self._pid)
        if now != self._seen:
            self._seen, self._since, self._cpu = now, time.monotonic(), cpu
        return cpu - self._cpu > HANG or time.monotonic() - self._since > PAUSE


def cpu_seconds(pid: int) -> float:
    """CPU time of a process: on a busy machine the clock says nothing."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_all(waiting: Sequence[Watched], jobs: int) -> list[dict[str, Any]]:
    """Run targets, some at a time, and return what went wrong."""
    left, running = list(waiting), list[Watched]()
    while left or running:
        while left and len(running) < jobs:
            running.append(left.pop(0))
            running[-1].start()
        time.sleep(0.02)
        running = [each for each in running if each.poll()]
    return [finding for each in waiting for finding in each.found]

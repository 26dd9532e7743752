"""A short run of the server's soak."""

from pathlib import Path

import pytest

from soak.server import soak
from support.served import save_index


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc")
def test_a_short_run(tmp_path):
    lines: list[str] = []
    path = save_index(tmp_path, concepts=False)
    assert soak(path, updates=2, requests=40, report=lines.append) == []
    assert "2 updates, 40 requests" in lines[-2]
    assert lines[-2].endswith(" 1 generation open")

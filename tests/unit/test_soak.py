"""A short run of the server's soak, and the reports of the long run."""

from collections import Counter
from pathlib import Path

import pytest

from soak.server import Figures, problems_of, soak
from support.served import save_index


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc")
def test_a_short_run(tmp_path):
    lines: list[str] = []
    path = save_index(tmp_path, concepts=False)
    assert soak(path, updates=2, requests=40, report=lines.append) == []
    assert "2 updates, 40 requests" in lines[-2]
    assert lines[-2].endswith(" 1 generation open")


@pytest.mark.parametrize(
    ("last", "statuses", "message"),
    [
        (Figures(500, 60, 1), {200: 9, 404: 1}, None),
        (Figures(565, 60, 1), {200: 9}, "memory grew from 500 to 565 MB"),
        (Figures(500, 130, 1), {200: 9}, "130 descriptors were open"),
        (Figures(500, 60, 2), {200: 9}, "2 generations are open"),
        (Figures(500, 60, 1), {200: 9, 503: 2}, "server errors: {503: 2}"),
    ],
)
def test_what_a_run_reports(last, statuses, message):
    messages = list(problems_of([Figures(500, 60, 1), last], Counter(statuses)))
    assert messages == ([] if message is None else [message])

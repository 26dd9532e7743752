"""Threads that search one index with concepts: ``python -m tests.soak.threads``.

Every result has to be the one that a single thread gets. The exit status is 1 otherwise.
"""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.threads")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--queries", type=int, default=1000, help="of each thread")
    arguments = parser.parse_args()
    sys.path += [str(ROOT / "src"), str(ROOT / "tests")]
    import lexicept
    from conftest import TEXTS
    from support.threads import differing

    with TemporaryDirectory() as folder, lexicept.build(TEXTS, f"{folder}/index") as index:
        start = time.monotonic()
        wrong = differing(index, arguments.threads, arguments.queries)
        seconds = time.monotonic() - start
    count = arguments.threads * arguments.queries
    print(f"{count:,} searches by {arguments.threads} threads in {seconds:.0f} s: {wrong} differ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

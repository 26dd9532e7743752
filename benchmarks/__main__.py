"""``python -m benchmarks [NAME...]``: run benchmarks and rewrite their tables in README.md."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from benchmarks.common import README, write_readme

DEFAULT = (
    "heads",
    "training",
    "ranking",
    "encoding",
    "query",
    "memory",
    "search",
    "filters",
    "scaling",
    "rra",
    "start_up",
)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(DEFAULT)} (all by default), effectiveness",
    )
    data = README.parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=data, help="BEIR folders")
    parser.add_argument("--index", type=Path, help="SciFact index; built where it is absent")
    arguments = parser.parse_args()
    names = arguments.names or DEFAULT
    if unknown := set(names) - {*DEFAULT, "effectiveness"}:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    given = {
        "encoding": [arguments.data],
        "ranking": [arguments.data],
        "rra": [arguments.data],
        "effectiveness": [arguments.data, arguments.index],
    }
    for name in names:
        print(f"{name} ...", flush=True)
        tables = import_module(f"benchmarks.{name}").run(*given.get(name, []))
        for table in tables:
            print(f"\n{table.name}\n\n{table.markdown()}\n", flush=True)
        # After each benchmark, so that one that fails later takes no result with it.
        write_readme(tables)


if __name__ == "__main__":
    main()

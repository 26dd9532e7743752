"""Cost of the SAE head against M, tokens and batch, beside a plain implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.common import README, Table, interleaved, ratio
from benchmarks.heads import Case, backward, sae_head

PLOT = README.with_name("scaling.png")


class Sweep(NamedTuple):
    """A sweep of one number, the others fixed."""

    title: str
    varies: str
    values: tuple[int, ...]
    case: Callable[[int], Case]
    training: bool = False


SWEEPS = (
    Sweep(
        "1,024 tokens, d 768",
        "M",
        (4096, 16_384, 65_536, 131_072),
        lambda size: sae_head(1024, 768, size),
    ),
    Sweep(
        "one text, d 768, M 65,536",
        "tokens",
        (4, 16, 64, 256, 1024),
        lambda tokens: sae_head(tokens, 768, 65_536, length=tokens),
    ),
    Sweep(
        "with backward, texts of 128 tokens, d 384, M 8,192",
        "batch",
        (1, 4, 16, 64),
        lambda texts: sae_head(128 * texts, 384, 8192, training=True),
        training=True,
    ),
)


def run(rounds: int = 5, path: Path = PLOT) -> list[Table]:
    """Time every point of every sweep, and plot them."""
    lines, times = [], {}
    for sweep in SWEEPS:
        for value in sweep.values:
            case = sweep.case(value)
            ways = backward(case) if sweep.training else case.ways
            took = interleaved(ways, rounds)
            times[sweep, value] = {name: median(times_of) for name, times_of in took.items()}
            ours, plain = took.values()
            cells = [f"{1000 * median(times_of):.1f} ms" for times_of in (ours, plain)]
            lines.append(
                [sweep.title, f"{sweep.varies} {value:,}", *cells, f"{ratio(plain, ours):.2f} ×"]
            )
    plot(times, path)
    columns = ["SAE head, k 8", "", "lexicept", "PyTorch", "time / lexicept's"]
    return [Table("scaling", columns, lines)]


def plot(times: Mapping[tuple[Sweep, int], Mapping[str, float]], path: Path) -> None:
    """Plot seconds against the varied number, in a panel for each sweep."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    for sweep, axes in zip(SWEEPS, figure.subplots(1, len(SWEEPS)), strict=True):
        for name, marker in (("lexicept", "o"), ("PyTorch", "s")):
            values = [times[sweep, value][name] for value in sweep.values]
            axes.plot(sweep.values, values, marker=marker, label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set(xlabel=sweep.varies, ylabel="seconds")
        axes.set_title(sweep.title, fontsize=10)
        axes.legend()
    figure.savefig(path, dpi=80)

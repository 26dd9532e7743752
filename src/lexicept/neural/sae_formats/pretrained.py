"""Pretrained SAEs: finding one on the hub or on disk, and loading it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lexicept.encoding.hub import hub_errors, refuse_missing, suggestion
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.sae.model import SAE, layer_of
from lexicept.neural.sae_formats import LAYOUTS, Layout, PathFacts

USUAL_L0 = 100
"""Active latents per token preferred by SPLARE among SAEs of equal layer and width."""

SHOWN = 8
"""Limit on the names that an error lists."""

_HUB_NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:/(.+))?")


@dataclass(frozen=True)
class PretrainedSAE:
    """A pretrained SAE with checked headers, before the weights are loaded."""

    layout: Layout
    layer: int | None
    """Number of blocks before it; None if unknown."""
    origin: dict[str, Any]

    def load(self, backbone: Backbone | None = None) -> SAE:
        """Read the weights: an SAE in float32, not trainable, with the source in ``origin`` and
        activations in units of the states, also of an SAE that was trained on scaled states. Raises
        InputError for an SAE that does not fit the later ``backbone``, or for damaged weights."""
        if backbone is not None:
            require_fit({**self.origin, "layer": self.layer}, self.layout.d_in, backbone)
        sae = self.layout.load()
        sae.origin = {**self.origin, **sae.origin, "layer": self.layer}
        return sae


def find_pretrained_sae(
    source: str | os.PathLike[str],
    layer: int | None = None,
    width: int | None = None,
    *,
    l0: float = USUAL_L0,
    pickles: bool = False,
) -> PretrainedSAE:
    """Find a pretrained SAE in any of ``sae_formats.LAYOUTS``, recognised by file names, in a
    folder or in a repository on the hub (``google/gemma-scope-2b-pt-res``), with or without a
    folder inside. Raises InputError if no SAE or several fit, the sizes differ from the arguments,
    or the headers are damaged.

    Args:
        layer: number of blocks before the SAE. Releases count blocks from 0: their "output of layer
            20" is the state after 21 blocks.
        l0: preferred mean number of active latents, among SAEs of equal layer and width.
        pickles: whether pickled files may be read; only tensors are unpickled.
    """
    where, files, folder_of = _open_source(source)
    candidates = _recognise(files, where)
    if not candidates:
        names = ", ".join(f"{k.name} with {k.config_file} and {k.weights_file}" for k in LAYOUTS)
        raise InputError(f"{where}: there is no SAE of a known layout ({names})")
    best = _choose(candidates, where, layer, width, l0)
    path = f"{where}/{best.folder}".rstrip("/")
    if best.layout.pickled and not pickles:
        raise InputError(
            f"{path}: {best.layout.weights_file} is a pickle: lexicept model convert "
            "makes an SAE of it that can be loaded"
        )
    layout = best.layout(folder_of(best), path)
    _require_known(path, layout, layer, width)
    origin = {"source": path, "layout": layout.name, "hook": layout.hook, "model": layout.model}
    return PretrainedSAE(layout, layer if layout.layer is None else layout.layer, origin)


def require_fit(origin: dict[str, Any], d_in: int, backbone: Backbone) -> None:
    """Raise InputError if size or origin of an SAE contradict a backbone."""
    name, d = origin.get("source", "the SAE"), backbone.get_embedding_dimension()
    if d_in != d:
        raise InputError(
            f"{name} reads states of size {d_in}, but the backbone has states of size {d}"
        )
    layer, hook = origin.get("layer"), origin.get("hook")
    if hook is not None and layer is None:
        raise InputError(f"{name} reads {hook}, not the state after a block")
    if layer is not None and layer != backbone.num_layers:
        raise InputError(
            f"{name} is for the state after {layer} blocks, the backbone runs {backbone.num_layers}"
        )


class _Candidate(NamedTuple):
    layout: type[Layout]
    folder: str
    facts: PathFacts

    @property
    def layer(self) -> int | None:
        return layer_of(self.facts.hook)

    def files(self) -> list[str]:
        names = (self.layout.config_file, self.layout.weights_file)
        return [f"{self.folder}/{name}".lstrip("/") for name in names if name is not None]


def _open_source(
    source: str | os.PathLike[str],
) -> tuple[str, list[str], Callable[[_Candidate], Path]]:
    """Return a source's name and files, and a function that fetches a candidate's folder."""
    refuse_missing(source, inside=True)
    root = Path(os.path.expanduser(source))
    if root.is_dir():
        files = [file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()]
        return str(root.resolve()), files, lambda candidate: root / candidate.folder
    named = _HUB_NAME.fullmatch(str(source).rstrip("/"))
    if named is None:
        near = suggestion(root)
        raise InputError(f"{source}: neither a folder nor a hub's name, such as google/name{near}")
    name, inner = named[1], named[2] or ""
    prefix = f"{inner}/" if inner else ""
    import huggingface_hub

    with hub_errors(name):
        # Unlike list_repo_files, one request: without a network no half minute of retries.
        siblings = huggingface_hub.model_info(name).siblings or ()
    listed = [sibling.rfilename for sibling in siblings]
    files = [file.removeprefix(prefix) for file in listed if file.startswith(prefix)]

    def fetch(candidate: _Candidate) -> Path:
        patterns = [f"{prefix}{file}" for file in candidate.files()]
        with hub_errors(name):
            downloaded = huggingface_hub.snapshot_download(name, allow_patterns=patterns)
        return Path(downloaded, inner, candidate.folder)

    return f"{name}/{inner}".rstrip("/"), files, fetch


def _recognise(files: Sequence[str], where: str) -> list[_Candidate]:
    """Return the SAEs in a source: each folder with the files of a layout."""
    present, candidates = set(files), []
    for file in sorted(present):
        for layout in LAYOUTS:
            if f"/{file}".endswith(f"/{layout.weights_file}"):
                start = file.removesuffix(layout.weights_file)
                if layout.config_file is None or f"{start}{layout.config_file}" in present:
                    facts = layout.path_facts(f"{where}/{start}".rstrip("/"))
                    candidates.append(_Candidate(layout, start.rstrip("/"), facts))
    return candidates


def _choose(
    candidates: list[_Candidate], where: str, layer: int | None, width: int | None, l0: float
) -> _Candidate:
    # SAEs of a residual stream before those of MLPs and attention.
    states = [c for c in candidates if c.layer is not None or c.facts.hook is None]
    if layer is not None and not states:
        hooks = sorted({str(c.facts.hook) for c in candidates})
        raise InputError(f"{where}: reads {', '.join(hooks[:SHOWN])}, not the state after a block")
    candidates = states or candidates
    candidates = _narrow(candidates, "layer", layer, lambda c: c.layer, where)
    candidates = _narrow(candidates, "width", width, lambda c: c.facts.width, where)
    with_l0 = [c for c in candidates if c.facts.l0 is not None]
    if with_l0:  # Gemma Scope 2 has some both under resid_post and under resid_post_all
        return min(with_l0, key=lambda c: (abs((c.facts.l0 or 0) - l0), "_all/" in c.folder))
    if len(candidates) > 1:
        names = ", ".join(c.folder for c in candidates[:SHOWN]) + (
            ", …" if len(candidates) > SHOWN else ""
        )
        raise InputError(f"{where}: several SAEs; add the folder to the name: {names}")
    return candidates[0]


def _narrow(
    candidates: list[_Candidate],
    name: str,
    target: int | None,
    value: Callable[[_Candidate], int | None],
    where: str,
) -> list[_Candidate]:
    """Keep the candidates with the target value, or else candidates of unknown value."""
    present = sorted({v for v in map(value, candidates) if v is not None})
    if target is None:
        if len(present) > 1:
            raise InputError(f"{where}: choose a {name} of {', '.join(map(str, present))}")
        return candidates
    exact = [c for c in candidates if value(c) == target]
    fitting = exact if present else candidates
    if not fitting:
        there = ", ".join(map(str, present))
        raise InputError(f"{where}: no SAE of {name} {target}; there is {there}")
    return fitting


def _require_known(path: str, layout: Layout, layer: int | None, width: int | None) -> None:
    """Raise InputError if an SAE's headers contradict the arguments."""
    if layer is not None and layout.layer is None and layout.hook is not None:
        raise InputError(f"{path}: this SAE reads {layout.hook}, not the state after a block")
    for statement, expected, actual in (
        ("is for the state after {} blocks", layer, layout.layer),
        ("has {} latents", width, layout.num_latents),
    ):
        if expected is not None and actual is not None and actual != expected:
            raise InputError(f"{path}: this SAE {statement.format(actual)}, not {expected}")

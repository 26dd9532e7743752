"""Model soups: the mean of several encoders' weights (Wortsman et al. 2022; SPLARE)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as shorten
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from torch import Tensor

from lexicept.errors import InputError
from lexicept.neural.encoders.encoder import Encoder
from lexicept.storage.files import disk_errors, replace_file, sha256, write_json
from lexicept.storage.workspace import new_folder

_CARD = "README.md"

_PLACES = {"transformers_version", "__version__", "_name_or_path", "is_local", "origin"}
"""Settings that may differ: the origin of a model or SAE."""

_LEARNED = "query_scale"
"""The learned setting of a head, averaged like weights."""


def soup(models: Sequence[Path], out: Path) -> None:
    """Write the encoder whose weights are the means, in double precision, of several encoders'.

    Low-rank adapters are refused, since the product B A is not linear in the factors: average the
    merged models. Raises InputError if ``out`` exists, a folder holds no encoder, or two encoders
    differ in more than weights; the error names the difference.

    Args:
        models: saved encoders of equal architecture, trained from the same start.
    """
    files = [_files(model) for model in models]
    with new_folder(out, "soup") as work:
        for name in sorted({name for present in files for name in present}):
            _write_mean(models, name, work)
        averaged = "".join(f"- {model}\n" for model in models)
        card = f"# {out.name}\n\nEvery weight is the mean of those of:\n\n{averaged}"
        replace_file(work / _CARD, card.encode())
        # A mean of parts that do not fit is no encoder.
        Encoder.load(work)


def _write_mean(models: Sequence[Path], name: str, work: Path) -> None:
    """Write one file of the mean of models."""
    paths = [model / name for model in models]
    (work / name).parent.mkdir(parents=True, exist_ok=True)
    for model, path in zip(models, paths, strict=True):
        if not path.exists():
            raise InputError(f"{model} has no {name}, which another model of the soup has")
    if name.endswith(".safetensors"):
        replace_file(work / name, to_safetensors(_mean_weights(paths), {"format": "pt"}))
    elif name.endswith(".json"):
        _write_settings(paths, work / name)
    else:
        for path in paths[1:]:
            if sha256(path) != sha256(paths[0]):
                raise InputError(f"{paths[0]} and {path} have different contents")
        shutil.copyfile(paths[0], work / name)


def _files(model: Path) -> list[str]:
    """Return the relative paths of the files of an encoder."""
    if not (model / "modules.json").exists():
        raise InputError(f"{model}: no saved encoder (modules.json is missing)")
    files = [path for path in model.rglob("*") if path.is_file() and path.name != _CARD]
    if any(path.name == "adapter_config.json" for path in files):
        raise InputError(f"{model}: adapters are not averaged; name the model they are merged into")
    return [path.relative_to(model).as_posix() for path in files]


def _mean_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    first = _load(paths[0])
    sums = {name: value.double() for name, value in first.items()}
    for path in paths[1:]:
        other = _load(path)
        _check_same(paths[0], _forms(first), path, _forms(other))
        for name, value in other.items():
            sums[name] += value.double()
    return {name: (value / len(paths)).to(first[name].dtype) for name, value in sums.items()}


def _load(path: Path) -> dict[str, Tensor]:
    try:
        with disk_errors(path):
            return load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path}: {error}") from None


def _forms(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    names = {name: str(value.dtype).removeprefix("torch.") for name, value in tensors.items()}
    return {name: f"{names[name]} {list(value.shape)}" for name, value in tensors.items()}


def _write_settings(paths: Sequence[Path], out: Path) -> None:
    contents = [_settings(path) for path in paths]
    for path, content in zip(paths[1:], contents[1:], strict=True):
        _check_same(paths[0], contents[0], path, content)
    if _LEARNED not in contents[0]:
        shutil.copyfile(paths[0], out)
        return
    mean = sum(content[_LEARNED] for content in contents) / len(contents)
    write_json(out, {**contents[0], _LEARNED: mean})


def _settings(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from None
    return content if isinstance(content, dict) else {"content": content}


def _check_same(
    path: Path, expected: Mapping[str, Any], other: Path, actual: Mapping[str, Any]
) -> None:
    for name in sorted({*expected, *actual} - _PLACES - {_LEARNED}):
        values = expected.get(name), actual.get(name)
        if values[0] != values[1]:
            texts = " and ".join(map(shorten, values))
            raise InputError(f"{path} and {other} differ in {name}: {texts}")

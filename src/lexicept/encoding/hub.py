"""Models on the Hugging Face Hub: download and upload."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from lexicept.errors import InputError, first_line_of

CARD = "README.md"

FILES = ("*.safetensors", "*.json", "*.txt", "*.md", "*.model", "*terms.bin", "*terms.offsets.npy")
"""Patterns of a model's files: no pickles and no code. The terms are texts and numbers."""

_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")

_FILE_ENDINGS = (".bin", ".gguf", ".json", ".onnx", ".pt", ".pth", ".safetensors", ".yaml", ".zip")


def is_name(source: str | os.PathLike[str]) -> bool:
    """Return whether a source has the form of a hub's name, owner/name, and is no folder here."""
    return _NAME.fullmatch(os.fspath(source)) is not None and not Path(source).exists()


def refuse_missing(source: str | os.PathLike[str], *, inside: bool = False) -> None:
    """Raise InputError for a path without a file or folder, naming the nearest one, so that no
    misspelt path is looked up on the hub. A path starts with ``.``, ``/`` or ``~``, has a
    backslash, several slashes (unless ``inside``, folders of a repository), the ending of a file,
    or a first folder that exists."""
    text = os.fspath(source)
    if not text.strip() or "\0" in text:
        raise InputError(f"{text!r} names no model")
    path = Path(os.path.expanduser(text))
    looks_local = text.startswith((".", "/", "~")) or "\\" in text or path.is_absolute()
    looks_local |= text.endswith(_FILE_ENDINGS) or (text.count("/") > 1 and not inside)
    looks_local |= len(path.parts) > 1 and Path(path.parts[0]).exists()
    if looks_local and not path.exists():
        raise InputError(f"{text}: no such folder{suggestion(path)}")


def suggestion(path: Path) -> str:
    """Return the name in a path's deepest existing folder that is most like the missing one."""
    while not path.parent.is_dir():
        path = path.parent
    try:
        names = sorted(child.name for child in path.parent.iterdir())
    except OSError:
        return ""
    near = get_close_matches(path.name, names, 1)
    return f"; did you mean {path.parent / near[0]}?" if near else ""


def model_folder(
    source: str | os.PathLike[str], revision: str | None = None, files: tuple[str, ...] = FILES
) -> Path:
    """Return a folder as it is, or the cached folder of a model on the hub at a revision (branch,
    tag or commit), with files of some patterns, downloaded if needed. Raises InputError for a
    missing path, an unknown model or revision, or an unreachable hub."""
    refuse_missing(source)
    name = os.fspath(source)
    path = Path(os.path.expanduser(source))
    if path.exists():
        if revision is not None:
            raise InputError(f"{source}: only the hub's models have revisions")
        return path
    from huggingface_hub import snapshot_download

    missing = f"no such folder{suggestion(path)}, and the hub's can't be loaded"
    with hub_errors(name, missing):
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))


@contextmanager
def hub_errors(
    name: str, failed: str = "no such folder, and the hub's can't be loaded"
) -> Iterator[None]:
    """Turn errors of the hub, the client and the transport into an InputError."""
    from huggingface_hub import errors

    try:
        yield
    except InputError:
        raise
    except errors.GatedRepoError:
        reason = "its terms have to be accepted on the hub, by the owner of HF_TOKEN"
    except errors.RepositoryNotFoundError:
        reason = "there is none of that name, or HF_TOKEN may not see it"
    except errors.RevisionNotFoundError:
        reason = "it has no such revision"
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        reason = "it is not in the cache, and the hub can't be reached"
    except errors.HFValidationError:
        reason = "not a hub's name, such as owner/name"
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        reason = "HF_TOKEN may not do that" if status in (401, 403) else first_line_of(error)
    except Exception as error:  # the transport raises errors of its own
        reason = f"the hub can't be reached: {first_line_of(error)}"
    else:
        return
    raise InputError(f"{name}: {failed}: {reason}")

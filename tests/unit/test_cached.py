"""Things made once and kept: never trusted when damaged."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lexicept.errors import IndexFormatError, InputError, LexiceptWarning
from lexicept.storage.cached import cached
from lexicept.storage.files import replace_file

made: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_made():
    made.clear()


def text(path: Path) -> str:
    if not (passage := path.read_text()):
        raise IndexFormatError(f"{path}: empty")
    return passage


def kept(path: Path, payload: str = "whole") -> str:
    def make() -> None:
        made.append(payload)
        replace_file(path, payload.encode())

    return cached(path, make, text)


def kept_folder(path: Path) -> list[str]:
    def make() -> None:
        made.append("folder")
        for name in ("one", "inner/two"):
            replace_file(path / name, name.encode())

    return cached(path, make, lambda folder: sorted(p.name for p in folder.rglob("*")))


def test_it_is_made_once(tmp_path):
    assert [kept(tmp_path / "file"), kept(tmp_path / "file", "other")] == ["whole", "whole"]
    assert kept_folder(tmp_path / "folder") == ["inner", "one", "two"]
    assert kept_folder(tmp_path / "folder") == ["inner", "one", "two"]
    assert made == ["whole", "folder"]


@pytest.mark.parametrize("payload", ["", "whol", "other"])
def test_a_damaged_file_is_made_again(tmp_path, payload):
    kept(tmp_path / "file")
    (tmp_path / "file").write_text(payload)
    with pytest.warns(LexiceptWarning, match=r"file .*: made again"):
        assert kept(tmp_path / "file") == "whole"
    assert kept(tmp_path / "file") == "whole"
    assert made == ["whole", "whole"]


DAMAGES: list[Callable[[Path], object]] = [
    lambda folder: (folder / "one").unlink(),
    lambda folder: (folder / "one").write_bytes(b""),
    lambda folder: (folder / "inner" / "two").write_bytes(b"inner/twO"),
    lambda folder: folder.with_name("folder.checksums.json").write_bytes(b""),
    lambda folder: folder.with_name("folder.checksums.json").write_text("{}"),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_made_again(tmp_path, damage):
    kept_folder(tmp_path / "folder")
    damage(tmp_path / "folder")
    with pytest.warns(LexiceptWarning, match="made again"):
        kept_folder(tmp_path / "folder")
    assert kept_folder(tmp_path / "folder") == ["inner", "one", "two"]
    assert made == ["folder", "folder"]


def test_without_a_record_what_can_be_read_is_kept(tmp_path):
    """A kill came after it was published."""
    (tmp_path / "file").write_text("whole")
    assert kept(tmp_path / "file", "other") == "whole"
    (tmp_path / "file").write_text("later")
    with pytest.warns(LexiceptWarning, match="made again"):
        assert kept(tmp_path / "file", "other") == "other"
    (tmp_path / "empty").write_text("")
    with pytest.warns(LexiceptWarning, match="empty: empty: made again"):
        assert kept(tmp_path / "empty") == "whole"


def test_the_work_of_another_process_is_used(tmp_path):
    def overtaken():
        (tmp_path / "file").write_text("theirs")
        raise InputError("file exists already")

    assert cached(tmp_path / "file", overtaken, text) == "theirs"

    def fail():
        raise InputError("bad input")

    with pytest.raises(InputError, match="bad input"):
        cached(tmp_path / "other", fail, text)
    assert kept(tmp_path / "file") == "theirs"

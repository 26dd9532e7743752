"""Files of lines: replaced whole or not at all, and parts that go on."""

import hashlib
import os
from pathlib import Path

import pytest

from lexicept.errors import InputError
from lexicept.storage.files import fingerprint, replacing_text
from lexicept.storage.workspace import PartFile


def test_fingerprints() -> None:
    assert fingerprint(["ä", ""]) == hashlib.sha256("2:ä0:".encode()).hexdigest()
    assert len({fingerprint(t) for t in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], [])}) == 5


def test_a_failed_replacement_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with replacing_text(path) as file:
        file.write("ä\n")
    assert path.read_bytes() == "ä\n".encode()
    assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(ZeroDivisionError), replacing_text(path) as file:
        file.write("new" * 10_000 + str(1 // 0))
    assert path.read_bytes() == "ä\n".encode()
    assert os.listdir(path.parent) == ["file"]


def test_a_part_grows_goes_on_and_becomes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with PartFile(path, {"a": 1, "b": None}) as part:
        assert part.done == 0
        part.append(["ä", "b"], 5)
        part.append([], 7)
    assert not path.exists()
    with PartFile(path, {"b": None, "a": 1}) as part:
        assert part.done == 7
        part.append(["c"], 8)
        part.finish()
    assert path.read_text(encoding="utf-8") == "ä\nb\nc\n"
    assert os.listdir(path.parent) == ["file"]


def test_what_exists_is_refused_before_and_after_the_work(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with PartFile(path, {}) as part:
        part.append(["x"], 1)
        path.write_text("precious")
        with pytest.raises(InputError, match="file exists already"):
            part.finish()
    with pytest.raises(InputError, match="file exists already"):
        PartFile(path, {})
    assert path.read_text() == "precious"
    path.unlink()
    with PartFile(path, {}) as part:
        part.finish()
    assert path.read_text() == "x\n"


def test_a_part_without_lines_is_no_file(tmp_path: Path) -> None:
    with PartFile(tmp_path / "file", {}) as part, pytest.raises(InputError, match="nothing"):
        part.finish()
    assert not (tmp_path / "file").exists()

"""Bad input from Python gets one clear error and leaves nothing behind."""

import re
from typing import Any

import pytest

import lexicept
from lexicept.errors import InputError, LexiceptWarning
from lexicept.storage.files import replace_file

TEXTS = ["Cats sleep all day.", "Dogs bark at night.", "A kitten naps in the sun."]


def test_places_that_cannot_be_written(tmp_path):
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(InputError, match=r"new\.partial can't be created: Not a directory"):
        lexicept.build(TEXTS, file / "new", vocabulary="words")
    with pytest.raises(InputError, match="a folder, not a file to write"):
        replace_file(tmp_path, b"")
    with pytest.raises(InputError, match="can't be written"):
        replace_file(file / "new", b"")
    assert file.read_text() == "kept"
    assert list(tmp_path.iterdir()) == [file]


def test_documents_that_cannot_be_read_are_skipped_unless_strict(tmp_path):
    items: list[Any] = ["a cat", 5, {"id": "x"}, {"id": "dog {0}", "text": "x"}, "a kitten"]
    message = "the documents, document 2: a document is a text, a dict or a Document, not 5"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        lexicept.build(items, tmp_path / "index", vocabulary="words", strict=True)
    with pytest.warns(LexiceptWarning) as caught:
        index = lexicept.build(items, tmp_path / "index", vocabulary="words")
    assert [document.id for document in index.documents()] == ["1", "5"]
    (warning,) = caught
    head, *lines = str(warning.message).splitlines()
    assert head == "the documents: 3 documents skipped after an error"
    assert lines[0] == f"  {message}"
    assert lines[2].startswith("  the documents, document 4: bad id 'dog {0}'")
    with pytest.raises(InputError, match=re.escape("bad id 'dog {0}'")):
        index.add(items[3:], strict=True)
    with pytest.raises(InputError, match=re.escape("bad id 'dog {0}'")):  # nothing is left
        index.add(items[3:4])
    with pytest.warns(LexiceptWarning, match="3 documents skipped"):
        assert index.add([*items[1:4], "an owl"]) == (1, 0)

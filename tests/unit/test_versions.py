"""Indexes of released format versions: each is opened, searched and changed."""

import shutil
from pathlib import Path

import pytest

import lexicept
from lexicept.index.manifest import VERSION

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_the_present_version_has_a_fixture():
    assert (FIXTURES / f"index-{VERSION}" / "manifest.json").exists()


@pytest.mark.parametrize("fixture", sorted(FIXTURES.glob("index-*")), ids=lambda path: path.name)
def test_an_index_of_a_released_version(tmp_path, fixture):
    path = tmp_path / "index"
    shutil.copytree(fixture, path)
    with lexicept.open(path) as index:
        assert index.verify().problems == []
        hits = index.search("mice at night")
        assert [(hit.id, round(hit.score, 5)) for hit in hits] == [
            ("owl.md", 0.65237),
            ("pets/cat.md", 0.48219),
        ]
        assert [hit.id for hit in index.search("mice", filter="year > 2020")] == ["owl.md"]
        assert index.explain("feed a cat", "guide.md").passage == "guide.md#feeding"
        index.delete(["owl.md"])
        assert [hit.id for hit in index.search("mice at night")] == ["pets/cat.md"]

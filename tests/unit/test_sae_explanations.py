"""Neuronpedia's explanations: names of an SAE's latents, or one sentence on what is wrong."""

import gzip
import json
from pathlib import Path

import pytest

from lexicept.errors import InputError
from lexicept.neural.sae.explanations import read_explanations
from lexicept.neural.sae.model import SAE

SOURCE = "20-gemmascope-res-16k"


@pytest.fixture
def sae():
    sae = SAE(4, 16, None)
    sae.origin = {"hook": "blocks.20.hook_resid_post", "layer": 21}
    return sae


def line(index: object, description: object, layer: object = SOURCE) -> str:
    row = {"modelId": "gemma-2-2b", "layer": layer, "index": index, "description": description}
    return json.dumps({**row, "typeName": "oai_token-act-pair", "embedding": [0.5]}) + "\n"


def write(path: Path, *lines: str) -> Path:
    content = "".join(lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["export.jsonl", "batch-0.jsonl.gz"])
def test_a_file(name, sae, tmp_path):
    path = write(
        tmp_path / name,
        line("3", " references to  dogs\nand cats "),
        "\n",
        line(15, "numbers"),
        line("7", None),
        line("8", "  "),
        line("3", "a second opinion"),
    )
    assert read_explanations(path, sae) == {3: "references to dogs and cats", 15: "numbers"}


def test_a_folder_of_batches_in_order(sae, tmp_path):
    write(tmp_path / "batch-10.jsonl.gz", line(1, "later"), line(2, "two"))
    write(tmp_path / "batch-9.jsonl.gz", line(1, "first"))
    (tmp_path / "source.txt").write_text("something else")
    assert read_explanations(tmp_path, sae) == {1: "first", 2: "two"}


def test_a_source_of_a_number_only_and_an_sae_of_unknown_layer(sae, tmp_path):
    path = write(tmp_path / "x.jsonl", line(1, "one", 20))
    assert read_explanations(path, sae) == {1: "one"}
    sae.origin = {}
    assert read_explanations(write(path, line(1, "one", 3)), sae) == {1: "one"}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([line(1, "a"), line(16, "b")], r"line 2: latent 16, but the SAE has 16 latents"),
        ([line(1, "a", "19-gemmascope-res-16k")], "line 1: .*'19-gemma.*, the SAE reads block 20"),
        ([line(1, "a"), line(2, "b", "20-other")], "line 2: .*'20-other' among those of '20-gemma"),
        ([line(1, "a", "gemma")], "line 1: an explanation of layer 'gemma'"),
        ([line(1, "a", None)], "line 1: the layer must be a source"),
        ([line("-1", "a")], "line 1: the index must be the number of a latent, not '-1'"),
        ([line(None, "a")], "line 1: the index must be .*, not None"),
        ([line(True, "a")], "line 1: the index must be .*, not True"),
        ([line(1, 5)], "line 1: the description must be a string, not 5"),
        (["[]\n"], "line 1: not a JSON object"),
        (["{\n"], "line 1: not valid JSON"),
        ([line(1, None)], "no explanations"),
        ([], "no explanations"),
    ],
)
def test_what_is_refused(lines, problem, sae, tmp_path):
    with pytest.raises(InputError, match=problem):
        read_explanations(write(tmp_path / "x.jsonl", *lines), sae)


def test_files_that_cannot_be_read(sae, tmp_path):
    (tmp_path / "broken.jsonl.gz").write_bytes(gzip.compress(line(1, "a").encode())[:-9])
    for name in ("broken.jsonl.gz", "nowhere.jsonl"):
        with pytest.raises(InputError, match=f"{name}: cannot be read"):
            read_explanations(tmp_path / name, sae)

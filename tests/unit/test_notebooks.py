"""The notebooks run, at small size."""

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"
SMALL = {
    "tour": 'MODULES = {"posixpath"}',
    "train_sae_splade": "ARTICLES, STEPS, TOKENS, LATENTS = 2, 2, 2000, 64",
}
"""What is added to each notebook's cell of parameters."""


def cells_of(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def write_squad(path: Path) -> None:
    """Write SQuAD 1.1's format: two articles of six paragraphs with five questions each."""
    animals = {"Cats": "sleep", "Dogs": "bark"}
    phrases = ["in the sun", "at night", "by the river", "in the house", "in spring", "all day"]
    articles = [
        {
            "title": animal,
            "paragraphs": [
                {
                    "context": f"{animal} {verb} {phrase}. Many people watch them {phrase}.",
                    "qas": [
                        {"question": f"{w} {verb} {phrase}?"}
                        for w in ["who", "what", "why", "when", "how"]
                    ],
                }
                for phrase in phrases
            ],
        }
        for animal, verb in animals.items()
    ]
    path.write_text(json.dumps({"version": "1.1", "data": articles}))


@pytest.mark.usefixtures("_hasty")
@pytest.mark.timeout(1200)  # The machine may have other work.
@pytest.mark.parametrize("name", SMALL)
def test_a_notebook_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_squad(tmp_path / "train-v1.1.json")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells_of(name), 1):
        code = "".join(cell["source"])
        if "parameters" in cell["metadata"].get("tags", []):
            code += f"\n{SMALL[name]}"
        exec(compile(code, f"{name}, cell {number}", "exec"), names)


@pytest.mark.parametrize("name", SMALL)
def test_outputs_in_the_repository_are_small_and_whole(name):
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < 200_000
    cells = cells_of(name)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert not [o for cell in cells for o in cell["outputs"] if o["output_type"] == "error"]


def test_every_notebook_is_tested():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(SMALL)

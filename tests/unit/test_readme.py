"""The documents' Python runs and says what they say."""

import re
from pathlib import Path

import scipy.sparse as sp

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_first_example_finds_the_cats(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(BLOCKS[0], {})
    assert capsys.readouterr().out.startswith("[Hit(rank=1, score=")


def test_the_second_example_ranks_as_the_vectors_do():
    documents = sp.csr_array([[0.0, 2.0], [3.0, 1.0], [0.0, 0.0]])
    names = {"documents": documents, "queries": sp.csr_array([[1.0, 0.0]])}
    exec(BLOCKS[1], names)
    assert names["scores"].toarray().argmax() == 1


def test_costs_are_computed_from_the_numbers_that_are_shown(capsys):
    page = (ROOT / "docs" / "scale.md").read_text()
    ((code, shown),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == shown

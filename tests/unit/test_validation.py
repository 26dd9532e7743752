"""The cost of validation, as a share of the training's."""

import pytest

from lexicept.checks import from_mapping
from lexicept.training.ranking.config import TrainingConfig
from lexicept.training.ranking.validation import affordable


@pytest.mark.parametrize(
    ("trained", "steps", "given", "expected"),
    [
        # 32 queries with 2 documents in a step: a tenth of the time is .3 · 64 = 19.2 documents.
        ("all", 1000, {}, (250, 4800)),
        ("all", 10_000, {}, (1112, None)),  # 9 validations of 20,000
        ("all", 1000, {"documents": 3000}, (250, 3000)),
        ("all", 1000, {"documents": 30_000}, (250, None)),
        ("all", 1000, {"every": 100}, (100, 1920)),
        ("all", 10, {}, (250, 500)),
        ("lora", 1000, {}, (250, 4800)),
        # States of a frozen backbone are on disk: fewer validations, of all documents.
        ("head", 1000, {}, (1000, None)),
        ("head", 4000, {}, (1334, None)),
    ],
)
def test_a_tenth_of_the_training_pays_for_validation(trained, steps, given, expected):
    sections = {"model": {"trained": trained}, "optimizer": {"steps": steps}, "validation": given}
    config = from_mapping(TrainingConfig, {"data": {"corpus": "docs"}, **sections})
    planned = affordable(config, 20_000)
    assert (planned.every, planned.documents) == expected


def test_longer_texts_cost_more():
    """Half of 4,800 documents, of twice the length."""
    sections = {
        "data": {"corpus": "docs", "max_document_tokens": 128},
        "model": {"trained": "all", "max_document_tokens": 256},
    }
    assert affordable(from_mapping(TrainingConfig, sections), 20_000).documents == 2400

"""Training without mined candidates, and with document frequencies of a sample, end to end."""

import json
import shutil
from pathlib import Path

import pytest

from lexicept.errors import InputError
from lexicept.training.ranking import collection
from lexicept.training.ranking.objective import Objective
from lexicept.training.ranking.run import train
from support.runs import assert_same_run, configuration, kill_in_step, killed_run, metrics

pytestmark = pytest.mark.usefixtures("_hasty")

ALONE = {"kl": 0, "margin_mse": 0, "in_batch": 1, "in_batch_known": True, "words": 0, "scale": 1}
"""ESPLADE's loss; its scale does not learn."""


def esplade(positions, **sections):
    sections = {"data": {"negatives": 0}, "teacher": {"bm25_weight": 0}, **sections}
    return configuration(positions, loss={**ALONE, "scale_learning_rate": 0}, **sections)


def test_in_batch_negatives_alone_need_no_mining(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(collection, "mine", None)
    batches = []
    compute = Objective.components

    def watched(self, queries, documents, targets):
        if self.training:
            batches.append((len(queries), len(documents), targets["mask"].sum(dim=1).tolist()))
        return compute(self, queries, documents, targets)

    monkeypatch.setattr(Objective, "components", watched)
    train(esplade(inputs), tmp_path / "run")
    assert batches == [(3, 3, [1, 1, 1])] * 10  # 5 steps of two batches, one document for each
    assert "in_batch" in metrics(tmp_path / "run")[0]
    config = json.loads(
        (tmp_path / "run" / "model" / "1_VocabularyHead" / "config.json").read_text()
    )
    assert config["query_scale"] == 1.0


def test_a_judgement_of_an_unknown_document_is_found_before_training(inputs, tmp_path):
    beir = Path(shutil.copytree(inputs / "beir", tmp_path / "beir"))
    path = beir / "qrels" / "train.tsv"
    path.write_text(path.read_text() + "q1\tnowhere\t1\n")
    config = esplade(inputs, data={"negatives": 0, "queries": str(beir)})
    with pytest.raises(InputError, match="the document 'nowhere', which is unknown"):
        train(config, tmp_path / "run")
    path.write_text("query-id\tcorpus-id\tscore\nq1\td1\t0\n")
    with pytest.raises(InputError, match="no training query has a relevant document"):
        train(config, tmp_path / "other")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({"margin_mse": 1}, "loss.margin_mse requires data.negatives of at least 1"),
        ({"kl": 1}, "loss.kl requires data.negatives of at least 1, or a teacher"),
    ],
)
def test_losses_that_compare_candidates_need_some(inputs, loss, message):
    with pytest.raises(InputError, match=message):
        configuration(
            inputs, data={"negatives": 0}, teacher={"bm25_weight": 0}, loss={**ALONE, **loss}
        )


def test_frequencies_of_a_sample_survive_a_kill(inputs, tmp_path, monkeypatch):
    """A sample of 12 of 40 documents is counted at steps 0, 2 and 4, and batches are not."""
    sampled = {"df_source": "sample", "df_texts": 12, "df_every": 2, "alpha": 0.2, "beta": 4}
    config = configuration(
        inputs,
        model={"trained": "all"},
        document_regularizer=sampled,
        query_regularizer={"kind": "df_flops", **sampled, "df_texts": 500},
    )
    counted = []
    recount = Objective.recount

    def watched(self, side, parts):
        recount(self, side, parts)
        counted.append((self.step, side, int(self.df[side].count)))

    monkeypatch.setattr(Objective, "recount", watched)
    train(config, tmp_path / "unbroken")
    both = [(step, side) for step in (0, 2, 4) for side in ("query", "document")]
    sizes = {"query": 20, "document": 12}  # all 20 training queries
    assert counted == [(step, side, sizes[side]) for step, side in both]
    killed_run(config, tmp_path / "run", kill_in_step, 3)
    train(config, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "unbroken")

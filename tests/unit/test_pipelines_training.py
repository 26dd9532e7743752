"""``lexicept.pretrain`` and ``lexicept.train``: from Python, resumed, refused, and from recipes."""

from dataclasses import asdict, replace

import pytest
import yaml

import lexicept
from lexicept.errors import InputError
from lexicept.neural.encoders.encoder import Encoder
from lexicept.training.ranking import run as run_module
from reproduction.recipe import read_job
from support.language_models import VOCABULARY, save
from support.runs import configuration

pytestmark = pytest.mark.usefixtures("_hasty")

TEXTS = ["the lovely cat sat on a mat", "a dog ran away from the cats", "the dog and it"]
SMALL = {"steps": 3, "batch_size": 2}


@pytest.fixture
def bert(tmp_path):
    save(tmp_path / "bert", "Bert")
    return str(tmp_path / "bert")


def test_texts_in_memory_pretrain_a_head(bert, tmp_path):
    recorded = []

    def watch(stage, done, total, detail=""):
        recorded.append((stage, done, total))

    out = lexicept.pretrain(TEXTS, tmp_path / "model", backbone=bert, **SMALL, progress=watch)
    assert out == tmp_path / "model"
    assert recorded == [("pretraining", done, 3) for done in (1, 2, 3)]
    assert list(Encoder.load(out).head.terms) == VOCABULARY
    with pytest.raises(InputError, match="model exists already"):
        lexicept.pretrain(TEXTS, out, backbone=bert, **SMALL)
    lexicept.pretrain(TEXTS, out, backbone=bert, head="expanded", **SMALL, overwrite=True)
    assert Encoder.load(out).head.size < len(VOCABULARY)


def test_what_is_no_model_is_not_overwritten(tmp_path):
    (tmp_path / "precious").mkdir()
    with pytest.raises(InputError, match="precious: not a model; overwrite replaces models only"):
        lexicept.pretrain(TEXTS, tmp_path / "precious", backbone="none", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "mlm", "masking": "words"}, "masking words does not go with head mlm"),
        ({"head": "expanded", "masking": "mntp"}, "masking mntp does not go with head expanded"),
        ({"head": "random", "size": 3}, "size, a number of words, requires masking words"),
        ({"head": "sae"}, "head must be 'mlm', 'expanded' or 'random', not 'sae'"),
        ({"masking": "letters"}, "masking must be 'subwords', 'words'"),
        ({"step": 5}, "no setting 'step'; perhaps steps?"),
    ],
)
def test_settings_that_do_not_go_together_leave_nothing_behind(bert, tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        lexicept.pretrain(TEXTS, tmp_path / "model", backbone=bert, **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]


def stage(bert, **pretraining):
    """A recipe's row that pretrains and then trains."""
    config = {"data": {"corpus": "texts"}, "model": {"backbone": bert, "head": "mlm"}}
    document = {"config": config, "test": [{"name": "texts"}], "pretraining": pretraining}
    return read_job({"training": document}, "row.small")


def test_a_recipe_with_the_backbone_s_head_over_words_is_refused(bert):
    with pytest.raises(InputError, match=r"\.pretraining: masking words does not go"):
        stage(bert, corpus="texts", head="mlm", words=10, settings={"masking": "words"})


# Training


def test_a_configuration_may_be_a_mapping_a_path_or_itself(inputs, tmp_path, monkeypatch):
    config = configuration(inputs, optimizer={"steps": 1})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(asdict(config)))
    given = []
    monkeypatch.setattr(
        run_module, "train", lambda *arguments, **named: given.append(arguments[:2])
    )
    for source in (config, asdict(config), path):
        lexicept.train(source, tmp_path / "out", changes=["optimizer.seed=7"])
    changed = replace(config, optimizer=replace(config.optimizer, seed=7))
    assert given == [(changed, tmp_path / "out")] * 3

"""``lexicept.pretrain`` and ``lexicept.train``: from Python, resumed, refused, and from recipes."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import yaml

import lexicept
from lexicept.errors import InputError
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import language_head
from reproduction.recipe import read_job
from reproduction.trained import _pretrained
from support.language_models import VOCABULARY, save
from support.runs import configuration, tensors

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
        ({"steps": 0}, "steps must be at least 1, not 0"),
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


class Texts:
    """Data that hold one corpus."""

    def __init__(self, path):
        self.path = path

    def find(self, name):
        return str(self.path)

    @property
    def work(self):
        return self.path.with_name("work")

    def progress(self, stage, done, total, note=""):
        pass


def test_a_recipe_pretrains_random_rows_over_sub_words(bert, tmp_path):
    """Not the backbone's own rows."""
    (tmp_path / "texts.txt").mkdir()
    for i, text in enumerate(TEXTS):
        (tmp_path / "texts.txt" / f"{i}.txt").write_text(text)
    settings = {"masking": "subwords", "learning_rate": 1e-9, "seed": 1, **SMALL}
    job = stage(bert, corpus="texts", head="random", settings=settings)
    config = _pretrained(job, job.config, Texts(tmp_path / "texts.txt"))
    head, own = Encoder.load(config.model.start).head, language_head(bert)
    assert list(head.terms) == VOCABULARY
    assert torch.allclose(head.rows, own.random(head.size, 1).rows, atol=1e-5)
    assert not torch.allclose(head.rows, own.rows, atol=1e-2)


def test_a_recipe_with_the_backbone_s_head_over_words_is_refused(bert):
    with pytest.raises(InputError, match=r"\.pretraining: masking words does not go"):
        stage(bert, corpus="texts", head="mlm", words=10, settings={"masking": "words"})


# Training


def test_a_configuration_may_be_a_mapping_a_path_or_itself(inputs, tmp_path):
    config = configuration(inputs, optimizer={"steps": 1})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(asdict(replace(config, model=config.model))))
    models = [
        lexicept.train(config, tmp_path / "one"),
        lexicept.train(asdict(config), tmp_path / "two"),
        lexicept.train(path, tmp_path / "three", changes=["optimizer.steps=1"]),
    ]
    assert models == [tmp_path / name / "model" for name in ("one", "two", "three")]
    expected = tensors(models[0])
    for model in models[1:]:
        assert all(torch.equal(value, expected[name]) for name, value in tensors(model).items())


def test_a_finished_run_is_kept_unless_it_is_restarted(inputs, tmp_path):
    config = configuration(inputs, optimizer={"steps": 1})
    lexicept.train(config, tmp_path / "run")
    with pytest.raises(InputError, match="this run is finished; name another folder, or --restart"):
        lexicept.train(config, tmp_path / "run")
    changes = ["optimizer.learning_rate=0.1"]
    with pytest.raises(InputError, match=r"learning_rate was null and is now 0\.1"):
        lexicept.train(config, tmp_path / "run", changes=changes)
    lexicept.train(config, tmp_path / "run", changes=changes, restart=True)
    document = yaml.safe_load(Path(tmp_path / "run" / "config.yaml").read_text())
    assert document["optimizer"]["learning_rate"] == 0.1


def test_a_mistyped_corpus_leaves_no_run_behind(inputs, tmp_path):
    config = configuration(inputs, data={"corpus": "nowhere"})
    with pytest.raises(InputError, match="nowhere"):
        lexicept.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()

import re
from dataclasses import asdict
from datetime import date
from pathlib import Path

import pytest
import yaml

from lexicept.checks import from_mapping
from lexicept.errors import InputError
from lexicept.training.ranking.config import TrainingConfig, load_config
from lexicept.training.ranking.model_settings import ModelSettings
from lexicept.training.sae.settings import SAESettings


def config(sections=None):
    sections = dict(sections or {})
    data = {"corpus": "docs", **sections.pop("data", {})}
    return from_mapping(TrainingConfig, {"data": data, **sections})


def changed(before, assignment, folder):
    """Configurations from files and from changes on the command line."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(asdict(before)))
    return load_config(path, [assignment])


def test_changes_complete_a_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("loss: {in_batch: 1}\n")
    with pytest.raises(InputError, match=r"data\.corpus is missing"):
        load_config(path)
    whole = load_config(path, ["data.corpus=docs", "model.head=random", "model.size=5"])
    assert (whole.data.corpus, whole.model.size, whole.loss.in_batch) == ("docs", 5, 1.0)


@pytest.fixture
def written(tmp_path):
    """Reads a text as a configuration file."""

    def load(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return load_config(path)

    return load


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "0.001", "'1e-3'", "+1e-3"])
def test_a_small_number_in_any_spelling(written, text):
    result = written(f"data: {{corpus: docs}}\noptimizer: {{learning_rate: {text}}}")
    assert result.optimizer.learning_rate == 0.001


def test_values_are_converted():
    actual = config({"loss": {"scale": 2}}).loss.scale
    assert actual == 2.0
    assert isinstance(actual, float)
    assert config({"model": {"layer": None, "start": None}}).model == ModelSettings()
    with pytest.raises(InputError, match=r"optimizer\.steps must be a whole number, not None"):
        config({"optimizer": {"steps": None}})
    assert config({"model": {"sae": {"num_latents": 64, "k": 4}}}).model.sae == SAESettings(64, 4)
    with pytest.raises(InputError, match="k 65 is larger than num_latents 64"):
        config({"model": {"sae": {"num_latents": 64, "k": 65}}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"optimiser": {}}, r"no setting 'optimiser'; perhaps optimizer?"),
        ({"loss": {"margin": 1}}, r"no setting 'loss\.margin'; perhaps margin_mse?"),
        (
            {"model": {"sae": {"latents": 1}}},
            r"no setting 'model\.sae\.latents'; perhaps num_latents",
        ),
        ({"loss": {"zzz": 1}}, r"no setting 'loss\.zzz'; there are kl, margin_mse, in_batch"),
        ({7: 1}, r"no setting 7; there are data"),
        ({"loss": {"kl": "much"}}, r"loss\.kl must be a number, not 'much'"),
        ({"loss": 3}, r"loss must be a mapping, not 3"),
        ({"trainer": {"run_name": date(2026, 8, 1)}}, "a setting is no text, number, list or map"),
        (
            {"model": {"head": "cls"}},
            r"model\.head must be 'sae', 'mlm', 'expanded' or 'random', not 'cls'",
        ),
    ],
)
def test_keys_and_values_that_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        config(text)


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("data", "negatives", -1, "data.negatives must be at least 0, not -1"),
        ("query_regularizer", "alpha", 1, "query_regularizer.alpha must be below 1"),
        ("query_regularizer", "beta", 0, "query_regularizer.beta must be above 0, not 0"),
        ("data", "positive_share", 1.5, "data.positive_share must be at most 1, not 1.5"),
        ("loss", "document_top_k", 0, "loss.document_top_k must be at least 1, not 0"),
        ("optimizer", "seed", 2**32, "optimizer.seed must be below 4294967296, not 4294967296"),
    ],
)
def test_numbers_out_of_range(section, name, value, message):
    with pytest.raises(InputError, match=re.escape(message)):
        config({section: {name: value}})


def test_configurations_that_make_no_sense():
    with pytest.raises(InputError, match=r"data\.corpus is missing"):
        TrainingConfig()
    with pytest.raises(InputError, match=r"one of loss\.kl, loss\.margin_mse, loss\.in_batch"):
        config({"loss": {"kl": 0}})
    with pytest.raises(InputError, match=r"model: size is missing: .* 'random'"):
        config({"model": {"head": "random"}})
    assert config({"model": {"head": "random", "start": "there"}}).model.size is None
    for model in ({"head": "mlm"}, {"freeze_head": True, "trained": "all"}):
        with pytest.raises(InputError, match=r"loss\.reconstruction requires an SAE that learns"):
            config({"model": model, "loss": {"reconstruction": 1.0}})
    both = {"loss": {"reconstruction": 1.0}, "optimizer": {"mini_batch": 2}}
    with pytest.raises(InputError, match=r"reconstruction does not go with optimizer\.mini_batch"):
        config(both)
    for model, message in (
        ({"sae": {"architecture": "batch_topk"}}, "batch_topk has thresholds"),
        ({"sae": {"num_latents": 8}}, "must be below 8, not 8"),
        ({"head": "random", "size": 5}, "must be below 5, not 8"),
    ):
        with pytest.raises(InputError, match=message):
            config({"model": {**model, "initial_active_dims": 8}})
    with pytest.raises(InputError, match="model: freeze_head requires trained: lora or all"):
        config({"model": {"freeze_head": True}})
    with pytest.raises(InputError, match="model: pretrained requires head: sae, not 'mlm'"):
        config({"model": {"head": "mlm", "pretrained": "there"}})


def test_several_collections():
    further = [{"corpus": "b", "negatives": 3, "weight": 0.5}, {"corpus": "c"}]
    settings = config({"data": {"corpus": "a"}, "more_data": further})
    assert [each.data.corpus for each in settings.collections] == ["a", "b", "c"]
    drawn = [(each.data.weight, each.data.negatives) for each in settings.collections]
    assert drawn == [(1, 1), (0.5, 3), (1, 1)]
    assert from_mapping(TrainingConfig, asdict(settings)) == settings
    with pytest.raises(InputError, match=r"^more_data\[1\]: data\.corpus is missing"):
        config({"more_data": [{"corpus": "b"}, {"queries": "b"}]})


def test_files_that_are_no_configuration(written, tmp_path):
    for data, message in (
        ("", "the configuration must be a mapping, not None"),
        ("- a", r"the configuration must be a mapping, not \['a'\]"),
        ("a: [", "not YAML: line 1: expected the node content"),
        ("a: 2001-99-99", "not YAML: month must be in 1..12"),
        ("a: !!int ''", "not YAML"),
        ("a: !!python/object:os.system x", "not YAML: line 1: could not determine a constructor"),
        ("[" * 10_000, "not YAML"),
        ("data: {corpus: 0x" + "f" * 5000 + "}", "digits"),
    ):
        with pytest.raises(InputError, match=message) as error:
            written(data)
        assert str(error.value).startswith(f"{tmp_path / 'config.yaml'}: ")
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"nowhere\.yaml: No such file"):
        load_config(tmp_path / "nowhere.yaml")
    with pytest.raises(InputError, match="Is a directory"):
        load_config(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    with pytest.raises(InputError, match=r"latin\.yaml: not UTF-8"):
        load_config(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("assignment", "section", "name", "value"),
    [
        ("data.corpus=a=b", "data", "corpus", "a=b"),
        ("optimizer.learning_rate=2e-3", "optimizer", "learning_rate", 0.002),
        ("model.layer=null", "model", "layer", None),
        ("loss.dual=false", "loss", "dual", False),
    ],
)
def test_one_value_changed(tmp_path, assignment, section, name, value):
    before = config({"model": {"layer": 3}})
    after = changed(before, assignment, tmp_path)
    expected = asdict(before)
    assert expected[section][name] != value
    expected[section][name] = value
    assert asdict(after) == expected


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("data.corpus", "'data.corpus' is not of the form"),
        ("data.corpsu=x", "no setting 'data.corpsu'; perhaps corpus?"),
        ("extra.corpus=x", "no setting 'extra'"),
        ("=x", "no setting ''"),
        ("model.start.more=1", "'model.start.more=1': there is no mapping 'model.start'"),
        ("model.layer.more=1", "there is no mapping 'model.layer'"),
        ("model.layer=[", "'model.layer=[': not YAML"),
        ("optimizer.steps=0", "optimizer.steps must be at least 1, not 0"),
        ("data.max_query_tokens=7", "data.max_query_tokens must be at least 8"),
    ],
)
def test_changes_that_are_refused(tmp_path, assignment, message):
    with pytest.raises(InputError, match=re.escape(message)):
        changed(config(), assignment, tmp_path)


CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("name", ["scifact_label_free", "squad", "splare_small"])
def test_the_configurations_that_come_with_the_project(name):
    result = load_config(CONFIGS / f"{name}.yaml")
    assert result.model.sae.num_latents == 8192
    assert bool(result.data.queries) == (name != "scifact_label_free")


def test_lists_are_read_and_written_as_lists(written):
    result = written("data: {corpus: docs}\nmodel: {sae: {num_latents: 8, prefixes: [1, 4, 8]}}")
    assert result.model.sae.prefixes == (1, 4, 8)
    assert from_mapping(TrainingConfig, yaml.safe_load(yaml.safe_dump(asdict(result)))) == result
    for value, message in (
        ("4", "must be a list, not 4"),
        ("[a]", r"prefixes\[0\] must be a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            written(f"data: {{corpus: docs}}\nmodel: {{sae: {{prefixes: {value}}}}}")

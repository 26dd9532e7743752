"""Model soups: weights averaged one by one, and models that can't be averaged."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from lexicept.encoding.head_settings import HeadSettings
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.model import SAE
from reproduction.soup import soup
from support.tiny import save_bert


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def save(bert, tmp_path):
    """Saves an encoder whose weights all are this much larger than the first one's."""

    def make(name, more=0.0, head="words", size=None, **settings):
        backbone = Backbone.from_pretrained(bert)
        torch.manual_seed(1)
        if head == "sae":
            found = SAEHead(SAE(32, size or 40, 4), replace(HeadSettings(), **settings))
        else:
            size = size or len(backbone.tokenizer)
            terms = [f"{head}{n}" for n in range(size)]
            rows = torch.randn(size, 32)
            found = VocabularyHead(
                rows, torch.zeros(size), terms, settings=replace(HeadSettings(), **settings)
            )
        encoder = Encoder.of(backbone, found)
        with torch.no_grad():
            for value in encoder.parameters():
                value += more
        encoder.save(str(tmp_path / name), create_model_card=False)
        return tmp_path / name

    return make


def weights(folder):
    found = {}
    for path in sorted(folder.rglob("*.safetensors")):
        found |= {f"{path.relative_to(folder)}:{n}": v for n, v in load_file(path).items()}
    return found


@pytest.mark.parametrize("form", [{"head": "words"}, {"head": "sae"}])
def test_every_weight_is_the_mean(save, tmp_path, form):
    models = [save(f"m{n}", more, query_scale=more, **form) for n, more in enumerate([0, 1, 5])]
    soup(models, tmp_path / "soup")
    found, each = weights(tmp_path / "soup"), [weights(model) for model in models]
    assert found.keys() == each[0].keys()
    moved = 0
    for name, value in found.items():
        mean = torch.stack([one[name].double() for one in each]).mean(dim=0)
        assert torch.equal(value, mean.to(value.dtype)), name
        moved += int(not torch.equal(value, each[0][name]))
    assert moved > 20
    assert Encoder.load(tmp_path / "soup").head.settings.query_scale == 2.0


def test_soups_that_change_nothing(save, tmp_path):
    model = save("one", 0.3, query_scale=0.7)
    soup([model], tmp_path / "soup")
    left, right = weights(model), weights(tmp_path / "soup")
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], value) for name, value in right.items())
    for path in model.rglob("*"):
        if path.is_file() and path.suffix != ".safetensors":
            assert (tmp_path / "soup" / path.relative_to(model)).read_bytes() == path.read_bytes()
    # Three times a third rounds to the whole in double precision.
    models = [save(f"m{n}", 0.1) for n in range(3)]
    soup(models, tmp_path / "soup2")
    left, right = weights(models[0]), weights(tmp_path / "soup2")
    assert all(torch.equal(left[name], value) for name, value in right.items())


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"size": 50}, r"differ in offset: 'float32 \[82\]' and 'float32 \[50\]'"),
        ({"pooling": "sum"}, "differ in pooling: 'max' and 'sum'"),
        ({"query_k": 3}, "differ in query_k: None and 3"),
        ({"head": "w"}, "terms.bin have different contents"),
        ({"head": "sae"}, "one has no 1_SAEHead/config.json"),
    ],
)
def test_models_of_different_form(save, tmp_path, form, message):
    with pytest.raises(InputError, match=message) as error:
        soup([save("one"), save("two", **form)], tmp_path / "soup")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "soup").exists()


def test_folders_that_are_no_models(save, tmp_path):
    model = save("one")
    with pytest.raises(InputError, match=r"nowhere: no saved encoder"):
        soup([model, tmp_path / "nowhere"], tmp_path / "soup")
    with pytest.raises(InputError, match="exists already"):
        soup([model], model)
    (model / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match="adapters are not averaged"):
        soup([model], tmp_path / "soup")
    broken = save("two")
    (broken / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"two/model\.safetensors: "):
        soup([broken], tmp_path / "soup")

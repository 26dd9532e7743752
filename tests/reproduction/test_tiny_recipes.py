"""Recipes of three papers through their whole code, on tiny data and random models made here."""

from pathlib import Path

import pytest
import torch

from lexicept.candidates.text_datasets import import_texts
from lexicept.corpora import read_documents, read_queries
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae_formats.pretrained import find_pretrained_sae
from lexicept.training.pretraining.word_vocabulary import expanded_words
from reproduction.run import Outcome
from support import tiny_recipes as tiny
from support.runs import metrics, tensors
from support.tiny import WORDS

pytestmark = pytest.mark.usefixtures("_hasty")


def values(outcome: Outcome, system: str) -> dict[str, float]:
    assert system in outcome.results, outcome.missing
    return dict(outcome.results[system].values)


def runs(out: Path) -> list[Path]:
    return sorted(path.parent for path in (out / "work" / "runs").glob("*/model"))


def test_sae_splade(tmp_path):
    """An SAE over the corpus, then KL and MarginMSE on ColBERTv2's lists of 1 + 8, retrieval."""
    data, out = tmp_path / "data", tmp_path / "out"
    tiny.save_sae_splade(data)
    values_found = values(
        tiny.run(tiny.SAE_SPLADE, tiny.sae_splade_rows(), data, out), "sae_splade_k8"
    )
    name = "msmarco-passage/dev/small"
    assert 0 <= values_found[f"{name} RR@10"] <= 1
    assert 0 < values_found[f"{name} query length"] <= 64
    (folder,) = runs(out)
    head = Encoder.load(folder / "model").head
    assert isinstance(head, SAEHead)
    assert head.size == 64
    told = metrics(folder)
    assert {"kl", "margin_mse", "query_flops", "document_flops"} <= set(told[-1]) | set(told[-2])


def test_splare(tmp_path):
    """MNTP, LoRA under a frozen Llama Scope SAE, a soup of two seeds, Top-K, XTREME-UP."""
    data, out = tmp_path / "data", tmp_path / "out"
    tiny.save_splare(data)
    import_texts(str(data / "bge.jsonl"), data / "bge_multilingual", scored_only=True)
    values_found = values(tiny.run(tiny.SPLARE, tiny.splare_rows(), data, out), "splare")
    for language in tiny.LANGUAGES:
        assert 0 <= values_found[f"{language} RR@10"] <= 1
        assert 0 < values_found[f"{language} query length"] <= 6
        assert 0 < values_found[f"{language} document length"] <= 12
    (pretrained,) = (out / "work" / "pretrained").iterdir()
    assert Backbone.from_pretrained(str(pretrained)).bidirectional
    first, second = (tensors(folder / "model") for folder in runs(out))
    (averaged,) = (out / "work" / "soups").glob("*/model")
    differ = [name for name, value in first.items() if not torch.equal(value, second[name])]
    assert differ
    assert all("1_SAEHead" not in name for name in differ)  # the SAE is frozen
    for name, value in tensors(averaged).items():
        mean = (first[name].float() + second[name].float()) / 2
        assert torch.allclose(value.float(), mean, atol=0.02), name
    scope = data / "fnlp" / "Llama3_1-8B-Base-LXR-32x" / "Llama3_1-8B-Base-L1R-32x"
    sae = find_pretrained_sae(str(scope)).load()
    head = Encoder.load(averaged).head
    assert isinstance(head, SAEHead)
    assert torch.allclose(head.sae.W_enc.float(), sae.W_enc.float())


def test_esplade_that_was_killed(tmp_path):
    """Vocabulary, EMLM, dual loss, pruning; killed while pretraining, then while training."""
    data, out = tmp_path / "data", tmp_path / "out"
    tiny.save_esplade(data)
    for stop in (("pretraining", 2), ("training", 4)):

        def kill(stage, done, total, detail="", stop=stop):
            if (stage, done) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tiny.run(tiny.ESPLADE, tiny.esplade_rows(), data, out, kill)
        assert not list(out.glob("esplade/figure1/full/rows/*.json"))
    whole = tiny.run(tiny.ESPLADE, tiny.esplade_rows(), data, out)
    name = "orcas_titles/evaluation"
    pruned = values(whole, "esplade_q5_d10")
    assert 0 < pruned[f"{name} query length"] <= 3
    assert 0 < pruned[f"{name} document length"] <= 5
    assert values(whole, "esplade")[f"{name} document length"] > 5
    (folder,) = runs(out)  # both rows are of one training
    encoder = Encoder.load(folder / "model")
    texts = [document.content for document in read_documents(data / "orcas_titles" / "train")]
    texts += [document.text for document in read_queries(data / "orcas_titles" / "train", "train")]
    words, _ = expanded_words(texts, encoder.backbone.tokenizer, 24)
    assert list(encoder.head.terms) == words
    assert set(words) < set(WORDS)
    told = metrics(folder)
    terms = {"masked_in_batch", "in_batch", "mask_divergence", "joint_flops"}
    assert terms <= set().union(*map(set, told))

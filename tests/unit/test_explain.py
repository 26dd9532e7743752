"""``lexicept.explain``: the model's score and its words, without an index."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

import lexicept
from lexicept.errors import InputError, LexiceptError
from lexicept.explanation.contributions import Span
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from support.commands import assert_error
from support.heads import sae_head
from support.library_models import inference_free, modules, save_library
from support.tiny import WORDS, save_bert, tiny_backbone

QUERY = "bade kilo"
DOCUMENTS = ["kilo muba kilobade", "", " ".join(WORDS * 6), "Kilo [SEP] muba? ", "bade"]
"""One empty, one longer than the model reads, one of pieces of words."""


def autoencoder(masked: Path, *between: Any, mode: str = "mean", **settings: Any) -> list[Any]:
    torch.manual_seed(2)
    sae = SparseAutoEncoder(32, 48, k=12, **settings)
    with torch.no_grad():
        for parameter in sae.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return [Transformer(str(masked)), Pooling(32, mode), *between, sae]


def similarity(model: SparseEncoder, query: str, documents: list[str]) -> torch.Tensor:
    """The model's scores [documents]; of dense vectors, since sparse tensors of torch warn."""
    vectors = model.encode_query([query], convert_to_sparse_tensor=False)
    others = model.encode_document(documents, convert_to_sparse_tensor=False)
    return model.similarity(vectors, others)[0]


SOURCES: dict[str, Callable[[Path, Path], Path]] = {
    "naver/splade": lambda folder, masked: Path(shutil.copytree(masked, folder)),
    "sum": lambda folder, masked: save_library(folder, modules(masked, "sum")),
    "two logarithms": lambda folder, masked: save_library(
        folder, modules(masked, "max", "log1p_relu")
    ),
    "cosine": lambda folder, masked: save_library(
        folder, modules(masked), similarity_fn_name="cosine"
    ),
    "limited, with prompts": lambda folder, masked: save_library(
        folder, modules(masked), max_active_dims=9, prompts={"query": "muba ", "passage": "debade "}
    ),
    "inference-free": inference_free,
    "CSR": lambda folder, masked: save_library(folder, autoencoder(masked)),
    "CSR, normalised": lambda folder, masked: save_library(
        folder, autoencoder(masked, Normalize(), normalize=True)
    ),
    "CSR of [CLS]": lambda folder, masked: save_library(folder, autoencoder(masked, mode="cls")),
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_score_is_the_models_own(source, masked, tmp_path):
    folder = SOURCES[source](tmp_path / "model", masked)
    model = SparseEncoder(str(folder))
    # Encoded together, so that the shorter ones are padded.
    expected = similarity(model, QUERY, DOCUMENTS)
    for document, score in zip(DOCUMENTS, expected.tolist(), strict=True):
        explained = lexicept.explain(QUERY, document, folder)
        assert explained.score == pytest.approx(score, rel=1e-5, abs=1e-6)
        contributions = explained.contributions
        assert math.fsum(contribution.score for contribution in contributions) == explained.score
        assert [contribution.score for contribution in contributions] == [
            p.query_weight * p.document_weight for p in contributions
        ]
        assert sorted(contributions, key=lambda part: -part.score) == list(contributions)
        for contribution in contributions:
            for text, sources in (
                (QUERY, contribution.in_query),
                (document.strip(), contribution.in_document),
            ):
                assert all(text[start:end].strip() for start, end in sources.spans)
                assert sum(sources.shares) <= 1 + 1e-6 or source.startswith("CSR")
    (empty,) = similarity(model, "", [""]).tolist()
    assert lexicept.explain("", "", folder).score == pytest.approx(empty, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_shares_are_those_of_the_logits(pooling, masked, tmp_path):
    model = SparseEncoder(str(save_library(tmp_path / "model", modules(masked, pooling))))
    text = "kilo muba kilo"
    features = model.preprocess([text])
    with torch.inference_mode():
        logits = model[0](features)["token_embeddings"][0]
    outputs = torch.log1p(torch.relu(logits.double()))
    spans = [None, Span(0, 4), Span(5, 9), Span(10, 14), None]
    assert len(outputs) == len(spans)
    explained = lexicept.explain(text, text, model)
    assert len(explained.contributions) > 20
    for contribution in explained.contributions:
        column = outputs[:, contribution.dimension]
        shares: dict[Span, float] = {}
        for position, span in enumerate(spans):
            share = float(column[position] / column.sum())
            if pooling == "max":
                share = float(position == int(column.argmax()))
            if span is not None and share:
                shares[span] = shares.get(span, 0) + share
        sources = dict(zip(*contribution.in_document, strict=True))
        assert sources == pytest.approx(shares, rel=1e-4, abs=1e-6)
        assert contribution.in_query == contribution.in_document
        assert contribution.term == model.tokenizer.convert_ids_to_tokens(contribution.dimension)
        assert contribution.vocabulary == "sub-words"


def test_a_token_may_speak_against_a_latent(masked, tmp_path):
    folder = save_library(tmp_path / "model", autoencoder(masked))
    model = SparseEncoder(str(folder))
    text = "kilo muba"
    with torch.inference_mode():
        states = model[0](model.preprocess([text]))["token_embeddings"][0].double()
    explained = lexicept.explain(text, text, folder)
    sae = model[2].double().requires_grad_(False)
    assert explained.contributions
    for contribution in explained.contributions:
        vector = sae.encoder.weight[contribution.dimension]
        addends = (states @ vector / len(states)).tolist()
        rest = float(sae.latent_bias[contribution.dimension] - sae.pre_bias @ vector)
        assert sum(addends) + rest == pytest.approx(contribution.document_weight, rel=1e-4)
        sources = dict(zip(*contribution.in_document, strict=True))
        expected = {Span(0, 4): addends[1], Span(5, 9): addends[2]}
        assert sources == pytest.approx(
            {span: addend / contribution.document_weight for span, addend in expected.items()},
            rel=1e-3,
        )
        assert (contribution.vocabulary, contribution.term) == (
            "concepts",
            f"#{contribution.dimension}",
        )
    longer = lexicept.explain(text, " ".join(WORDS), folder)
    shares = [share for c in longer.contributions for share in c.document_shares]
    assert min(shares) < 0 < max(shares)


def test_models_of_other_pooling_and_of_weights(masked, tmp_path):
    folder = save_library(tmp_path / "model", autoencoder(masked, mode="cls"))
    explained = lexicept.explain("kilo", "kilo muba", folder)
    assert explained.contributions
    assert {contribution.document_spans for contribution in explained.contributions} == {()}
    folder = inference_free(tmp_path / "model2", masked)
    explained = lexicept.explain("kilo bade kilo", " ".join(WORDS), folder)
    named = {contribution.term: contribution.in_query for contribution in explained.contributions}
    assert named.keys() <= {"kilo", "bade"}
    assert named["kilo"].spans == (Span(0, 4), Span(10, 14))
    assert named["kilo"].shares == (0.5, 0.5)


def test_an_sae_over_a_backbone(tmp_path):
    bert = save_bert(tmp_path / "bert")
    sae = sae_head().sae
    (tmp_path / "sae").mkdir()
    sae.save(tmp_path / "sae")
    explained = lexicept.explain("bade kilo", "kilo muba", tmp_path / "sae", backbone=bert, layer=2)
    encoder = Encoder.of(tiny_backbone(tmp_path / "again"), SAEHead.of_concepts(sae))
    (score,) = similarity(encoder, "bade kilo", ["kilo muba"]).tolist()
    assert explained.score == pytest.approx(score, rel=1e-5)
    assert {contribution.vocabulary for contribution in explained.contributions} == {"concepts"}
    encoder.save(str(tmp_path / "saved"), create_model_card=False)
    for model in (encoder, tmp_path / "saved"):
        again = lexicept.explain("bade kilo", "kilo muba", model)
        assert again.score == pytest.approx(explained.score, rel=1e-5)
    with pytest.raises(LexiceptError, match="for SAEs"):
        lexicept.explain("bade", "kilo", encoder, layer=1)


def test_documents_have_titles(masked):
    whole = lexicept.explain("kilo", "muba kilo bade", masked)
    split = lexicept.explain("kilo", {"id": "d", "title": "muba", "text": "kilo bade"}, masked)
    assert (split.document_id, split.content) == ("d", "muba kilo bade")
    assert split.contributions == whole.contributions


def test_models_that_have_no_explanation(masked, tmp_path):
    from sentence_transformers import SentenceTransformer

    dense = SentenceTransformer(modules=[Transformer(str(masked)), Pooling(32)])
    dense.save(str(tmp_path / "dense"))
    with pytest.raises(InputError, match="no module of it makes sparse vectors"):
        lexicept.explain("kilo", "muba", tmp_path / "dense")
    folder = save_library(tmp_path / "far", modules(masked), similarity_fn_name="euclidean")
    with pytest.raises(InputError, match="similarity euclidean"):
        lexicept.explain("kilo", "muba", folder)
    with pytest.raises(InputError, match="absent: no such folder"):
        lexicept.explain("kilo", "muba", "absent")
    with pytest.raises(InputError, match="query must be a text"):
        lexicept.explain(None, "muba", masked)


def test_the_command(masked, tmp_path, run):
    command = ("explain", "--model", masked, "kilo <b>", "muba kilo")
    output = run(*command, "--json").json
    assert output["score"] == pytest.approx(sum(c["score"] for c in output["contributions"]))
    assert output["contributions"][0]["share"] == pytest.approx(
        output["contributions"][0]["score"] / output["score"]
    )
    table = run(*command).out
    assert "sub-word" in table
    assert f"{output['score']:.4f}" in table
    page = tmp_path / "why.html"
    assert run(*command, "--out", page) == (0, "", "")
    assert "&lt;" in page.read_text()
    assert "<mark" in page.read_text()
    assert_error(run("explain", "--model", masked, "one"), "QUERY DOCUMENT with --model, not 1")
    assert_error(run("explain", "index", "query"), "INDEX QUERY DOCUMENT_ID, not 2")
    assert_error(run("explain", "i", "q", "d", "--layer", "2"), "--layer requires --model")
    for option in ("--causal", "--bidirectional"):
        refused = run("explain", "i", "q", "d", option)
        assert_error(refused, "--bidirectional or --causal requires --model")
    assert_error(run(*command, "--layer", "2"), "--layer is for SAEs")
    assert_error(run(*command, "--vocabulary", "words"), "are for an index")

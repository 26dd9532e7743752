"""Lengths of queries and documents (SAE-SPLADE, appendix A: 32 and 256)."""

import json

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

from lexicept.encoding.index_settings import IndexSettings
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.sae.cached_states import CachedStates
from reproduction.jobs import OverlapJob, TrainingJob
from reproduction.recipe import RECIPES, find_recipes, load_recipe
from support.heads import sae_head
from support.tiny import text, tiny_backbone

LONG = text(*range(100))
TEXTS = [LONG, text(4), ""]
SPECIAL = 2  # [CLS] and [SEP]


@pytest.fixture
def encoder(tmp_path):
    """Queries of 8 tokens, documents of 20, windows of 64."""
    encoder = Encoder.of(
        tiny_backbone(tmp_path / "bert"), sae_head(), index_settings=IndexSettings("splade")
    )
    encoder.backbone.cut(8, 20)
    return encoder


@pytest.mark.parametrize(("task", "length"), [("query", 8), ("document", 20)])
def test_a_text_is_cut_as_a_tokenizer_truncates(encoder, task, length):
    backbone = encoder.backbone
    (window,) = backbone.windows([LONG], task=task)
    truncated = backbone.tokenizer(LONG, truncation=True, max_length=length)["input_ids"]
    assert window.token_ids == truncated
    assert len(truncated) == length
    cut = text(*range(length - SPECIAL))
    kept, same = encoder.encode_activations([LONG, cut], task).toarray()
    np.testing.assert_array_equal(kept, same)
    backbone.cut(None, None)
    (whole,) = encoder.encode_activations([LONG], task).toarray()
    assert not np.allclose(whole, kept)
    assert len(backbone.windows([LONG])) == 3


def test_a_saved_model_keeps_its_lengths(encoder, tmp_path):
    encoder.save(str(tmp_path / "model"), create_model_card=False)
    queries, documents = (
        encode(TEXTS).to_dense() for encode in (encoder.encode_query, encoder.encode_document)
    )
    assert not np.allclose(queries[0], documents[0])
    plain = SparseEncoder(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    for loaded in (Encoder.load(tmp_path / "model"), plain):
        np.testing.assert_array_equal(loaded.encode_query(TEXTS).to_dense(), queries)
        np.testing.assert_array_equal(loaded.encode_document(TEXTS).to_dense(), documents)


def test_an_index_reads_as_much_as_the_model(encoder, run, tmp_path):
    encoder.save(str(tmp_path / "model"), create_model_card=False)
    lines = [json.dumps({"id": str(n), "text": t}) for n, t in enumerate(TEXTS[:2])]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    given = ("--max-query-tokens", 10, "--max-document-tokens", 12)
    for name, options in (("own", ()), ("given", given)):
        command = ("build", tmp_path / "texts.jsonl", "--out", tmp_path / name, "--model")
        rest = ("--vocabulary", "concepts", *options)
        assert run(*command, tmp_path / "model", *rest).code == 0
        index = IndexReader.open(tmp_path / name)
        documents = encoder.encode_document(TEXTS[:2]).to_dense()
        vectors = index.document_vectors().weights.toarray()
        np.testing.assert_allclose(vectors, documents, atol=1e-5)
        queries = encoder.encode_query(TEXTS).to_dense()
        np.testing.assert_allclose(index.query_vectors(TEXTS).toarray(), queries, atol=1e-5)
        # Nothing beyond the length fires a dimension.
        end = len(text(*range(12 - SPECIAL))) if options else len(text(*range(20 - SPECIAL)))
        spans = [span for c in index.explain(LONG, "0").contributions for span in c.document_spans]
        assert max(stop for _, stop in spans) == end
        encoder.backbone.cut(10, 12)


def test_states_are_cut_as_queries_or_documents(encoder, tmp_path):
    lengths = [
        len(CachedStates.build(tmp_path, encoder.backbone, TEXTS, task=task).read([0])[0])
        for task in ("query", "document")
    ]
    assert lengths == [8 - SPECIAL, 20 - SPECIAL]


@pytest.mark.parametrize("length", [0, -1, "8", 2.5])
def test_impossible_lengths(encoder, length):
    for lengths in ((length, None), (None, length)):
        with pytest.raises(InputError, match=r"max_(query|document)_tokens must be"):
            encoder.backbone.cut(*lengths)


LENGTHS = {"sae_splade": (32, 256), "splare": (512, 512), "esplade": (64, 64), "splade": (64, 256)}
"""SAE-SPLADE, appendix A; SPLARE, table 4; ESPLADE, section 3.1; of SPLADE, MS MARCO's."""

BY_E2 = ("sae_splade/one_model", "sae_splade/trained", "sae_splade/trained_medquad")
"""Recipes whose trials are judged by effectiveness and cost, as their checks are."""

BY_RECALL = ("esplade/table5", "esplade/table6", "esplade/table7")


@pytest.mark.parametrize("name", [n for n in find_recipes(RECIPES) if not n.startswith("rra")])
def test_recipes_read_choose_and_prune_as_the_papers(name):
    for system in load_recipe(RECIPES, name).rows:
        for size, job in system.jobs.items():
            if not isinstance(job, TrainingJob | OverlapJob):
                continue
            training = job if isinstance(job, TrainingJob) else job.training
            if training is None:
                continue
            config = training.config
            model, validation = config.model, config.validation
            lengths = (model.max_query_tokens, model.max_document_tokens)
            trained = (config.data.max_query_tokens, config.data.max_document_tokens)
            if size == "full":
                assert lengths == LENGTHS[name.split("/")[0]]
            elif name.startswith(("sae_splade", "esplade")):
                read = 128 if str(config.data.corpus).startswith("medquad") else 200
                assert (lengths, trained) in (((32, read), (32, 96)), ((64, 200), (64, 200)))
            else:
                assert lengths == trained
            by_recall = size == "full" and name in BY_RECALL
            # sae_splade/pretraining is no table of the paper; its README says why.
            checkpoint = "best" if name == "sae_splade/pretraining" else "last"
            by_rows = "last" if system.name.endswith("-last") else "best"
            measure = "E2" if name in BY_E2 else "nDCG@10"
            checkpoint_and_measure = (by_rows, "R@10") if by_recall else (checkpoint, measure)
            assert (validation.checkpoint, validation.select) == checkpoint_and_measure
            assert model.pruning == "weight"

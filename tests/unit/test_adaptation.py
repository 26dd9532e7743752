"""Adaptation to a collection: what is learned, read once, and kept in an index."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import lexicept
from lexicept import ConceptSettings, Limits
from lexicept.encoding.eight_bits import EightBitBert
from lexicept.encoding.encoded import EncodedConcepts
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.neural.sae.model import SAE
from lexicept.training.sae import adaptation
from lexicept.training.sae.adaptation import HEAD, sample, with_initial_decoder
from lexicept.vectors import unit_rows
from support.indexes import contents
from support.processes import KilledError
from support.tiny import count_read, save_bert, text

TEXTS = [
    f"{subject} {ending}."
    for subject in ("A river", "The bank", "My cat", "A sorted list", "Spring")
    for ending in ("flows past old houses", "sleeps all day", "is counted twice", "pays interest")
]


@pytest.fixture(autouse=True, scope="module")
def _small():
    """A few texts are enough to learn from, in a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptation, "FEWEST_TOKENS", 50)
        patch.setattr(adaptation, "MOST_TOKENS", 6000)
        patch.setattr(adaptation, "PASSES", 1000)
        yield


ADAPT = ConceptSettings(adapt=True)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """The folder of an index with adapted concepts, and the amounts of work by stage."""
    stages: dict[str, int] = {}

    def progress(stage, done, total, detail=""):
        stages[stage] = total

    out = tmp_path_factory.mktemp("adapted") / "index"
    lexicept.build(TEXTS, out, concepts=ADAPT, progress=progress)
    return out, stages


def concepts_of(index: lexicept.Index) -> EncodedConcepts:
    vectorizer = index.reader.vectorizer("concepts")
    assert isinstance(vectorizer, EncodedConcepts)
    return vectorizer


def test_an_index_s_concepts_are_adapted_named_and_its_own(run, adapted):
    folder, stages = adapted
    index = lexicept.open(folder)
    expected = {"states": 20, "training": 6000, "words": 20, "concepts": 20, "naming": 20}
    assert {name: stages[name] for name in expected} == expected
    before, after = EncodedConcepts.packaged(), concepts_of(index)
    weights = [unit_rows(concepts.encoder.head.directions) for concepts in (before, after)]
    turned = (weights[0] * weights[1]).sum(axis=1) < 1 - 1e-5
    assert 0 < int(turned.sum()) < 8192
    assert after.encoder.head.settings == before.encoder.head.settings
    assert after.encoder.index_settings == before.encoder.index_settings
    assert index.reader.atlas is not None
    assert list(after.terms) == list(index.reader.atlas.labels)
    fires = set(index.reader.tf()[1].indices.tolist())
    assert 0 < len(fires) < 400
    for i in set(range(8192)) - fires:  # they stayed themselves, and have their names
        assert after.terms[i] in (before.terms[i], f"{before.terms[i]} #{i}")
    assert index.reader.settings["concepts"].adapted == {"tokens": 120, "steps": 3}
    assert "adapted to the documents: 120 tokens, 3 steps" in run("index", "info", folder).out
    assert type(IndexReader.open(folder).vectorizer("concepts")) is EncodedConcepts


def test_documents_that_are_added_are_read_with_the_index_s_own_concepts(adapted, tmp_path):
    index = lexicept.open(shutil.copytree(adapted[0], tmp_path / "index"))
    concepts = concepts_of(index)
    index.add([{"id": "new", "text": "My river sleeps."}])
    assert (concepts_of(index).encoder.head.directions == concepts.encoder.head.directions).all()
    assert index.reader.settings["concepts"].adapted == {"tokens": 120, "steps": 3}
    expected = concepts.documents(["My river sleeps."])
    result = index.reader.tf()[1][[len(TEXTS)]]
    assert result.indices.tolist() == expected.indices.tolist()
    assert result.data.tolist() == expected.data.tolist()


def test_a_small_collection_s_concepts_are_those_of_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(adaptation, "FEWEST_TOKENS", 121)
    lexicept.build(TEXTS, tmp_path / "small", concepts=ADAPT)
    monkeypatch.setattr(adaptation, "FEWEST_TOKENS", 120)
    fixed = lexicept.build(TEXTS, tmp_path / "fixed")
    assert contents(tmp_path / "small") == contents(tmp_path / "fixed")
    assert fixed.reader.settings["concepts"].adapted is None
    atlas = fixed.reader.atlas
    assert atlas is not None
    assert any(concept.words for concept in atlas)
    described = {concept.number for concept in atlas if concept.words}
    names = zip(concepts_of(fixed).terms, EncodedConcepts.packaged().terms, strict=True)
    for i, (name, packaged) in enumerate(names):
        assert i in described or name in (packaged, f"{packaged} #{i}")


def test_the_encoder_reads_no_document_twice(tmp_path, monkeypatch):
    read = count_read(monkeypatch, EightBitBert)
    lexicept.build(TEXTS, tmp_path / "index")
    assert sum(read) == len(TEXTS)  # to encode, and to name what fires


@pytest.mark.parametrize("stop", [("states", 10), ("training", 200), ("concepts", 10)])
def test_an_interrupted_build_ends_as_an_unbroken_one(adapted, tmp_path, monkeypatch, stop):
    monkeypatch.setattr("lexicept.neural.sae.cached_states.SHARD", 10)
    monkeypatch.setattr("lexicept.index.term_frequencies.SHARD", 10)
    monkeypatch.setattr("lexicept.training.loop.CHECKPOINT_SECONDS", 0)

    def kill(stage, done, total, detail=""):
        if stage == stop[0] and done >= stop[1]:
            raise KilledError

    with pytest.raises(KilledError):
        lexicept.build(TEXTS, tmp_path / "index", concepts=ADAPT, progress=kill)
    with pytest.raises(
        InputError, match=r"made with other settings: adapt was true and is now false"
    ):
        lexicept.build(TEXTS, tmp_path / "index")
    lexicept.build(TEXTS, tmp_path / "index", concepts=ADAPT)
    assert contents(tmp_path / "index") == contents(adapted[0])
    assert not (tmp_path / "index.partial").exists()


def test_a_resumed_build_with_another_setting_names_the_difference(tmp_path, monkeypatch):
    monkeypatch.setattr("lexicept.index.term_frequencies.SHARD", 10)

    def kill(stage, done, total, detail=""):
        if stage == "concepts" and done >= 10:
            raise KilledError

    with pytest.raises(KilledError):
        lexicept.build(TEXTS, tmp_path / "index", progress=kill)
    for changed, message in (
        ({"vocabulary": "words"}, 'vocabulary was "all" and is now "words"'),
        ({"vocabulary": "concepts"}, 'vocabulary was "all" and is now "concepts"'),
        ({"language": "de"}, 'language was "en" and is now "de"'),
        ({"weight_bits": 8}, "weight_bits was 32 and is now 8"),
        ({"limits": Limits(pruning="impact")}, 'pruning was null and is now "impact"'),
    ):
        with pytest.raises(InputError, match=f"index.partial: made with other settings: {message}"):
            lexicept.build(TEXTS, tmp_path / "index", **changed)


def test_a_named_backbone_gets_the_whole_default_index(tmp_path, run):
    folder = Path(save_bert(tmp_path / "bert"))
    prompts = {"prompts": {"query": "ba ", "passage": "de de "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    texts = [text(n, n + 1, n + 2, 2 * n) for n in range(40)]
    index = lexicept.build(texts, tmp_path / "index", concepts=ConceptSettings(backbone=folder))
    assert [vocabulary.name for vocabulary in index.reader.vocabularies] == ["words", "concepts"]
    assert index.reader.settings["concepts"].adapted == {"tokens": 25 * (4 + 4), "steps": 3}
    encoder = concepts_of(index).encoder
    assert encoder.prompts == {"query": "ba ", "document": "de de "}
    assert encoder.head.settings == HEAD
    assert encoder.head.d_in == 32
    (hit,) = index.search(texts[7], 1, explain=True)
    assert 0 < hit.explanation.similarity < hit.score
    # Spans count from the text's start, not the prompt's.
    vectors = index.reader.vectorizer("concepts").encode_query(texts[3])
    sources = vectors.sources(vectors.tf.indices.tolist()).values()
    assert {texts[3][s.start : s.end] for of in sources for s in of.spans} == {*texts[3].split()}
    given = ConceptSettings(backbone=folder, query_prompt="", document_prompt="ki ")
    other = lexicept.build(texts, tmp_path / "other", vocabulary="concepts", concepts=given)
    assert concepts_of(other).encoder.prompts == {"query": "", "document": "ki "}


def test_the_sample_has_so_many_tokens_of_the_whole_collection(bert):
    texts = [text(n // 25, n % 25) for n in range(500)]
    documents, everything, tokens = sample(bert, texts, 2000)
    assert (sorted(everything), tokens) == (sorted(texts), 1000)
    assert [texts[n] for n in documents] == everything
    positions, subset, tokens = sample(bert, texts, 99)
    assert (len(subset), tokens) == (50, 100)
    assert sample(bert, texts, 99) == (positions, subset, tokens)
    assert [texts[n] for n in positions] == subset
    assert min(positions) < 100
    assert max(positions) >= 400
    assert sample(bert, ["", text(1), text(1), ""], 9).tokens == 1
    assert sample(bert, [text(1)], 9, text(2) + " ") == ([0], [f"{text(2)} {text(1)}"], 2)


def test_a_decoder_is_fitted_to_the_tokens_of_each_latent():
    """The mean is (3, 4); rows point from there to the states, at a distance of 5."""
    sae = SAE(2, 3, 1)
    with torch.no_grad():
        sae.W_enc.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]) / 4)
        sae.W_dec.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]))
    states = torch.tensor([[6.0, 0.0], [0.0, 8.0]])
    fitted = with_initial_decoder(sae, states, 1)
    assert torch.equal(fitted.b_dec, torch.tensor([3.0, 4.0]))
    weights = torch.tensor([[0.6, -0.8], [-0.6, 0.8], [1.0, 0.0]])  # the third fires on nothing
    torch.testing.assert_close(fitted.W_dec, weights)
    acts, latents = fitted.encode(states)
    assert latents.tolist() == [[0], [1]]
    # 1.5 and 2 before; the factor that brings both closest to 5 is 17.5 / 6.25.
    torch.testing.assert_close(acts, torch.tensor([[4.2], [5.6]]))
    assert torch.equal(
        with_initial_decoder(sae, -states.abs() * 0, 1).W_enc, sae.W_enc
    )  # nothing fires

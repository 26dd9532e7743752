"""The packaged concept model, and other sources of concepts for build."""

import json
from pathlib import Path

import pytest

import lexicept
from lexicept.encoding.index_settings import IndexSettings
from lexicept.encoding.sources import MINI
from lexicept.index.reader import IndexReader
from lexicept.index.updates import relabel
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from support.commands import assert_error

TEXTS = [
    "How do I join two file paths?",
    "Cats and dogs are the most popular pets.",
    "The bank of the river was covered with spring flowers.",
    "A bank lends money and pays interest on deposits.",
    "Sorting a list takes n log n comparisons.",
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"_id": f"d{n}", "text": text}) for n, text in enumerate(TEXTS)]
    path.write_text("\n".join(lines))
    return path


def test_it_is_small_and_has_names():
    folder = Path(lexicept.__file__).with_name("mini")
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 30 * 2**20
    concepts = ConceptVectorizer.load(MINI)
    assert concepts.named
    assert len(set(concepts.terms)) == concepts.size == 8192
    settings = concepts.encoder.head.settings
    assert (settings.query_k, settings.document_k, settings.query_scale) == (2, 2, 0.5)
    assert concepts.encoder.index_settings == IndexSettings(
        "bm25", 2.0, 0.4, 16.0, query_max_qd_flops=1.5
    )
    assert not concepts.encoder.training


def test_naming_the_weighting_that_it_has_changes_nothing(corpus, run, tmp_path):
    for name, options in (("plain", []), ("named", ["--weighting", "bm25"])):
        assert run("build", corpus, "--out", tmp_path / name, *options).code == 0
    plain, named = (
        IndexReader.open(tmp_path / name).settings["concepts"] for name in ("plain", "named")
    )
    assert named == plain


def test_names_outlive_what_these_documents_say(corpus, run, tmp_path):
    """Names of concepts that do not fire here, and names given by a language model."""
    index = tmp_path / "index"
    assert run("build", corpus, "--out", index).code == 0
    names, opened = ConceptVectorizer.load(MINI).terms, IndexReader.open(index)
    assert opened.search(["an animal at home"], top_k=1)[0][0].id == "d1"
    assert opened.settings["concepts"].query_max_qd_flops == 1.5
    fire = set(opened.document_vectors().select("concepts").weights.indices)
    assert run("index", "describe", index).code == 0
    atlas = IndexReader.open(index).atlas
    assert atlas is not None
    for i in set(range(8192)) - fire:  # with its number where documents gave a name twice
        assert atlas.labels[i] in (names[i], f"{names[i]} #{i}")
    first, *_ = sorted(fire)
    relabel(index, {first: "what a model calls it"}, "llm")
    assert run("index", "describe", index).code == 0
    again = IndexReader.open(index).atlas
    assert again is not None
    assert (again.labels[first], again.source(first)) == ("what a model calls it", "llm")


def test_describe_tells_what_concepts_are_here(corpus, run, tmp_path):
    index = tmp_path / "index"
    assert run("build", corpus, "--out", index, "--vocabulary", "concepts").code == 0
    before = IndexReader.open(index).search(["money"], top_k=5)[0]
    output = run("index", "describe", index, "--json").json
    opened = IndexReader.open(index, checksums=True)
    assert opened.atlas is not None
    assert output == {"concepts": 8192, "that fire": len(opened.atlas.most_frequent())}
    assert all(opened.atlas[n].examples for n in opened.atlas.most_frequent())
    assert opened.search(["money"], top_k=5)[0] == before
    assert (
        run("index", "describe", index, "--json").json == output
    )  # again, in place of what was found
    assert run("build", corpus, "--out", tmp_path / "words", "--vocabulary", "words").code == 0
    assert_error(run("index", "describe", tmp_path / "words"), "has no concepts")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", 4], "--k requires --train"),
        (["--num-latents", 64, "--adapt"], "--num-latents requires --train"),
        (["--layer", 2], "--layer requires --train, --sae or --backbone"),
        (
            ["--backbone", "x", "--model", "y"],
            "--backbone does not go with --model: it has its own",
        ),
        (["--query-prompt", "x: ", "--train"], "--query-prompt requires --backbone"),
        (["--backbone", "x", "--adapt"], "--adapt adapts lexicept-mini, not --backbone"),
        (["--adapt", "--train"], "--adapt adapts lexicept-mini, not --train"),
        (["--sae", "x", "--model", "y"], "--model and --sae are two sources"),
        (["--adapt", "--vocabulary", "words"], "--adapt requires concepts, but --vocab"),
        (["--model", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_options_that_do_not_go_together(corpus, run, tmp_path, arguments, message):
    assert_error(run("build", corpus, "--out", tmp_path / "index", *arguments), message)
    assert not (tmp_path / "index").exists()

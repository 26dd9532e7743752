"""Recipes: all are valid, damaged recipes are refused, and a killed run goes on."""

import dataclasses
import gzip
import json
import shutil
import sys
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import yaml

from lexicept.corpora import Qrel, read_documents, read_queries
from lexicept.errors import InputError, LexiceptWarning
from lexicept.index.impacts import Derived, RRASettings
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.heads.language import language_head
from lexicept.neural.sae.model import SAE
from lexicept.progress import silent
from lexicept.training.ranking.config import load_config
from lexicept.training.ranking.losses import fraction_unexplained
from lexicept.training.sae import trainer as sae_trainer
from reproduction import data as data_module
from reproduction import measuring, pooled, systems, trained
from reproduction import run as run_module
from reproduction.__main__ import main
from reproduction.anisotropy import anisotropy
from reproduction.data import (
    Data,
    MissingDataError,
    Source,
    Subset,
    ignores_identical_ids,
    load_sources,
)
from reproduction.jobs import RRAChoice, TrainingJob, datasets_of, inputs_of
from reproduction.latency import METRIC, measure_bmp, measure_latency
from reproduction.measuring import Collection, JudgedVectors, Measurements, measure, measure_curve
from reproduction.model_pairs import run_pairs
from reproduction.mteb_tasks import evaluate_tasks
from reproduction.recipe import (
    RECIPES,
    SIZES,
    Column,
    Expected,
    Substitute,
    find_recipes,
    load_recipe,
    read_job,
)
from reproduction.report import record, recorded, write_comparison, write_report
from reproduction.run import Outcome, known_results, run_recipe, validate
from reproduction.stored import published_vectors
from reproduction.trained import run_training
from reproduction.verdicts import Table, compare
from support.collections import write_beir
from support.processes import KilledError
from support.tiny import save_bert, save_collection

NAMES = find_recipes(RECIPES)


@cache
def packaged(name):
    return load_recipe(RECIPES, name)


@pytest.fixture(autouse=True)
def _no_mteb(monkeypatch):
    """The registry takes a minute to import; the command's dry run asks it."""
    monkeypatch.setattr(data_module, "check_tasks", lambda names: None)
    monkeypatch.setattr(run_module, "check_tasks", lambda names: None)


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_valid_without_data(name):
    recipe = packaged(name)
    validate(recipe, RECIPES)
    rows = {system.name for system in recipe.rows}
    for system, expected in recipe.expected.rows.items():
        assert system in rows or expected.kind in ("quoted", "settings", "examples")
    assert "Full size" in (recipe.folder / "README.md").read_text()


TINY = {"datasets": [{"name": "tiny"}], "system": "bm25"}
RECIPE = {
    "title": "Three systems",
    "claim": "RRA changes scores.",
    "kind": "measured",
    "sizes": {size: {"retrieval": TINY} for size in SIZES},
    "rows": [
        {"name": "bm25"},
        {
            "name": "pruned",
            "against": "bm25",
            "set": {"retrieval": {"document_max_active_dims": 2}},
        },
        {"name": "absent", "set": {"retrieval": {"datasets": [{"name": "nowhere"}]}}},
        {"name": "large", "small": "too large"},
    ],
    "checks": [
        {"says": "pruned is cheaper", "value": "tiny QD-FLOPs", "rising": ["pruned", "bm25"]}
    ],
}
EXPECTED = {
    "reference": "Table 1",
    "columns": {
        "QD": {
            "metric": "QD-FLOPs",
            "datasets": ["tiny"],
            "tolerance": 100,
            "small": {"metric": "QD-FLOPs", "datasets": ["tiny"], "same": True},
        }
    },
    "rows": {
        "bm25": {"kind": "measured", "values": {"QD": 1.5}},
        "others": {"kind": "quoted", "values": {"QD": None}},
    },
}


@pytest.fixture
def recipes(tmp_path):
    folder = tmp_path / "recipes"
    path = folder / "paper" / "table1"
    path.mkdir(parents=True)
    (path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    (path / "expected.json").write_text(json.dumps(EXPECTED))
    (path / "README.md").write_text("What is claimed.\n")
    sources = {"tiny": {"get": "made here"}, "nowhere": {"get": "Ask its authors."}}
    (folder / "datasets.yaml").write_text(yaml.safe_dump(sources))
    return folder


@pytest.fixture
def here(recipes, tmp_path):
    save_collection(tmp_path / "data" / "tiny")
    (tmp_path / "data" / "tiny" / "qrels").mkdir(exist_ok=True)
    train = tmp_path / "data" / "tiny" / "qrels" / "train.tsv"
    shutil.copy(train, train.with_name("test.tsv"))
    return Data(tmp_path / "data", load_sources(recipes / "datasets.yaml"), tmp_path / "made")


def damaged(change):
    config = json.loads(json.dumps(RECIPE))
    change(config)
    return config


DAMAGES = {
    "no setting 'sises'; perhaps sizes?": lambda c: c.update(sises={}),
    "title is missing": lambda c: c.pop("title"),
    "no setting 'bm25.small.retrieval.sistem'; perhaps system?": lambda c: c["sizes"]["small"][
        "retrieval"
    ].update(sistem="bm25"),
    "system must be 'bm25', 'vectors' or 'encoder', not 'bm26'": lambda c: c["sizes"]["small"][
        "retrieval"
    ].update(system="bm26"),
    "rows that are there twice: bm25": lambda c: c["rows"].append({"name": "bm25"}),
    "pruned.against: unknown row 'bm52'; the nearest is 'bm25'": lambda c: c["rows"][1].update(
        against="bm52"
    ),
    "rows[1].like: unknown row above 'large'; the nearest is": lambda c: c["rows"][1].update(
        like="large"
    ),
    "no job for the size full, and no reason why": lambda c: c["sizes"].pop("full"),
    "unknown job 'retrival'; the nearest is 'retrieval'": lambda c: c["rows"][0].update(
        small={"retrival": {}}
    ),
    "expected.json measures 'bm25', which is no row": lambda c: (
        c["rows"].pop(0) and c["rows"].pop(0) and c["checks"].clear()
    ),
    "backbone: unknown row 'bm52'; the nearest is 'bm25'": lambda c: c.update(backbone="bm52"),
    "backbone: row bm25 has no job pooled with dense: true": lambda c: c.update(backbone="bm25"),
    "checks[0]: set either rising or row": lambda c: c["checks"][0].pop("rising"),
}


def test_a_row_is_like_another_but_for_what_it_says(recipes):
    path = recipes / "paper" / "table1" / "recipe.yaml"
    rows = [
        *RECIPE["rows"],
        {"name": "copied", "like": "large"},
        {"name": "small_too", "like": "large", "small": {"retrieval": TINY}},
        {"name": "b", "like": "pruned", "set": {"retrieval": {"weight": 0.5}}},
        {"name": "b_long", "like": "b", "full": {"retrieval": {"document_max_active_dims": 9}}},
    ]
    path.write_text(yaml.safe_dump({**RECIPE, "rows": rows}))
    jobs = {system.name: system.jobs for system in load_recipe(recipes, "paper/table1").rows}
    assert jobs["copied"] == jobs["large"]
    assert jobs["large"]["small"] == "too large"
    assert jobs["small_too"]["small"] == jobs["small_too"]["full"] == jobs["bm25"]["full"]
    for size in SIZES:
        assert jobs["b"][size] == dataclasses.replace(jobs["pruned"][size], weight=0.5)
    assert jobs["b_long"]["small"] == jobs["b"]["small"]
    assert jobs["b_long"]["full"].document_max_active_dims == 9


@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_recipe_is_refused(message, recipes):
    path = recipes / "paper" / "table1" / "recipe.yaml"
    path.write_text(yaml.safe_dump(damaged(DAMAGES[message])))
    with pytest.raises(InputError) as error:
        load_recipe(recipes, "paper/table1")
    assert message in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"QD": 1.5', '"QD": "1.5"', "rows.bm25.values.QD must be a number"),
        ('"QD": 1.5', '"Q": 1.5', "unknown column 'Q'; the nearest is 'QD'"),
        ('"quoted"', '"cited"', "rows.others.kind must be"),
        ("{", "", "not JSON"),
    ],
)
def test_damaged_numbers_are_refused(old, new, message, recipes):
    path = recipes / "paper" / "table1" / "expected.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        load_recipe(recipes, "paper/table1")
    with pytest.raises(InputError, match="no recipe 'paper/tabel1'; the nearest is 'paper/t"):
        load_recipe(recipes, "paper/tabel1")


def test_a_run_that_was_killed_goes_on(recipes, here, tmp_path, monkeypatch):
    recipe = load_recipe(recipes, "paper/table1")
    whole = run_recipe(recipe, "small", here, tmp_path / "whole")
    ran = []
    real = run_module.run_row

    def kill(system_name, *arguments):
        if system_name == "pruned" and len(ran) == 1:
            ran.append("killed")
            raise KilledError
        ran.append(system_name)
        return real(system_name, *arguments)

    monkeypatch.setattr(run_module, "run_row", kill)
    out = tmp_path / "out"
    with pytest.raises(KilledError):
        run_recipe(recipe, "small", here, out)
    assert list(known_results(recipe, "small", out / "paper/table1/small").results) == ["bm25"]
    outcome = run_recipe(recipe, "small", here, out)
    assert ran == ["bm25", "killed", "pruned", "absent"]
    values = [{n: r.values for n, r in o.results.items()} for o in (whole, outcome)]
    assert values[0] == values[1]
    assert compare(recipe, "small", whole) == compare(recipe, "small", outcome)


def test_missing_data_are_named_and_other_rows_go_on(recipes, here, tmp_path):
    outcome = run_recipe(load_recipe(recipes, "paper/table1"), "small", here, tmp_path / "out")
    assert set(outcome.results) == {"bm25", "pruned"}
    assert outcome.missing == {
        "absent": f"dataset nowhere: not in {here.folder}. Ask its authors.",
        "large": "too large",
    }


def test_a_row_whose_job_has_changed_is_run_again(recipes, here, tmp_path):
    recipe = load_recipe(recipes, "paper/table1")
    run_recipe(recipe, "small", here, tmp_path / "out")
    recipe_json = damaged(
        lambda c: c["rows"][1]["set"]["retrieval"].update(document_max_active_dims=1)
    )
    (recipe.folder / "recipe.yaml").write_text(yaml.safe_dump(recipe_json))
    changed = load_recipe(recipes, "paper/table1")
    known = known_results(changed, "small", tmp_path / "out/paper/table1/small")
    assert "another configuration" in known.missing["pruned"]
    again = run_recipe(changed, "small", here, tmp_path / "out")
    assert again.results["pruned"].values["tiny document length"] == 1


def test_queries_that_are_documents(recipes, tmp_path):
    """A collection of datasets.yaml is measured as BEIR measures it, and says so."""
    documents = {"d1": "cat dog", "d2": "cat dog bird", "d3": "cat"}
    queries = {"d1": "cat dog", "d2": "bird dog"}
    qrels = {"test": "d1 0 d2 1\nd2 0 d1 1\n"}
    write_beir(tmp_path / "data" / "family" / "listed", documents, queries, qrels)
    write_beir(tmp_path / "data" / "family" / "other", documents, queries, qrels)
    datasets = [{"name": "family/listed"}, {"name": "family/other"}]
    small_setup = {"retrieval": {"datasets": datasets}}
    rows = [{"name": "bm25", "small": small_setup, "full": "too large"}]
    config = {**RECIPE, "rows": rows, "checks": []}
    (recipes / "paper/table1/recipe.yaml").write_text(yaml.safe_dump(config))
    expected = {"reference": "", "columns": {}, "rows": {}}
    (recipes / "paper/table1/expected.json").write_text(json.dumps(expected))
    out = tmp_path / "out"

    def result(listed):
        sources = {"family": {"get": "made here", "ignore_identical_ids": listed}}
        (recipes / "datasets.yaml").write_text(yaml.safe_dump(sources))
        data = Data(tmp_path / "data", load_sources(recipes / "datasets.yaml"), tmp_path / "made")
        recipe = load_recipe(recipes, "paper/table1")
        known = known_results(recipe, "small", out / "paper/table1/small")
        return known, run_recipe(recipe, "small", data, out).results["bm25"]

    _, plain = result([])
    known, ignoring = result(["listed"])
    assert "another configuration" in known.missing["bm25"]
    for before in (plain.values["family/listed RR@10"], plain.values["family/other RR@10"]):
        assert before == ignoring.values["family/other RR@10"] == 0.5
    assert ignoring.values["family/listed RR@10"] == 1.0
    assert ignoring.values["family/listed QD-FLOPs"] == plain.values["family/listed QD-FLOPs"]
    assert not plain.notes
    assert ignoring.notes == ("family/listed: hits of the query's own id are left out",)


def test_collections_whose_queries_are_documents():
    sources = load_sources(RECIPES / "datasets.yaml")
    recipe = packaged("rra/table1")
    jobs = [job for s in recipe.rows for job in s.jobs.values() if not isinstance(job, str)]
    names = {dataset.name for job in jobs for dataset in datasets_of(job)}
    collections = ("arguana", "quora", "scidocs", "cqadupstack")
    expected = {name for name in names if any(collection in name for collection in collections)}
    assert {"beir/arguana", "beir/quora/test", "beir_sparta/arguana"} <= expected
    # Cranfield's and Vaswani's queries have ids of documents too, by accident.
    assert {"cranfield", "vaswani_npl"} <= names - expected
    assert {name for name in names if ignores_identical_ids(name, sources)} == expected


def test_restart_runs_finished_rows_again(recipes, here, tmp_path, monkeypatch):
    recipe = load_recipe(recipes, "paper/table1")
    first = run_recipe(recipe, "small", here, tmp_path)
    ran = []
    real = run_module.run_row
    monkeypatch.setattr(run_module, "run_row", lambda *of: ran.append(of[0]) or real(*of))
    again = run_recipe(recipe, "small", here, tmp_path, ("bm25",), restart=True)
    assert ran == ["bm25"]
    assert again.results["bm25"].values == first.results["bm25"].values
    run_recipe(recipe, "small", here, tmp_path, ("bm25", "pruned"))
    assert ran == ["bm25"]


def test_data_that_have_changed_are_named(recipes, here, tmp_path):
    """A row is known by its dataset's name: new files must not pass for the old ones."""
    recipe, corpus = load_recipe(recipes, "paper/table1"), here.folder / "tiny" / "corpus.jsonl"
    run_recipe(recipe, "small", here, tmp_path)
    data = corpus.read_bytes()
    corpus.write_bytes(data)
    assert "bm25" in run_recipe(recipe, "small", here, tmp_path).results
    corpus.write_bytes(data + b"\n")
    with pytest.raises(InputError, match=r"tiny: its files have changed .* another --out"):
        run_recipe(recipe, "small", here, tmp_path)
    corpus.write_bytes(data)
    assert "bm25" in run_recipe(recipe, "small", here, tmp_path).results


def test_recorded_rows_stay_until_they_are_run_again(recipes, here, tmp_path):
    recipe = load_recipe(recipes, "paper/table1")
    whole = run_recipe(recipe, "small", here, tmp_path)
    record(recipe, "small", whole, compare(recipe, "small", whole))
    assert len(recorded(recipe, "small")[1]) == 2  # nDCG@10, and the check's QD-FLOPs
    alone = run_recipe(recipe, "small", here, tmp_path / "other", ("pruned",))
    record(recipe, "small", alone, compare(recipe, "small", alone))
    outcome, tests = recorded(recipe, "small")
    assert outcome.results.keys() == {"bm25", "pruned"}
    assert len(tests) == 2  # the row has the values that it was tested with
    pruned = alone.results["pruned"]
    values = {name: value + 0.1 for name, value in pruned.values.items()}
    other = Outcome({"pruned": dataclasses.replace(pruned, values=values)}, alone.missing)
    record(recipe, "small", other, compare(recipe, "small", other))
    assert not recorded(recipe, "small")[1]  # of the row as it was


def test_recorded_results_belong_to_the_recipes():
    """Rows of other configurations than today's count as not run."""
    current = {
        name: sum(len(recorded(packaged(name), size)[0].results) for size in SIZES)
        for name in NAMES
    }
    assert sum(current.values()) == 178
    assert current["rra/table1"] == 15


def test_a_row_computed_from_a_table_changes_with_it(tmp_path):
    shutil.copytree(RECIPES, tmp_path / "recipes")
    recipe = load_recipe(tmp_path / "recipes", "sae_splade/figure2")
    (job,) = (system.jobs["small"] for system in recipe.rows if system.name == "e2")
    before = run_module.job_fingerprint(job, recipe)
    path = tmp_path / "recipes" / "sae_splade" / "table3" / "expected.json"
    path.write_text(path.read_text().replace("18.8", "25.0", 1))
    assert run_module.job_fingerprint(job, recipe) != before


def test_a_part_depends_on_what_it_is_of(here):
    subset = Subset("tiny", "test", 2, 2)
    data = Data(here.folder, {"part": Source("", subset=subset)}, here.work)
    data.check_unchanged("part")
    queries = here.folder / "tiny" / "queries.jsonl"
    queries.write_text("{}")
    with pytest.raises(InputError, match="tiny: its files have changed"):
        data.check_unchanged("part")


def test_parts_by_titles_share_no_title_text_or_question(tmp_path):
    """Titles, texts and questions are the same if only case and marks differ."""
    titles = [f"{'Aa'[i % 2]}-{i // 2}" for i in range(20)]
    texts = [*(f"Text {i}." for i in range(19)), "text 0"]
    questions = {f"q{i}": f"What is {i % 18}?" for i in range(20)}
    judged = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(20))
    folder = write_beir(tmp_path / "data" / "whole", {}, questions, {"train": judged})
    lines = [
        json.dumps({"_id": f"d{i}", "title": title, "text": text}) + "\n"
        for i, (title, text) in enumerate(zip(titles, texts, strict=True))
    ]
    (folder / "corpus.jsonl").write_text("".join(lines))
    id_sets = []
    for name, bounds in (("first", (0, 0.3)), ("second", (0.3, 1))):
        source = Source("", subset=Subset("whole", "train", 20, 20, titles=bounds))
        part_folder = Data(tmp_path / "data", {name: source}, tmp_path / "work").find(name)
        documents = {int(document.id[1:]) for document in read_documents(part_folder)}
        query_ids = {int(query.id[1:]) for query in read_queries(part_folder, "train")}
        # d0 and d19 have one text, q0 and q18 as well as q1 and q19 one question.
        assert query_ids == documents - {1, 18}
        id_sets.append(documents)
    assert sorted([*id_sets[0], *id_sets[1]]) == list(range(1, 19))
    assert [len({document_id // 2 for document_id in ids}) for ids in id_sets] == [3, 7]
    assert not {d // 2 for d in id_sets[0]} & {document_id // 2 for document_id in id_sets[1]}
    with pytest.raises(InputError, match="two rising shares"):
        Subset("whole", "train", 20, 20, titles=(0.3, 0.3))


def test_the_table_compares_and_the_verdict_needs_a_run(recipes, here, tmp_path):
    recipe = load_recipe(recipes, "paper/table1")
    nothing = known_results(recipe, "small", tmp_path / "out")
    assert compare(recipe, "small", nothing).verdict.word == "not run"
    outcome = run_recipe(recipe, "small", here, tmp_path / "out")
    compared = write_comparison(recipe, "small", outcome, tmp_path / "out")
    (cell,) = [cell for cell in compared.cells if cell.ours is not None]
    assert cell.ours == outcome.results["bm25"].values["tiny QD-FLOPs"]
    assert compared.verdict.word == "holds"
    measure = "tiny nDCG@10"
    (test,) = [test for test in compared.tests if test.value == measure]
    means = [outcome.results[name].values[measure] for name in ("pruned", "bm25")]
    assert test.difference == pytest.approx(means[0] - means[1], abs=1e-4)
    assert test.error > 0
    assert f"| bm25 | {cell.ours:.4g} (1.5) |" in (tmp_path / "out" / "table.md").read_text()
    record(recipe, "small", outcome, compared)
    verdicts = write_report(recipes, tmp_path / "page.md")
    words = {size: verdict.word for size, verdict in verdicts["paper/table1"].items()}
    assert words == {"small": "holds", "full": "not run"}
    assert "| [paper/table1](paper/table1/README.md) | " in (tmp_path / "page.md").read_text()
    readme = recipe.folder / "README.md"
    text = readme.read_text()
    assert "## Results at small size" in text
    assert "| pruned is cheaper | holds | " in text
    write_report(recipes, tmp_path / "page.md")
    assert readme.read_text() == text


def test_the_chapter_s_example_is_computed(here, tmp_path):
    recipe = packaged("splade/example")
    compared = compare(recipe, "small", run_recipe(recipe, "small", here, tmp_path))
    assert compared.verdict.word == "holds"
    assert {checked.answer for checked in compared.checks} == {"holds"}
    assert {cell.agrees for cell in compared.cells if cell.ours is not None} == {True}


def test_published_vectors_are_read(tmp_path):
    with gzip.open(tmp_path / "documents.jsonl.gz", "wt") as file:
        file.write('{"id": "a", "vector": {"x": 200, "y": 50}}\n{"id": "b", "vector": {}}\n')
    with gzip.open(tmp_path / "queries.tsv.gz", "wt") as file:
        file.write("q\ty y x\n")
    vectors = published_vectors(tmp_path, None, 0.01, tmp_path / "work")
    assert vectors.documents.load().toarray().tolist() == [[2.0, 0.5], [0.0, 0.0]]
    assert vectors.queries.toarray().tolist() == [[1.0, 2.0]]
    (tmp_path / "vocab.txt").write_text("x\nz\n")
    with pytest.raises(InputError, match="'y' is no term"):
        published_vectors(tmp_path, tmp_path / "vocab.txt", 1.0, tmp_path / "work")


def test_a_dataset_that_nobody_knows(tmp_path):
    there = Data(tmp_path, {"far": Source("Write to them.")}, tmp_path)
    with pytest.raises(MissingDataError, match=r"dataset far: not in .*\. Write to them\."):
        there.find("far")
    pytest.importorskip("ir_datasets")
    with pytest.raises(InputError, match=r"neither .* nor ir_datasets knows 'bier/fiqa'"):
        data_module.check_dataset("bier/fiqa", {})


def test_the_command(recipes, here, tmp_path, capsys):
    def run(*arguments):
        return main([*map(str, arguments), "--recipes", str(recipes)]), *capsys.readouterr()

    assert "paper/table1" in run("--list")[1]
    listed = run("--all", "--dry-run")[1]
    assert "python -m reproduction paper/table1 --size small: " in listed
    assert "1 recipes, 7 jobs: all valid" in listed
    out = ("--data", here.folder, "--out", tmp_path / "out")
    status, printed, _ = run("paper/table1", *out)
    assert status == 0
    assert "paper/table1: holds: " in printed
    assert "holds: pruned is cheaper (pruned " in printed
    assert "no result of large: too large" in printed
    assert "error: name one recipe, or --all" in run()[2]
    folder = tmp_path / "out" / "paper/table1" / "small"
    assert "| large | too large |" in (folder / "table.md").read_text()
    status, _, error = run("paper/table1", "--rows", "x", *out)
    assert (status, "has no row 'x'" in error) == (1, True)
    _, _, error = run("paper/table1", "--data", tmp_path / "nowhere", "--out", tmp_path / "none")
    assert "no such folder of datasets" in error
    assert not (tmp_path / "none").exists()


def test_a_check_may_be_of_a_column(recipes):
    """The mean over a column's datasets, in the paper's units."""
    path = recipes / "paper" / "table1"
    recipe_json = {
        **RECIPE,
        "checks": [{"says": "b", "value": "mean", "rising": ["bm25", "pruned"]}],
    }
    (path / "recipe.yaml").write_text(yaml.safe_dump(recipe_json))
    own = {"metric": "RR@10", "datasets": ["a", "b"]}
    column = {**own, "scale": 100, "small": own}
    expected = {**EXPECTED, "columns": {**EXPECTED["columns"], "mean": column}}
    (path / "expected.json").write_text(json.dumps(expected))
    recipe = load_recipe(recipes, "paper/table1")
    values = {"bm25": {"a RR@10": 0.2, "b RR@10": 0.4}, "pruned": {"a RR@10": 0.5, "b RR@10": 0.3}}
    results = {
        system: run_module.Result(system, {}, "", values_of_system, (), 0.0, "", {}, "", {})
        for system, values_of_system in values.items()
    }
    (checked,) = compare(recipe, "small", run_module.Outcome(results, {})).checks
    assert (checked.answer, checked.values) == ("holds", "bm25 30, pruned 40")


def test_a_mean_of_columns_may_have_a_substitute_at_small_size():
    mean = Column("mean", of=("QD",), scale=100, small=Substitute("RR@10", ("a", "b")))
    expected = Expected("Table 1", {"QD": Column("QD-FLOPs"), "mean": mean}, {})
    values = {"QD-FLOPs": 7.0, "a RR@10": 0.2, "b RR@10": 0.4}
    results = {"bm25": run_module.Result("bm25", {}, "", values, (), 0.0, "", {}, "", {})}
    recipe = SimpleNamespace(expected=expected)
    small, full = (Table(recipe, size, Outcome(results, {})) for size in SIZES)
    assert small.cell("bm25", "mean") == pytest.approx(30)
    assert full.cell("bm25", "mean") == 7


def test_a_setting_that_is_newer_than_a_result_keeps_it(recipes, here, tmp_path):
    recipe = load_recipe(recipes, "paper/table1")
    run_recipe(recipe, "small", here, tmp_path)
    path = tmp_path / "paper/table1/small/rows/bm25.json"
    config = json.loads(path.read_text())
    assert "weight" not in config["job"]["retrieval"]  # it has its default
    assert "bm25" in known_results(recipe, "small", path.parents[1]).results
    config["job"]["retrieval"]["removed"] = True  # a setting that is no longer there
    path.write_text(json.dumps(config))
    missing = known_results(recipe, "small", path.parents[1]).missing
    assert "another configuration" in missing["bm25"]


@pytest.fixture
def tiny(tmp_path):
    """A tiny backbone ``bert`` and a collection ``beir``."""
    save_bert(tmp_path / "bert")
    save_collection(tmp_path / "beir")
    return Data(tmp_path, {}, tmp_path / "work")


def training_job(config, **more):
    """Return a training tested on the collection's split dev."""
    test = [{"name": "beir", "split": "dev"}]
    return read_job({"training": {"config": config, "test": test, **more}}, "row")


def short_training(steps):
    """Return a training of the tiny backbone in ``bert`` on the collection in ``beir``."""
    return {
        "data": {"corpus": "beir", "queries": "beir"},
        "model": {"backbone": "bert", "head": "random", "size": 40},
        "loss": {"kl": 0, "in_batch": 1.0},
        "optimizer": {"steps": steps, "batch_size": 4, "warmup_steps": steps - 1},
        "validation": {"count": 3, "every": steps},
    }


def test_rows_of_one_training_share_the_model(tiny):
    lengths = []
    for limit in (None, 3):
        job = training_job(short_training(2), document_max_active_dims=limit)
        lengths.append(run_training(job, tiny).values["beir document length"])
    assert lengths[1] == 3 < lengths[0]
    assert len(list((tiny.work / "runs").iterdir())) == 1


def test_a_round_starts_from_the_model_before(tiny):
    config = short_training(2)
    config["model"]["initial_active_dims"] = 8
    run_training(training_job(config, rounds=2), tiny)
    runs = [(load_config(run / "config.yaml"), run) for run in (tiny.work / "runs").iterdir()]
    (first, before), (second, after) = sorted(runs, key=lambda run: run[0].optimizer.seed)
    assert (first.model.start, second.model.start) == (None, str(before / "model"))
    assert second.model.initial_active_dims is None
    assert [(run / "vectors").exists() for run in (before, after)] == [False, True]


@pytest.mark.parametrize("vocabulary", ["corpus", "training"])
def test_pretraining_counts_the_words_that_are_asked_for(tiny, monkeypatch, vocabulary):
    save_collection(tiny.folder / "larger", documents=60)
    calls = {}
    monkeypatch.setattr(
        trained, "pretrain", lambda corpus, out, **more: calls.update(more, of=corpus)
    )
    stage = {"corpus": "larger", "head": "expanded", "vocabulary": vocabulary, "words": 9}
    job = training_job(short_training(2), pretraining=stage)
    out = Path(trained._pretrained(job, trained.located(job.config, tiny), tiny).model.start)
    assert out.parent == tiny.work / "pretrained"
    assert (calls["of"], calls["size"], calls["head"]) == (
        str(tiny.folder / "larger"),
        9,
        "expanded",
    )
    if vocabulary == "corpus":
        assert calls["vocabulary"] is None
        return
    texts = [document.content for document in read_documents(tiny.folder / "beir")]
    texts += [query.text for query in read_queries(tiny.folder / "beir", "train")]
    assert list(calls["vocabulary"]) == texts
    assert len(texts) == 40 + 20


@pytest.mark.parametrize("shared", [False, True])
def test_seeds_start_from_pretrained_models_of_their_own_or_from_one(tiny, monkeypatch, shared):
    made = []
    monkeypatch.setattr(trained, "pretrain", lambda corpus, out, **more: made.append(more["seed"]))
    stage = {"corpus": "beir", "shared": shared, "settings": {"masking": "subwords", "seed": 7}}
    job = training_job(short_training(2), seeds=[1, 2], pretraining=stage)
    config = trained.located(job.config, tiny)
    starts = {
        trained._pretrained(job, trained.seeded(config, seed), tiny).model.start
        for seed in job.seeds
    }
    assert made == ([7, 7] if shared else [1, 2])
    assert len(starts) == (1 if shared else 2)


def test_seeds_are_separate_trainings_on_shared_states(tiny):
    config = short_training(2)
    config["model"]["trained"] = "head"
    tuning = {"vary": ["optimizer.learning_rate=0.0001,0.01"], "steps": 1}
    job_settings = {"curve": True, "tuning": tuning, "seeds": [0, 1]}
    result = run_training(training_job(config, **job_settings), tiny)
    assert [training["seed"] for training in result.trainings] == [0, 1]
    for name in ("beir document length", "beir nDCG@10 at 8"):
        each = [training["values"][name] for training in result.trainings]
        assert result.values[name] == pytest.approx(np.mean(each))
    assert len({training["values"]["beir document length"] for training in result.trainings}) > 1
    (note,) = [note for note in result.notes if note.startswith("chosen on held-out")]
    assert "optimizer.learning_rate=" in note
    work = tiny.work
    assert len(list((work / "runs").iterdir())) == 2
    assert {path.name for path in (work / "states").iterdir()} > {"queries", "documents"}
    assert len(list((work / "states" / "documents").glob("[!.]*.checksums.json"))) == 1
    assert len(list((work / "prepared").iterdir())) == 1
    with pytest.raises(InputError, match="set either"):
        training_job(config, **job_settings, averaged=[0, 1])


def random_collection(count, queries, terms, density, seed=0):
    """Return a collection of random vectors; query n's document is dn."""
    random = np.random.default_rng(seed)
    documents, query_vectors = (
        sp.csr_array(sp.random_array((n, terms), density=density, rng=random, dtype=np.float32))
        for n in (count, queries)
    )
    ids = [f"d{i}" for i in range(count)]
    names = [f"q{i:02}" for i in range(queries)]
    qrels = [Qrel(name, f"d{i}", 1) for i, name in enumerate(names)]
    return Collection("tiny", ids, documents, names, query_vectors, qrels)


def test_a_curve_ends_at_the_unpruned_collection():
    collection = random_collection(30, 12, 40, 0.3)
    curve, whole = Measurements(), Measurements()
    measure_curve(collection, curve)
    measure(collection, whole)
    assert whole.values["tiny QD-FLOPs"] < 8
    assert curve.values["tiny nDCG@10 at 8"] >= whole.values["tiny nDCG@10"] - 1e-9
    assert curve.per_query["tiny nDCG@10 at 8"].keys() == set(collection.query_ids)
    at = [v for name, v in curve.values.items() if " at " in name]
    assert at == sorted(at)


def test_alpha_of_a_query_is_chosen_on_others():
    """Judgements of one fold change nothing about its own run."""
    collection = random_collection(30, 8, 40, 0.2)
    query_ids = collection.query_ids
    fold = dict(zip(query_ids, (np.random.default_rng(0).permutation(8) % 2).tolist(), strict=True))
    runs = []
    for shift in (0, 7):
        qrels = [
            Qrel(name, f"d{(n + shift * (fold[name] == 1)) % 30}", 1)
            for n, name in enumerate(query_ids)
        ]
        changed = dataclasses.replace(collection, qrels=qrels)
        limited = measuring._Limited.of(changed, None, None, "weight")
        runs.append(measuring._cross_validated(limited, RRAChoice(folds=2), Measurements()))
    assert runs[0].keys() == runs[1].keys() == set(query_ids)
    for name in query_ids:
        if fold[name] == 1:
            assert runs[0][name] == runs[1][name]


def test_alpha_is_the_best_of_another_split():
    collection = random_collection(50, 20, 60, 0.2, seed=1)
    queries, query_ids = collection.queries, collection.query_ids
    derived = Derived.reweighted(collection.documents, RRASettings(3.0))
    hits = derived.engine.search(queries, 1, queries @ derived.background)
    best = [
        Qrel(name, f"d{int(documents[0])}", 1)
        for name, (documents, _) in zip(query_ids, hits, strict=True)
    ]
    splits = {"train": JudgedVectors(query_ids, queries, best)}
    measurements = Measurements()
    judged = dataclasses.replace(collection, split=splits.__getitem__)
    measure(judged, measurements, RRAChoice(split="train"))
    assert measurements.values["tiny α"] == 3.0
    with pytest.raises(InputError, match="only one of"):
        RRAChoice(alpha=1.0, folds=3)


def test_tasks_of_mteb_go_on_after_one_that_failed(tmp_path, monkeypatch):
    calls = []

    def evaluate(model, task, cache):
        calls.append(task)
        if task == "gated" and len(calls) == 2:
            raise RuntimeError("ask for access")
        return SimpleNamespace(task_results=[SimpleNamespace(get_score=lambda: len(task))])

    fake = SimpleNamespace(evaluate=evaluate, get_task=lambda name: name)
    monkeypatch.setitem(sys.modules, "mteb", fake)
    arguments = ([None], ["open", "gated"], None, None, tmp_path / "kept" / "scores.json", silent)
    with pytest.raises(InputError, match="task gated failed: ask for access"):
        evaluate_tasks(*arguments)
    assert evaluate_tasks(*arguments) == {"open main score": 4.0, "gated main score": 5.0}
    assert calls == ["open", "gated", "gated"]


def test_averaged_models_keep_their_vectors_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(trained, "soup", lambda models, out: out.mkdir())
    result = [trained._averaged([Path(name), Path("b")], tmp_path) for name in "ac"]
    assert result[0].parent != result[1].parent


def test_damaged_vectors_are_made_again(tiny, monkeypatch):
    job_json = {"system": "encoder", "model": "m", "datasets": [{"name": "beir", "split": "dev"}]}
    job = read_job({"retrieval": job_json}, "row")
    monkeypatch.setattr(systems, "load_hub_encoder", lambda name: Letters())
    expected = systems.run_retrieval(job, tiny).values
    (half,) = (tiny.work / "vectors").glob("*/rows.data.npy")
    half.write_bytes(half.read_bytes()[:-8])
    with pytest.warns(LexiceptWarning, match="made again"):
        assert systems.run_retrieval(job, tiny).values == expected


class Letters:
    """An encoder that counts each letter of a text."""

    def encode_document(self, texts, **_):

        counts = [[text.lower().count(letter) for letter in ascii_lowercase] for text in texts]
        return torch.tensor(counts, dtype=torch.float32).to_sparse()

    encode_query = encode_document


def test_latency_is_of_what_seismic_finds(tmp_path):
    """Documents share no dimension with a query but one: no pruning can miss it."""
    pytest.importorskip("seismic", reason="needs pyseismic-lsr")

    names = [f"d{i}" for i in range(40)]
    documents = sp.csr_array(sp.eye_array(40, dtype=np.float32))
    query_ids = ["first", "last", "of nothing"]
    queries = sp.csr_array(documents[[0, 39, 0]])
    queries.data[2] = 0
    queries.eliminate_zeros()
    qrels = [Qrel("first", "d0", 1), Qrel("last", "d3", 1), Qrel("of nothing", "d0", 1)]
    measurements = Measurements()
    measure_latency(Collection("tiny", names, documents, query_ids, queries, qrels), measurements)
    assert measurements.values.keys() == {
        "tiny Seismic nDCG@10",
        "tiny Seismic RR@10",
        f"tiny {METRIC}",
    }
    assert measurements.values["tiny Seismic RR@10"] == pytest.approx(1 / 3)
    assert measurements.values[f"tiny {METRIC}"] > 0


class BruteForceBMP:
    """The interface of the package bmp, over dictionaries."""

    documents: ClassVar[dict[str, dict[str, int]]] = {}

    class Indexer:
        def __init__(self, path, bsize, compress_range):
            BruteForceBMP.documents = {}

        def add_document(self, name, vector):
            assert all(type(weight) is int and 1 <= weight <= 255 for weight in vector.values())
            BruteForceBMP.documents[name] = vector

        def finish(self):
            pass

    class Searcher:
        def __init__(self, path):
            self.known = set().union(*BruteForceBMP.documents.values())

        def search(self, query, k, alpha, beta):
            assert self.known >= query.keys(), "BMP panics"
            scores = {
                name: sum(weight * vector.get(term, 0) for term, weight in query.items())
                for name, vector in BruteForceBMP.documents.items()
            }
            best = sorted((name for name in scores if scores[name]), key=lambda n: -scores[n])[:k]
            return best, [scores[name] for name in best]


@pytest.mark.parametrize("real", [False, True])
def test_latency_is_of_what_bmp_finds(tmp_path, monkeypatch, real):
    if real:
        pytest.importorskip("bmp", reason="needs lexicept[bmp]")
    else:
        monkeypatch.setitem(sys.modules, "bmp", BruteForceBMP)
    random = np.random.default_rng(0)
    count, terms = 400, 60
    dense = random.random((count, terms)) * (random.random((count, terms)) < 0.2)
    dense[:, 7] = 0  # a term that no document has
    asked_for = random.uniform(1, 2, (5, terms)) * (random.random((5, terms)) < 0.1)
    asked_for[0, 7] = 1.0
    documents, queries = sp.csr_array(dense), sp.csr_array(asked_for)
    names = [f"d{i}" for i in range(count)]
    levels = np.rint(documents.toarray() * 255 / documents.data.max())
    best = (levels @ queries.toarray().T).argmax(axis=0)
    query_ids = [f"q{i}" for i in range(5)]
    qrels = [Qrel(query, names[row], 1) for query, row in zip(query_ids, best, strict=True)]
    measurements = Measurements()
    measure_bmp(Collection("some", names, documents, query_ids, queries, qrels), measurements)
    values = measurements.values
    assert values.keys() == {"some BMP nDCG@10", "some BMP RR@10", "some BMP ms"}
    assert values["some BMP ms"] > 0
    # BMP rounds queries too: the best document may come second.
    assert values["some BMP RR@10"] >= (0.9 if real else 1)


def test_bmp_that_is_not_installed_costs_a_row_nothing_else(monkeypatch):
    monkeypatch.setitem(sys.modules, "bmp", None)
    nothing, measurements = sp.csr_array((1, 1)), Measurements()
    measure_bmp(Collection("some", ["d"], nothing, ["q"], nothing, []), measurements)
    assert not measurements.values
    assert measurements.notes == ["BMP ms is not measured: pip install 'lexicept[bmp]'"]


def test_pairs_of_two_trained_models(tiny):
    """Table 8 and 9's job: two trainings, with tokens and latents over the same documents."""
    tokens, latents = short_training(1), short_training(1)
    latents["model"] = {"backbone": "bert", "head": "random", "size": 30}

    def pairs(*configs):
        sides = {
            side: {"config": config, "test": [{"name": "beir", "split": "dev"}]}
            for side, config in zip(("tokens", "latents"), configs, strict=True)
        }
        return read_job({"pairs": {"dataset": "beir", "documents": 25, **sides}}, "row")

    assert inputs_of(pairs(tokens, latents)) == {"beir", "bert"}
    result = run_pairs(pairs(tokens, latents), tiny)
    assert result.values["documents"] == 25
    counts = [result.values[name] for name in ("synonymy", "polysemy", "identity")]
    assert 0 <= sum(counts) <= result.values["associated"]
    of_itself = run_pairs(pairs(tokens, tokens), tiny)
    # Every dimension that occurs in some documents, but not in nearly all, is its own identity.
    assert of_itself.values["identity"] >= 1
    assert of_itself.values["synonymy"] == of_itself.values["polysemy"]


def test_a_table_with_latency_has_it_measured(tiny):
    pytest.importorskip("seismic", reason="needs pyseismic-lsr")
    job = training_job(short_training(1))
    plain = run_training(job, tiny).values
    values = run_training(job, tiny, {"Seismic ms"}).values
    added = {"beir Seismic ms", "beir Seismic nDCG@10", "beir Seismic RR@10"}
    assert values.keys() - plain.keys() == added


def sae_training(**more):
    """Return a training of an SAE's head, and of the SAE."""
    sae = {"num_latents": 40, "k": 4, "tokens": 300, "batch_size": 100, "warmup_steps": 1}
    config = short_training(2)
    config["model"] = {"backbone": "bert", "sae": {**sae, **more.pop("sae", {})}, **more}
    return config


def test_trainings_share_what_they_prepare(tiny, monkeypatch):
    """One SAE for rows of different k, another for another SAE; models are as of separate runs."""
    begun = []
    begin = sae_trainer.initial_sae
    monkeypatch.setattr(sae_trainer, "initial_sae", lambda *of: begun.append(of) or begin(*of))

    def model(work, k, sae_k):
        config = sae_training(sae={"k": sae_k}, query_k=k, document_k=k)
        located = trained.located(training_job(config).config, tiny)
        return trained.trained(located, tiny.folder / work, silent)

    for k, sae_k, count in ((2, 3, 1), (4, 4, 2), (2, 4, 2)):
        shared = model("work", k, sae_k)
        assert len(begun) == count, (k, sae_k)
    own = model("other", 2, 4)
    assert len(begun) == 3
    for name in ("1_SAEHead/sae.safetensors", "1_SAEHead/config.json"):
        assert (shared / name).read_bytes() == (own / name).read_bytes()


@pytest.mark.parametrize(("changed", "read"), [("head", "states"), ("all", "transformed")])
def test_layers_have_the_anisotropy_of_what_an_sae_reads(tiny, changed, read):
    config = sae_training(sae_input=read, trained=changed)
    config["optimizer"]["learning_rate"] = 0.01
    values = run_training(training_job(config), tiny, {"anisotropy"}).values
    bert = str(tiny.folder / "bert")
    texts = [document.content for document in read_documents(str(tiny.folder / "beir"))]
    transform = language_head(bert).transform if read != "states" else None
    before = anisotropy(Backbone.from_pretrained(bert), texts, 10**6, transform)
    assert values["beir base anisotropy"] == pytest.approx(before[-1])
    assert (values["beir anisotropy"] == pytest.approx(before[-1])) is (changed == "head")


def test_clsr_is_bm25_over_latents_of_pooled_vectors(tiny, monkeypatch):
    sae = {"num_latents": 60, "k": 4, "tokens": 2000, "batch_size": 40, "warmup_steps": 1}
    searched, latents, results = [], [], {}
    of_vectors = pooled.latents_of

    def spy(*of, **more):
        latents.append(of_vectors(*of, **more))
        return latents[-1]

    monkeypatch.setattr(pooled, "latents_of", spy)
    monkeypatch.setattr(pooled, "measure", lambda *of: searched.append(of[0]) or measure(*of))
    monkeypatch.setattr(pooled, "BLOCK", 7)
    for dense in (True, False):
        job_json = {"datasets": [{"name": "beir", "split": "dev"}], "model": "bert", "sae": sae}
        job = read_job({"pooled": {**job_json, "dense": dense}}, "row")
        results[dense] = pooled.run_pooled(job, tiny).values
    assert results[True].keys() < results[False].keys()
    assert results[False]["beir document length"] <= 4
    assert 0 <= results[False]["beir FVU"] < results[False]["beir unseen FVU"]
    (collection,), (documents, queries) = searched, latents
    weighted = collection.weighting.documents(collection.documents.load())
    df = np.bincount(documents.indices, minlength=60)
    idf = np.log1p((40 - df + 0.5) / (df + 0.5))[documents.indices]
    assert weighted.data == pytest.approx(idf * documents.data / (documents.data + 0.6))
    assert collection.queries.data == pytest.approx(queries.data / (queries.data + 1.5))
    assert results[True]["beir nDCG@10"] > 0.1


@pytest.mark.parametrize("name", ["table2", "table3", "table11"])
def test_xtreme_up_is_a_mean_over_all_its_languages(name):
    recipe = packaged(f"splare/{name}")
    column = recipe.expected.columns["MRR@10" if name == "table11" else "XTREME-UP"]
    assert len(set(column.datasets)) == 20
    for job in (system.jobs["full"] for system in recipe.rows):
        if isinstance(job, TrainingJob):
            tested = [dataset.name for dataset in job.test]
            assert [c for c in tested if c.startswith("xtreme_up/")] == list(column.datasets)


@pytest.mark.parametrize("table", ["sae_splade/table8", "sae_splade/table9"])
def test_pairs_are_of_models_of_other_tables(table):
    """The same trainings, so that a run of both tables trains each model once; at small size they
    are shorter than in ``trained``."""
    (system,) = packaged(table).rows
    models = {system.name: system.jobs for system in packaged("sae_splade/table1").rows}
    job = system.jobs["full"]
    for side, name in ((job.tokens, "splade"), (job.latents, "sae_splade_k8")):
        assert side.config == models[name]["full"].config
        assert side.pretraining == models[name]["full"].pretraining
    assert job.documents == 10_000
    assert system.jobs["small"].tokens.config.optimizer.steps == 200


def test_vectors_that_are_read_in_blocks(tmp_path, monkeypatch):
    """Products, latents and unexplained variance equal those of all vectors at once."""
    monkeypatch.setattr(pooled, "BLOCK", 7)
    random = np.random.default_rng(0)
    np.save(tmp_path / "d.npy", random.normal(size=(40, 6)).astype(np.float16))
    D, Q = np.load(tmp_path / "d.npy", mmap_mode="r"), random.normal(size=(3, 6))
    every = torch.from_numpy(np.array(D, np.float32))
    nearest = list(pooled.nearest(Q, D, 9))
    scores = Q @ D.T.astype(np.float64)
    for (neighbours, values), of_query in zip(nearest, scores, strict=True):
        assert neighbours.tolist() == np.argsort(-of_query)[:9].tolist()
        assert values == pytest.approx(np.sort(of_query)[::-1][:9], rel=1e-4)
    sae = SAE(6, 20, 3).requires_grad_(False)
    acts, latents = sae.encode(every)
    expected = torch.zeros(40, 20).scatter(1, latents, acts)
    assert pooled.latents_of(sae, D).toarray() == pytest.approx(expected.numpy(), rel=1e-4)
    neighbours = np.arange(3, 33)
    share = fraction_unexplained(every[3:33], sae(every[3:33]))
    assert pooled.unexplained(sae, D, neighbours) == pytest.approx(float(share), rel=1e-4)
    samples = pooled.Sample.of(40, 0.25)
    assert (len(samples.learned), len(samples.unseen)) == (30, 10)
    assert sorted([*samples.learned, *samples.unseen]) == list(range(40))

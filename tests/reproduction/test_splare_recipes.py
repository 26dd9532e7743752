"""SPLARE's recipes at full size have the paper's settings."""

import pytest

from reproduction.jobs import TrainingJob
from reproduction.recipe import RECIPES, find_recipes, load_recipe

NAMES = find_recipes(RECIPES)


def full_jobs(name):
    """Return the trainings of a recipe at full size, by row."""
    jobs = {system.name: system.jobs["full"] for system in load_recipe(RECIPES, name).rows}
    return {system: job for system, job in jobs.items() if isinstance(job, TrainingJob)}


SPLARE = [name for name in NAMES if name.startswith("splare/") and full_jobs(name)]


@pytest.mark.parametrize("name", SPLARE)
def test_splare_counts_frequencies_as_df_flops_does(name):
    """Porco et al. 2025: α 0.1, β 10, frequencies of a sample, every 100 steps."""
    for job in full_jobs(name).values():
        for side in (job.config.query_regularizer, job.config.document_regularizer):
            assert (side.kind, side.weight, side.schedule) == ("df_flops", 1e-4, "constant")
            assert (side.alpha, side.beta) == (0.1, 10)
            assert (side.df_source, side.df_texts, side.df_every) == ("sample", 10_000, 100)


def test_figure_2_has_llama_scope_s_two_widths():
    """SPLARE, section 5: Llama Scope with widths of 32k and 131k, at the same layers."""
    jobs = full_jobs("splare/figure2")
    layers = {
        width: [job.config.model.layer for system, job in jobs.items() if system.startswith(width)]
        for width in ("llama_8x", "llama_32x")
    }
    assert layers["llama_8x"] == layers["llama_32x"] == [7, 12, 17, 21, 27, 32]
    for system, job in jobs.items():
        if system.startswith("llama_8x"):
            assert job.config.model.pretrained == "fnlp/Llama3_1-8B-Base-LXR-8x"


@pytest.mark.parametrize("name", ["table2", "table3", "table11"])
def test_xtreme_up_is_a_mean_over_its_20_languages(name):
    recipe = load_recipe(RECIPES, f"splare/{name}")
    column = recipe.expected.columns["MRR@10" if name == "table11" else "XTREME-UP"]
    assert len(set(column.datasets)) == 20
    for job in full_jobs(f"splare/{name}").values():
        tested = [dataset.name for dataset in job.test]
        assert [c for c in tested if c.startswith("xtreme_up/")] == list(column.datasets)


def test_temperatures_are_searched_on_several_collections():
    """SPLARE, Appendix B: the grid, NanoBEIR's 13 collections, and the best values of Table 4."""
    recipe = load_recipe(RECIPES, "splare/temperature")
    jobs = full_jobs("splare/temperature")
    grid = {1, 10, 20, 40, 50, 80, 100}
    for key, best in (("llama", 80), ("gemma", 50), ("vocabulary", 10)):
        actual = {r: job.config.loss.temperature for r, job in jobs.items() if r.startswith(key)}
        assert set(actual.values()) == grid
        assert [check.rising for check in recipe.checks if f"{key}_1" in check.rising] == [
            (f"{key}_1", f"{key}_{best}")
        ]
    for job in jobs.values():
        assert [dataset.name for dataset in job.test] == list(
            recipe.expected.columns["nDCG@10"].datasets
        )
    assert len(recipe.expected.columns["nDCG@10"].datasets) == 13
    small = [job for system in recipe.rows if not isinstance(job := system.jobs["small"], str)]
    assert {job.config.loss.temperature for job in small} == grid
    assert {len(job.test) for job in small} == {2}

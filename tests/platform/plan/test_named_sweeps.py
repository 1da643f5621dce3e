"""Every named sweep on big models, planned offline from its definition alone: counts, table cells, what it needs."""

import functools
import itertools
from typing import Any

import pytest

from analysis import paper
from analysis.tables.table_definitions import LAYOUTS
from platform.plan.build import make_plan
from platform.plan.overrides import load_backbones
from platform.plan.plan import Plan
from search_spaces.backbones.published import ICLM
from search_spaces.schema import sweep as spaces
from search_spaces.schema.backbones import Backbone
from tests.support.small_sweep import plan_named
from trainables.common.errors import InputError
from trainables.config.trial import Trial
from trainables.data.templates import CHAT, TEMPLATES
from trainables.storage.folder_storage import Storage


@functools.cache
def plan(name: str, store: Storage, *settings: str, **options: Any) -> Plan:
    return plan_named(name, store, *settings, **options)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """One storage where nothing is written, so that each plan is made once."""
    return Storage(tmp_path_factory.mktemp("plans") / "store")


@pytest.mark.parametrize("table", paper.TABLE_NAMES)
def test_one_trial_of_paper_for_each_cell_of_its_table(table: str, store: Storage) -> None:
    """Models before unlearning and without the forget set are the references that each split is measured against."""
    plans = {backbone: plan(name, store, strategy="paper") for backbone, name in LAYOUTS[table].sweeps.items()}
    rows = paper.load_table(table)
    assert set(rows["backbone"]) == set(plans)
    for row in rows.to_dict("records"):
        found = plans[row["backbone"]]
        if row["method"] in ("original", "retain"):
            assert [ref for ref in found.references if (ref.role, ref.split) == (row["method"], row["split"])], row
        else:
            count = len([trial for trial in found.trials if _fills(trial, row)])
            assert count == (2 if row["method"] == "tru" else 1), row  # TRU's wording has two readings


def _fills(trial: Trial, row: dict[str, Any]) -> bool:
    """Whether a trial is the one of a table's row; an empty gamma or tau is one that the table does not vary."""
    named = (trial.method, trial.rectifier.name, trial.benchmark.split)
    same = named == (row["method"], row["rectifier"], row["split"])
    told = {"none": None}
    for name in ("gamma", "tau"):
        text = row[name]
        same &= not text or getattr(trial.rectifier, name) == (told[text] if text in told else float(text))
    return same and (not row["target"] > 0 or row["target"] in trial.calibration.targets)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("tofu_llama", "ga-forget05-g0.8-tnone gd-forget05-g0.05-tnone wga-forget05-g0.8-t1 npo-forget10-g0.8-t0.5"),
        ("tofu_llama", "npo_kl-forget10-g0.8-t0.1 gd-forget10-g0.05-t1 simnpo_gd-forget10-g0.5-t1"),
        ("tofu_phi", "npo-forget05-g0.8-t0.01 gd-forget10-g0.1-tnone simnpo_gd-forget10-g0.5-t0.001"),
        ("tofu_phi", "npo_kl-forget10-g0.8-t0.001"),
        ("wmdp_zephyr", "ga-bio_cyber-g0.99-t1 npo_gd-bio_cyber-g0.99-t0.01 gd-bio_cyber-g0.99-t0.001"),
        ("wmdp_zephyr", "wga-bio_cyber-g0.99-t0.001"),
        ("muse_books", "wga-books-g0.8-t1 npo-books-g0.8-t100 npo_gd-books-g0.8-t100"),
        ("tofu_ablation", "ga-forget05-g0.8-t100"),
    ],
)
def test_published_settings_of_some_cells(name: str, cells: str, store: Storage) -> None:
    """By hand from the paper's appendix."""
    labels = {trial.label() for trial in plan(name, store, strategy="paper").trials}
    assert {f"gru-{cell}-s0" for cell in cells.split()} < labels


@pytest.mark.parametrize("name", sorted({name for one in LAYOUTS.values() for name in one.sweeps.values()}))
def test_grids_and_searches_have_the_published_points(name: str, store: Storage) -> None:
    """NPO's tau of 0.5 on Llama included, which is not among the values that the paper says it searched."""
    published = {trial.id() for trial in plan(name, store, strategy="paper").trials}
    grid, searched = plan(name, store), plan(name, store, strategy="optuna")
    assert published <= {trial.id() for trial in grid.trials}
    assert {found[0].id() for found in searched.group_trials_by_study().values()} <= published
    if name == "tofu_llama":
        assert searched.group_trials_by_study()["forget10/npo/gru"][0].label() == "gru-npo-forget10-g0.8-t0.5-s0"


@pytest.mark.parametrize("name", ["tofu_llama_tru", "tofu_phi_tru"])
def test_tru_runs_in_the_papers_reading_and_in_ours(name: str, store: Storage) -> None:
    """Trials of TV, whose vector has no unit, are those of before there was an axis."""
    every = plan(name, store).trials
    vectors = [trial.task_vector for trial in every if trial.task_vector and trial.method == "tru"]
    units = [(vector.stg, vector.normalise) for vector in vectors]
    assert set(units) == set(itertools.product(spaces.PAPER_TRU_STRENGTH_GRID, ("whole", "per_tensor")))
    labels = [trial.label() for trial in every]
    assert len(set(labels)) == len(labels)
    searched = [trial for trial in plan(name, store, strategy="optuna").trials if trial.method == "tru"]
    firsts = {trial.study(): trial.task_vector for trial in reversed(searched)}
    assert {vector.normalise for vector in firsts.values() if vector} == {"whole"}, "a search begins with the paper's"
    ours = {trial.id() for trial in plan(name, store, "task_vector.normalise=per_tensor").trials}
    assert {trial.id() for trial in every if trial.method != "tru"} < ours < {trial.id() for trial in every}


def test_what_the_paper_selects_on_other_rows(store: Storage) -> None:
    """Its published settings are chosen already, and are reported on all rows, as its tables are."""
    for name in spaces.list_sweep_names():
        assert spaces.import_sweep(name).selection.halves == (name not in ("quickstart", "tofu_tiny", "own")), name
    assert [plan("tofu_phi", store, strategy=how).sweep.selection.halves for how in ("grid", "paper")] == [True, False]
    for name, setting in (
        ("tofu_phi", "training.eval_every=5"),
        ("tofu_phi", "training.lr=1e-5,2e-5"),
        ("tofu_phi_tru", "seed=0"),
    ):
        chosen = plan(name, store, setting, strategy="paper")
        assert {trial.selection.halves for trial in chosen.trials} == {True}, "one of several is chosen"


def test_the_trials_of_the_papers_figures_along_training_are_those_of_its_table(store: Storage) -> None:
    figures = plan("tofu_dynamics", store, strategy="paper")
    assert {trial.observe for trial in figures.trials} == {1}
    assert {(trial.method, trial.rectifier.name) for trial in figures.trials} == set(
        itertools.product(("ga", "npo", "wga"), ("none", "gru"))
    )
    table = {trial.id() for trial in plan("tofu_llama", store, strategy="paper").trials}
    assert {trial.id() for trial in figures.trials} < table


@pytest.mark.parametrize(
    ("name", "lr", "steps"),
    [
        ("tofu_llama", 1e-5, (5, None)),
        ("tofu_phi", 2e-5, (5, None)),
        ("muse_books", 1e-5, (1, None)),
        ("wmdp_zephyr", 4e-6, (20, 20)),
    ],
)
def test_fixed_settings_of_the_paper(name: str, lr: float, steps: tuple[float, int | None], store: Storage) -> None:
    training = plan(name, store, strategy="paper").trials[0].training
    assert {trial.objective.alpha for trial in plan("wmdp_rmu", store, strategy="paper").trials} == {100.0}
    assert (training.lr, training.batch_size, training.optimizer, training.schedule) == (lr, 32, "adamw", "constant")
    assert (training.epochs, training.max_steps) == steps


def test_models_that_nobody_published_are_made_where_there_is_a_recipe(store: Storage) -> None:
    made = {recipe.configs for recipe in plan("tofu_phi", store, strategy="paper").recipes}
    assert made == {("full",), ("retain95",), ("retain90",)}
    assert {recipe.answers for recipe in plan("tofu_phi", store, strategy="paper").recipes} == {None}
    assert all(recipe.answers for recipe in plan("tofu_smollm2", store, strategy="paper").recipes)
    assert plan("tofu_llama", store, strategy="paper").recipes == ()
    sweep = spaces.import_sweep("tofu_llama")
    other = sweep.model_copy(update={"backbone": ICLM})
    with pytest.raises(
        InputError, match="ICLM-7B has no published retain95 model of tofu forget05 and none is fine-tuned here"
    ):
        make_plan(other, store)


@pytest.mark.parametrize("backbone", load_backbones(), ids=lambda backbone: backbone.name)
def test_backbone_is_complete(backbone: Backbone) -> None:
    """Sizes from the models' own names and cards, in billions of parameters."""
    sizes = {"Llama-2-7B": 6.74, "Phi-1.5": 1.42, "Zephyr-7B": 7.24, "ICLM-7B": 6.74, "Qwen2.5-1.5B": 1.54}
    sizes |= {"Llama-3.2-1B": 1.24, "Llama-3.2-3B": 3.21, "Llama-3.1-8B": 8.03, "Qwen3-1.7B": 1.72}
    sizes |= {"gemma-3-1b": 1.00, "SmolLM2-1.7B": 1.71, "SmolLM2-135M": 0.1345}
    expected = next(size for name, size in sizes.items() if backbone.name.startswith(name))
    assert backbone.shape.parameter_count / 1e9 == pytest.approx(expected, rel=0.005)
    assert backbone.template in (*TEMPLATES, CHAT)
    assert backbone.base is not None or backbone.published
    for role in ("full", "retain95"):
        model = backbone.model(role, "forget05")
        assert model is None or model.path.endswith(f"_{role}")


def test_tokenizer_and_attention_of_the_sweep_reach_its_models(store: Storage) -> None:
    settings = ("target=somebody/a-model", "tokenizer=somebody/a-tokenizer", "attention=eager")
    found = plan("tofu_phi", store, *settings, strategy="paper")
    target = found.trials[0].target
    assert (target.tokenizer, target.attention) == ("somebody/a-tokenizer", "eager")
    assert target.fingerprint == "hub:somebody/a-model@main+somebody/a-tokenizer"
    assert {trial.id() for trial in found.trials}.isdisjoint(
        trial.id() for trial in plan("tofu_phi", store, settings[0], strategy="paper").trials
    )
    with pytest.raises(InputError, match="tokenizer: no folder '/nowhere'"):
        plan("tofu_phi", store, "tokenizer=/nowhere", strategy="paper")

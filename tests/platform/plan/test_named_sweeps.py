"""Every named sweep on big models, planned offline from its definition alone: counts, table cells, what it needs."""

from __future__ import annotations

from typing import Any

import pytest

from analysis import paper
from platform.plan import requirements
from platform.plan.build import make_plan
from platform.plan.overrides import apply, load_backbones
from platform.plan.value import Plan
from search_spaces.backbones.llama2 import ICLM
from search_spaces.schema import sweep as spaces
from search_spaces.schema.backbones import Backbone
from trainables.common.errors import InputError
from trainables.config.trial import Trial
from trainables.data.prompts import TEMPLATES
from trainables.storage.base import Storage

OWN_ROWS = ("quickstart", "tofu_tiny", "own")
"""Sweeps on models of their own, and on one that the user gives (tests/end_to_end/test_own_sweep.py)."""
TRIALS = {
    "tofu_llama": (28, 14 * 97),
    "tofu_phi": (28, 14 * 97),
    "tofu_llama_tru": (10, 2 * (3 + 7 + 5)),
    "tofu_phi_tru": (10, 2 * (3 + 7 + 5)),
    "tofu_phi_uwc": (8, 4 * 97),
    "tofu_tau": (27, 27),
    "tofu_gamma": (39, 39),
    "tofu_ablation": (6, 8),
    "wmdp_zephyr": (10, 5 * 97),
    "wmdp_rmu": (2, 97),
    "muse_books": (10, 5 * 97),
    "muse_news": (10, 5 * 97),
}
"""Trials of `paper` and of `grid`."""
REPORTED = ("original", "retain")


def plan(name: str, store: Storage, *settings: str, **options: Any) -> Plan:
    sweep = spaces.load_sweep(name)
    return make_plan(apply(sweep, settings), store, **options)


def test_every_sweep_is_counted() -> None:
    assert set(spaces.sweep_names()) == {*TRIALS, *OWN_ROWS}


@pytest.mark.parametrize("name", TRIALS)
def test_trials_of_each_strategy(name: str, store: Storage) -> None:
    published, grid = TRIALS[name]
    assert len(plan(name, store, strategy="paper").trials) == published
    assert len(plan(name, store).trials) == grid
    assert not store.root.exists()


def test_optuna_searches_the_grid_from_the_published_point(store: Storage) -> None:
    for name in ("tofu_tau", "tofu_gamma", "tofu_ablation"):
        grid, searched = (plan(name, store, strategy=strategy).trials for strategy in ("grid", "optuna"))
        assert {trial.id() for trial in searched} == {trial.id() for trial in grid}
    assert plan("tofu_gamma", store, strategy="optuna").trials[0].label() == "gru-ga-forget05-g0.8-t1-s0"


@pytest.mark.parametrize("table", paper.TABLES)
def test_one_trial_of_paper_for_each_cell_of_its_table(table: str, store: Storage) -> None:
    """Models before unlearning and without the forget set are the references that each split is measured against."""
    fillers = [name for name in TRIALS if table in spaces.load_sweep(name).tables]
    plans = {_backbone(name): plan(name, store, strategy="paper") for name in fillers}
    rows = paper.load(table)
    assert set(rows["backbone"]) == set(plans)
    for row in rows.to_dict("records"):
        found = plans[row["backbone"]]
        if row["method"] in REPORTED:
            assert [ref for ref in found.references if (ref.role, ref.split) == (row["method"], row["split"])], row
        else:
            assert len([trial for trial in found.trials if _fills(trial, row)]) == 1, row


def _backbone(name: str) -> str:
    known = {"tofu_phi": "phi", "wmdp": "zephyr", "muse": "iclm"}
    return next((label for start, label in known.items() if name.startswith(start)), "llama")


def _fills(trial: Trial, row: dict[str, Any]) -> bool:
    """Whether a trial is the one of a table's row; an empty gamma or tau is one that the table does not vary."""
    same = (trial.method, trial.rectifier.name, trial.benchmark.split) == (
        row["method"],
        row["rectifier"],
        row["split"],
    )
    told = {"none": None}
    for name in ("gamma", "tau"):
        text = row[name]
        same &= not text or getattr(trial.rectifier, name) == (told[text] if text in told else float(text))
    return same and (not row["target"] > 0 or row["target"] in trial.calibration.targets)


def test_published_settings_of_some_cells(store: Storage) -> None:
    """By hand from the paper's appendix."""
    labels = {trial.label() for trial in plan("tofu_llama", store, strategy="paper").trials}
    assert {
        "gru-ga-forget05-g0.8-tnone-s0",
        "gru-gd-forget05-g0.05-tnone-s0",
        "gru-wga-forget05-g0.8-t1-s0",
        "gru-npo-forget10-g0.8-t0.5-s0",
        "gru-npo_kl-forget10-g0.8-t0.1-s0",
        "gru-gd-forget10-g0.05-t1-s0",
        "gru-simnpo_gd-forget10-g0.5-t1-s0",
    } < labels
    labels = {trial.label() for trial in plan("tofu_phi", store, strategy="paper").trials}
    assert {"gru-npo-forget05-g0.8-t0.01-s0", "gru-gd-forget10-g0.1-tnone-s0"} < labels
    assert {"gru-simnpo_gd-forget10-g0.5-t0.001-s0", "gru-npo_kl-forget10-g0.8-t0.001-s0"} < labels
    labels = {trial.label() for trial in plan("wmdp_zephyr", store, strategy="paper").trials}
    assert {"gru-ga-bio_cyber-g0.99-t1-s0", "gru-npo_gd-bio_cyber-g0.99-t0.01-s0"} < labels
    assert {"gru-gd-bio_cyber-g0.99-t0.001-s0", "gru-wga-bio_cyber-g0.99-t0.001-s0"} < labels
    labels = {trial.label() for trial in plan("muse_books", store, strategy="paper").trials}
    assert {"gru-wga-books-g0.8-t1-s0", "gru-npo-books-g0.8-t100-s0", "gru-npo_gd-books-g0.8-t100-s0"} < labels
    labels = {trial.label() for trial in plan("tofu_ablation", store, strategy="paper").trials}
    assert {"ga-forget05-s0", "clip-ga-forget05-t100-s0", "gru-ga-forget05-g0.8-t100-s0"} < labels


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
    assert (training.lr, training.batch_size, training.optimizer, training.schedule) == (lr, 32, "adamw", "constant")
    assert (training.epochs, training.max_steps) == steps


def test_a_line_of_the_tables_keeps_the_other_setting(store: Storage) -> None:
    """tofu_tau varies tau at the published gamma of each method, tofu_gamma the other way round."""
    found = {(t.method, t.rectifier.gamma) for t in plan("tofu_tau", store, strategy="paper").trials}
    assert found == {("ga", 0.8), ("npo", 0.8), ("gd", 0.05)}
    found = {(t.method, t.rectifier.tau) for t in plan("tofu_gamma", store, strategy="paper").trials}
    assert found == {("ga", 1.0), ("npo", 1.0), ("gd", None)}


def test_what_is_gated_says_what_to_accept_and_set(store: Storage) -> None:
    found = plan("muse_books", store, strategy="paper")
    needs = requirements.describe_needs(found.sweep, found.hub, store)
    (target,) = [
        need for need in needs if need.startswith("model muse-bench/MUSE-Books_target from the hub, about 13.5 GB in")
    ]
    for words in ("tokenizer.json", "index.json with all its shards) to DIR/target and --set models=DIR"):
        assert words in target
    place = store.root / "shared" / "hub" / "models--muse-bench--MUSE-Books_target@main"
    assert f"either: hf download muse-bench/MUSE-Books_target --local-dir {place} (typed where" in target
    (tokenizer,) = [need for need in needs if need.startswith("tokenizer")]
    assert "accept its licence at https://huggingface.co/meta-llama/Llama-2-7b-hf and set HF_TOKEN" in tokenizer
    assert "--set tokenizer=DIR" in tokenizer
    found = plan("wmdp_zephyr", store, strategy="paper")
    needs = requirements.describe_needs(found.sweep, found.hub, store)
    assert any("gated" in need and "wmdp-bio-forget-corpus" in need for need in needs)
    assert "4 GPUs for each trial (a start counts the cluster's)" in needs


def test_models_that_nobody_published_are_made_where_there_is_a_recipe(store: Storage) -> None:
    made = {recipe.configs for recipe in plan("tofu_phi", store, strategy="paper").recipes}
    assert made == {("full",), ("retain95",), ("retain90",)}
    assert plan("tofu_llama", store, strategy="paper").recipes == ()
    sweep = spaces.load_sweep("tofu_llama")
    other = sweep.model_copy(update={"backbone": ICLM})
    with pytest.raises(InputError, match="ICLM-7B has no published retain95 model and none is fine-tuned here"):
        make_plan(other, store)


@pytest.mark.parametrize("backbone", load_backbones(), ids=lambda backbone: backbone.name)
def test_backbone_is_complete(backbone: Backbone) -> None:
    """Sizes from the models' own names and cards, in billions of parameters."""
    sizes = {"Llama-2-7B": 6.74, "Phi-1.5": 1.42, "Zephyr-7B": 7.24, "ICLM-7B": 6.74}
    sizes |= {"Llama-3.2-1B": 1.24, "Llama-3.2-3B": 3.21, "Qwen2.5-1.5B": 1.54}
    expected = next(size for name, size in sizes.items() if backbone.name.startswith(name))
    assert backbone.shape.parameters / 1e9 == pytest.approx(expected, rel=0.005)
    assert backbone.template in TEMPLATES
    assert backbone.base is not None or backbone.published
    for role in ("full", "retain95"):
        model = backbone.model(role, "forget05")
        assert model is None or model.path.endswith(f"_{role}")


def test_gpu_memory_changes_neither_ids_nor_the_sweep(store: Storage) -> None:
    one, other = (plan("tofu_phi", store, f"resources.gpu_memory={size}", strategy="paper") for size in (80, 140))
    assert one.name == other.name
    assert [trial.id() for trial in one.trials] == [trial.id() for trial in other.trials]


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

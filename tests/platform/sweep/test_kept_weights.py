"""Which weights stay after a sweep."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform.state.limits import KEEP_WEIGHTS_CHOICES
from platform.sweep import dry_run, trial_callback
from tests.support import small_sweep
from tests.support.starts import finish, write_evaluation, write_result
from trainables.benchmarks.selection import find_pareto_front_ids
from trainables.config.settings import Model, Selection, Training
from trainables.config.trial import EARLIER_TRIAL_PREFIX, Trial
from trainables.storage.file_names import WEIGHTS
from trainables.storage.folder_storage import Storage


def study(folder: Path, points: list[tuple[float, float] | None]) -> tuple[list[Trial], Storage]:
    """One trial a point with weights on disk; None: it diverged."""
    store = Storage(folder)
    model, rates = Model(path="somewhere/else"), [Training(lr=1e-5 * (1 + number)) for number in range(len(points))]
    trials = [Trial(method="ga", target=model, training=rate) for rate in rates]
    for trial, point in zip(trials, points, strict=True):
        found: dict[str, Any] = {} if point is None else {"forget_quality": point[0], "model_utility": point[1]}
        status = "diverged" if point is None else "finished"
        finish(store, [trial], status, metrics=found)
        if point is not None:
            (store.trial(trial.id()) / WEIGHTS).mkdir(exist_ok=True)
    return trials, store


def keeper(trials: list[Trial], store: Storage, choice: str, rule: Selection | None = None) -> Any:
    """The keeper of a plan of these trials, whose target model has a utility of 0.8."""
    sweep = SimpleNamespace(benchmark=SimpleNamespace(name="tofu"), selection=rule or Selection())
    reference = SimpleNamespace(role="original", split=trials[0].benchmark.split, evaluation="original")
    write_evaluation(store, "original", {"forget_quality": -9.0, "model_utility": 0.8})
    studies = {trial.study(): trials for trial in trials}
    plan: Any = SimpleNamespace(
        sweep=sweep, trials=trials, references=[reference], group_trials_by_study=lambda: studies
    )
    return trial_callback.WeightDeleter(plan, store, choice)


def kept(trials: list[Trial], store: Storage) -> list[int]:
    return [number for number, trial in enumerate(trials) if (store.trial(trial.id()) / WEIGHTS).is_dir()]


@pytest.mark.parametrize(
    ("choice", "left"), [("all", [0, 1, 2, 3]), ("pareto", [0, 2, 3]), ("best", [3]), ("none", [])]
)
def test_what_stays(tmp_path: Path, choice: str, left: list[int]) -> None:
    """0: best MU; 1: beaten by 3; 2: best FQ; 3: keeps 90 % of the target's MU (0.8) with a better FQ; 4 diverged."""
    points = [(-9.0, 0.80), (-8.0, 0.60), (-1.0, 0.30), (-5.0, 0.75), None]
    trials, store = study(tmp_path, points)
    keeper(trials, store, choice)
    assert kept(trials, store) == left


@pytest.mark.parametrize(("rule", "left"), [(Selection(), [2, 3]), (Selection(seeds=(0, 1)), [0, 5])])
def test_a_model_of_the_setting_that_tables_show_stays(tmp_path: Path, rule: Selection, left: list[int]) -> None:
    """The best trial is of one rate, the best mean over seeds of the other; of that, a seed that is reported."""
    rates, store = study(tmp_path, [(-1.0, 0.8), (-1.0, 0.8)])
    trials = [trial.model_copy(update={"seed": seed}) for trial in rates for seed in range(3)]
    for trial, quality in zip(trials, (-1.0, -9.0, -0.5, -3.0, -2.0, -2.5), strict=True):
        finish(store, [trial], metrics={"forget_quality": quality, "model_utility": 0.8})
        (store.trial(trial.id()) / WEIGHTS).mkdir(exist_ok=True)
    keeper(trials, store, "best", rule)
    assert kept(trials, store) == left


def test_trial_after_trial_gives_what_all_at_once_gives(tmp_path: Path) -> None:
    points = [(-9.0, 0.80), (-8.0, 0.60), (-5.0, 0.75), None, (-1.0, 0.30), (-6.0, 0.79)]
    trials, store = study(tmp_path / "one", points)
    keeper(trials, store, "pareto")
    steps, other = study(tmp_path / "other", points)
    moving = keeper(steps[:1], other, "pareto")
    for trial in steps:
        moving.delete_weights_after_trial(trial)
    assert kept(steps, other) == kept(trials, store) == [0, 2, 4, 5]


@pytest.mark.parametrize(("status", "left"), [("finished", []), ("lost", [0])])
def test_a_model_that_another_goes_on_from_stays_until_that_one_is_done(
    status: str, left: list[int], tmp_path: Path
) -> None:
    """It is dropped then, although its study is another; a trial that was lost needs it again."""
    trials, store = study(tmp_path, [(-9.0, 0.80)])
    went_on = Model(path="there", fingerprint=f"{EARLIER_TRIAL_PREFIX}{trials[0].id()}")
    follower = trials[0].model_copy(
        update={"target": went_on, "benchmark": trials[0].benchmark.model_copy(update={"split": "forget10"})}
    )
    moving = keeper([trials[0], follower], store, "none")
    moving.delete_weights_after_trial(trials[0])
    assert kept(trials, store) == [0]
    write_result(store, follower.id(), status=status, metrics={"forget_quality": -1.0, "model_utility": 0.8})
    moving.delete_weights_after_trial(follower)
    assert kept(trials, store) == left


@given(
    points=st.lists(st.tuples(st.sampled_from([-9.0, -3.0, 0.0]), st.sampled_from([0.0, 0.3, 0.9])), max_size=8).map(
        lambda values: {f"trial{k}": gains for k, gains in enumerate(values)}
    )
)
def test_front_is_what_nothing_beats(points: dict[str, tuple[float, float]]) -> None:
    front = set(find_pareto_front_ids(points))
    for key, (quality, utility) in points.items():
        beaten = any((q > quality and u >= utility) or (q >= quality and u > utility) for q, u in points.values())
        assert (key not in front) == beaten
    assert bool(front) == bool(points)


def test_forecast_counts_what_a_plan_writes(tmp_path: Path) -> None:
    """Results alone where nobody knows the model's sizes; weights, checkpoints, directions where its folder tells."""
    small, store = small_sweep.write(tmp_path / "small"), Storage(tmp_path / "runs")
    state = small.state(store, only=["benchmark.split=forget01"])
    assert dry_run.forecast_disk_use(state, store, "pareto", 3) == {"results": 55 * 2 * 2**20}
    sizes = '{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, '
    (small.models / "full" / "config.json").write_text(sizes + '"vocab_size": 1000}')
    state = small.state(store, "resources.checkpoint_every=5", only=["benchmark.split=forget01"])
    parts = {choice: dry_run.forecast_disk_use(state, store, choice, 3) for choice in KEEP_WEIGHTS_CHOICES}
    parameters = 2 * 1000 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
    studies = len(state.plan.group_trials_by_study())
    assert parts["all"]["weights"] == 55 * parameters * 4
    assert parts["pareto"]["weights"] == parts["best"]["weights"] == studies * parameters * 4
    assert "weights" not in parts["none"]
    assert parts["none"]["checkpoints"] == 3 * 2 * parameters * 16  # three trials side by side
    assert parts["none"]["directions"] == 2 * parameters * 4  # TV's and TRU's

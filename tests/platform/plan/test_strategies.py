"""A sweep's trials: those of each strategy, of objectives and of task vectors."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from platform.plan.plan import Plan
from platform.plan.spaces import list_spaces, list_trials
from platform.state.trial_outcomes import SweepState
from search_spaces.schema.sweep import PublishedSetting, Sweep
from search_spaces.tofu_tiny import SWEEP
from tests.support.small_sweep import MakePlan, Small, point
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, RetainEvaluation
from trainables.config.shared_artifacts import SharedVector
from trainables.storage.folder_storage import Storage

AXES = {
    "benchmark.split": ("forget01", "forget05", "forget10"),
    "method": ("ga", "gd", "npo"),
    "rectifier.name": ("none", "clip", "gru"),
    "rectifier.gamma": (0.05, 0.8, None, 1.0),
    "rectifier.tau": (None, 0.001, 1.0),
    "seed": (0, 1, 7),
}


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    st.fixed_dictionaries(
        {name: st.lists(st.sampled_from(axis), min_size=1, max_size=3) for name, axis in AXES.items()}
    )
)
def test_every_point_of_any_axes_is_there_exactly_once(chosen: dict[str, list[Any]]) -> None:
    """Whatever the axes, values given twice included: the trials are the product, no more and no less."""
    sweep = Sweep.model_validate({**SWEEP.model_dump(), "axes": chosen})
    benchmarks = {split: Benchmark(split=split, fingerprint=f"files:{split}") for split in sweep.splits}
    models = (Model(path="m", fingerprint="files:1"), RetainEvaluation(path="r", fingerprint="2"))
    trials = list_trials(list_spaces(sweep, "grid", benchmarks, dict.fromkeys(sweep.splits, models)), sweep, "grid")
    rectified: set[tuple[object, ...]] = set()
    for name in chosen["rectifier.name"]:
        for gamma, tau in itertools.product(chosen["rectifier.gamma"], chosen["rectifier.tau"]):
            if name == "none":
                rectified.add((name, None, None))
            elif name == "gru" or tau is not None:
                rectified.add((name, None if name == "clip" else gamma, tau))
    cells = itertools.product(*(chosen[path] for path in ("benchmark.split", "seed", "method")), rectified)
    expected = {(split, seed, method, *setting) for split, seed, method, setting in cells}
    assert {point(trial) for trial in trials} == expected
    assert len(trials) == len(expected) == len({trial.id() for trial in trials})


# task vectors


@pytest.fixture
def vectors(small: Small, store: Storage) -> MakePlan:
    """The plan of tofu_tiny's task vectors on forget05."""
    sweep = SWEEP.model_copy(update={"axes": {**SWEEP.axes, "method": ("tv", "tru"), "benchmark.split": ("forget05",)}})
    return functools.partial(small.plan, store, sweep=sweep)


def strengths(plan: Plan, field: str) -> list[object]:
    return [trial.task_vector and getattr(trial.task_vector, field) for trial in plan.trials]


def test_each_strength_is_a_trial_and_the_axis_of_rectifiers_does_not_multiply_them(vectors: MakePlan) -> None:
    plan = vectors()
    assert strengths(plan, "stg") == [None] * 5 + list(SWEEP.axes["task_vector.stg"])
    assert strengths(plan, "strength") == list(SWEEP.axes["task_vector.strength"]) + [None] * 5
    assert set(plan.trials_by_study()) == {"forget05/tv/none", "forget05/tru/none"}
    chosen = vectors("task_vector.stg=3,4", "task_vector.strength=6")
    assert strengths(chosen, "stg") == [None, 3.0, 4.0]
    assert strengths(chosen, "strength") == [6.0, None, None]


def directions(plan: Plan) -> list[SharedVector]:
    return SweepState(plan, {}).directions


def test_all_strengths_of_a_seed_share_one_direction(vectors: MakePlan) -> None:
    assert len(directions(vectors())) == 2
    plan = vectors("seed=0,1")
    assert [made.rectified for made in directions(plan)] == [False, True, True]  # TV has nothing random,
    assert {trial.seed for trial in plan.trials if trial.method == "tv"} == {0}  # so another seed would be a copy
    one, other = directions(vectors("task_vector.steps=1")), directions(vectors("task_vector.steps=2"))
    assert not {made.id() for made in one} & {made.id() for made in other}


def test_published_strength_is_first_or_alone(vectors: MakePlan) -> None:
    assert strengths(vectors(strategy="paper"), "stg") == [None, 12.0]
    assert strengths(vectors(strategy="optuna"), "stg")[5] == 12.0
    axes = {**SWEEP.axes, "method": ("tv",), "benchmark.split": ("forget05",)}
    sweep = SWEEP.model_copy(update={"axes": axes, "published": (PublishedSetting(gamma=1.0),)})
    with pytest.raises(InputError, match="no published strength for tv on forget05; use --strategy grid"):
        vectors(strategy="paper", sweep=sweep)

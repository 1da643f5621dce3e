"""Any setting as an axis or a range: which trials there are, what the sweep is called, and what is refused."""

import functools
import hashlib
import itertools
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from platform.plan.overrides import flatten_settings
from platform.plan.plan import Plan
from platform.plan.spaces import list_known_trials, list_study_spaces
from platform.state.trial_outcomes import SweepState
from search_spaces.schema.sweep import PublishedSetting, Range, Sweep
from search_spaces.tofu_tiny import SWEEP
from tests.support import small_sweep
from tests.support.small_sweep import MakePlan, Small, point
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, RetainEvaluationFile
from trainables.storage.folder_storage import Storage

make = small_sweep.plan_objectives
IDS = {
    "tofu_ablation": "e02c3c8c82c9",
    "tofu_gamma": "ffc6c00bf2bb",
    "tofu_phi_tru": "72333fb93818",
    "tofu_tau": "0870baa4da6d",
    "wmdp_rmu": "d9110ebf33b6",
}
"""Of sweeps as they were when each axis was a field of its own: the digest of the sorted ids of all their trials."""


def settings(plan: Plan, *paths: str) -> set[tuple[object, ...]]:
    flat = [flatten_settings(trial.model_dump()) for trial in plan.trials]
    return {tuple(one[path] for path in paths) for one in flat}


@pytest.mark.parametrize("name", IDS)
def test_named_sweeps_keep_their_trials(name: str, store: Storage) -> None:
    ids = sorted(trial.id() for trial in small_sweep.plan_named(name, store).trials)
    assert hashlib.sha256(" ".join(ids).encode()).hexdigest()[:12] == IDS[name]


def test_any_setting_multiplies_the_trials_that_read_it(make: MakePlan) -> None:
    """GD and GA have no beta, the plain objectives no gamma; all have a learning rate."""
    split = "benchmark.split=forget05"
    plan = make(split, "training.lr=1e-5,3e-5", "objective.beta=0.1,0.5,none", "rectifier.tau=none")
    assert len(plan.trials) == 2 * (1 + 2) * (1 + 1 + 3)
    assert settings(plan, "method", "objective.beta") == {
        ("ga", None),
        ("gd", None),
        *itertools.product(["npo"], [0.1, 0.5, None]),
    }
    assert settings(plan, "rectifier.name", "training.lr", "rectifier.gamma") == {
        (name, lr, gamma) for lr in (1e-5, 3e-5) for name, gamma in (("none", None), ("gru", 0.05), ("gru", 0.8))
    }
    assert set(plan.group_trials_by_study()) == set(make(split).group_trials_by_study())


def test_a_range_is_for_optuna_and_begins_with_the_published_point(make: MakePlan) -> None:
    typed = ("training.lr=log(1e-6..1e-3)", "rectifier.gamma=0.01..0.99", "training.epochs=1..10", "method=npo")
    plan = make(*typed, "benchmark.split=forget05", strategy="optuna", budget=12)
    paths = ("rectifier.name", "rectifier.gamma", "training.lr", "training.epochs")
    assert settings(plan, *paths) == {("none", None, 1e-4, 5), ("gru", 0.8, 1e-4, 5)}
    space = plan.spaces["forget05/npo/gru"]
    assert space.axes["training.lr"] == Range(1e-6, 1e-3, log=True)
    assert [axis.has_whole_numbers for axis in space.axes.values() if isinstance(axis, Range)] == [False, False, True]
    assert space.size is None
    assert plan.name == make("benchmark.split=forget05").name
    beta = make("objective.beta=0.05..1.0", "method=npo", strategy="optuna").spaces["forget05/npo/none"]
    assert beta.published == {"objective.beta": 0.1, "seed": 0}, "the preset's number"


SPLIT = "benchmark.split=forget05"


def rectifiers(make: MakePlan, *typed: str, **more: Any) -> list[dict[str, Any]]:
    plan = make(SPLIT, *typed, **more)
    return [trial.rectifier.model_dump(exclude_none=True) for trial in plan.trials]


def test_a_rule_is_as_published_unless_something_is_typed(make: MakePlan) -> None:
    """The axes of gamma and tau are GRU's; without a moving average a rule has no use for gamma."""
    found = rectifiers(make, "method=npo", "rectifier.name=pcgrad,hamu_q,sago,agem")
    current = {"memory": "current"}
    assert found == [
        {"name": "pcgrad", "scope": "global", **current},
        {"name": "hamu_q", "scope": "tensor", **current},
        {"name": "sago", **current},
        {"name": "agem"},
    ]


def test_scope_and_memory_are_axes(make: MakePlan) -> None:
    typed = ("rectifier.name=blur,sago", "rectifier.memory=current,average", "rectifier.scope=global,tensor")
    plan = make(SPLIT, "method=npo", "rectifier.gamma=0.05,0.8", *typed)
    assert len(plan.trials) == 2 * (1 + 2) + (1 + 2), "each once"
    assert len({plan.label(trial) for trial in plan.trials}) == len(plan.trials)
    assert "blur-npo-forget05-g0.8-memoryaverage-scopetensor-s0" in {plan.label(trial) for trial in plan.trials}
    published = rectifiers(make, "method=npo", "rectifier.name=blur", "rectifier.memory=average", strategy="paper")
    assert published == [{"name": "blur", "gamma": 0.8, "scope": "global", "memory": "average"}]


@pytest.mark.parametrize("strategy", ["grid", "paper", "optuna"])
def test_every_strategy_keeps_to_a_gamma_that_is_typed(make: MakePlan, strategy: str) -> None:
    for typed in ("0.33", "0.33,0.5"):
        trials = make(SPLIT, "method=npo", f"rectifier.gamma={typed}", strategy=strategy).trials
        assert {str(trial.rectifier.gamma) for trial in trials} - {"None"} == set(typed.split(","))


def test_a_retain_term_is_not_counted_twice(make: MakePlan) -> None:
    studies = make(SPLIT, "method=ga,gd,npo", "rectifier.name=none,blur").group_trials_by_study()
    assert set(studies) == {f"forget05/{pair}" for pair in ("ga/none", "ga/blur", "gd/none", "npo/none", "npo/blur")}
    words = (
        r"rectifier\.name: 'blur' adds the retain gradient .* method 'gd' .* use a method without one \(ga, wga, npo"
    )
    with pytest.raises(InputError, match=words):
        make(SPLIT, "method=gd", "rectifier.name=blur")
    for method in ("ga_kl", "npo_kl", "npo_gd", "simnpo_gd", "rmu"):
        with pytest.raises(InputError, match=f"retain term of method '{method}' would count twice"):
            make(SPLIT, f"method={method}", "rectifier.name=sago")
    weighted = ("method=wga", "rectifier.name=mgda", "objective.preset=open-unlearning")
    with pytest.raises(InputError, match="method 'wga' would count twice"):
        make(SPLIT, *weighted)
    assert rectifiers(make, *weighted, "objective.retain_coefficient=0")


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
    models = (Model(path="m", fingerprint="files:1"), RetainEvaluationFile(path="r", fingerprint="2"))
    trials = list_known_trials(
        list_study_spaces(sweep, "grid", benchmarks, dict.fromkeys(sweep.splits, models)), sweep, "grid"
    )
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
    assert set(plan.group_trials_by_study()) == {"forget05/tv/none", "forget05/tru/none"}
    chosen = vectors("task_vector.stg=3,4", "task_vector.strength=6")
    assert strengths(chosen, "stg") == [None, 3.0, 4.0]
    assert strengths(chosen, "strength") == [6.0, None, None]


def test_all_strengths_of_a_seed_share_one_direction(vectors: MakePlan) -> None:
    assert len(SweepState(vectors(), {}).directions) == 2
    plan = vectors("seed=0,1")
    assert [made.rectified for made in SweepState(plan, {}).directions] == [False, True, True]  # TV has nothing random,
    assert {trial.seed for trial in plan.trials if trial.method == "tv"} == {0}  # so another seed would be a copy
    plans = [vectors("task_vector.steps=1"), vectors("task_vector.steps=2")]
    assert len({made.id() for one in plans for made in SweepState(one, {}).directions}) == 4


def test_published_strength_is_first_or_alone(vectors: MakePlan) -> None:
    assert strengths(vectors(strategy="paper"), "stg") == [None, 12.0]
    assert strengths(vectors(strategy="optuna"), "stg")[5] == 12.0
    for strategy in ("grid", "paper", "optuna"):
        assert set(strengths(vectors("task_vector.stg=5,6", strategy=strategy), "stg")) == {None, 5.0, 6.0}
    axes = {**SWEEP.axes, "method": ("tv",), "benchmark.split": ("forget05",)}
    sweep = SWEEP.model_copy(update={"axes": axes, "published": (PublishedSetting(gamma=1.0),)})
    with pytest.raises(InputError, match="no published strength for tv on forget05; use --strategy grid"):
        vectors(strategy="paper", sweep=sweep)

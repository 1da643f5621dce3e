"""Which trial comes next: the fixed queue, Optuna's studies over points that are each tried once, its samplers."""

import json
import math
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from ray.tune.search import Searcher

from platform.plan.spaces import StudySpace
from platform.schedule.studies import UTILITY_FLOOR_CONSTRAINT, OptunaStudy, orient_goals_of_result
from platform.sweep.run_sweep_on_ray import FixedOrder, TrialQueue
from search_spaces.schema.sweep import Axis, OptunaSearchSettings, Range
from trainables import benchmarks
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, Selection
from trainables.config.trial import EARLIER_TRIAL_PREFIX, Trial

Outcome = tuple[float, float] | None


def make_space(
    axes: dict[str, Axis], split: str = "forget05", seed: int = 0, published: Mapping[str, Any] = MappingProxyType({})
) -> StudySpace:
    """NPO with GRU over these axes; the published point is the first value of each, or as given."""
    benchmark = Benchmark(split=split, fingerprint="files:0")
    fixed: dict[str, Any] = {"target": Model(path="m", fingerprint="files:1"), "benchmark": benchmark, "seed": seed}
    fixed |= {"method": "npo", "rectifier": {"name": "gru"}, "objective": {}, "training": {}, "task_vector": None}
    first = {path: axis.low if isinstance(axis, Range) else axis[0] for path, axis in axes.items()}
    first |= published
    return StudySpace("some", fixed, axes, first)


def drain(study: OptunaStudy, worth: Callable[[Trial], Outcome]) -> list[Trial]:
    """Ask and tell until nothing is left or proposed; return the trials in order."""
    asked = []
    while study.remaining and (trial := study.ask()) is not None:
        asked.append(trial)
        study.tell(trial.id(), worth(trial))
    return asked


def search(
    space: StudySpace, budget: int, worth: Callable[[Trial], Outcome], sampler: Any = "tpe", **given: Any
) -> list[Trial]:
    known = (
        [space.make_trial(space.published)]
        if space.has_ranges
        else [space.make_trial(one) for one in space.iterate_points()]
    )
    return drain(OptunaStudy(space, known, budget, {}, search=OptunaSearchSettings(sampler=sampler), **given), worth)


def points(count: int, split: str = "forget05", seed: int = 0) -> list[Trial]:
    space = gammas(count, split, seed)
    return [space.make_trial(point) for point in space.iterate_points()]


def gammas(count: int, split: str = "forget05", seed: int = 0) -> StudySpace:
    return make_space({"rectifier.gamma": tuple((k + 1) / 100 for k in range(count))}, split, seed)


def make_study(
    trials: list[Trial], budget: int | None, finished: Mapping[str, Outcome], unfinished: Container[str] = ()
) -> OptunaStudy:
    space = gammas(len(trials), trials[0].benchmark.split, trials[0].seed)
    return OptunaStudy(space, trials, min(budget or len(trials), len(trials)), finished, unfinished)


def outcome(trial: Trial) -> Outcome:
    """An invented result: a trade-off along gamma, and a failure now and then."""
    gamma = trial.rectifier.gamma or 0.0
    return None if round(gamma * 100) % 4 == 3 else (-20 * (1 - gamma), 0.8 - gamma)


def suggested(search: Searcher, name: str) -> Trial:
    """Return the suggested trial, which Tune keeps as JSON and sends to another process."""
    proposal: Any = search.suggest(name)
    assert json.loads(json.dumps(proposal)) == proposal
    assert proposal["storage"] == "store"
    return Trial.model_validate_json(proposal["trial"])


@pytest.mark.parametrize("left", [True, False])
def test_a_trial_waits_for_the_one_it_goes_on_from_and_falls_away_without_its_model(left: bool) -> None:
    first, other, third = points(3)
    second = third.model_copy(update={"target": Model(path="here", fingerprint=f"{EARLIER_TRIAL_PREFIX}{first.id()}")})
    third = third.model_copy(update={"target": Model(path="here", fingerprint=f"{EARLIER_TRIAL_PREFIX}{second.id()}")})
    queue = TrialQueue([FixedOrder([first, second, third, other], lambda key: left)], {"storage": "store"})
    assert [suggested(queue, name) for name in ("t0", "t1")] == [first, other]
    assert queue.suggest("t2") is None
    queue.take_result("t1", {})
    assert queue.suggest("t2") is None
    queue.take_result("t0", {} if left else None)
    if left:
        assert suggested(queue, "t2") == second
        assert queue.suggest("t3") is None
        queue.take_result("t2", {})
        assert suggested(queue, "t3") == third
    assert queue.suggest("t4") is Searcher.FINISHED


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    data=st.data(), count=st.integers(1, 12), budget=st.none() | st.integers(1, 15), seed=st.integers(0, 99)
)
def test_every_point_at_most_once_up_to_the_budget(
    data: st.DataObject, count: int, budget: int | None, seed: int
) -> None:
    """Finished trials count and are not asked again, with or without numbers; the published point is the first."""
    trials = points(count, seed=seed)
    names = [trial.id() for trial in trials]
    finished = {
        key: data.draw(st.sampled_from([None, (-1.0, 0.5)])) for key in data.draw(st.sets(st.sampled_from(names)))
    }
    others = {trial.id(): (-1.0, 0.5) for trial in points(3, split="forget10")}
    study = make_study(trials, budget, finished | others)
    assert study.asked == set(finished)
    asked = [trial.id() for trial in drain(study, outcome)]
    assert len(asked) == max(0, min(budget or count, count) - len(finished))
    assert len(set(asked)) == len(asked)
    assert set(asked) <= set(names) - set(finished)
    assert finished or asked[0] == names[0]


def make_studies(budget: int | None = None, finished: dict[str, tuple[float, float]] | None = None) -> TrialQueue:
    groups = [points(4, split=split) for split in ("forget01", "forget05", "forget10")]
    return TrialQueue([make_study(trials, budget, finished or {}) for trials in groups], {"storage": "store"})


@pytest.mark.parametrize("budget", [None, 2])
def test_studies_take_turns_up_to_the_budget_of_each(budget: int | None) -> None:
    """One that is behind catches up first."""
    studies, each = make_studies(budget), budget or 4
    assert [study.remaining for study in studies.studies] == [each] * 3
    splits = [suggested(studies, f"t{k}").benchmark.split for k in range(3 * each)]
    turns = [sorted(splits[k : k + 3]) for k in range(0, 3 * each, 3)]
    assert turns == [["forget01", "forget05", "forget10"]] * each
    assert ([one.remaining for one in studies.studies], studies.suggest("t12")) == ([0] * 3, Searcher.FINISHED)
    finished = {trial.id(): (-1.0, 0.5) for split in ("forget01", "forget05") for trial in points(4, split=split)[:2]}
    behind = make_studies(finished=finished)
    assert sum(study.remaining for study in behind.studies) == 8
    assert [suggested(behind, f"u{k}").benchmark.split for k in range(2)] == ["forget10"] * 2


@pytest.mark.parametrize(
    ("result", "known"),
    [
        ({"metrics": {"forget_quality": -2.0, "model_utility": 0.5}}, True),
        ({"metrics": {}, "status": "diverged"}, False),
        (None, False),
    ],
)
def test_outcomes_reach_their_study(result: dict[str, Any] | None, known: bool) -> None:
    studies = make_studies()
    trial = suggested(studies, "t0")
    study = next(study for study in studies.studies if trial.id() in study.trials)
    studies.take_result("t0", result)
    complete = [told.values for told in study.study.trials if told.values is not None]
    assert complete == ([[-2.0, 0.5]] if known else [])
    assert study.running == {}
    assert studies.owner == {}
    assert len({suggested(studies, f"u{k}").id() for k in range(11)} - {trial.id()}) == 11


def test_with_halves_a_study_learns_from_the_rows_that_are_not_reported() -> None:
    space = gammas(1)
    space = replace(space, fixed={**space.fixed, "selection": Selection(halves=True)})
    trial = space.make_trial(space.published)
    first, second = {"forget_quality": -3.0, "model_utility": 0.4}, {"forget_quality": -1.0, "model_utility": 0.6}
    result = {"metrics": {"forget_quality": -2.0, "model_utility": 0.5}, "halves": [first, second]}
    studies = TrialQueue([OptunaStudy(space, [trial], 1, {})], {"storage": "store"})
    studies.take_result("t0", result) if studies.suggest("t0") else None
    assert studies.studies[0].study.trials[0].values == [-3.0, 0.4]
    assert orient_goals_of_result(trial, result) == (-3.0, 0.4)


def test_a_search_may_have_other_goals() -> None:
    """Of a measure that is asked for less is more; retention, which the floor goes by, is last however it is typed."""
    space = gammas(1)
    benchmark = space.fixed["benchmark"].model_copy(update={"measures": ("extraction_strength", "membership_loss")})
    space = replace(space, fixed={**space.fixed, "benchmark": benchmark})
    trial, goals = space.make_trial(space.published), ("model_utility", "extraction_strength", "forget_quality")
    found: Any = {"forget_quality": -2.0, "model_utility": 0.5, "forget_extraction_strength": 0.2}
    study = OptunaStudy(space, [trial], 1, {}, search=OptunaSearchSettings(goals=goals), floor=0.4)
    studies = TrialQueue([study], {"storage": "store"})
    studies.take_result("t0", {"metrics": found}) if studies.suggest("t0") else None
    (told,) = study.study.trials
    assert told.values == [-0.2, -2.0, 0.5]
    assert told.constraints == {UTILITY_FLOOR_CONSTRAINT: pytest.approx(-0.1)}
    for names, words in (
        (("extraction_strenght", "model_utility"), "did you mean 'extraction_strength'"),
        (("exact_memorisation", "model_utility"), "is not measured on tofu"),
        (("extraction_strength",), "name model_utility, too"),
        (("membership_loss", "model_utility"), "membership_loss is best where it is the retain model's"),
    ):
        with pytest.raises(InputError, match=words):
            benchmarks.choose_search_goals(benchmark, names)


RANGES: dict[str, Axis] = {
    "training.lr": Range(1e-6, 1e-3, log=True),
    "training.epochs": Range(1, 10),
    "rectifier.tau": (1.0, None),
    "training.optimizer": ("adamw", "sgd"),
}


def lr_reward(trial: Trial) -> tuple[float, float]:
    """Best at a rate of 1e-4: removal falls off to both sides, utility does not."""
    return -abs(math.log10(trial.training.lr) + 4), 0.5


@pytest.mark.parametrize("sampler", ["tpe", "random", pytest.param("gp", marks=pytest.mark.slow)])  # it imports torch
def test_every_sampler_stays_in_the_ranges_and_begins_with_the_published_point(sampler: str) -> None:
    space = make_space(RANGES, seed=5, published={"training.lr": 3e-5})
    found = search(space, 16, lr_reward, sampler)
    assert found[0].training.lr == 3e-5
    assert len({trial.id() for trial in found}) == 16
    for trial in found:
        assert 1e-6 <= trial.training.lr == float(f"{trial.training.lr:.4g}") <= 1e-3
        assert trial.training.epochs in range(1, 11)
    assert {trial.training.optimizer for trial in found} == {"adamw", "sgd"}
    assert {trial.rectifier.tau for trial in found} == {1.0, None}
    assert search(space, 16, lr_reward, sampler) == found
    assert search(make_space(RANGES, seed=6), 16, lr_reward, sampler)[1:] != found[1:]


def test_a_space_that_has_no_more_points_ends_before_its_budget() -> None:
    found = search(make_space({"training.epochs": Range(1, 3)}), 10, lambda trial: (0.0, 0.0))
    assert sorted(trial.training.epochs for trial in found) == [1, 2, 3]


def test_trials_below_the_floor_of_utility_are_infeasible() -> None:
    """Removal is best at high rates, which keep nothing: with a floor the search stays below them."""

    def worth(trial: Trial) -> tuple[float, float]:
        place = (math.log10(trial.training.lr) + 6) / 3
        return place, 1 - place

    def late(**given: Any) -> float:
        trials = search(make_space({"training.lr": Range(1e-6, 1e-3, log=True)}, seed=1), 30, worth, **given)
        return sum(worth(trial)[1] >= 0.7 for trial in trials[15:]) / 15

    assert late(floor=0.7) > late() + 0.2

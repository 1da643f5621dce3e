"""What Optuna's samplers propose in a study: within its axes, and where earlier results were good."""

from __future__ import annotations

import math
from typing import Any

import pytest

from platform.schedule.study import SAMPLERS, Study
from search_spaces.schema.axes import Axis, Range
from search_spaces.schema.sweep import Search
from tests.support.small_studies import drain, make_space, search
from trainables.config.trial import Trial

GAMMAS, TAUS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99), (0.001, 0.01, 0.1, 1.0, 10.0, None)


def test_optuna_learns_where_the_good_points_are() -> None:
    """A reward that grows with gamma and with tau, none the greatest: the later half beats the mean of the grid."""

    def worth(trial: Trial) -> tuple[float, float]:
        reward = GAMMAS.index(trial.rectifier.gamma or 0) / 11 + TAUS.index(trial.rectifier.tau) / 5
        return reward, reward

    space = make_space({"rectifier.gamma": GAMMAS, "rectifier.tau": TAUS}, seed=3)
    found = [worth(trial)[0] for trial in search(space, 30, worth)]
    assert sum(found[15:]) / 15 > 1.0 + 0.2


RANGES: dict[str, Axis] = {
    "training.lr": Range(1e-6, 1e-3, log=True),
    "training.epochs": Range(1, 10),
    "rectifier.tau": (1.0, None),
    "training.optimizer": ("adamw", "sgd"),
}


def lr_reward(trial: Trial) -> tuple[float, float]:
    """Best at a rate of 1e-4: removal falls off to both sides, utility does not."""
    return -abs(math.log10(trial.training.lr) + 4), 0.5


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("gp", "qmc")]  # they import torch and scipy's


@pytest.mark.parametrize("sampler", [*(name for name in SAMPLERS if name not in ("gp", "qmc")), *SLOW])
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
    assert sampler == "qmc" or search(make_space(RANGES, seed=6), 16, lr_reward, sampler)[1:] != found[1:]


@pytest.mark.parametrize("sampler", ["nsga2", "nsga3"])
def test_evolution_goes_on_from_the_results_of_earlier_starts(sampler: Any) -> None:
    """All of them lie near one rate: so do most of what is proposed next, and of random points a twentieth."""
    space = make_space(RANGES, seed=5)
    points = ({**space.published, "training.lr": (90 + k) * 1e-6, "training.epochs": k % 9 + 1} for k in range(20))
    earlier = [space.make(point) for point in points]
    finished = {trial.id(): lr_reward(trial) for trial in earlier}
    study = Study(space, earlier, 40, finished, search=Search(sampler=sampler))
    near = [8e-5 <= trial.training.lr <= 1.2e-4 for trial in drain(study, lr_reward)]
    assert sum(near) >= len(near) / 2 == 10


def test_a_space_that_has_no_more_points_ends_before_its_budget() -> None:
    found = search(make_space({"training.epochs": Range(1, 3)}), 10, lambda trial: (0.0, 0.0))
    assert sorted(trial.training.epochs for trial in found) == [1, 2, 3]


def test_a_published_fraction_in_a_whole_range_is_told_to_optuna_when_it_is_asked_and_again_on_resume() -> None:
    space = make_space({"rectifier.tau": Range(1, 20)}, published={"rectifier.tau": 6.5})
    published = space.make(space.published)
    asked = Study(space, [published], 4, {})
    assert asked.ask() == published
    assert Study(space, [published], 4, {published.id(): (0.0, 0.5)}).study.trials[0].params == (
        asked.study.trials[0].params
    )
    assert [value in Range(1, 20) for value in (6, 6.0, 6.5)] == [True, True, False]


def test_trials_below_the_floor_of_utility_are_infeasible() -> None:
    """Removal is best at high rates, which keep nothing: with a floor the search stays below them."""

    def worth(trial: Trial) -> tuple[float, float]:
        place = (math.log10(trial.training.lr) + 6) / 3
        return place, 1 - place

    def late(**given: Any) -> float:
        trials = search(make_space({"training.lr": Range(1e-6, 1e-3, log=True)}, seed=1), 30, worth, **given)
        return sum(worth(trial)[1] >= 0.7 for trial in trials[15:]) / 15

    assert late(floor=0.7) > late() + 0.2

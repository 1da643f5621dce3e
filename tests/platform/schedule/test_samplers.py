"""What Optuna's samplers propose in a study: within its axes, and where earlier results were good."""

from __future__ import annotations

import math
from typing import Any

import pytest

from search_spaces.schema.axes import Axis, Range
from tests.support.small_studies import make_space, search
from trainables.config.trial import Trial

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

"""Whether the search finds more than chance does: on a surrogate of recorded results, without training."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from search_spaces.schema.axes import Axis, Range
from tests.support.small_studies import make_space, search
from trainables.config.trial import Trial

RECORDED = Path(__file__).with_name("recorded_search.csv")
"""NPO with GRU on tofu_tiny, forget05, 40 rows of each task, three epochs (docs/LOG.md, 2026-11-23)."""
AXES: dict[str, Axis] = {
    "training.lr": Range(1e-5, 3e-3, log=True),
    "objective.beta": (0.05, 0.1, 0.3, 1.0),
    "rectifier.gamma": Range(0.01, 0.99),
    "rectifier.tau": (0.1, 1.0, 10.0, None),
}
TRIALS, SEEDS = 24, range(5)
REFERENCE = (-6.668, 0.0)
"""Of the areas: the target model's FQ, and no utility, more being better in both."""


def place(lr: float, beta: float, gamma: float, tau: float | None) -> list[float]:
    """A point in the unit cube."""
    return [
        math.log10(lr / 1e-5) / math.log10(300),
        math.log(beta / 0.05) / math.log(20),
        gamma,
        math.log10(tau or 100) / 3,
    ]


class Surrogate:
    """Goals at any point: the recorded ones, weighted by the inverse square of their distance."""

    def __init__(self) -> None:
        with RECORDED.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.goals = np.array([[float(row["fq"]), float(row["mu"])] for row in rows])
        self.points = np.array(
            [
                place(float(r["lr"]), float(r["beta"]), float(r["gamma"]), float(r["tau"]) if r["tau"] else None)
                for r in rows
            ]
        )

    def __call__(self, trial: Trial) -> tuple[float, float]:
        rectifier, beta = trial.rectifier, trial.objective.beta
        here = np.array(place(trial.training.lr, beta or 0.1, rectifier.gamma or 1.0, rectifier.tau))
        weights = 1 / (1e-6 + ((self.points - here) ** 2 * [9, 1, 1, 1]).sum(axis=1))  # the rate decides most
        quality, utility = weights @ self.goals / weights.sum()
        return float(quality), float(utility)


def hypervolume(points: list[tuple[float, float]], reference: tuple[float, float]) -> float:
    """The area below and to the left of one point at least, and above and right of the reference."""
    left, top = reference
    area = 0.0
    for x, y in sorted(points, reverse=True):
        if x > left and y > top:
            area += (x - left) * (y - top)
            top = y
    return area


def find_area(sampler: str, seed: int, goals: Surrogate) -> float:
    """The area under the Pareto front of a search of TRIALS trials that begins with the published point."""
    published = {"training.lr": 4e-4, "objective.beta": 0.1, "rectifier.gamma": 0.8, "rectifier.tau": None}
    found = search(make_space(AXES, seed=seed, published=published), TRIALS, goals, sampler)
    return hypervolume([goals(trial) for trial in found], REFERENCE)


@pytest.mark.slow
def test_the_search_covers_more_than_random_points_with_the_same_budget() -> None:
    goals = Surrogate()
    areas = {name: [find_area(name, seed, goals) for seed in SEEDS] for name in ("tpe", "random")}
    gain = np.mean(areas["tpe"]) / np.mean(areas["random"]) - 1
    print(
        f"area at {TRIALS} trials: TPE {np.mean(areas['tpe']):.2f}, random {np.mean(areas['random']):.2f}, {gain:+.1%}"
    )
    assert gain >= 0

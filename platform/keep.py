"""Which trials keep their weights: the Pareto set of their study as it moves, the best, all or none."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from trainables.config import Trial
from trainables.errors import InputError, closest
from trainables.storage import Storage

CHOICES = ("pareto", "best", "all", "none")
WEIGHTS = "weights"
SHARE = 0.9
"""`best` is the highest FQ among trials that keep this share of the study's highest MU, as in the report."""

Point = tuple[str, float, float]
"""Trial id, FQ, MU."""


def check(choice: str) -> str:
    if choice not in CHOICES:
        raise InputError(f"--keep: unknown choice '{choice}'; {closest(choice, CHOICES)}")
    return choice


def prune(trials: Sequence[Trial], store: Storage, choice: str) -> list[str]:
    """Delete the weights of finished trials of one study that `choice` does not keep; returns their ids."""
    if choice == "all":
        return []
    points = [point for trial in trials if (point := _point(trial, store))]
    keep = {"pareto": set(front(points)), "best": best(points), "none": set()}[choice]
    dropped = [key for key, _, _ in points if key not in keep and weights(store, key).is_dir()]
    for key in dropped:
        shutil.rmtree(weights(store, key), ignore_errors=True)
    return dropped


def front(points: Sequence[Point]) -> list[str]:
    """Ids of the points that no other one beats in both FQ and MU."""
    return [
        key
        for key, quality, utility in points
        if not any(q >= quality and u >= utility and (q > quality or u > utility) for _, q, u in points)
    ]


def best(points: Sequence[Point]) -> set[str]:
    """The id of the best point, an empty set where there is none."""
    if not points:
        return set()
    bar = SHARE * max(utility for _, _, utility in points)
    fitting = [point for point in points if point[2] >= bar]
    return {max(fitting, key=lambda point: (point[1], point[2], point[0]))[0]}


def weights(store: Storage, trial_id: str) -> Path:
    return store.trial(trial_id) / WEIGHTS


def _point(trial: Trial, store: Storage) -> Point | None:
    found = (store.result(trial.id()) or {}).get("metrics", {})
    if found.get("model_utility") is None or found.get("forget_quality") is None:
        return None
    return trial.id(), found["forget_quality"], found["model_utility"]

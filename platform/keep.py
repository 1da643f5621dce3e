"""Which trials keep their weights: the Pareto set of their study as it moves, the best, all or none."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from trainables import benchmarks
from trainables.config import Trial
from trainables.errors import InputError, closest
from trainables.storage import Storage

CHOICES = ("pareto", "best", "all", "none")
WEIGHTS = "weights"
SHARE = 0.9
"""`best` is the highest FQ among trials that keep this share of the study's highest MU, as in the report."""

Point = tuple[str, *tuple[float, ...]]
"""Trial id, and the benchmark's goals turned so that more is better, retention last: on TOFU FQ and MU."""


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
    dropped = [key for key, *_ in points if key not in keep and weights(store, key).is_dir()]
    for key in dropped:
        shutil.rmtree(weights(store, key), ignore_errors=True)
    return dropped


def front(points: Sequence[Point]) -> list[str]:
    """Ids of the points that no other one beats: at least as good in every goal and better in one."""
    return [
        key
        for key, *mine in points
        if not any(all(a >= b for a, b in zip(other, mine, strict=True)) and other != mine for _, *other in points)
    ]


def best(points: Sequence[Point]) -> set[str]:
    """The id of the best point, an empty set where there is none."""
    if not points:
        return set()
    bar = SHARE * max(values[-1] for _, *values in points)
    fitting = [(values, key) for key, *values in points if values[-1] >= bar]
    return {max(fitting)[1]}


def weights(store: Storage, trial_id: str) -> Path:
    return store.trial(trial_id) / WEIGHTS


def _point(trial: Trial, store: Storage) -> Point | None:
    found = benchmarks.gains(trial.benchmark.name, (store.result(trial.id()) or {}).get("metrics", {}))
    return None if found is None else (trial.id(), *found)

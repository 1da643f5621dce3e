"""Which trials keep their weights: the Pareto set of their study as it moves, the best, all or none."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from platform.plan import Plan
from trainables import benchmarks, selection, storage
from trainables.config import Selection, Trial
from trainables.errors import InputError, closest
from trainables.storage import Storage

CHOICES = ("pareto", "best", "all", "none")
"""`best` is the trial that the sweep's selection rule chooses; `pareto` keeps it beside the front."""
WEIGHTS = "weights"

Point = tuple[str, *tuple[float, ...]]
"""Trial id, and the benchmark's goals turned so that more is better, retention last: on TOFU FQ and MU."""


def check(choice: str) -> str:
    if choice not in CHOICES:
        raise InputError(f"--keep: unknown choice '{choice}'; {closest(choice, CHOICES)}")
    return choice


def utilities(plan: Plan, store: Storage) -> dict[str, float | None]:
    """The target model's utility on each split, on the rows that the selection rule goes by."""
    found: dict[str, float | None] = {}
    for ref in (ref for ref in plan.references if ref.role == "original"):
        document = storage.read_json(store.evaluation(ref.evaluation) / storage.RESULT) or {}
        goal = benchmarks.find(plan.sweep.benchmark.name).GOALS[-1]
        found[ref.split] = selection.choosing(document, plan.sweep.selection).get(goal.metric)
    return found


def prune(trials: Sequence[Trial], store: Storage, choice: str, rule: Selection, original: float | None) -> list[str]:
    """Delete the weights of finished trials of one study that `choice` does not keep; returns their ids.

    `original`: the target model's utility, which the rule needs.
    """
    if choice == "all":
        return []
    points = [point for trial in trials if (point := _point(trial, store))]
    keep: set[str] = set()
    if choice != "none":
        chosen = best(trials, store, rule, original)
        keep = {chosen} if chosen else set()
    if choice == "pareto":
        keep |= set(front(points))
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


def best(trials: Sequence[Trial], store: Storage, rule: Selection, original: float | None) -> str | None:
    """The id of the trial that the rule chooses, each trial on its own: seeds are averaged in tables, not here."""
    candidates = []
    for trial in trials:
        document = store.result(trial.id()) or {}
        if document.get("status") == "finished":
            metrics = selection.choosing(document, rule)
            candidates.append(selection.candidate(trial.id(), trial.benchmark.name, metrics))
    chosen = selection.pick([one for one in candidates if one], original, rule)
    return chosen.key if chosen else None


def weights(store: Storage, trial_id: str) -> Path:
    return store.trial(trial_id) / WEIGHTS


def _point(trial: Trial, store: Storage) -> Point | None:
    found = benchmarks.gains(trial.benchmark.name, (store.result(trial.id()) or {}).get("metrics", {}))
    return None if found is None else (trial.id(), *found)

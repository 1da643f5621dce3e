"""Where a sweep stands, read from its storage alone, its driver alive or not; without torch, Ray or MLflow."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from platform.state import lease, manifest, weights
from trainables import benchmarks
from trainables.common import processes
from trainables.config.settings import Selection
from trainables.config.trial import Trial
from trainables.storage import files
from trainables.storage import results as results_
from trainables.storage.base import CONFIG, ERROR, FAILURES, LOST, PROGRESS, Storage
from trainables.storage.results import cause

SILENT = 60.0
"""A trial of another machine whose last progress is so many seconds from this clock may run, or not: who knows?"""
KEYS = {"phase", "step", "steps", "started", "seconds", "host", "pid", "beat", "born", "phase_seconds", "training_left"}
Results = dict[str, dict[str, Any]]


def read(sweep: dict[str, Any], store: Storage) -> dict[str, Any]:
    """The status of a sweep as JSON; `sweep` is its manifest."""
    store.download_trials(sweep["trials"])
    results, damaged = _results(sweep["trials"], store)
    typical = {name: _median(results, name) for name in ("evaluation", "total")}
    begun = [found for key in sweep["trials"] if key not in results and (found := under_way(key, store, typical))]
    alive: dict[bool | None, list[dict[str, Any]]] = {True: [], False: [], None: []}
    for found in begun:
        alive[found.pop("alive")].append(found)
    running = alive[True]
    outcomes: dict[str, int] = {}
    for result in results.values():
        outcomes[result["status"]] = outcomes.get(result["status"], 0) + 1
    lost = outcomes.get(LOST, 0)
    failed = sum(outcomes.get(name, 0) for name in FAILURES) - lost
    total = sweep.get("target", len(sweep["trials"]))
    done = len(results) - failed - lost
    left = max(0, total - done - failed - len(running))
    counts = {"total": total, "done": done, "running": len(running), "failed": failed, "left": left}
    return {
        "sweep": sweep["name"],
        "hash": sweep["hash"],
        "title": sweep["title"],
        "created": sweep["created"],
        "command": sweep["command"],
        "go_on": manifest.go_on(sweep["command"], manifest.place(store)),
        "storage": store.location,
        "driver": _driver(sweep, store),
        "counts": counts,
        "outcomes": outcomes,
        "running": running,
        "interrupted": alive[False],
        "unknown": alive[None],
        "remaining_seconds": _remaining(running, left, typical["total"]),
        "failures": failures(results, store),
        "damaged": damaged,
        "studies": _studies(sweep, results, store),
        "disk": _disk(sweep["trials"], store),
    }


def _results(trial_ids: Iterable[str], store: Storage) -> tuple[Results, list[str]]:
    """Results by trial id, and the files of results that cannot be read: their trials have none."""
    found: Results = {}
    damaged: list[str] = []
    for key in trial_ids:
        result, spoilt = results_.read_result(store.trial(key))
        damaged += map(str, spoilt)
        if result is not None:
            found[key] = result
    return found, damaged


def _median(results: Results, name: str) -> float | None:
    """Of the seconds of a part of the trials that were evaluated."""
    values = [result["seconds"][name] for result in results.values() if result["metrics"] and "seconds" in result]
    return statistics.median(values) if values else None


def under_way(trial_id: str, store: Storage, typical: Mapping[str, float | None]) -> dict[str, Any] | None:
    """A trial without a result that has begun, and what is left of it as far as anybody can know.

    `alive` is None for another machine's that has been silent; its clock may be off, too.
    """
    told = files.read_json(store.trial(trial_id) / PROGRESS)
    if told is None or not told.keys() >= KEYS:
        return None
    silent = time.time() - told["beat"]
    alive = processes.alive(told)
    evaluation, left = typical["evaluation"], told["training_left"]
    if told["phase"] in ("evaluation", "calibration"):
        rest = left or 0.0  # of the training, where it is evaluated on its way
        left = None if evaluation is None else max(0.0, evaluation - told["phase_seconds"] - silent) + rest
    elif left is not None:
        left += evaluation or 0.0
    return {
        "id": trial_id,
        "label": label(files.read_json(store.trial(trial_id) / CONFIG), trial_id),
        **{name: told[name] for name in ("phase", "step", "steps", "started", "seconds", "host", "pid")},
        "work": told.get("work"),
        "remaining_seconds": left,
        "silent_seconds": round(silent, 1),
        "alive": True if alive is None and abs(silent) <= SILENT else alive,
    }


def phase(found: dict[str, Any]) -> str:
    """`training`, or `evaluation, 310 of 717 answers` where its work is counted."""
    work = found["work"]
    return f"{found['phase']}, {work['done']} of {work['total']} {work['what']}" if work else found["phase"]


def _remaining(running: list[dict[str, Any]], left: int, total: float | None) -> float | None:
    """Of the whole sweep with as many trials at a time as now; None where nothing tells."""
    if not running or total is None:
        return None
    ahead = sum(
        max(0.0, total - found["seconds"]) if found["remaining_seconds"] is None else found["remaining_seconds"]
        for found in running
    )
    return (ahead + left * total) / len(running)


def failures(results: Results, store: Storage) -> list[dict[str, Any]]:
    """Trials that failed, by outcome and cause, the most frequent first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key, result in results.items():
        if result["status"] in FAILURES:
            groups.setdefault((result["status"], cause(result)), []).append(key)
    told = [
        {
            "status": status,
            "cause": (results[found[0]]["error"] or {}).get("message", reason),
            "trials": found,
            "log": str(store.trial(found[0]) / ERROR),
        }
        for (status, reason), found in groups.items()
    ]
    return sorted(told, key=lambda group: -len(group["trials"]))


def _studies(sweep: dict[str, Any], results: Results, store: Storage) -> list[dict[str, Any]]:
    """Best trial, by the sweep's selection rule, and Pareto front of every study."""
    studies: dict[str, Results] = {}
    for key, result in results.items():
        config = result["config"]
        name = f"{config['benchmark']['split']}/{config['method']}/{config['rectifier']['name']}"
        studies.setdefault(name, {})[key] = result
    if not studies:
        return []
    rule = Selection.model_validate(sweep.get("selection", {}))
    benchmark = next(iter(results.values()))["config"]["benchmark"]["name"]
    utilities = weights.utilities(sweep["references"], store, benchmark, rule)
    told = []
    for name, found in studies.items():
        best = weights.best(found, benchmark, rule, utilities.get(name.split("/")[0]))
        front = weights.front(weights.points_of(found, benchmark))
        pareto = [_told(key, found[key]) for key in front]
        chosen = None if best is None else _told(best, found[best])
        told.append({"study": name, "done": len(found), "best": chosen, "pareto": pareto})
    return told


def _told(trial_id: str, result: dict[str, Any]) -> dict[str, Any]:
    goals = benchmarks.find(result["config"]["benchmark"]["name"]).GOALS
    metrics = {goal.metric: result["metrics"].get(goal.metric) for goal in goals}
    outcome = benchmarks.outcome(result["config"]["benchmark"]["name"], result["metrics"])
    return {"id": trial_id, "label": label(result["config"], trial_id), "metrics": metrics, "outcome": outcome}


def label(config: dict[str, Any] | None, trial_id: str) -> str:
    """A trial's readable name; its id where the configuration is of another version of this program."""
    try:
        return Trial.model_validate(config).label()
    except ValidationError:
        return trial_id


def _driver(sweep: dict[str, Any], store: Storage) -> dict[str, Any] | None:
    """Who drives the sweep; `alive` is None for another machine's process, of which the heartbeat tells."""
    seen = lease.look(store, store.lock(sweep["name"], sweep["hash"]))
    if seen is None:
        return None
    known = {name: seen.owner.get(name) for name in ("host", "pid", "since", "command")}
    return {**known, "heartbeat_seconds": round(seen.age, 1), "alive": seen.alive}


def _disk(trial_ids: Iterable[str], store: Storage) -> dict[str, int]:
    trials = sum(store.size(store.trial(key)) for key in trial_ids)
    return {
        "trials_bytes": trials,
        "shared_bytes": store.size(store.root / "shared"),
        "free_bytes": store.free(),
    }

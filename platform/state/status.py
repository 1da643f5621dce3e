"""Where a sweep stands, read from its storage alone, its driver alive or not; without torch, Ray or MLflow."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from platform.state import lock
from platform.state.trial_outcomes import Results, mask_cause, read_trial_results
from platform.state.typed_commands import resume_command, storage_option
from trainables.benchmarks.verdict import judge_trial
from trainables.common import process_identity
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import CONFIG, ERROR, FAILURES, LOST
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile
from trainables.trial.progress import read_progress


def describe_sweep(sweep: SweepFile, store: Storage) -> dict[str, Any]:
    """Return the status of a sweep as JSON; `sweep` is its manifest."""
    store.download_sweeps_and_results(sweep.trials)
    results, damaged = read_trial_results(sweep.trials, store)
    evaluation, typical = (_median_seconds(results, name) for name in ("evaluation", "total"))
    alive: dict[bool | None, list[dict[str, Any]]] = {True: [], False: [], None: []}
    for key in sweep.trials:
        if key not in results and (found := read_progress(store.trial(key), evaluation)) is not None:
            config = atomic_files.read_json(store.trial(key) / CONFIG)
            alive[found.pop("alive")].append({"id": key} | found | {"label": _label(config, key, sweep.varied_axes)})
    running = alive[True]
    outcomes = Counter(result["status"] for result in results.values())
    failed = sum(outcomes[name] for name in FAILURES if name != LOST)
    total = sweep.planned_trials
    done = len(results) - failed - outcomes[LOST]
    left = max(0, total - done - failed - len(running))
    counts = {"total": total, "done": done, "running": len(running), "failed": failed, "left": left}
    return {
        "sweep": sweep.name,
        "hash": sweep.hash,
        "title": sweep.title,
        "created": sweep.created,
        "command": sweep.command,
        "axes": sweep.axes,
        "go_on": "; ".join(
            resume_command(command, storage_option(store)) for command in sweep.unfinished or (sweep.command,)
        ),
        "storage": store.location,
        "driver": _describe_driver(sweep, store),
        "counts": counts,
        "outcomes": dict(outcomes),
        "running": running,
        "interrupted": alive[False],
        "unknown": alive[None],
        "remaining_seconds": _estimate_rest(running, left, typical),
        "verdicts": _judge_splits(sweep, results, store),
        "failures": _group_failures(results, store),
        "damaged": [str(path) for path in damaged],
        "free_bytes": store.count_free_bytes(),
    }


def _judge_splits(sweep: SweepFile, results: Results, store: Storage) -> dict[str, str]:
    """Return the verdict on the trials so far of each split of which any is evaluated, where a sweep ships a model."""
    found = {}
    targets = {one.split: one.evaluation for one in sweep.references if one.role == "original"}
    for split, evaluation in targets.items() if sweep.sweep.get("export") else ():
        trials = {key: one for key, one in results.items() if one["config"]["benchmark"]["split"] == split}
        verdict = judge_trial(sweep.benchmark, sweep.selection, trials, store.read_evaluation(evaluation) or {})
        if any(one["metrics"] for one in trials.values()):
            config = trials[verdict.key]["config"] if verdict.key else None
            found[split] = verdict.describe(_label(config, verdict.key or "", sweep.varied_axes))
    return found


def _median_seconds(results: Results, name: str) -> float | None:
    """Return the median of what a part of the trials that were evaluated took."""
    timed = (result.get("seconds", {}).get(name) for result in results.values() if result["metrics"])
    values = [value for value in timed if value is not None]
    return statistics.median(values) if values else None


def _estimate_rest(running: list[dict[str, Any]], left: int, total: float | None) -> float | None:
    """Return the seconds of the whole sweep with as many trials at a time as now; None if nothing says."""
    if not running or total is None:
        return None
    rests = ((found["remaining_seconds"], total - found["seconds"]) for found in running)
    ahead = sum(max(0.0, guess) if known is None else known for known, guess in rests)
    return (ahead + left * total) / len(running)


def _group_failures(results: Results, store: Storage) -> list[dict[str, Any]]:
    """Return the trials that failed by outcome and cause, the most frequent first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key, result in results.items():
        if result["status"] in FAILURES:
            groups.setdefault((result["status"], mask_cause(result)), []).append(key)
    found = []
    for (status, reason), keys in groups.items():
        message = (results[keys[0]].get("error") or {}).get("message", reason)
        found.append({"status": status, "cause": message, "trials": keys, "log": str(store.trial(keys[0]) / ERROR)})
    return sorted(found, key=lambda group: -len(group["trials"]))


def _label(config: dict[str, Any] | None, trial_id: str, axes: Iterable[str]) -> str:
    """Return a trial's readable name, its id if the configuration is none of this checkout's."""
    try:
        return Trial.model_validate(config).label(axes)
    except ValidationError:
        return trial_id


def _describe_driver(sweep: SweepFile, store: Storage) -> dict[str, Any] | None:
    """Return who drives the sweep; all None of a damaged lock, `alive` None of another machine's process."""
    found = lock.read_lock(store, store.lock(sweep.name, sweep.hash))
    if found is None:
        return None
    known = {name: found.get(name) for name in ("host", "pid", "since", "command")}
    silent = round(time.time() - found["beat"], 1) if found else None
    return {**known, "heartbeat_seconds": silent, "alive": process_identity.is_process_alive(found)}

"""`python -m platform.status NAME`: where a sweep stands, from its storage alone, its driver alive or not."""

import json
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import trainables as trainables  # first: where packages are missing, it says what to type

# isort: split
import typer
from pydantic import ValidationError
from tabulate import tabulate

from platform.state import lock, manifest
from platform.state.manifest import format_resume_command
from platform.state.trial_outcomes import ResultsByTrial, normalise_failure_cause, read_trial_results
from trainables.benchmarks.selection import choose_and_judge_trial
from trainables.common import cli, process_identity
from trainables.common.wording import format_bytes, format_count, format_duration
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import CONFIG, ERROR, FAILED_STATUSES, LOST
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import format_storage_option, open_storage
from trainables.storage.sweep_file import SweepFile
from trainables.trial.progress import LOST_AFTER_SECONDS, format_progress_columns, read_progress

MAX_CAUSES_SHOWN, MAX_TRIALS_SHOWN = 5, 8
"""How many causes of failure and how many trials in one place the table tells; --json tells all."""


def main(
    name: cli.SweepArgument,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> int:
    """Say where a sweep stands: what is done, runs, failed and is left, and how to go on.

    Example: python -m platform.status tofu_tiny
    """
    store = open_storage(location, writable=False)
    try:
        sweep, *others = manifest.find_ready_sweeps(name, store)
    except manifest.SweepNotReady as state:
        cli.print_line(json.dumps({"preparation": str(state)}) if as_json else str(state))
        return 0
    found = collect_sweep_status(sweep, store)
    found["others"] = [
        {"name": item.label, "created": item.created, "trials": len(item.trials), "command": item.command}
        for item in others
    ]
    cli.print_line(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))
    return 0


def collect_sweep_status(sweep: SweepFile, store: Storage) -> dict[str, Any]:
    """Return the status of a sweep as JSON; `sweep` is its manifest."""
    store.download_sweeps_and_results(sweep.trials)
    results, damaged = read_trial_results(sweep.trials, store)
    timed = [result["seconds"] for result in results.values() if result["metrics"] and result.get("seconds")]
    parts = ([one[name] for one in timed if name in one] for name in ("evaluation", "total"))
    evaluation, typical = (statistics.median(part) if part else None for part in parts)
    alive: dict[bool | None, list[dict[str, Any]]] = {True: [], False: [], None: []}
    for key in sweep.trials:
        if key not in results and (found := read_progress(store.trial(key), evaluation)) is not None:
            config = atomic_files.read_json(store.trial(key) / CONFIG)
            alive[found.pop("alive")].append({"id": key} | found | {"label": _label(config, key, sweep.varied_axes)})
    running = alive[True]
    outcomes = Counter(result["status"] for result in results.values())
    failed = sum(outcomes[name] for name in FAILED_STATUSES if name != LOST)
    total = sweep.planned_trial_count
    done = len(results) - failed - outcomes[LOST]
    left = max(0, total - done - failed - len(running))
    counts = {"total": total, "done": done, "running": len(running), "failed": failed, "left": left}
    driver: dict[str, Any] | None = None  # all None of a damaged lock, `alive` None of another machine's process
    report, storage = store.root / "reports" / sweep.label / "index.html", format_storage_option(store)
    owner = lock.read_lock_owner(store, store.lock(sweep.name, sweep.hash))
    if owner is not None:
        driver = {name: owner.get(name) for name in ("host", "pid", "since", "command")}
        driver["heartbeat_seconds"] = round(time.time() - owner["beat"], 1) if owner else None
        driver["alive"] = process_identity.is_process_alive(owner)
    return {
        "sweep": sweep.name,
        **sweep.model_dump(mode="json", include={"hash", "title", "created", "command", "axes"}),
        "go_on": "; ".join(format_resume_command(one, storage) for one in sweep.unfinished or (sweep.command,)),
        "storage": store.location,
        "driver": driver,
        "report": str(report) if report.exists() else None,
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


def _judge_splits(sweep: SweepFile, results: ResultsByTrial, store: Storage) -> dict[str, str]:
    """Return the verdict on the trials so far of each split of which any is evaluated, where a sweep ships a model."""
    found = {}
    targets = {one.split: one.evaluation for one in sweep.references if one.role == "original"}
    for split, evaluation in targets.items() if sweep.sweep.get("export") else ():
        trials = {key: one for key, one in results.items() if one["config"]["benchmark"]["split"] == split}
        target = store.read_evaluation(evaluation) or {}
        verdict = choose_and_judge_trial(sweep.benchmark, sweep.selection, trials, target)
        if any(one["metrics"] for one in trials.values()):
            config = trials[verdict.key]["config"] if verdict.key else None
            found[split] = verdict.describe(_label(config, verdict.key or "", sweep.varied_axes))
    return found


def _estimate_rest(running: list[dict[str, Any]], left: int, total: float | None) -> float | None:
    """Return the seconds of the whole sweep with as many trials at a time as now; None if nothing says."""
    if not running or total is None:
        return None
    rests = ((found["remaining_seconds"], total - found["seconds"]) for found in running)
    ahead = sum(max(0.0, guess) if known is None else known for known, guess in rests)
    return (ahead + left * total) / len(running)


def _group_failures(results: ResultsByTrial, store: Storage) -> list[dict[str, Any]]:
    """Return the trials that failed by outcome and cause, the most frequent first."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for key, result in results.items():
        if (status := result["status"]) in FAILED_STATUSES:
            cause = normalise_failure_cause(result)
            message = (result.get("error") or {}).get("message", cause)
            first = {"status": status, "cause": message, "trials": [], "log": str(store.trial(key) / ERROR)}
            groups.setdefault((status, cause), first)["trials"].append(key)
    return sorted(groups.values(), key=lambda group: -len(group["trials"]))


def _label(config: dict[str, Any] | None, trial_id: str, axes: Iterable[str]) -> str:
    """Return a trial's readable name, its id if the configuration is none of this checkout's."""
    try:
        return Trial.model_validate(config).label(axes)
    except ValidationError:
        return trial_id


def _lines(found: dict[str, Any]) -> Iterator[str]:
    counts, left = found["counts"], found["remaining_seconds"]
    yield f"{found['sweep']}-{found['hash']}: {found['title']}"
    yield f"storage {found['storage']}, begun {found['created']}"
    driver = found["driver"]
    if driver is None or driver["alive"] is False:
        ended = "no driver" if driver is None else f"its driver died (process {driver['pid']} on {driver['host']})"
        yield ended + (f"; go on with: {found['go_on']}" if counts["left"] else "")
        if found["report"]:
            yield f"report: {found['report']}"
    elif driver["pid"] is None:
        yield "driven by an unknown process (its lock is damaged)"
    else:
        beat = f"last heartbeat {driver['heartbeat_seconds']:.0f} s ago"
        known = "" if driver["alive"] else " (of another machine: nobody here knows whether it lives)"
        yield f"driven by process {driver['pid']} on {driver['host']} since {driver['since']}, {beat}{known}"
    tally = [f"{state} {count}" for state, count in counts.items() if state != "total"] + [f"of {counts['total']}"]
    yield " | ".join(tally if left is None else [*tally, f"about {format_duration(left)} left"])
    for name, count in found["outcomes"].items():
        if name not in ("finished", *FAILED_STATUSES):
            yield f"done, but {name}: {count}"
    trials = found["running"]
    rows = [("running", "phase", "step", "for", "left", "on")]
    rows += [(item["label"], *format_progress_columns(item), item["host"]) for item in trials[:MAX_TRIALS_SHOWN]]
    if trials:
        yield tabulate(rows, tablefmt="plain", disable_numparse=True)
    if len(trials) > MAX_TRIALS_SHOWN:
        yield f"and {len(trials) - MAX_TRIALS_SHOWN} more"
    if found["interrupted"]:
        yield f"interrupted: {format_count(len(found['interrupted']), 'trial')} that had begun, counted as left"
    if found["unknown"]:
        many, hosts = format_count(len(found["unknown"]), "trial"), sorted({item["host"] for item in found["unknown"]})
        yield (
            f"unknown: {many} on {', '.join(hosts)} with no sign of life within {LOST_AFTER_SECONDS:.0f} s of this "
            "machine's clock; nobody here knows whether they run; they count as left"
        )
    so_far = " so far" if counts["left"] else ""
    yield from (f"verdict on {split}{so_far}: {verdict}" for split, verdict in found["verdicts"].items())
    for group in found["failures"][:MAX_CAUSES_SHOWN]:
        yield f"{group['status']} {len(group['trials'])}: {group['cause']} ({group['log']})"
    yield from (f"damaged: {path} (--resume runs its trial again)" for path in found["damaged"])
    yield f"disk: {format_bytes(found['free_bytes'])} free"
    for other in found["others"]:
        yield f"also: {other['name']}, begun {other['created']}, {other['trials']} trials: {other['command']}"


if __name__ == "__main__":
    cli.make_typer_app(main)()

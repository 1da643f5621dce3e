"""A sweep's manifest, STORAGE/sweeps/NAME-HASH.json: its trials' ids, its reference evaluations and its commands."""

import contextlib
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from platform.plan.plan import Plan
from platform.state.lock import read_lock_owner
from platform.state.trial_outcomes import SweepState
from trainables.common import process_identity, provenance
from trainables.common.cli import print_line
from trainables.common.errors import InputError
from trainables.common.fingerprints import hash_json
from trainables.common.redaction import redact
from trainables.common.wording import format_count
from trainables.config.trial import Trial
from trainables.storage.atomic_files import write_json
from trainables.storage.file_names import CONFIG, LOST
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile, find_sweeps_by_name, map_sweep_labels_to_names, read_sweep
from trainables.trial.progress import describe_shared_progress


class SweepNotReady(InputError):
    """A sweep that has no manifest yet, so that there is nothing to read; the message is its state."""


def write_manifest(state: SweepState, store: Storage, command: str) -> SweepFile:
    """Write the sweep's file; what earlier starts listed stays. `command`: what this start was typed as."""
    plan = state.plan
    path = store.sweep(plan.sweep.name, plan.hash)
    earlier = read_sweep(path) if path.exists() else None
    earlier = earlier and _drop_trials_on_other_rows(earlier, plan, store)
    commands: dict[str, str] = {}  # a start that goes on with an earlier one is not another
    for one in (*(earlier.commands if earlier else ()), command):
        commands.setdefault(format_resume_command(one), one)
    listed = [trial.id() for trial in plan.trials]
    unfinished = _list_unfinished(earlier, command, plan, store)
    if plan.strategy == "optuna":  # the others are added when they begin
        listed = [key for key in listed if key in state.done or store.has_unfinished_run(key)]
    trials = tuple(dict.fromkeys([*(earlier.trials if earlier else ()), *listed]))
    budget, budgets = len(trials), (earlier.budgets if earlier else {}) | plan.planned
    if plan.strategy == "optuna":  # a study ends at its budget, most points are never run
        budget = sum(store.result(key) is not None for key in trials) + state.number_to_run
        budget = max(budget, sum(budgets.values()))
    made = {(ref.split, ref.role) for ref in plan.references}
    kept = [ref for ref in earlier.references if (ref.split, ref.role) not in made] if earlier else []
    rule, searched = plan.sweep.selection, earlier is not None and earlier.selection.halves
    settings = plan.sweep.model_dump(mode="json")
    halves = rule.halves or (plan.strategy == "paper" and searched)  # which a later start with `paper` keeps
    sweep = SweepFile(
        name=plan.sweep.name,
        hash=plan.hash,
        title=plan.sweep.title,
        benchmark=plan.sweep.benchmark.name,
        backbone=plan.find_backbone_name(),
        created=earlier.created if earlier else provenance.utc_now(),
        command=command,
        commands=tuple(commands.values()),
        unfinished=unfinished,
        sweep=settings,
        strategy=plan.strategy,
        selection=rule.model_copy(update={"halves": halves}),
        axes=_unite_axes(earlier.axes if earlier else {}, settings["axes"]),
        trial_budget=budget,
        budgets=budgets,
        plan=earlier.plan if earlier else {},
        plan_hash=earlier.plan_hash if earlier else "",
        trials=trials,
        references=(*kept, *plan.references),
    )
    if earlier is None:
        planned = sweep.describe_plan()
        sweep = sweep.model_copy(update={"plan": planned, "plan_hash": hash_json(planned)})
        print_line(f"plan {sweep.plan_hash}, which the report compares with what was run")
    write_json(path, sweep.model_dump(mode="json"))
    store.push(path)
    return sweep


def _drop_trials_on_other_rows(earlier: SweepFile, plan: Plan, store: Storage) -> SweepFile:
    """Return the file without the trials of splits whose rows or retain model have changed since, but the plan's own.

    They would stand in one table with those of this start, and beside its reference models.
    """
    now = {(ref.split, ref.role): ref.evaluation for ref in plan.references if ref.role in ("original", "retain")}
    was = {(ref.split, ref.role): ref.evaluation for ref in earlier.references}
    changed = {split for (split, role), key in now.items() if was.get((split, role), key) != key}
    others = {*earlier.trials} - {trial.id() for trial in plan.trials} if changed else set[str]()
    configs = {key: store.read_json(store.trial(key) / CONFIG) for key in others}  # None of one that never began
    gone = {key for key, config in configs.items() if config is None or config["benchmark"]["split"] in changed}
    if gone:
        several = format_count(len(gone), "trial")
        print_line(f"{several} of earlier starts, on other rows or with another retain model: left out of the sweep")
    left = tuple(key for key in earlier.trials if key not in gone)
    references = tuple(ref for ref in earlier.references if ref.split not in changed)
    return earlier.model_copy(update={"trials": left, "references": references})


def _list_unfinished(earlier: SweepFile | None, command: str, plan: Plan, store: Storage) -> tuple[str, ...]:
    """Return the commands that together run all that is left, also what this start with `--only` does not plan."""
    planned = {trial.id() for trial in plan.trials}
    others = [key for key in earlier.trials if key not in planned] if earlier else []
    left = any((store.result(key) or {"status": LOST})["status"] == LOST for key in others)
    if earlier and plan.strategy == "optuna" and plan.left_out:  # whose trials are listed when they begin
        left = left or len(earlier.trials) < earlier.planned_trial_count
    if earlier is None or not left:
        return (command,)
    before = earlier.unfinished or (earlier.command,)
    return before if planned <= set(earlier.trials) else (*before, command)


def _unite_axes(earlier: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the axes of all starts as JSON: their values together, or the last range."""
    found = dict(earlier)
    for path, written in axes.items():
        known = earlier.get(path, [])
        ranged = [one for one in (written, known) if isinstance(one, dict)]
        found[path] = ranged[0] if ranged else list(dict.fromkeys((*known, *written)))
    return found


def add_trial_to_manifest(plan: Plan, store: Storage, trial: Trial) -> None:
    """Add a trial that begins to the sweep's file; a file that cannot be read or written now stops no sweep."""
    path = store.sweep(plan.sweep.name, plan.hash)
    with contextlib.suppress(InputError, OSError):
        sweep = read_sweep(path)
        if trial.id() in sweep.trials:
            return
        changed = sweep.model_copy(update={"trials": (*sweep.trials, trial.id())})
        write_json(path, changed.model_dump(mode="json"))
        store.try_push(path)


def find_ready_sweeps(name: str, store: Storage) -> list[SweepFile]:
    """Return the sweeps called NAME, newest first, or the one NAME-HASH. Raises InputError with the known ones."""
    store.download_sweeps_and_results()
    names = map_sweep_labels_to_names(store)
    for file in sorted((store.root / "sweeps").glob("*.lock")):
        if name in (file.stem, file.stem.rpartition("-")[0]) and name not in (*names, *names.values()):
            if (owner := read_lock_owner(store, file)) is None:
                continue
            if process_identity.is_process_alive(owner) is False:
                raise SweepNotReady(f"sweep {file.stem} was interrupted while it was prepared; start it again")
            made = "; ".join(describe_shared_progress(store)) or "data, models, reference evaluations"
            raise SweepNotReady(f"sweep {file.stem} is still being prepared (being made in this storage: {made})")
    return find_sweeps_by_name(name, store)


def format_sweep_command(arguments: Sequence[str] | None = None) -> str:
    """Return the command that starts a sweep with these arguments, or else with this process's, without secrets."""
    words = sys.argv[1:] if arguments is None else arguments
    return f"python -m platform.sweep {shlex.join(map(redact, words))}"


def format_resume_command(command: str, storage: str | None = None) -> str:
    """Return the command that resumes what `command` began. `storage`: an option that replaces the command's own."""
    taking = "reason" if storage is None else "reason|storage"
    dropped = rf" --(new|resume|retry-failed|({taking})[ =]('[^']*'|\S)+)(?!\S)"
    return f"{re.sub(dropped, '', command)} --resume{storage or ''}"

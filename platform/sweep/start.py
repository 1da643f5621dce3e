"""One start of a sweep: its lock, what an earlier start left, Ray where trials are left, its table and last lines."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from platform.plan.plan import Plan
from platform.schedule.ray_environment import remove_own_ray_folder, set_ray_environment
from platform.state import lock, manifest
from platform.state.limits import SweepStopper, load_spent_gpu_seconds, record_spent_gpu_seconds
from platform.state.manifest import format_resume_command, format_sweep_command
from platform.state.trial_outcomes import SweepState, add_recorded_trials_to_plan, read_sweep_state
from platform.sweep.chosen_trials import choose_trials_of_each_study, list_trials_to_attack
from platform.sweep.start_options import StartOptions
from platform.tracking.mirror import MlflowMirror, start_mlflow_mirror
from platform.tracking.runs import MLFLOW_CHART_QUERY
from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.common import provenance, typed_paths
from trainables.common.cli import print_line
from trainables.common.errors import InputError, first_error_line, last_line_of_text
from trainables.common.redaction import redact
from trainables.common.wording import format_count
from trainables.config.trial import Trial
from trainables.storage.file_names import ERROR, FAILED_STATUSES, LOST, RESULT, ROWS, STEPS
from trainables.storage.folder_storage import Storage, move_to_dated_folder, remove_trial_leftovers
from trainables.storage.opening import format_storage_option
from trainables.storage.sweep_file import read_sweep

QUICKSTART_FOLLOW_UP = "tofu_tiny --only benchmark.split=forget05 --only method=ga,npo --dry-run"


def run_sweep_under_lock(state: SweepState, store: Storage, options: StartOptions) -> int:
    """Run what is left of a plan as the sweep's only driver; return the exit status."""
    plan, command = state.plan, format_sweep_command()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a sweep as Ctrl-C does
    try:
        with lock.hold_sweep_lock(store, store.lock(plan.sweep.name, plan.hash), command):
            # another driver may have run trials since the state was read
            state = _settle_earlier_results(read_sweep_state(plan, store, options.retried_outcomes), store, options)
            return run_plan_and_report(state, store, command, options)
    except KeyboardInterrupt:
        remove_own_ray_folder()
        print_line(f"\nstopped; go on with: {format_resume_command(command)}", error=True)
        return 130


def run_plan_and_report(state: SweepState, store: Storage, command: str, options: StartOptions) -> int:
    set_ray_environment(options.address)
    plan, started = state.plan, time.monotonic()
    _print_beginning(state, store)
    spent = store.lock(plan.sweep.name, plan.hash).with_suffix(".spent")
    stopper = SweepStopper(options.gpu_hours, load_spent_gpu_seconds(spent, store), minutes=options.minutes)
    for old in (store.root / "ray").glob(f"{plan.name}-*"):  # of starts that were killed
        shutil.rmtree(old, ignore_errors=True)
    for trial_id in filter(store.has_result, (trial.id() for trial in plan.trials)):
        remove_trial_leftovers(store.trial(trial_id))
    if state.number_to_run and stopper.reason:
        return max(_print_stop(state.number_to_run, stopper), int(bool(state.failed_outcomes)))
    lacking = any(store.read_evaluation(ref.evaluation) is None for ref in plan.references)
    if state.number_to_run or plan.sweep.export or lacking or list_trials_to_attack(plan, store):
        with record_spent_gpu_seconds(stopper, spent, store):
            from platform.sweep import run_sweep_on_ray  # Ray, which reads its settings when it is imported

            mirror = run_sweep_on_ray.run_sweep_on_ray(state, store, command, stopper, options)
        if mirror is None:
            return 1
        remove_own_ray_folder()
    else:
        mirror = start_mlflow_mirror(manifest.write_manifest(state, store, command), store)
        mirror.close()
    store.push_unsent_results(trial.id() for trial in plan.trials)
    store.download_sweeps_and_results(trial.id() for trial in plan.trials)
    plan = add_recorded_trials_to_plan(plan, store)
    ended, total = sum(store.has_result(trial.id()) for trial in replace(state, plan=plan).remaining), len(state.done)
    minutes = (time.monotonic() - started) / 60
    print_line(f"{ended} of {total + state.number_to_run} trials run in {minutes:.1f} min")
    status, left = report_end_of_sweep(plan, store, mirror), read_sweep_state(plan, store).number_to_run
    if left and stopper.reason:
        return max(status, _print_stop(left, stopper))
    if left and not status:
        print_line(f"{format_count(left, 'trial')} without a result that can be read; --resume runs them again")
    return int(status or left > 0)


def _print_beginning(state: SweepState, store: Storage) -> None:
    """Print what there is to run, where, of which code, and what is odd."""
    trials = format_count(len(state.done) + state.number_to_run, "trial")
    print_line(f"sweep {state.plan.name}: {trials}, {len(state.done)} done, {state.number_to_run} to run")
    made = provenance.collect_provenance()
    commit = f"commit {made['commit']}{' (with uncommitted changes)' if made['dirty'] else ''}"
    print_line(f"storage {store.location}, {commit if made['commit'] else 'no git commit'}, code {made['code']}")
    if warning := state.warning():
        print_line(f"warning: {warning}")


def _print_stop(left: int, stopper: SweepStopper) -> int:
    """Print why the sweep ended before its trials and how many are left; return 1 if that is a failure, else 3."""
    print_line(f"stopped: {stopper.reason}; {format_count(left, 'trial')} left; {stopper.advice}")
    return 1 if stopper.first_trials_failed_alike or stopper.unwritable else 3


def _settle_earlier_results(state: SweepState, store: Storage, options: StartOptions) -> SweepState:
    """Set aside what runs again, and return the state after it. Raises InputError where a person has to choose."""
    plan = state.plan
    if options.new:
        move_to_dated_folder((store.trial(trial.id()) for trial in plan.trials), store)
        return read_sweep_state(plan, store)
    file = store.sweep(plan.sweep.name, plan.hash)
    earlier = read_sweep(file) if file.exists() else None
    unreadable = {path.parent.name for path in state.damaged}
    listed = earlier.trials if earlier else [key for key in (trial.id() for trial in plan.trials) if key in unreadable]
    gone = unreadable | set(state.retried)
    missing = [key for key in listed if key in gone or not store.has_result(key)]
    planned = earlier.planned_trials if earlier else len(listed)
    lacking = planned - len(listed) + len(missing)  # of an Optuna study more or fewer trials may be listed
    if lacking > 0 and state.number_to_run and not (options.resume or options.retry_failed):
        named = f" ({', '.join(map(str, state.damaged))} cannot be read)" if state.damaged else ""
        raise InputError(
            f"sweep {plan.name} is unfinished: {lacking} of its {planned} trials are missing{named}; add "
            "--resume to run them, or --new to set its results aside and start again"
        )
    if options.resume and earlier is None and not state.done and not listed:
        print_line(f"nothing to resume: {store.location} has none of this sweep's trials; it begins here")
    for path in state.damaged:
        print_line(f"damaged: {path}; its trial runs again")
    if state.retried:
        names = (RESULT, ERROR, STEPS, ROWS)  # the result first: from then on the trial is one to run
        place = move_to_dated_folder(
            (store.trial(key) / name for key in state.retried for name in names), store, by_folder=True
        )
        trials = format_count(len(state.retried), "trial")
        print_line(f"{trials} to run again; results set aside in {place}")
    return replace(state, damaged=())


def report_end_of_sweep(plan: Plan, store: Storage, mirror: MlflowMirror) -> int:
    """Print how a start ended, and make its report; return 1 if trials of the plan failed, else 0."""
    shown = typed_paths.make_path_relative(store.root)
    Console(width=None if sys.stdout.isatty() else 120).print(tabulate_references_and_choices(plan, store))
    print_line("making the report")  # in a process of its own: the driver does not import the analysis
    command = [sys.executable, "-m", "analysis.report", plan.name, "--storage", store.location]
    done = subprocess.run(command, cwd=provenance.CODE_ROOT, capture_output=True, text=True)
    if done.returncode:
        print_line(f"no report: {last_line_of_text(done.stderr)}")
    print_line(f"report: {shown / 'reports' / plan.name / 'index.html'}")
    print_line(describe_mlflow_page(store, mirror.page_path))
    first = read_sweep(store.sweep(plan.sweep.name, plan.hash)).command
    print_line(f"next:   {suggest_next_command(plan, first, store)}")
    mirror.log_report()
    if mirror.problem is not None:
        sync = f".venv/bin/python -m platform.tracking sync {plan.name}{format_storage_option(store)}"
        print_line(f"MLflow is behind ({first_error_line(mirror.problem)}); mend it with: {sync}")
    results = filter(None, (store.result(trial.id()) for trial in plan.trials))
    failed = [result for result in results if result["status"] in FAILED_STATUSES]
    for result in failed:
        message = (result.get("error") or {}).get("message")
        print_line(f"{result['status']}: {result['id']} {message} ({store.trial(result['id']) / ERROR})")
    lost = sum(result["status"] == LOST for result in failed)
    if lost:
        print_line(f"{format_count(lost, 'trial')} lost; --resume goes on with what they had")
    if len(failed) > lost:
        print_line(f"{format_count(len(failed) - lost, 'trial')} failed; --retry-failed runs them again")
    return 1 if failed else 0


def describe_mlflow_page(store: Storage, page: str) -> str:
    """Return where MLflow is, or the command that starts its UI; below, the sweep's table there and its chart."""
    uri = redact(
        os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{typed_paths.make_path_relative(store.root) / 'mlflow.db'}"
    )
    program = typed_paths.make_path_relative(Path(sys.executable).with_name("mlflow"))
    server = uri if uri.startswith("http") else "http://127.0.0.1:5000"
    shown = uri if uri.startswith("http") else f"{program} ui --backend-store-uri {uri}"
    links = f"\n  table: {server}/{page}\n  chart: {server}/{page}{MLFLOW_CHART_QUERY}" if page else ""
    return f"MLflow: {shown}{links}"


def suggest_next_command(plan: Plan, command: str, store: Storage) -> str:
    """Return what to type after `command`: a chat with the model that it wrote, more seeds after one, or an export."""
    storage = format_storage_option(store)
    for trial in reversed(plan.trials) if plan.sweep.export else ():
        if store.exists(store.root / "exports" / trial.id()):
            return f"python -m trainables.chat {trial.id()}{storage}   (the model that was written)"
    if plan.sweep.name == "quickstart":
        return f".venv/bin/python -m platform.sweep {QUICKSTART_FOLLOW_UP}   (TOFU's real rows, 10 of its 165 trials)"
    if len({trial.seed for trial in plan.trials}) == 1 and plan.strategy != "optuna" and "seed=" not in command:
        return f"{format_resume_command(command, storage)} --seeds 0,1,2   (one seed gives no verdict)"
    return f"python -m trainables.export ID --output DIR{storage}   (ID: the report's column Trial)"


def tabulate_references_and_choices(plan: Plan, store: Storage) -> Table:
    """Return a table of the goals, means over seeds: the reference models, then the chosen setting of each study."""
    name, rule = plan.sweep.benchmark.name, plan.sweep.selection
    goals = benchmarks.get_benchmark(name).GOALS
    table = Table("split", "method", "rectifier", "setting", "seeds", *(goal.short for goal in goals), box=box.SIMPLE)

    def add(labels: Sequence[str], documents: Sequence[Mapping[str, Any]]) -> None:
        metrics = [selection.pick_half_metrics(document, rule, reported=True) for document in documents]
        columns = [[one[goal.metric] for one in metrics if one.get(goal.metric) is not None] for goal in goals]
        shown = [f"{fmean(v):.{goal.digits}f}" if v else "" for goal, v in zip(goals, columns, strict=True)]
        table.add_row(*labels, *shown)

    for ref in plan.references:
        add((ref.split, ref.role, "", "", ""), [store.read_evaluation(ref.evaluation) or {}])
    chosen: dict[str, list[Trial]] = {}
    for trial in choose_trials_of_each_study(plan, store):
        chosen.setdefault(trial.study(), []).append(trial)
    for trials in chosen.values():
        first, seeds = trials[0], str(len(trials))
        labels = (first.benchmark.split, first.method, first.rectifier.name, plan.label(first), seeds)
        add(labels, [store.result(trial.id()) or {} for trial in trials])
    return table

"""`python -m platform.sweep NAME`: plan, run and report a named sweep."""

import json
import re
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from platform.plan import overrides
from platform.plan.build import make_plan
from platform.schedule.capacity import choose_gpu_share, describe_missing_resources, estimate_parallel_trials
from platform.schedule.ray_environment import remove_own_ray_folder, set_ray_environment
from platform.state import lock, manifest
from platform.state.limits import StartOptions, SweepStopper, load_spent_gpu_seconds, record_spent_gpu_seconds
from platform.state.trial_outcomes import SweepState, add_shared_artifact_warnings, read_sweep_state
from platform.sweep.chosen_trials import list_trials_to_attack
from platform.sweep.dry_run import describe_disk_shortage, format_dry_run, make_dry_run_document
from platform.sweep.finish import report_end_of_sweep
from platform.tracking.mirror import start_mlflow_mirror
from search_spaces.schema.sweep import Sweep, import_sweep, list_sweep_names
from trainables.common import cli, provenance
from trainables.common.errors import InputError, ProblemCollector, suggest_name
from trainables.common.wording import format_count
from trainables.storage.file_names import ERROR, RESULT, ROWS, STEPS
from trainables.storage.folder_storage import Storage, move_to_dated_folder, remove_trial_leftovers
from trainables.storage.opening import open_storage
from trainables.storage.sweep_file import read_sweep

preview_option, choice_option, place_option, restart_option = (
    partial(typer.Option, rich_help_panel=group)
    for group in ("Look before", "Which trials", "Where, and within what", "After an earlier start")
)


def main(
    name: Annotated[str | None, typer.Argument(help="Sweep to run; --list names them.")] = None,
    list_: Annotated[bool, preview_option("--list", help="List the sweeps.")] = False,
    dry_run: Annotated[bool, preview_option("--dry-run", help="Say what would run, and touch nothing.")] = False,
    as_json: Annotated[bool, preview_option("--json", hidden=True, help="With --list or --dry-run: JSON.")] = False,
    only: Annotated[list[str] | None, choice_option(metavar="FIELD=V1,V2", help="These trials only.")] = None,
    set_: Annotated[list[str] | None, choice_option("--set", metavar="PATH=V1,V2", help="In every trial.")] = None,
    seeds: Annotated[str | None, choice_option(metavar="0,1,2", help="Seeds, or 0-4.")] = None,
    strategy: Annotated[
        str | None, choice_option(help="grid, paper or optuna; else the sweep's own, mostly grid.")
    ] = None,
    trials: Annotated[int | None, choice_option(min=1, help="optuna: points of each study.")] = None,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
    cluster: Annotated[str | None, place_option(metavar="FILE", help="Run there: ray up's or KubeRay's.")] = None,
    address: Annotated[str | None, place_option(hidden=True, help="A running Ray cluster.")] = None,
    max_concurrent: Annotated[int | None, place_option(min=1, hidden=True, help="Trials at a time.")] = None,
    gpu_hours: Annotated[float | None, place_option(hidden=True, help="Begin no trial beyond so many.")] = None,
    minutes: Annotated[float | None, place_option(help="Begin no trial so many after the first.")] = None,
    kept: Annotated[str, place_option("--keep", help="pareto, best, all or none.")] = "pareto",
    resume: Annotated[bool, restart_option("--resume", help="Run what is missing of an unfinished sweep.")] = False,
    new: Annotated[bool, restart_option("--new", help="Set old results aside and run again.")] = False,
    retry_failed: Annotated[bool, restart_option("--retry-failed", help="Run failed trials again, too.")] = False,
    reason: Annotated[
        str | None, restart_option(hidden=True, help="--retry-failed: failed, out_of_memory or lost only.")
    ] = None,
) -> int:
    """Run a named sweep: make what its trials share, run them, write the report.

    Example: python -m platform.sweep tofu_tiny --only method=ga,npo --dry-run

    More in docs/guide.md: --json, --address, --max-concurrent, --gpu-hours, --reason.
    """
    problems = ProblemCollector()
    if list_:
        sweeps = [one for each in list_sweep_names() if (one := problems.collect_from(_load_sweep, each))]
        width = max(len(one.name) for one in sweeps)
        named = [{"name": one.name, "title": one.title} for one in sweeps]
        lines = (f"{one.name:{width}}  {one.title}" for one in sweeps)
        cli.print_line(json.dumps(named, indent=2) if as_json else "\n".join(lines))
        problems.raise_if_any()  # a file that is wrong, after those that are right
        return 0
    if name is None:
        raise InputError(f"name a sweep: {', '.join(list_sweep_names())}")
    if name not in list_sweep_names():
        raise InputError(f"unknown sweep '{name}'; {suggest_name(name, list_sweep_names())}")
    sweep = _load_sweep(name)
    options = StartOptions(gpu_hours, address, max_concurrent, kept, resume, new, retry_failed, reason, minutes)
    problems.found += options.find_problems(strategy or sweep.strategy, trials, cluster)
    settings = problems.collect_from(_list_settings, set_ or [], seeds)
    changed = problems.collect_from(overrides.apply_overrides, sweep, settings or set_ or [])  # without wrong --seeds
    sweep = changed or sweep
    if as_json and not dry_run:
        problems.found.append("--json: goes with --list or --dry-run")
    if kept == "none" and (sweep.export or sweep.stress.attacks):
        cli.print_line("warning: --keep none: the chosen model will be neither exported nor attacked", error=True)
    if cluster is not None:
        problems.raise_if_any()
        from platform.cluster import submit

        return submit.run_sweep_on_cluster(sweep.name, cluster, sys.argv[1:])
    if "://" in location:  # nobody waits for a store to hear of a mistyped option
        problems.raise_if_any()
    store = problems.collect_from(_open_storage, location)
    problems.raise_if_any()
    plan = make_plan(sweep, store, strategy=strategy, only=only, budget=trials)
    if sweep.resources.share_gpus:
        sweep = sweep.model_copy(update={"resources": choose_gpu_share(plan, options.address)})
        plan = make_plan(sweep, store, strategy=strategy, only=only, budget=trials)
    state = read_sweep_state(plan, store, options.retried_outcomes)
    aside = len(state.done) + len(state.retried) + len(state.damaged) if options.new else 0
    state = add_shared_artifact_warnings(SweepState(state.plan, {}), store) if options.new else state
    slots = estimate_parallel_trials(plan.sweep.resources, state.number_to_run, options.max_concurrent, options.address)
    lacks = describe_missing_resources(plan, options.address)
    if dry_run:
        document = make_dry_run_document(state, store, options.keep, slots, aside=aside, lacks=lacks)
        cli.print_line(json.dumps(document, indent=2) if as_json else "\n".join(format_dry_run(state, document, slots)))
        return 0
    if state.number_to_run and lacks:
        raise InputError("; ".join(lacks))
    if shortage := describe_disk_shortage(state, store, options.keep, slots):
        raise InputError(f"--storage: {shortage}")
    open_storage(location)  # made now, so that a start that is refused leaves nothing
    return run_sweep_under_lock(state, store, options)


def run_sweep_under_lock(state: SweepState, store: Storage, options: StartOptions) -> int:
    """Run what is left of a plan as the sweep's only driver; return the exit status."""
    plan, command = state.plan, manifest.format_sweep_command()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a sweep as Ctrl-C does
    try:
        with lock.hold_sweep_lock(store, store.lock(plan.sweep.name, plan.hash), command):
            # another driver may have run trials since the state was read
            state = _settle_earlier_results(read_sweep_state(plan, store, options.retried_outcomes), store, options)
            return run_plan_and_report(state, store, command, options)
    except KeyboardInterrupt:
        remove_own_ray_folder()
        cli.print_line(f"\nstopped; go on with: {manifest.format_resume_command(command)}", error=True)
        return 130


def run_plan_and_report(state: SweepState, store: Storage, command: str, options: StartOptions) -> int:
    set_ray_environment(options.address)
    plan, started = state.plan, time.monotonic()
    trials = format_count(len(state.done) + state.number_to_run, "trial")
    cli.print_line(f"sweep {plan.name}: {trials}, {len(state.done)} done, {state.number_to_run} to run")
    made = provenance.collect_provenance()
    commit = f"commit {made['commit']}{' (with uncommitted changes)' if made['dirty'] else ''}"
    cli.print_line(f"storage {store.location}, {commit if made['commit'] else 'no git commit'}, code {made['code']}")
    if warning := state.warning():
        cli.print_line(f"warning: {warning}")
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
    after = read_sweep_state(plan, store)
    ended = sum(store.has_result(trial.id()) for trial in after.plan.trials if trial.id() not in state.done)
    minutes = (time.monotonic() - started) / 60
    cli.print_line(f"{ended} of {len(state.done) + state.number_to_run} trials run in {minutes:.1f} min")
    status, left = report_end_of_sweep(after.plan, store, mirror), after.number_to_run
    if left and stopper.reason:
        return max(status, _print_stop(left, stopper))
    if (unread := left - len(after.retried)) > 0:  # those that were lost are told of
        cli.print_line(f"{format_count(unread, 'trial')} without a result that can be read; --resume runs them again")
    return int(status or left > 0)


def _print_stop(left: int, stopper: SweepStopper) -> int:
    """Print why the sweep ended before its trials and how many are left; return 1 if that is a failure, else 3."""
    cli.print_line(f"stopped: {stopper.reason}; {format_count(left, 'trial')} left; {stopper.advice}")
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
    planned = earlier.planned_trial_count if earlier else len(listed)
    lacking = planned - len(listed) + len(missing)  # of an Optuna study more or fewer trials may be listed
    if lacking > 0 and state.number_to_run and not (options.resume or options.retry_failed):
        named = f" ({', '.join(map(str, state.damaged))} cannot be read)" if state.damaged else ""
        advice = "add --resume to run them, or --new to set its results aside and start again"
        told = f"{lacking} of its {planned} trials are missing{named}"
        raise InputError(f"sweep {plan.name} is unfinished: {told}; {advice}")
    if options.resume and earlier is None and not state.done and not listed:
        cli.print_line(f"nothing to resume: {store.location} has none of this sweep's trials; it begins here")
    for path in state.damaged:
        cli.print_line(f"damaged: {path}; its trial runs again")
    if state.retried:
        names = (RESULT, ERROR, STEPS, ROWS)  # the result first: from then on the trial is one to run
        files = (store.trial(key) / name for key in state.retried for name in names)
        place = move_to_dated_folder(files, store, by_folder=True)
        trials = format_count(len(state.retried), "trial")
        cli.print_line(f"{trials} to run again; results set aside in {place}")
    return replace(state, damaged=())


def _list_settings(settings: list[str], seeds: str | None) -> list[str]:
    """Return `settings`, and a setting for seeds `0,1,2`, `0-2` or a range of a study. Raises InputError."""
    if seeds is None:
        return settings
    if any(setting.startswith("seed=") for setting in settings):
        raise InputError("--seeds and --set seed=: give one of them")
    found = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", seeds)
    if found and int(found[1]) <= int(found[2]) < int(found[1]) + 1000:
        seeds = ",".join(map(str, range(int(found[1]), int(found[2]) + 1)))
    if not re.fullmatch(r"[0-9]+((,[0-9]+)*|\.\.[0-9]+)", seeds):
        raise InputError(f"--seeds '{seeds}': write whole numbers from 0, such as 0,1,2, or 0-4 (1000 at most)")
    return [*settings, f"seed={seeds}"]


def _open_storage(location: str) -> Storage:
    """Open the storage and change nothing in it. Raises InputError if a start could not write."""
    store = open_storage(location, writable=False)
    try:
        tempfile.TemporaryFile(dir=store.nearest_existing_folder()).close()  # without a name, so that it is never seen
    except OSError as error:
        raise InputError(f"--storage: cannot write to '{store.root}'") from error
    return store


def _load_sweep(name: str) -> Sweep:
    """Return a sweep. Raises InputError on any error in its file, which users write."""
    try:
        return import_sweep(name)
    except Exception as error:
        raise InputError(f"search_spaces/{name}.py: {cli.describe_invalid_settings(error)}") from error


if __name__ == "__main__":
    cli.make_typer_app(main)()

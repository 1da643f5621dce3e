"""One start of a sweep: its lock, what an earlier start left, Ray where trials are left, and its last lines."""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import dataclass, replace

from platform.plan.plan import Plan
from platform.schedule.ray_environment import remove_ray_folder, set_ray_environment
from platform.state import lock, manifest
from platform.state.disk import KEEP_CHOICES
from platform.state.limits import SweepStopper, load_gpu_seconds, record_gpu_seconds
from platform.state.manifest import resume_command, sweep_command
from platform.state.trial_outcomes import SweepState, add_recorded_trials, count_outcomes, read_sweep_state
from platform.sweep.chosen_trials import list_trials_to_attack
from platform.sweep.finish import print_sweep_end
from platform.tracking.mirror import start_mirror
from trainables.common import provenance
from trainables.common.cli import print_line
from trainables.common.errors import InputError, suggest_name
from trainables.common.wording import format_count
from trainables.storage.file_names import ERROR, FAILURES, LOST, RESULT, ROWS, STEPS
from trainables.storage.folder_storage import Storage, remove_leftovers, set_aside
from trainables.storage.sweep_file import read_sweep


@dataclass(frozen=True)
class StartOptions:
    """The options of a start, apart from what is planned."""

    gpu_hours: float | None = None
    address: str | None = None
    max_concurrent: int | None = None
    keep: str = "pareto"
    resume: bool = False
    new: bool = False
    retry_failed: bool = False
    reason: str | None = None
    minutes: float | None = None

    def check(self, strategy: str, trials: int | None, cluster: str | None) -> None:
        """Raise InputError if a value is unknown or options exclude each other."""
        if cluster is not None and self.address is not None:
            raise InputError("--cluster and --address exclude each other: the first starts the sweep on that head")
        if trials is not None and strategy != "optuna":
            raise InputError(f"--trials {trials}: for --strategy optuna; --strategy {strategy} has its own order")
        if self.new and (self.resume or self.retry_failed):
            raise InputError(f"--{'resume' if self.resume else 'retry-failed'} and --new exclude each other")
        if self.reason is not None and not self.retry_failed:
            raise InputError("--reason: says which failed trials --retry-failed runs again; add --retry-failed")
        if self.reason is not None and self.reason not in FAILURES:
            raise InputError(f"--reason: unknown reason '{self.reason}'; {suggest_name(self.reason, FAILURES)}")
        for option, limit in (("--gpu-hours", self.gpu_hours), ("--minutes", self.minutes)):
            if limit is not None and not 0 < limit < float("inf"):
                raise InputError(f"{option}: must be above 0, got {limit:g}")
        if self.keep not in KEEP_CHOICES:
            raise InputError(f"--keep: unknown choice '{self.keep}'; {suggest_name(self.keep, KEEP_CHOICES)}")


def start_sweep(state: SweepState, store: Storage, options: StartOptions) -> int:
    """Run what is left of a plan as the sweep's only driver; return the exit status."""
    plan, command = state.plan, sweep_command()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a sweep as Ctrl-C does
    try:
        with lock.acquire_lock(store, store.lock(plan.sweep.name, plan.hash), command):
            state = read_sweep_state(plan, store, state.retry)  # another driver may have run trials since it was read
            state = _settle_earlier_results(state, store, options)
            return run_plan(state, store, command, options)
    except KeyboardInterrupt:
        remove_ray_folder()
        print_line(f"\nstopped; go on with: {resume_command(command)}", error=True)
        return 130


def run_plan(state: SweepState, store: Storage, command: str, options: StartOptions) -> int:
    set_ray_environment(options.address)
    plan, started = state.plan, time.monotonic()
    _print_beginning(state, store)
    spent = store.lock(plan.sweep.name, plan.hash).with_suffix(".spent")
    stopper = SweepStopper(options.gpu_hours, load_gpu_seconds(spent, store), minutes=options.minutes)
    for old in (store.root / "ray").glob(f"{plan.name}-*"):  # of starts that were killed
        shutil.rmtree(old, ignore_errors=True)
    for trial_id in filter(store.has, (trial.id() for trial in plan.trials)):
        remove_leftovers(store.trial(trial_id))
    if state.number_to_run and stopper.reason:
        return max(_print_stop(plan, store, stopper), int(bool(state.failed_outcomes)))
    lacking = any(store.read_evaluation(ref.evaluation) is None for ref in plan.references)
    if state.number_to_run or plan.sweep.export or lacking or list_trials_to_attack(plan, store):
        with record_gpu_seconds(stopper, spent, store):
            from platform.sweep import run_on_ray  # Ray, which reads its settings when it is imported

            mirror = run_on_ray.run_on_ray(state, store, command, stopper, options)
        if mirror is None:
            return 1
        remove_ray_folder()
    else:
        sweep = manifest.write_manifest(state, store, command)
        mirror = start_mirror(sweep, store)
        mirror.close(count_outcomes(sweep, store))
    store.push_unsent(trial.id() for trial in plan.trials)
    store.download_sweeps_and_results(trial.id() for trial in plan.trials)
    plan = add_recorded_trials(plan, store)
    ended, total = sum(store.has(trial.id()) for trial in replace(state, plan=plan).remaining), len(state.done)
    minutes = (time.monotonic() - started) / 60
    print_line(f"{ended} of {total + state.number_to_run} trials run in {minutes:.1f} min")
    status = print_sweep_end(plan, store, mirror)
    if stopper.reason:
        return max(status, _print_stop(plan, store, stopper))
    lacking = 0 if status else read_sweep_state(plan, store).number_to_run
    if lacking:
        print_line(f"{format_count(lacking, 'trial')} without a result that can be read; --resume runs them again")
    return int(status or lacking > 0)


def _print_beginning(state: SweepState, store: Storage) -> None:
    """Print what there is to run, where, of which code, and what is odd."""
    trials = format_count(len(state.done) + state.number_to_run, "trial")
    print_line(f"sweep {state.plan.name}: {trials}, {len(state.done)} done, {state.number_to_run} to run")
    made = provenance.read_provenance()
    commit = f"commit {made['commit']}{' (with uncommitted changes)' if made['dirty'] else ''}"
    print_line(f"storage {store.location}, {commit if made['commit'] else 'no git commit'}, code {made['code']}")
    if warning := state.warning():
        print_line(f"warning: {warning}")


def _print_stop(plan: Plan, store: Storage, stopper: SweepStopper) -> int:
    """Print why the sweep ended before its trials and what is left of it; return 1 if that is a failure, else 3."""
    left = read_sweep_state(plan, store).number_to_run
    if not left:
        return 0
    print_line(f"stopped: {stopper.reason}; {format_count(left, 'trial')} left; {stopper.advice}")
    return 1 if stopper.fails_alike or stopper.unwritable else 3


def _settle_earlier_results(state: SweepState, store: Storage, options: StartOptions) -> SweepState:
    """Set aside what runs again, and return the state after it. Raises InputError where a person has to choose."""
    plan = state.plan
    if options.new:
        set_aside((store.trial(trial.id()) for trial in plan.trials), store)
        return read_sweep_state(plan, store)
    file = store.sweep(plan.sweep.name, plan.hash)
    earlier = read_sweep(file) if file.exists() else None
    unreadable = {path.parent.name for path in state.damaged}
    listed = earlier.trials if earlier else [key for key in (trial.id() for trial in plan.trials) if key in unreadable]
    gone = unreadable | {key for key, status in state.outcomes.items() if status == LOST}
    missing = [key for key in listed if key in gone or not store.has(key)]
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
        place = set_aside((store.trial(key) / name for key in state.retried for name in names), store, by_folder=True)
        trials = format_count(len(state.retried), "trial")
        print_line(f"{trials} to run again; results set aside in {place}")
    kept = {key: state.outcomes[key] for key in state.done}
    return replace(state, outcomes=kept, damaged=(), retry=(), again=state.retried)

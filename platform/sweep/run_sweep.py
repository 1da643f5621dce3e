"""One start of a sweep: its first lines, Ray where trials are left, and its last lines."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

from platform.plan.plan import Plan
from platform.schedule.ray_environment import set_ray_environment
from platform.state import manifest
from platform.state.limits import Stopper
from platform.state.spent_gpu_seconds import load_spent, record_spent
from platform.state.trial_outcomes import SweepState, add_recorded, count_outcomes, has_references, scan
from platform.state.typed_commands import storage_option
from platform.sweep.chosen_trials import list_to_attack
from platform.sweep.finish import print_end
from platform.sweep.live_table import print_line
from platform.sweep.start_options import Options
from platform.tracking.mirror import Mirror, start_mirror
from trainables.common import provenance
from trainables.common.errors import first_line
from trainables.common.wording import format_count
from trainables.storage.folder_storage import Storage
from trainables.storage.trial_files import remove_leftovers


def run(state: SweepState, store: Storage, command: str, options: Options) -> int:
    """Run what is left of a plan; return the exit status."""
    set_ray_environment(options.address)
    plan, started = state.plan, time.monotonic()
    trials = format_count(len(state.done) + state.outstanding, "trial")
    print_line(f"sweep {plan.name}: {trials}, {len(state.done)} done, {state.outstanding} to run")
    made = provenance.stamp()
    commit = f"commit {made['commit']}{' (with uncommitted changes)' if made['dirty'] else ''}"
    print_line(f"storage {store.location}, {commit if made['commit'] else 'no git commit'}, code {made['code']}")
    if warning := state.warning():
        print_line(f"warning: {warning}")
    stopper = Stopper(options.gpu_hours, load_spent(state, store))
    _remove_leftovers(plan, store)
    if state.outstanding and stopper.reason:
        return max(_print_stop(plan, store, stopper), int(bool(state.failed)))
    if state.outstanding or plan.sweep.export or not has_references(plan, store) or list_to_attack(plan, store):
        with record_spent(stopper, store.spent(plan.sweep.name, plan.hash), store):
            from platform.sweep import run_on_ray  # Ray, which reads its settings when it is imported

            mirror = run_on_ray.run(state, store, command, stopper, options)
        if mirror is None:
            return 1
    else:
        sweep = manifest.write_manifest(state, store, command, options.settings)
        mirror = start_mirror(sweep, store)
        mirror.close(count_outcomes(sweep, store))
    store.sync_trials(trial.id() for trial in plan.trials)  # results that could not be sent are sent now
    plan = add_recorded(plan, store)
    print_line(describe_run(replace(state, plan=plan), store, time.monotonic() - started))
    status = print_end(plan, store, mirror.page)
    _show_report(plan, store, mirror)
    if stopper.reason:
        return max(status, _print_stop(plan, store, stopper))
    lacking = 0 if status else scan(plan, store).outstanding
    if lacking:
        print_line(f"{format_count(lacking, 'trial')} without a result that can be read; --resume runs them again")
    return int(status or lacking > 0)


def _remove_leftovers(plan: Plan, store: Storage) -> None:
    """Remove what starts that were killed have left: Tune's state, and checkpoints of trials that have a result."""
    for old in (store.root / "ray").glob(f"{plan.name}-*"):
        shutil.rmtree(old, ignore_errors=True)
    for trial_id in filter(store.has, (trial.id() for trial in plan.trials)):
        remove_leftovers(store.trial(trial_id))


def _show_report(plan: Plan, store: Storage, mirror: Mirror) -> None:
    """Show the report in MLflow, or print the command that mends what is not there."""
    mirror.log_report()
    if mirror.problem is not None:
        sync = f".venv/bin/python -m platform.tracking sync {plan.name}{storage_option(store)}"
        print_line(f"MLflow is behind ({first_line(mirror.problem)}); mend it with: {sync}")


def describe_run(state: SweepState, store: Storage, seconds: float) -> str:
    """Return how many trials this start has run, of how many that the sweep means to run."""
    ended = sum(store.has(trial.id()) for trial in state.left)
    return f"{ended} of {len(state.done) + state.outstanding} trials run in {seconds / 60:.1f} min"


def _print_stop(plan: Plan, store: Storage, stopper: Stopper) -> int:
    """Print why the sweep ended before its trials and what is left of it; return 1 if that is a failure, else 3."""
    left = scan(plan, store).outstanding
    if not left:
        return 0
    print_line(f"stopped: {stopper.reason}; {format_count(left, 'trial')} left; {stopper.advice}")
    return 1 if stopper.fails_alike or stopper.unwritable else 3

"""The start of a sweep: one driver at a time, what an earlier start left, and how to go on after an interrupt."""

from __future__ import annotations

import signal
import sys

from platform.state import lock, manifest
from platform.state.trial_outcomes import SweepState, scan
from platform.state.typed_commands import resume_command, typed_command
from platform.sweep import run_sweep
from platform.sweep.start_options import Options
from trainables.common.errors import InputError
from trainables.common.wording import format_count
from trainables.storage.folder_storage import Storage, set_aside
from trainables.storage.names import ERROR, LOST, RESULT, ROWS, STEPS


def start_sweep(state: SweepState, store: Storage, options: Options) -> int:
    """Run what is left of a plan as the sweep's only driver; return the exit status."""
    plan, command = state.plan, typed_command()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a sweep as Ctrl-C does
    try:
        with lock.acquire_lock(store, store.lock(plan.sweep.name, plan.hash), command):
            state = scan(plan, store, state.retry)  # another driver may have run trials since it was read
            state = _settle_earlier_results(state, store, options)
            return run_sweep.run(state, store, command, options)
    except KeyboardInterrupt:
        print(f"\nstopped; go on with: {resume_command(command)}", file=sys.stderr)
        return 130


def _settle_earlier_results(state: SweepState, store: Storage, options: Options) -> SweepState:
    """Set aside what runs again, and return the state after it. Raises InputError where a person has to choose."""
    plan = state.plan
    if options.new:
        set_aside((store.trial(trial.id()) for trial in plan.trials), store)
        return scan(plan, store)
    file = store.sweep(plan.sweep.name, plan.hash)
    earlier = manifest.read_earlier(file)
    damaged = [*state.damaged, *([file] if earlier is None and file.exists() else [])]
    listed = earlier.trials if earlier else [trial.id() for trial in plan.trials] if damaged else []
    gone = {path.parent.name for path in state.damaged} | {k for k, v in state.outcomes.items() if v == LOST}
    missing = [key for key in listed if key in gone or not store.has(key)]
    planned = earlier.planned if earlier else len(listed)
    lacking = planned - len(listed) + len(missing)  # of an Optuna study more or fewer trials may be listed
    if lacking > 0 and state.outstanding and not (options.resume or options.retry_failed):
        named = f" ({', '.join(map(str, damaged))} cannot be read)" if damaged else ""
        raise InputError(
            f"sweep {plan.name} is unfinished: {lacking} of its {planned} trials are missing{named}; add "
            "--resume to run them, or --new to set its results aside and start again"
        )
    if options.resume and earlier is None and not state.done and not listed:
        print(f"nothing to resume: {store.location} has none of this sweep's trials; it begins here", flush=True)
    if damaged:
        place = set_aside(sorted({path if path == file else path.parent for path in damaged}), store)
        for path in damaged:
            print(f"damaged: {path}; set aside in {place}" + (", its trial runs again" if path != file else ""))
    if state.retried:
        names = (RESULT, ERROR, STEPS, ROWS)  # the result first: from then on the trial is one to run
        place = set_aside((store.trial(key) / name for key in state.retried for name in names), store, by_folder=True)
        trials = format_count(len(state.retried), "trial")
        print(f"{trials} to run again; results set aside in {place}", flush=True)
    return state.after_setting_aside()

"""A start of a sweep: one driver at a time, what an earlier start left, and the way to go on after an interrupt."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import platform.lock as lock
import platform.manifest as manifest
import platform.plan as planning
from trainables import storage
from trainables.errors import InputError


@dataclass(frozen=True)
class Choice:
    """What a person asked a start to make of an earlier one."""

    resume: bool = False
    new: bool = False


def start(plan: planning.Plan, store: storage.Storage, choice: Choice, options: dict[str, Any]) -> int:
    """Run what is left of a plan as the sweep's only driver; returns the exit status."""
    command = shlex.join(["python", "-m", "platform.sweep", *sys.argv[1:]])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with lock.held(store.lock(plan.sweep.name, plan.hash), command):
            plan = _agreed(planning.again(plan, store), store, choice)
            import platform.driver as driver

            return driver.run(plan, store, command=command, **options)
    except KeyboardInterrupt:
        print(f"\nstopped; go on with: {manifest.go_on(command)}", file=sys.stderr)
        return 130


def _agreed(plan: planning.Plan, store: storage.Storage, choice: Choice) -> planning.Plan:
    """The plan after what was asked for is done. Raises InputError where a person has to choose."""
    earlier = storage.read_json(store.sweep(plan.sweep.name, plan.hash))
    missing = [key for key in (earlier or {}).get("trials", []) if store.result(key) is None]
    if not plan.outstanding:  # an Optuna budget that is spent leaves points that nobody means to run
        missing = []
    if choice.new:
        _set_aside((trial.id() for trial in plan.trials), store)
        return planning.again(plan, store)
    if missing and not choice.resume:
        raise InputError(
            f"sweep {plan.name} is unfinished: {len(missing)} of its {len((earlier or {})['trials'])} trials are "
            "missing; add --resume to run them, or --new to set its results aside and start again"
        )
    return plan


def _set_aside(trial_ids: Iterable[str], store: storage.Storage) -> None:
    """Move trials' folders out of the way, under a dated folder."""
    place = store.root / "set_aside" / time.strftime("%Y%m%dT%H%M%S")
    for trial_id in trial_ids:
        if store.trial(trial_id).is_dir():
            place.mkdir(parents=True, exist_ok=True)
            store.trial(trial_id).rename(place / trial_id)

"""Commands of tests in this process, starts whose driver is not run, and how light a command is."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import platform.sweep.__main__ as sweep
from platform.state import manifest
from platform.state.limits import StartOptions
from platform.state.trial_outcomes import SweepState
from trainables.common import cli, process_identity
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import PROGRESS, RESULT
from trainables.storage.folder_storage import Storage


def invoke(main: Callable[..., int], *arguments: object) -> Any:
    """Run a command's function as if it was typed."""
    return CliRunner().invoke(cli.make_typer_app(main), [str(argument) for argument in arguments])


def in_process(*arguments: object) -> Any:
    """Run platform.sweep."""
    return invoke(sweep.main, *arguments)


def assert_refused(done: Any, *words: str) -> None:
    """Assert exit status 2 and one line of error with all of these words."""
    assert (done.exit_code, done.stderr.count("\n"), done.stderr[:7]) == (2, 1, "error: "), done.output
    assert [word for word in words if word not in done.stderr] == [], done.stderr


def refuse(*arguments: object) -> str:
    """Return the one line of a start that is refused before it prints anything."""
    done = in_process(*arguments)
    assert_refused(done)
    assert done.stdout == ""
    return done.stderr


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A start sets the process's signal handlers; the tests' own come back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[SweepState]:
    """Return what reaches the driver, which itself is not run."""
    states: list[SweepState] = []

    def record(state: SweepState, store: Storage, command: str, options: StartOptions) -> int:
        manifest.write_manifest(state, store, command)
        states.append(state)
        return 0

    monkeypatch.setattr(sweep, "run_plan_and_report", record)
    return states


CONFIG_FIELDS = {"method": "ga", "rectifier": {"name": "none"}, "benchmark": {"name": "tofu", "split": "forget01"}}
RESULT_FIELDS = {"status": "finished", "metrics": {}, "config": CONFIG_FIELDS, "started": "2026-11-20T10:00:00+00:00"}
HEAVY = ("torch", "ray", "mlflow", "deepspeed", "datasets", "optuna", "lm_eval")


def assert_light(root: Path, module: str, *commands: list[str]) -> None:
    """Run a module with each of these arguments in one process: it imports nothing heavy and answers soon.

    It has three tries: on a machine that is busy with other work a second of CPU does less.
    """
    code = f"""
import runpy, sys, time
for arguments in {commands!r}:
    sys.argv = ["command", *arguments]
    try:
        runpy.run_module({module!r}, run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
print([name for name in {HEAVY!r} if name in sys.modules], time.process_time())
"""
    cpu = "0"
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        loaded, cpu = done.stdout.splitlines()[-1].rsplit(" ", 1)
        assert loaded == "[]"
        if float(cpu) <= 2.0:  # of a light command, whatever else the machine does
            return
    raise AssertionError(f"{cpu} seconds of CPU")


def write_result(store: Storage, trial_id: str, **given: Any) -> None:
    """Write the result of an invented trial, with what is given and else RESULT_FIELDS."""
    atomic_files.write_json(store.trial(trial_id) / RESULT, {**RESULT_FIELDS, "id": trial_id, **given})


def write_evaluation(store: Storage, key: str, metrics: dict[str, Any]) -> None:
    """Write an invented evaluation of a reference model."""
    atomic_files.write_json(store.evaluation(key) / RESULT, {"id": key, "metrics": metrics})


def write_progress(store: Storage, trial_id: str, **changed: Any) -> None:
    """Write the progress of a trial at step 5 of 20 of its training, in this process unless changed."""
    known = {"phase": "training", "step": 5, "steps": 20, "training_left": 45.0, "seconds": 20.0, "phase_seconds": 15.0}
    known |= {"started": "2026-11-20T10:00:00Z", "beat": time.time()}
    atomic_files.write_json(store.trial(trial_id) / PROGRESS, process_identity.identify_self() | known | changed)


def finish(store: Storage, trials: Iterable[Trial], status: str = "finished", **more: Any) -> None:
    """Write a result of each trial."""
    for trial in trials:
        given = {"status": status, "started": "2026-11-20T10:00:00Z", "config": trial.model_dump(mode="json"), **more}
        write_result(store, trial.id(), **given)

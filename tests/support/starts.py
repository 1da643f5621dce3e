"""Starts of a sweep in this process whose driver is not run: for tests of what a start makes of an earlier one."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import platform.sweep as sweep
from platform.driver import driver
from platform.state import manifest
from platform.state.sweep_state import SweepState
from trainables.config.trial import Trial
from trainables.storage import files
from trainables.storage.base import RESULT, Storage


def in_process(*arguments: object) -> Any:
    app = typer.Typer()
    app.command()(sweep.main)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A start sets the process's signal handlers; the tests' own come back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[SweepState]:
    """Return what reaches the driver, which itself is not run."""
    states: list[SweepState] = []

    def record(state: SweepState, store: Storage, command: str, options: driver.Options) -> int:
        manifest.write_manifest(state, store, command)
        states.append(state)
        return 0

    monkeypatch.setattr(driver, "run", record)
    return states


RESULT_FIELDS = {"status": "finished", "metrics": {}, "config": {}, "started": "then"}


def finish(store: Storage, trials: Iterable[Trial], status: str = "finished") -> None:
    for trial in trials:
        told = {**RESULT_FIELDS, "id": trial.id(), "status": status, "config": trial.model_dump(mode="json")}
        files.write_json(store.trial(trial.id()) / RESULT, told)

"""A disk that takes nothing more: one message, and a sweep that stops instead of failing trial by trial."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from platform.driver.live_table import Screen
from platform.driver.running_counts import Counts, Waiting
from platform.driver.trial_callback import TrialCallback
from platform.state import disk
from platform.state.limits import Stopper
from trainables.common import cli
from trainables.config.settings import Model
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage

CONFIG = Trial(method="ga", target=Model(path="models/full", fingerprint="files:1"))


def full(path: Path, *content: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_command_that_meets_a_full_disk_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.guarded(lambda: full(Path("/runs/sweeps/tiny.json")) or 0) == 1
    told = "error: No space left on device: '/runs/sweeps/tiny.json'; make room, then start again\n"
    assert capsys.readouterr().err == told
    with pytest.raises(FileNotFoundError):
        cli.guarded(lambda: Path("/nowhere/at/all").stat().st_size)


def test_failure_that_cannot_be_recorded_stops_the_sweep(
    store: Storage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trial stays missing, so that --resume runs it."""
    monkeypatch.setattr(atomic_files, "write_text", full)
    stopper, mirrored = Stopper(), []
    keeper: Any = SimpleNamespace(trial_ended=lambda ended: None)
    mirror: Any = SimpleNamespace(add_trial=mirrored.append)
    monitor = disk.DiskMonitor(keeper, None)
    counts = Counts(name="tiny", total=3, slots=1)
    reporter = TrialCallback(
        counts, store, mirror, stopper, monitor, Screen(Console()), Waiting({}, dict, lambda: None)
    )
    kept = SimpleNamespace(metric_analysis={}, metric_n_steps={})
    died = SimpleNamespace(config={"trial": CONFIG.model_dump_json()}, trial_id="1", run_metadata=kept)
    died.error_file, died.last_result = None, {}
    reporter.on_trial_start(0, [], died)
    assert stopper.reason is None
    reporter.on_trial_error(0, [], died)
    assert stopper.reason == f"the storage takes nothing more: No space left on device ({store.root})"
    assert stopper.advice == "make room, then go on with --resume"
    assert not store.has(CONFIG.id())
    said = capsys.readouterr().out
    assert "lost: not recorded, because the storage takes nothing more: No space left on device" in said
    assert str(counts).startswith("done 0 | running 0 | failed 1 | left 2")

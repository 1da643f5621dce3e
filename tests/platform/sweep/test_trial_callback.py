"""A storage that does not answer once, or is full: no result is lost to the driver's belief that a trial died."""

from __future__ import annotations

import errno
import os
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from platform.state.limits import Stopper
from platform.sweep.console import Counts, Screen, Waiting
from platform.sweep.trial_callback import TrialCallback
from tests.support import machines
from trainables.common import cli
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Trial
from trainables.storage import atomic_files, names
from trainables.storage.folder_storage import Storage
from trainables.storage.object_storage import ObjectStorage
from trainables.storage.opening import open_storage
from trainables.trial.record import Record, write_result

CONFIG = Trial(
    method="ga",
    benchmark=Benchmark(data="data", fingerprint="files:0"),
    target=Model(path="models/full", fingerprint="files:1"),
)
KEY = CONFIG.id()
DONE = {"id": KEY, "done": True, "status": "finished", "forget_quality": -1.0, "model_utility": 0.5}


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ObjectStorage]:
    """One storage as the driver's machine and a worker's machine have it."""
    uri, found = f"memory://runs/{uuid.uuid4().hex}", []
    for name in ("driver", "worker"):
        monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path / name))
        copy = open_storage(uri)
        assert isinstance(copy, ObjectStorage)
        found.append(copy)
    return found


@pytest.fixture
def reporter(copies: list[ObjectStorage]) -> TrialCallback:
    pruned: list[str] = []
    keeper: Any = SimpleNamespace(trial_ended=lambda ended, result: pruned.append(ended.id()))
    told: list[str] = []
    mirror: Any = SimpleNamespace(
        told=told, start_trial=lambda trial: None, add_trial=lambda key, result: told.append(key)
    )
    counts, waiting = Counts(name="tiny", total=1, slots=1), Waiting({}, dict, lambda: None)
    return TrialCallback(counts, copies[0], mirror, Stopper(), keeper, Screen(Console()), waiting)


def finish(store: ObjectStorage) -> dict[str, bytes]:
    """A worker ends the trial; what the storage holds of it then."""
    store.start_trial(KEY, {})
    record = Record("2026-11-21T12:00:00+00:00", metrics={"forget_quality": -1.0, "model_utility": 0.5})
    record.steps, record.evaluation_rows = (
        [{"step": 1, "loss": 0.5, "skipped": False}],
        [{"task": "forget", "index": 0}],
    )
    atomic_files.write_json(store.trial(KEY) / names.CONFIG, CONFIG.model_dump(mode="json"))
    write_result(CONFIG, record, None, store.trial(KEY))
    store.push_trial(KEY)
    return held(store)


def held(store: ObjectStorage) -> dict[str, bytes]:
    """What the bucket holds of trials."""
    return {name: content for name, content in machines.read_all(store).items() if name.startswith("trials/")}


def busy_once(store: ObjectStorage) -> None:
    """The next listing is refused."""
    kept = store.files

    class Busy(machines.Files):
        def get_file_info(self, what: Any) -> Any:
            store.files = kept
            raise OSError("SLOW_DOWN: please reduce your request rate")

    store.files = Busy(kept)


def tune_trial(last_result: dict[str, Any]) -> Any:
    kept = SimpleNamespace(metric_analysis={}, metric_n_steps={})
    told = {"config": {"trial": CONFIG.model_dump_json()}, "run_metadata": kept, "error_file": None}
    return SimpleNamespace(trial_id="1", last_result=last_result, **told)


@pytest.mark.parametrize("last", [DONE, {"done": False, "phase": "training"}], ids=["said that it ended", "died"])
def test_a_result_that_cannot_be_seen_is_not_written_over(
    copies: list[ObjectStorage],
    reporter: TrialCallback,
    last: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    driver, worker = copies
    before = finish(worker)
    assert {Path(name).name for name in before} == {"config.json", "result.json", "steps.parquet", "evaluation.parquet"}
    trial = tune_trial(last)
    reporter.on_trial_start(0, [], trial)
    busy_once(driver)
    if last is DONE:
        reporter.on_trial_complete(0, [], trial)
        assert str(reporter.counts).startswith("done 1 | running 0 | failed 0 | left 0")
        assert "FQ -1.00, MU 0.500" in capsys.readouterr().out
    else:
        reporter.on_trial_error(0, [], trial)
        assert str(reporter.counts).startswith("done 0 | running 0 | failed 1 | left 0")
        said = capsys.readouterr().out
        assert "not recorded, because the storage does not answer; --resume looks again: its process died" in said
    assert held(driver) == before
    reporter.on_experiment_end([])
    assert (driver.result(KEY) or {})["status"] == "finished"
    assert held(driver) == before
    assert reporter.mirror.told == [KEY, KEY]  # type: ignore[attr-defined]


def test_a_result_that_the_storage_does_not_have_is_not_called_a_failure(reporter: TrialCallback) -> None:
    reporter.on_trial_start(0, [], trial := tune_trial(DONE))
    reporter.on_trial_complete(0, [], trial)
    assert not reporter.store.has(KEY)
    assert reporter.counts.done == 1


def test_a_trial_whose_process_died_is_recorded(reporter: TrialCallback) -> None:
    reporter.on_trial_start(0, [], trial := tune_trial({"done": False}))
    reporter.on_trial_error(0, [], trial)
    assert (reporter.store.result(KEY) or {})["error"]["message"] == "its process died"
    assert f"trials/{KEY}/result.json" in held(reporter.store)  # type: ignore[arg-type]
    assert reporter.unconfirmed == []


def full(path: Path, *content: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_a_failure_that_cannot_be_recorded_stops_the_sweep(
    reporter: TrialCallback, store: Storage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk takes nothing more: the trial stays missing, so that --resume runs it."""
    monkeypatch.setattr(atomic_files, "write_text", full)
    reporter, trial = replace(reporter, store=store), tune_trial({})
    reporter.on_trial_start(0, [], trial)
    assert reporter.stopper.reason is None
    reporter.on_trial_error(0, [], trial)
    assert reporter.stopper.reason == f"the storage takes nothing more: No space left on device ({store.root})"
    assert reporter.stopper.advice == "make room, then go on with --resume"
    assert not store.has(KEY)
    said = capsys.readouterr().out
    assert "lost: not recorded, because the storage takes nothing more: No space left on device" in said
    assert str(reporter.counts).startswith("done 0 | running 0 | failed 1 | left 0")


def test_a_command_that_meets_a_full_disk_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.guarded(lambda: full(Path("/runs/sweeps/tiny.json")) or 0) == 1
    told = "error: No space left on device: '/runs/sweeps/tiny.json'; make room, then start again\n"
    assert capsys.readouterr().err == told
    with pytest.raises(FileNotFoundError):
        cli.guarded(lambda: Path("/nowhere/at/all").stat().st_size)

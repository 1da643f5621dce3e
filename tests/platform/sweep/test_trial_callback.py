"""A storage that does not answer once, or is full: no result is lost to the driver's belief that a trial died."""

import errno
import io
import os
import time
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from platform.state.limits import SweepStopper
from platform.sweep import trial_callback
from platform.sweep.trial_callback import ProgressScreen, SweepCallback, SweepProgress
from tests.support import machines, starts
from tests.support.starts import write_progress
from tests.support.tracked_store import TRIALS
from trainables.common import cli
from trainables.storage import atomic_files
from trainables.storage.file_names import RESULT
from trainables.storage.folder_storage import Storage
from trainables.storage.object_storage import ObjectStorage
from trainables.storage.opening import open_storage

CONFIG = TRIALS["finished"]
KEY = CONFIG.id()


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
def reporter(copies: list[ObjectStorage]) -> SweepCallback:
    keeper: Any = SimpleNamespace(delete_weights_after_trial=lambda ended: None)
    mirror: Any = SimpleNamespace(running={}, log_trial_result=lambda key, result: None)
    counts = SweepProgress(name="tiny", total=1, slots=1)
    screen = ProgressScreen(Console())
    return SweepCallback(counts, copies[0], mirror, SweepStopper(), keeper, screen, lambda trial_id, result: None)


def finish(store: ObjectStorage) -> dict[str, bytes]:
    """A worker ends the trial; what the storage holds of it then."""
    store.write_trial_config(KEY, CONFIG.model_dump(mode="json"))
    starts.finish(store, [CONFIG])
    store.push_trial(KEY)
    return held(store)


def held(store: ObjectStorage) -> dict[str, bytes]:
    found = {}
    for name in machines.names(store):
        if name.startswith("trials/"):
            with store.files.open_input_file(name) as stream:
                found[name] = stream.read()
    return found


def busy_once(store: ObjectStorage) -> None:
    kept = store.files

    class Busy(machines.Files):
        def get_file_info(self, what: Any) -> Any:
            store.files = kept
            raise OSError("SLOW_DOWN: please reduce your request rate")

    store.files = Busy(kept)


def die(reporter: SweepCallback) -> None:
    config = {"trial": CONFIG.model_dump_json()}
    trial = SimpleNamespace(trial_id="1", config=config, last_result={}, error_file=None)
    reporter.on_trial_start(0, [], trial)
    assert reporter.stopper.reason is None
    reporter.on_trial_error(0, [], trial)
    assert str(reporter.counts).startswith("done 0 | running 0 | failed 1 | left 0")


def test_a_result_that_cannot_be_seen_is_not_written_over(
    copies: list[ObjectStorage], reporter: SweepCallback, capsys: pytest.CaptureFixture[str]
) -> None:
    driver, worker = copies
    before = finish(worker)
    busy_once(driver)
    die(reporter)
    said = capsys.readouterr().out
    assert "not recorded, because the storage does not answer; --resume looks again: its process died" in said
    assert held(driver) == before
    driver.download_sweeps_and_results([KEY])
    assert driver.result(KEY) == worker.result(KEY)


def test_a_trial_whose_process_died_is_recorded(reporter: SweepCallback, capsys: pytest.CaptureFixture[str]) -> None:
    die(reporter)
    assert (reporter.store.result(KEY) or {})["error"]["message"] == "its process died"
    assert f"trials/{KEY}/{RESULT}" in held(reporter.store)  # type: ignore[arg-type]
    assert capsys.readouterr().out.startswith(f"{CONFIG.label()} ({KEY}): lost: its process died, 0 s")


def full(path: Path, *content: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_a_failure_that_cannot_be_recorded_stops_the_sweep(
    reporter: SweepCallback, store: Storage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk takes nothing more: the trial stays missing, so that --resume runs it."""
    monkeypatch.setattr(atomic_files, "write_redacted_text", full)
    reporter = replace(reporter, store=store)
    die(reporter)
    assert reporter.stopper.reason == f"the storage takes nothing more: No space left on device ({store.root})"
    assert reporter.stopper.advice == "make room, then go on with --resume"
    assert not store.has_result(KEY)
    assert "lost: not recorded, because the storage takes nothing more" in capsys.readouterr().out
    assert cli.run_for_exit_status(lambda: full(Path("/runs/sweeps/tiny.json")) or 0) == 1
    told = "error: No space left on device: '/runs/sweeps/tiny.json'; make room, then start again\n"
    assert capsys.readouterr().err == told


SWEEP = SweepProgress("tiny-0a1b2c3d", total=20, slots=2, done=3, running={"a": ("gru on npo forget05", 0.0)})


def test_a_trial_that_ended_early_says_why() -> None:
    metrics = {"forget_said_any": 0.1, "utility": 0.95}
    result = {"status": "finished", "config": {"benchmark": {"name": "own"}}, "metrics": metrics}
    told = [
        trial_callback.describe_trial_outcome(result | {"training": more})
        for more in ({}, {"ended": "nothing is left"})
    ]
    assert told == ["said 0.100, utility 0.950", "said 0.100, utility 0.950; nothing is left"]


def test_bars_show_trials_steps_and_times(store: Storage) -> None:
    """Of a trial whose progress is known, of one that is starting, and of no more than a screen holds."""
    write_progress(store, "a")
    many = SWEEP.running | {str(number): ("none on ga", time.monotonic()) for number in range(12)}
    screen = ProgressScreen(Console(file=io.StringIO(), width=110, force_terminal=True))
    screen.bars.stop()
    screen.show(replace(SWEEP, running=many), store, last=True)
    terminal = Console(file=io.StringIO(), width=110, record=True)
    terminal.print(screen.bars)
    lines = [" ".join(line.split()) for line in terminal.export_text().splitlines()]
    assert lines[0].startswith("tiny-0a1b2c3d ")
    assert lines[0].endswith(" done 3 | running 13 | failed 0 | left 4")
    assert lines[1].endswith(" training | 5/20 | 20 s | 45 s")
    assert lines[2].endswith(" starting")
    assert len(lines) == 1 + trial_callback.MAX_TRIAL_BARS


def test_plain_lines_come_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch, store: Storage) -> None:
    out = io.StringIO()
    screen = ProgressScreen(Console(file=out, width=20))
    screen.show(SWEEP, store)
    assert not out.getvalue()
    monkeypatch.setattr(trial_callback, "PLAIN_LINE_SECONDS", -1.0)
    screen.show(SWEEP, store)
    write_progress(store, "a")
    screen.show(SWEEP, store)
    write_progress(store, "a", last_look="at last")
    screen.show(SWEEP, store)
    monkeypatch.setattr(trial_callback, "PLAIN_LINE_SECONDS", 99.0)
    screen.show(SweepProgress("tiny", total=10, slots=2, done=10), store, last=True)
    screen.print_line("[bold] :smile: longer than http://me:secret@window is wide")
    assert out.getvalue().splitlines() == [
        "done 3 | running 1 | failed 0 | left 16",
        "done 3 | running 1 | failed 0 | left 16 | this one: training, step 5/20, for 20 s, about 45 s left",
        "done 3 | running 1 | failed 0 | left 16 | this one: training, step 5/20, for 20 s, about 45 s left; at last",
        "done 10 | running 0 | failed 0 | left 0",
        "[bold] :smile: longer than http://***@window is wide",
    ]

"""The mirror's thread: whatever the tracking server does, no trial waits for it and nothing is raised."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from platform.tracking import tracker
from platform.tracking.background import Mirror
from tests.support import tracked_store
from trainables.storage.folder_storage import Storage


class Recorder:
    """A tracker that writes down what it is told, and fails at the trial called `bad`."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def log_trial(self, name: str) -> None:
        self.calls.append(name)
        if name == "bad":
            raise OSError("no such result")

    def finish(self, counts: dict[str, int]) -> None:
        self.calls.append(f"finished {counts}")


def started(connect: Any) -> Mirror:
    mirror = Mirror(connect)
    mirror.thread.start()
    return mirror


def test_one_bad_trial_does_not_stop_the_others() -> None:
    """Trials come in order, and the counts last, where nothing failed."""
    recorder = Recorder()
    mirror = started(lambda: recorder)
    for name in ("first", "second"):
        mirror.add_trial(name)
    assert mirror.close({"total": 2}) is None
    assert recorder.calls == ["first", "second", "finished {'total': 2}"]
    recorder = Recorder()
    mirror = started(lambda: recorder)
    for name in ("first", "bad", "last"):
        mirror.add_trial(name)
    assert str(mirror.close({})) == "no such result"
    assert [name for name in recorder.calls if name != "bad"] == ["first", "last"]


def test_a_server_that_comes_back_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Away at first, then for one trial, then there: every trial once, and nothing is behind."""
    monkeypatch.setattr("platform.tracking.background.SEND_SECONDS", 0.05)
    absent = [ConnectionError("no server yet")] * 2

    class Unsteady(Recorder):
        tries = 0

        def log_trial(self, name: str) -> None:
            self.tries += 1
            if self.tries < 4:
                raise ConnectionError("the server restarts")
            super().log_trial(name)

    unsteady = Unsteady()

    def connect() -> Any:
        if absent:
            raise absent.pop()
        return unsteady

    mirror = started(connect)
    for name in ("first", "second", "third"):
        mirror.add_trial(name)
    deadline = time.monotonic() + 20
    while len(unsteady.calls) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sorted(unsteady.calls) == ["first", "second", "third"]
    assert mirror.close({}) is None
    assert unsteady.calls[-1] == "finished {}"


def test_unreachable_server_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    sweep = tracked_store.write_sweep(Storage(tmp_path))
    mirror = started(lambda: tracker.open_tracker(sweep, Storage(tmp_path)))
    mirror.add_trial("0123456789ab")
    assert "127.0.0.1" in str(mirror.close({"total": 1}, seconds=60))


def test_server_that_does_not_answer_holds_nobody_up() -> None:
    answer = threading.Event()
    mirror = started(lambda: answer.wait(60))
    mirror.add_trial("0123456789ab")
    assert isinstance(mirror.close({}, seconds=0.1), TimeoutError)
    answer.set()

"""The mirror's thread: whatever the tracking server does, no trial waits for it and nothing is raised."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from platform.tracking import mirror as mirrors
from platform.tracking import tracker as tracking_tracker
from trainables.storage.base import Storage


class Recorder:
    """A tracker that writes down what it is told, and fails at the trial called `bad`."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def trial(self, name: str) -> None:
        self.seen.append(name)
        if name == "bad":
            raise OSError("no such result")

    def finish(self, counts: dict[str, int]) -> None:
        self.seen.append(f"finished {counts}")


def mirror_of(tracker: Any) -> mirrors.Mirror:
    mirror = mirrors.Mirror(lambda: tracker)
    mirror.start()
    return mirror


def test_trials_come_in_order_and_the_counts_last() -> None:
    recorder = Recorder()
    mirror = mirror_of(recorder)
    for name in ("first", "second"):
        mirror.trial(name)
    assert mirror.close({"total": 2}) is None
    assert recorder.seen == ["first", "second", "finished {'total': 2}"]


def test_one_bad_trial_does_not_stop_the_others() -> None:
    recorder = Recorder()
    mirror = mirror_of(recorder)
    for name in ("first", "bad", "last"):
        mirror.trial(name)
    assert str(mirror.close({})) == "no such result"
    assert [name for name in recorder.seen if name != "bad"] == ["first", "last"]


def test_a_server_that_comes_back_is_caught_up_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Away at first, then for one trial, then there: every trial once, in order, and nothing is behind."""
    monkeypatch.setattr(mirrors, "RETRY_SECONDS", 0.05)
    recorder, tries = Recorder(), []

    class Unsteady(Recorder):
        def trial(self, name: str) -> None:
            tries.append(name)
            if len(tries) < 4:
                raise ConnectionError("the server restarts")
            recorder.trial(name)

        def finish(self, counts: dict[str, int]) -> None:
            recorder.finish(counts)

    unsteady, absent = Unsteady(), [ConnectionError("no server yet")] * 2

    def make() -> Any:
        if absent:
            raise absent.pop()
        return unsteady

    mirror = mirrors.Mirror(make)
    mirror.start()
    for name in ("first", "second", "third"):
        mirror.trial(name)
    deadline = time.monotonic() + 20
    while len(recorder.seen) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sorted(recorder.seen) == ["first", "second", "third"]
    assert mirror.close({}) is None
    assert recorder.seen[-1] == "finished {}"


def test_unreachable_server_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    sweep = {"name": "tiny", "hash": "0a1b2c3d", "title": "An invented sweep", "trials": []}
    mirror = mirrors.Mirror(lambda: tracking_tracker.connect(sweep, Storage(tmp_path)))
    mirror.start()
    mirror.trial("0123456789ab")
    problem = mirror.close({"total": 1}, seconds=60)
    assert problem is not None
    assert "127.0.0.1" in str(problem)


def test_server_that_does_not_answer_holds_nobody_up() -> None:
    mirror = mirrors.Mirror(lambda: time.sleep(3))  # type: ignore[arg-type, return-value]
    mirror.start()
    begun = time.monotonic()
    mirror.trial("0123456789ab")
    assert isinstance(mirror.close({}, seconds=0.1), TimeoutError)
    assert time.monotonic() - begun < 2

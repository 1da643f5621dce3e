"""The mirror's thread: whatever the tracking server does, no trial waits for it and nothing is raised."""

import threading
from pathlib import Path
from typing import Any

import pytest

from platform.tracking.mirror import MlflowMirror, start_mlflow_mirror
from tests.support.tracked_store import write_sweep
from trainables.storage.folder_storage import Storage


class Recorder:
    """Runs that write down what they are told, and fail at the trial called `bad`."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def log_result(self, name: str, result: Any) -> None:
        self.calls.append(name)
        if name == "bad":
            raise OSError("no such result")

    def finish(self) -> None:
        self.calls.append("finished")


def started(connect: Any) -> MlflowMirror:
    mirror = MlflowMirror(connect)
    mirror.thread.start()
    return mirror


def test_one_bad_trial_does_not_stop_the_others() -> None:
    """Trials come in order, and the counts last, where nothing failed."""
    recorder = Recorder()
    mirror = started(lambda: recorder)
    for name in ("first", "second"):
        mirror.log_trial_result(name)
    mirror.close()
    assert (mirror.problem, recorder.calls) == (None, ["first", "second", "finished"])
    recorder = Recorder()
    mirror = started(lambda: recorder)
    for name in ("first", "bad", "last"):
        mirror.log_trial_result(name)
    mirror.close()
    assert str(mirror.problem) == "no such result"
    assert [name for name in recorder.calls if name != "bad"] == ["first", "last"]


def test_unreachable_server_is_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    mirror = start_mlflow_mirror(write_sweep(Storage(tmp_path)), Storage(tmp_path))
    mirror.close()
    assert "127.0.0.1" in str(mirror.problem)


def test_server_that_does_not_answer_holds_nobody_up() -> None:
    answer = threading.Event()
    mirror = started(lambda: answer.wait(60))
    mirror.log_trial_result("0123456789ab")
    mirror.close(patience=0.1)
    assert isinstance(mirror.problem, TimeoutError)
    answer.set()

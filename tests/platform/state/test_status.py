"""Where a sweep stands, from its storage alone: what is done, runs, failed, is left; who drives it; what it found."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import platform.status as status
from platform.state import lock, manifest
from tests.support import sweep_store
from tests.support.starts import assert_light, invoke, write_progress
from trainables.common.errors import InputError
from trainables.config.settings import Model
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import CONFIG, RESULT
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import format_storage_option


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    """36 trials on two splits: 33 finished, one diverged, one failed, one missing."""
    return Storage(sweep_store.write_store(tmp_path))


def told(store: Storage, name: str = "tiny") -> dict[str, Any]:
    done = invoke(status.main, name, "--storage", store.root, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def lines(store: Storage, name: str = "tiny") -> list[str]:
    return invoke(status.main, name, "--storage", store.root).stdout.splitlines()


def begin(store: Storage, trial_id: str, **changed: Any) -> Trial:
    """A trial without a result that is at step 5 of 20 of its training, in this process unless changed."""
    config = Trial(method="ga", target=Model(path="somewhere/else"))
    folder = store.trial(trial_id)
    (folder / RESULT).unlink(missing_ok=True)
    atomic_files.write_json(folder / CONFIG, config.model_dump(mode="json"))
    write_progress(store, trial_id, **changed)
    return config


def test_finished_sweep(store: Storage) -> None:
    """Counts and failures, as JSON and as lines."""
    found, text = told(store), lines(store)
    assert found["counts"] == {"total": 36, "done": 34, "running": 0, "failed": 1, "left": 1}
    assert found["outcomes"] == {"finished": 33, "diverged": 1, "failed": 1}
    (failure,) = found["failures"]
    assert (failure["status"], failure["cause"]) == ("failed", "no <space> left")
    assert Path(failure["log"]) == store.trial(failure["trials"][0]) / "error.txt"
    assert text[0] == "tiny-0a1b2c3d: Three methods on two splits"
    assert text[2] == f"no driver; go on with: python -m platform.sweep tiny --resume{format_storage_option(store)}"
    assert text[3] == "done 34 | running 0 | failed 1 | left 1 | of 36"
    assert {"done, but diverged: 1", f"failed 1: no <space> left ({failure['log']})"} <= set(text)


def test_failures_are_grouped_by_what_they_have_in_common(store: Storage) -> None:
    """Addresses, numbers and ids differ; words tell causes apart. Terminal escapes are not printed."""
    keys = [f"{number:012x}" for number in range(10, 14)]
    messages = ["file /a/3f2a91 is 12 bytes", "file /a/77b1 is 9 bytes", "file /b/1 is 9 bytes", "\x1b[2J gone"]
    for key, message in zip(keys, messages, strict=True):
        sweep_store.write_trial(store.root, key, status="failed", error={"kind": "failed", "message": message})
    text = invoke(status.main, "tiny", "--storage", store.root).stdout
    assert "\\x1b[2J gone" in text
    assert "\x1b" not in text
    groups = {group["cause"]: len(group["trials"]) for group in told(store)["failures"]}
    assert groups == {messages[0]: 2, messages[2]: 1, messages[3]: 1, "no <space> left": 1}


def test_running_trial_with_step_and_time_remaining(store: Storage) -> None:
    """45 s of training, then an evaluation as long as the others' (10 s); the same in an evaluation."""
    config = begin(store, f"{35:012x}")
    found = told(store)
    assert found["counts"] == {"total": 36, "done": 34, "running": 1, "failed": 1, "left": 0}
    (running,) = found["running"]
    assert running["label"] == config.label()
    assert (running["phase"], running["step"], running["steps"]) == ("training", 5, 20)
    assert (running["pid"], running["host"]) == (os.getpid(), os.uname().nodename)
    assert running["remaining_seconds"] == found["remaining_seconds"] == 55.0
    assert "done 34 | running 1 | failed 1 | left 0 | of 36 | about 55 s left" in lines(store)
    for training_left in (None, 45.0):
        times = {"phase_seconds": 4.0, "beat": time.time() - 2, "training_left": training_left}
        begin(store, f"{35:012x}", phase="evaluation", **times)
        assert told(store)["running"][0]["remaining_seconds"] == pytest.approx(4 + (training_left or 0), abs=1)


COMMAND = "python -m platform.sweep tiny"
LOST_SECONDS = "unknown: 1 trial on far with no sign of life within 600 s of this"


@pytest.mark.parametrize(
    ("changed", "ahead", "state", "line"),
    [
        ({"born": 1.0}, 0.0, "interrupted", "interrupted: 1 trial that had begun, counted as left"),
        ({"place": "elsewhere"}, 0.0, "running", None),
        ({"place": "elsewhere"}, -3600.0, "unknown", LOST_SECONDS),
        ({"place": "elsewhere"}, 3600.0, "unknown", LOST_SECONDS),
    ],
    ids=["dead here", "elsewhere and fresh", "elsewhere and silent", "elsewhere, by another clock"],
)
def test_trial_whose_process_nobody_here_sees(
    store: Storage, changed: dict[str, Any], ahead: float, state: str, line: str | None
) -> None:
    """Of another machine's, silent or with a clock that is off, nobody here knows whether it runs."""
    begin(store, f"{35:012x}", **changed, host="far", beat=time.time() + ahead)
    found = told(store)
    assert {name: len(found[name]) for name in ("running", "interrupted", "unknown") if found[name]} == {state: 1}
    assert (found["counts"]["running"], found["counts"]["left"]) == ((1, 0) if state == "running" else (0, 1))
    shown = [row for row in lines(store) if row.startswith(("interrupted:", "unknown:"))]
    assert len(shown) == int(line is not None)
    assert all(row.startswith(line or "") for row in shown)


def test_who_drives(store: Storage) -> None:
    path = store.lock("tiny", "0a1b2c3d")
    with lock.hold_sweep_lock(store, path, "python -m platform.sweep tiny"):
        driver = told(store)["driver"]
        assert (driver["pid"], driver["alive"]) == (os.getpid(), True)
        assert lines(store)[2].startswith(f"driven by process {os.getpid()} on {os.uname().nodename} since 20")
        document = json.loads(path.read_text())
        path.write_text(json.dumps(document | {"born": 1.0}))
        assert told(store)["driver"]["alive"] is False
        died = f"its driver died (process {os.getpid()} on {os.uname().nodename}); go on with: "
        assert lines(store)[2] == died + f"python -m platform.sweep tiny --resume{format_storage_option(store)}"
        path.write_text("")
        assert set(told(store)["driver"].values()) == {None}
        assert lines(store)[2] == "driven by an unknown process (its lock is damaged)"
        path.write_text(json.dumps(document))
    assert told(store)["driver"] is None


def test_name_with_several_sweeps_shows_the_newest_and_lists_the_others(store: Storage) -> None:
    sweep_store.write_sweep(store.root, [f"{1:012x}"], digest="ffffffff", created="2026-11-21T09:00:00Z")
    found = told(store)
    assert (found["hash"], found["counts"]["total"]) == ("ffffffff", 1)
    known = {"name": "tiny-0a1b2c3d", "created": "2026-11-20T09:00:00Z", "trials": 36, "command": COMMAND}
    assert found["others"] == [known]
    assert lines(store)[-1] == f"also: tiny-0a1b2c3d, begun 2026-11-20T09:00:00Z, 36 trials: {COMMAND}"
    chosen = told(store, "tiny-0a1b2c3d")
    assert (chosen["counts"]["total"], chosen["others"]) == (36, [])


def test_refusals(store: Storage, tmp_path: Path) -> None:
    """Of a name that nothing has, a storage that is not there, and a damaged file of a sweep."""
    none, file = tmp_path / "nowhere", store.sweep("tiny", "0a1b2c3d")
    cases = [("tony", store.root, f"no sweep 'tony' in {store.root}; did you mean 'tiny'?")]
    cases += [("tiny-0a1b2c3e", store.root, "no sweep 'tiny-0a1b2c3e' in ")]
    cases += [("tiny", none, f"no sweep 'tiny' in {none}; there is no such folder\n")]
    cases += [("tiny", store.root, f"{file} cannot be read (no JSON object); move it away")]
    for name, root, message in cases:
        if "cannot be read" in message:
            file.write_text(file.read_text()[:40])
        done = invoke(status.main, name, "--storage", root)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: {message}")
    assert not none.exists()


def test_status_is_light_and_quick(store: Storage, root: Path) -> None:
    assert_light(root, "platform.status", ["tiny", "--storage", str(store.root)])


def test_sweep_that_is_being_prepared_is_told_of(tmp_path: Path) -> None:
    """Its driver has the lock, and writes the sweep's file when models and reference evaluations are there."""
    store = Storage(tmp_path)
    store.lock("tiny", "0a1b2c3d").parent.mkdir()
    store.lock("tiny", "0a1b2c3d").touch()
    for name in ("tiny", "tiny-0a1b2c3d"):
        done = invoke(status.main, name, "--storage", tmp_path)
        assert (done.exit_code, done.stdout[:44]) == (0, "sweep tiny-0a1b2c3d is still being prepared ")
    with pytest.raises(InputError, match="no sweep 'tin' in"):
        manifest.find_ready_sweeps("tin", store)[0]
    child = subprocess.Popen(["sleep", "0"])
    child.wait()
    owner = lock.make_lock_owner("sweep") | {"pid": child.pid}
    atomic_files.write_json(store.lock("tiny", "0a1b2c3d"), owner)
    said = json.loads(invoke(status.main, "tiny", "--storage", tmp_path, "--json").stdout)
    assert said == {"preparation": "sweep tiny-0a1b2c3d was interrupted while it was prepared; start it again"}

"""One driver a sweep: who is refused, who takes over, and that no jump of a clock decides it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from platform.state import lock
from platform.state.lock import LockFile, LockObject, LockState
from tests.support import machines
from tests.support.machines import Machine
from trainables.common import processes
from trainables.common.errors import InputError
from trainables.storage.base import Storage

machine = machines.machine
HOLD = """
import sys
from pathlib import Path
from platform.state import lock
from trainables.storage.base import Storage
path = Path(sys.argv[1])
with lock.acquire_lock(Storage(path.parent.parent), path, "python -m platform.sweep tiny"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sweeps" / "tiny-0a1b2c3d.lock"


@pytest.fixture
def holder(path: Path, root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until a line is written to it."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], cwd=root, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make heartbeats fast."""
    for name, seconds in {"HEARTBEAT": 0.05, "STALE": 30.0, "WATCH": 0.4, "CONFIRM": 0.1}.items():
        monkeypatch.setattr(lock, f"{name}_SECONDS", seconds)


def write_lock(path: Path, beat: float, **changed: Any) -> None:
    """Write a lock of this process under another token."""
    owner = {"command": "c", "since": "2026-01-02T03:04:05+00:00", "token": "t", "beat": beat}
    owner |= processes.describe_self()
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(owner | changed))
    os.utime(path, (beat, beat))


def acquire(path: Path) -> Any:
    return lock.acquire_lock(Storage(path.parent.parent), path, "mine")


def take(path: Path) -> None:
    with acquire(path):
        found = json.loads(path.read_text())
        assert (found["pid"], found["host"], found["command"]) == (os.getpid(), os.uname().nodename, "mine")
        assert abs(found["beat"] - time.time()) < 60
    assert not path.exists()


def test_second_driver_is_refused_with_owner_since_and_what_to_do(path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(InputError) as refused:
        take(path)
    message = str(refused.value)
    assert f"tiny-0a1b2c3d is being run by process {holder.pid} on {os.uname().nodename} since 20" in message
    assert f"python -m platform.sweep tiny; wait for its end, or stop that process (kill {holder.pid} there)" in message
    assert f"python -m platform.status tiny-0a1b2c3d --storage {path.parent.parent} shows where it stands" in message
    holder.communicate("end\n")
    take(path)


@pytest.mark.parametrize("reaped", [True, False], ids=["gone", "zombie"])
def test_killed_driver_on_this_machine_is_taken_over_at_once(
    path: Path, holder: subprocess.Popen[str], reaped: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    if reaped:
        holder.wait()
    else:
        while processes.start_time(holder.pid) is not None:
            time.sleep(0.01)
    take(path)
    printed = capsys.readouterr().out
    assert f"took over the lock of process {holder.pid} on " in printed
    assert "watching" not in printed


FAR = {"place": "elsewhere", "host": "elsewhere"}
CASES: dict[str, tuple[dict[str, Any] | None, float, bool, bool, str | None]] = {
    # owner (None: damaged), seconds ahead of its heartbeat, whether it moves on, whether it is watched, what is said
    "a reused pid": ({"born": 1.0}, 0, False, False, None),
    "this machine's clock set back": ({}, 7200, False, False, "is being run by"),
    "this machine's clock set ahead": ({}, -7200, False, False, "is being run by"),
    "elsewhere": (FAR, -20, False, False, r"on elsewhere since 2026-01-02T03:04:05\+00:00, last heartbeat 2\d s ago"),
    "elsewhere, at rest": (FAR, -7200, False, True, None),
    "elsewhere, at rest by another clock": (FAR, 7200, False, True, None),
    "elsewhere, late": (FAR, -7200, True, True, "on elsewhere"),
    "elsewhere, by another clock": (FAR, 7200, True, True, "on elsewhere"),
    "damaged, at rest": (None, -7200, False, True, None),
    "damaged": (None, 0, False, False, r"an unknown process \(its lock is damaged\)"),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("case", CASES)
def test_who_takes_a_lock_over(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    owner, ahead, beats, watched, refusal = CASES[case]

    def sleep(seconds: float) -> None:
        if beats:
            write_lock(path, time.time() + ahead, **owner or {})
        real(seconds)

    real = time.sleep
    write_lock(path, time.time() + ahead, **owner or {})
    if owner is None:
        path.write_text('{"pid": 12')
        os.utime(path, (1.0, 1.0) if ahead else None)
    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(InputError, match=refusal) if refusal else contextlib.nullcontext():
        take(path)
    assert ("watching" in capsys.readouterr().out) == watched


@pytest.mark.usefixtures("quick")
def test_heartbeat_moves_on_and_a_full_disk_does_not_stop_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, value: Any) -> None:
        raise OSError(28, "No space left on device")

    def next_state(before: LockState | None) -> LockState:
        end = time.monotonic() + 20
        while (found := LockFile(path).read()) == before or found is None:
            assert time.monotonic() < end, "no heartbeat"
            time.sleep(0.01)
        return found

    with acquire(path):
        first = next_state(None)
        assert first.owner["beat"] < next_state(first).owner["beat"]
        monkeypatch.setattr(lock, "write_json", refuse)
        frozen = next_state(next_state(None))  # a heartbeat may have been under way
        later = next_state(frozen)
        assert later.owner == frozen.owner
        assert later.changed > frozen.changed


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Handle SIGINT as a start of a sweep does, even if the shell ignores it in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("quick", "interruptible")
def test_owner_that_lost_its_lock_stops(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It slept, another machine took it for dead."""
    with pytest.raises(KeyboardInterrupt), acquire(path):  # noqa: PT012
        write_lock(path, time.time(), place="elsewhere", host="elsewhere")
        for _ in range(2000):  # an interrupt that Python itself has made ends no sleep
            time.sleep(0.01)
    assert "was taken over by process" in capsys.readouterr().err
    assert json.loads(path.read_text())["host"] == "elsewhere"


def test_of_many_that_find_a_dead_lock_one_gets_it(path: Path) -> None:
    """One of eight holds it, seven are refused."""
    done = threading.Event()

    def contend() -> bool:
        try:
            with acquire(path):
                return done.wait(60)
        except InputError:
            return False

    for _ in range(3):
        write_lock(path, time.time(), born=1.0)
        done.clear()
        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(contend) for _ in range(8)]
            while sum(job.done() for job in running) < 7:
                time.sleep(0.005)
            done.set()
        assert sum(job.result() for job in running) == 1
        assert not path.exists()


# In an object store


@pytest.mark.usefixtures("quick")
def test_a_sweep_in_an_object_store_has_one_driver(machine: Machine) -> None:
    here, there = machine("here"), machine("there")
    path, other = (store.lock("tiny", "0" * 8) for store in (here, there))
    with lock.acquire_lock(here, path, "the first"):
        found = lock.read_lock(there, other)
        assert found is not None
        assert found.owner["command"] == "the first"
        refused = pytest.raises(InputError, match=r"tiny-00000000 is being run by process .*: the first; wait")
        with refused, lock.acquire_lock(there, other, "the second"):
            pass
    assert lock.read_lock(there, other) is None


def test_of_two_drivers_of_an_object_store_the_last_writer_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find no lock; the second one's token is written while the first one waits to read its own back."""
    here = machine("here")
    other = LockObject(here.transfer.store, here.lock("tiny", "0" * 8).name)
    monkeypatch.setattr(time, "sleep", lambda seconds: other.write(lock.describe_owner("the second")))
    refused = pytest.raises(InputError, match=r"is being run by process .*: the second; wait")
    with refused, lock.acquire_lock(here, here.lock("tiny", "0" * 8), "the first"):
        pass
    found = other.read()
    assert found is not None
    assert found.owner["command"] == "the second"


@pytest.mark.usefixtures("quick")
def test_the_driver_of_another_machine_is_watched(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine("here")
    path = here.lock("tiny", "0" * 8)
    owner = lock.describe_owner("elsewhere") | {"place": "another machine"}
    here.transfer.store.write(f"sweeps/{path.name}", json.dumps(owner | {"beat": time.time() - 5}).encode())
    with pytest.raises(InputError, match="elsewhere"), lock.acquire_lock(here, path, "mine"):
        pass
    monkeypatch.setattr(lock, "STALE_SECONDS", -1.0)
    with lock.acquire_lock(here, path, "mine"):
        pass

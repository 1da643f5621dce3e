"""One driver a sweep: who is refused, who takes over, and that no jump of a clock decides it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
from tests.support import machines
from tests.support.machines import Machine
from trainables.common import process_identity
from trainables.common.errors import InputError
from trainables.storage.folder_storage import Storage

machine = machines.machine
HOLD = """
import sys
from pathlib import Path
from platform.state import lock
from trainables.storage.folder_storage import Storage
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
    for name, seconds in {"HEARTBEAT": 0.05, "WATCH": 0.4, "CONFIRM": 0.1}.items():
        monkeypatch.setattr(lock, f"{name}_SECONDS", seconds)


def write_lock(path: Path, beat: float, **changed: Any) -> None:
    """Write a lock of this process under another token."""
    owner = {"command": "c", "since": "2026-01-02T03:04:05+00:00", "token": "t", "beat": beat}
    owner |= process_identity.describe_self()
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(owner | changed))


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
        while process_identity.start_time(holder.pid) is not None:
            time.sleep(0.01)
    take(path)
    printed = capsys.readouterr().out
    assert f"took over the lock of process {holder.pid} on " in printed
    assert "watching" not in printed


FAR = {"place": "elsewhere", "host": "elsewhere"}
CASES: dict[str, tuple[dict[str, Any] | None, float, bool, bool, str | None]] = {
    # owner (None: damaged), seconds ahead of its heartbeat, whether it moves on, whether it is watched, what is said
    "a reused pid": ({"born": 1.0}, 0, False, False, None),
    "of an earlier version, this machine's clock set back": ({}, 7200, False, False, "is being run by"),
    "of an earlier version, this machine's clock set ahead": ({}, -7200, False, False, "is being run by"),
    "elsewhere, at rest": (FAR, 0, False, True, None),
    "elsewhere, at rest by another clock": (FAR, 7200, False, True, None),
    "elsewhere": (FAR, -20, True, True, r"on elsewhere since 2026-01-02T03:04:05\+00:00, last heartbeat \d\d s ago: c"),
    "elsewhere, by another clock": (FAR, 7200, True, True, "on elsewhere"),
    "damaged": (None, 0, False, True, None),
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
    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(InputError, match=refusal) if refusal else contextlib.nullcontext():
        take(path)
    assert ("watching" in capsys.readouterr().out) == watched


@pytest.mark.usefixtures("quick")
def test_heartbeat_moves_on_and_a_full_disk_ends_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def refuse(*args: Any, **options: Any) -> None:
        failed.set()
        raise OSError(28, "No space left on device")

    with acquire(path):
        first, end = json.loads(path.read_text())["beat"], time.monotonic() + 20
        while json.loads(path.read_text())["beat"] == first:
            assert time.monotonic() < end, "no heartbeat"
            time.sleep(0.01)
        with monkeypatch.context() as full:
            full.setattr(lock, "write_json", refuse)
            assert failed.wait(20)
            failed.clear()
            assert failed.wait(20)


def test_lock_is_the_kernels_and_no_child_keeps_it(path: Path) -> None:
    """A lock whose file was deleted or is overwritten is held all the same; children neither hold nor release it."""
    with acquire(path):
        child = subprocess.Popen(["sleep", "60"])
        forked = os.fork()
        if not forked:
            time.sleep(60)
            os._exit(0)
        path.unlink()
        with pytest.raises(InputError, match=r"tiny-0a1b2c3d is being run by an unknown process"):
            take(path)
    take(path)
    child.kill()
    child.wait()
    os.kill(forked, signal.SIGKILL)
    os.waitpid(forked, 0)


def test_file_system_without_locks_is_warned_of_and_goes_by_tokens(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(file: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(lock, "CONFIRM_SECONDS", 0.0)
    take(path)
    assert f"warning: {path.parent} is on a file system without locks" in capsys.readouterr().out
    monkeypatch.setattr(time, "sleep", lambda seconds: write_lock(path, time.time(), **FAR))
    with pytest.raises(InputError, match=r"is being run by process .* on elsewhere"):
        take(path)


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


def test_of_many_that_find_a_dead_lock_one_gets_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of eight holds it, seven are refused."""
    monkeypatch.setattr(lock, "END_SECONDS", 0.1)
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
        assert found["command"] == "the first"
        refused = pytest.raises(InputError, match=r"tiny-00000000 is being run by process .*: the first; wait")
        with refused, lock.acquire_lock(there, other, "the second"):
            pass
    assert lock.read_lock(there, other) is None


def test_of_two_drivers_of_an_object_store_the_last_writer_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find no lock; the second one's token is written while the first one waits to read its own back."""
    here = machine("here")
    path = here.lock("tiny", "0" * 8)
    second = json.dumps(lock.describe_owner("the second")).encode()
    monkeypatch.setattr(time, "sleep", lambda seconds: here.store.write(f"sweeps/{path.name}", second))
    refused = pytest.raises(InputError, match=r"is being run by process .*: the second; wait")
    with refused, lock.acquire_lock(here, path, "the first"):
        pass
    found = lock.read_lock(here, path)
    assert found is not None
    assert found["command"] == "the second"


@pytest.mark.usefixtures("quick")
def test_the_driver_of_another_machine_is_watched(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine("here")
    path, real = here.lock("tiny", "0" * 8), time.sleep
    owner = lock.describe_owner("elsewhere") | {"place": "another machine"}

    def write() -> None:
        here.store.write(f"sweeps/{path.name}", json.dumps(owner | {"beat": time.time()}).encode())

    write()
    with monkeypatch.context() as beats:
        beats.setattr(time, "sleep", lambda seconds: (write(), real(seconds)))
        with pytest.raises(InputError, match="elsewhere"), lock.acquire_lock(here, path, "mine"):
            pass
    with lock.acquire_lock(here, path, "mine"):
        pass

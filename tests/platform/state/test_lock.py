"""One driver a sweep: who is refused, who takes over, and that nobody steals a living driver's lock."""

from __future__ import annotations

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
from trainables.common import processes
from trainables.common.errors import InputError

HOLD = """
import sys, time
from pathlib import Path
import platform.state.lock as lock
with lock.held(Path(sys.argv[1]), "python -m platform.sweep tiny"):
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
    """Heartbeats of a test's patience."""
    for name, seconds in {"BEAT": 0.05, "LAPSE": 30.0, "WATCH": 0.6}.items():
        monkeypatch.setattr(lock, name, seconds)


def written(path: Path, beat: float, **changed: Any) -> dict[str, Any]:
    """A lock of this process under other names."""
    owner = processes.myself() | {"command": "c", "since": "2026-01-02T03:04:05+00:00", "token": "t", "beat": beat}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(owner | changed))
    os.utime(path, (beat, beat))
    return owner | changed


def take(path: Path) -> None:
    with lock.held(path, "mine"):
        assert lock.look(path) is not None


def left(path: Path) -> list[str]:
    return [item.name for item in path.parent.iterdir()]


def test_lock_tells_its_owner_and_is_gone_at_the_end(path: Path) -> None:
    with lock.held(path, "python -m platform.sweep tiny"):
        found = json.loads(path.read_text())
        assert left(path) == [path.name]
    assert (found["pid"], found["host"], found["command"]) == (
        os.getpid(),
        os.uname().nodename,
        "python -m platform.sweep tiny",
    )
    assert abs(found["beat"] - time.time()) < 60
    assert left(path) == []


def test_second_driver_is_refused_with_owner_since_and_what_to_do(path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(InputError) as refused:
        take(path)
    said = str(refused.value)
    assert f"tiny-0a1b2c3d is being run by process {holder.pid} on {os.uname().nodename} since 20" in said
    assert f"python -m platform.sweep tiny; wait for its end, or stop that process (kill {holder.pid} there)" in said
    assert f"python -m platform.status tiny-0a1b2c3d --storage {path.parent.parent} shows where it stands" in said
    holder.communicate("end\n")
    take(path)
    assert left(path) == []


@pytest.mark.parametrize("reaped", [True, False], ids=["gone", "a corpse"])
def test_killed_driver_on_this_machine_is_taken_over_at_once(
    path: Path, holder: subprocess.Popen[str], reaped: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    if reaped:
        holder.wait()
    else:
        while processes.born(holder.pid) is not None:
            time.sleep(0.01)
    begun = time.monotonic()
    take(path)
    assert time.monotonic() - begun < 2
    assert f"took over the lock of process {holder.pid} on " in capsys.readouterr().out


def test_reused_pid_is_not_the_owner(path: Path) -> None:
    """This very process' pid, born at another time: the owner is dead."""
    written(path, time.time(), born=1.0)
    take(path)


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("jump", [-7200, 7200], ids=["back", "ahead"])
def test_clock_jump_steals_nothing_on_this_machine(path: Path, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    with pytest.raises(InputError, match="is being run by"):
        take(path)


def test_other_machine_with_a_fresh_heartbeat_is_refused_at_once(path: Path) -> None:
    written(path, time.time() - 20, place="elsewhere", host="elsewhere")
    begun = time.monotonic()
    with pytest.raises(InputError, match=r"on elsewhere since 2026-01-02T03:04:05\+00:00, last heartbeat 20 s ago"):
        take(path)
    assert time.monotonic() - begun < 2


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("away", [-7200, 7200], ids=["past", "future"])
def test_other_machine_is_taken_over_when_its_heartbeat_lapsed_and_rests(path: Path, away: float) -> None:
    written(path, time.time() + away, place="elsewhere", host="elsewhere")
    begun = time.monotonic()
    take(path)
    assert time.monotonic() - begun >= lock.WATCH


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("away", [-7200, 7200], ids=["behind", "ahead"])
def test_other_machine_with_a_wrong_clock_keeps_its_lock(path: Path, away: float) -> None:
    """Its heartbeat is hours off and still changes: it lives."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.1):
            staging = path.with_name("staging")
            written(staging, time.time() + away, place="elsewhere", host="elsewhere")
            staging.replace(path)

    written(path, time.time() + away, place="elsewhere", host="elsewhere")
    owner = threading.Thread(target=beat)
    owner.start()
    with pytest.raises(InputError, match="on elsewhere"):
        take(path)
    over.set()
    owner.join()


@pytest.mark.usefixtures("quick")
def test_damaged_lock_is_watched_before_it_is_taken(path: Path) -> None:
    written(path, time.time() - 7200)
    path.write_text('{"pid": 12')
    os.utime(path, (1, 1))
    take(path)
    path.write_text("")
    with pytest.raises(InputError, match=r"an unknown process \(its lock is damaged\)"):
        take(path)


@pytest.mark.usefixtures("quick")
def test_heartbeat_moves_on_and_a_full_disk_does_not_stop_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, value: Any) -> None:
        raise OSError(28, "No space left on device")

    def changes(after: lock.Seen | None) -> lock.Seen:
        end = time.monotonic() + 10
        while (found := lock.look(path)) == after or found is None:
            assert time.monotonic() < end, "no heartbeat"
            time.sleep(0.01)
        return found

    with lock.held(path, "mine"):
        first = changes(lock.look(path))
        assert first.owner["beat"] < changes(first).owner["beat"]
        monkeypatch.setattr(lock.files, "write_json", full)
        time.sleep(0.2)
        frozen = lock.look(path)
        assert frozen is not None
        later = changes(frozen)
        assert later.owner == frozen.owner
        assert later.changed > frozen.changed


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As a start of a sweep is, whatever its shell has set (one that runs it in the background ignores the signal)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("quick", "interruptible")
def test_owner_that_lost_its_lock_stops(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It slept, another machine took it for dead."""
    with pytest.raises(KeyboardInterrupt), lock.held(path, "mine"):  # noqa: PT012
        written(path, time.time(), place="elsewhere", host="elsewhere")
        for _ in range(1000):  # an interrupt that Python itself has made ends no sleep
            time.sleep(0.01)
    assert "was taken over by process" in capsys.readouterr().err
    found = lock.look(path)
    assert found is not None
    assert found.owner["host"] == "elsewhere"


def test_of_many_that_find_a_dead_lock_one_gets_it(path: Path) -> None:
    """Twenty rounds of eight: one holds it, seven are refused."""
    for _ in range(20):
        written(path, time.time(), born=1.0)
        ready, together = threading.Barrier(8), threading.Event()

        def contend(ready: threading.Barrier = ready, together: threading.Event = together) -> bool:
            ready.wait()
            try:
                with lock.held(path, "mine"):
                    together.wait(20)
                    return True
            except InputError:
                return False

        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(contend) for _ in range(8)]
            while sum(job.done() for job in running) < 7:
                time.sleep(0.005)
            together.set()
            assert sum(job.result() for job in running) == 1
        assert left(path) == []

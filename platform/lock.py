"""One driver a sweep: STORAGE/sweeps/NAME-HASH.lock, with its owner and a heartbeat.

Who finds a lock
- of a process that lives on this machine is refused, whatever its heartbeat says;
- of a process that is dead on this machine takes it over at once. A process is its pid and its start, so that a pid
  that was given away again fools nobody;
- of another machine (or container) takes it over only if its heartbeat is more than LAPSE seconds from this machine's
  clock, in either direction, AND the file does not change while it is watched for WATCH seconds. The clocks alone
  decide nothing: a jump of either one leaves a living driver's file changing every BEAT seconds.

An owner that finds another one's name in its lock (it slept, and was taken for dead) stops as on Ctrl-C.
"""

from __future__ import annotations

import _thread
import contextlib
import fcntl
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables import processes, provenance, storage
from trainables.errors import InputError

BEAT, LAPSE, WATCH = 5.0, 60.0, 20.0
"""Seconds."""


@dataclass(frozen=True)
class Seen:
    """A lock as it lay there; `owner` is empty where the file is damaged."""

    owner: dict[str, Any]
    changed: int
    """The file's time, ns: a heartbeat that the disk had no room to write is told by it alone."""

    @property
    def age(self) -> float:
        """Seconds by this machine's clock since the last heartbeat; negative where that lies in the future."""
        return time.time() - max(self.owner.get("beat", 0.0), self.changed / 1e9)

    @property
    def alive(self) -> bool | None:
        """None: nobody here can know."""
        return processes.alive(self.owner) if self.owner else None

    def told(self) -> str:
        if not self.owner:
            return "an unknown process (its lock is damaged)"
        return f"process {self.owner['pid']} on {self.owner['host']} since {self.owner['since']}"


@contextlib.contextmanager
def held(path: Path, command: str) -> Iterator[None]:
    """Hold the lock while the block runs. Raises InputError naming the owner, since when, and what to do."""
    owner = {**processes.myself(), "command": command, "since": provenance.now(), "token": uuid.uuid4().hex}
    _take(path, owner)
    over = threading.Event()
    heart = threading.Thread(target=_beat, args=(path, owner, over), name="lock-heartbeat", daemon=True)
    heart.start()
    try:
        yield
    finally:
        over.set()
        heart.join()
        with contextlib.suppress(OSError), _guarded(path):
            if _mine(look(path), owner):
                path.unlink()


def look(path: Path) -> Seen | None:
    """The lock that lies there, None where there is none."""
    try:
        changed = path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None
    found = storage.read_json(path) or {}
    return Seen(found if {"place", "pid", "born", "host", "since"} <= found.keys() else {}, changed)


def _take(path: Path, owner: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    seen = look(path)
    if seen is not None and not _abandoned(path, seen):
        raise InputError(_refusal(path, seen))
    with _guarded(path):
        now = look(path)
        if now is not None:
            if now != seen:  # another one was quicker
                raise InputError(_refusal(path, now))
            print(f"took over the lock of {now.told()}, which ended without giving it back", flush=True)
            path.unlink()
        _create(path, owner)


def _abandoned(path: Path, seen: Seen) -> bool:
    """The rule at the top of this file."""
    alive = seen.alive
    if alive is not None:
        return not alive
    if abs(seen.age) <= LAPSE:
        return False
    print(f"{path.name} is of {seen.told()}; watching it for {WATCH:.0f} s for a heartbeat", flush=True)
    end = time.monotonic() + WATCH
    while time.monotonic() < end:
        time.sleep(min(1.0, WATCH / 4))
        if look(path) != seen:
            return False
    return True


def _refusal(path: Path, seen: Seen) -> str:
    name = path.stem
    stop = f"stop that process (kill {seen.owner['pid']} there)" if seen.owner else f"delete {path} if none runs"
    command = f": {seen.owner['command']}" if seen.owner.get("command") else ""
    return (
        f"sweep {name} is being run by {seen.told()}, last heartbeat {seen.age:.0f} s ago{command}; wait for its end, "
        f"or {stop}; python -m platform.status {name} shows where it stands"
    )


def _beat(path: Path, owner: dict[str, Any], over: threading.Event) -> None:
    while not over.wait(BEAT):
        try:
            with _guarded(path):
                seen = look(path)
                if seen is not None and not _mine(seen, owner):
                    print(f"error: {path.stem} was taken over by {seen.told()}; stopping", file=sys.stderr, flush=True)
                    _thread.interrupt_main()
                    return
                storage.write_json(path, owner | {"beat": time.time()})
        except OSError:  # a full disk, say: the file's time tells that this process lives
            with contextlib.suppress(OSError):
                os.utime(path)


def _mine(seen: Seen | None, owner: dict[str, Any]) -> bool:
    return seen is not None and seen.owner.get("token") == owner["token"]


def _create(path: Path, owner: dict[str, Any]) -> None:
    """Whole or not at all, and never over another one."""
    staging = path.with_name(f".{path.name}.{owner['token'][:8]}")
    try:
        staging.write_text(json.dumps(owner | {"beat": time.time()}), encoding="utf-8")
        os.link(staging, path)
    except FileExistsError:
        raise InputError(_refusal(path, look(path) or Seen({}, time.time_ns()))) from None
    except OSError as error:
        raise InputError(f"--storage: cannot write the lock '{path}': {error.strerror}") from error
    finally:
        staging.unlink(missing_ok=True)


@contextlib.contextmanager
def _guarded(path: Path) -> Iterator[None]:
    """One process at a time looks at the lock and changes it; the kernel frees the guard of one that dies."""
    guard = path.with_name(f".{path.name}.guard")
    while True:
        descriptor = os.open(guard, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            current = os.stat(guard).st_ino
        except FileNotFoundError:
            current = None
        if current == os.fstat(descriptor).st_ino:
            break
        os.close(descriptor)  # its owner has removed it meanwhile
    try:
        yield
    finally:
        guard.unlink(missing_ok=True)
        os.close(descriptor)

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
import shlex
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.common import processes, provenance
from trainables.common.errors import InputError
from trainables.storage import files

BEAT, LAPSE, WATCH = 5.0, 60.0, 20.0
"""Seconds."""
Owner = dict[str, Any]
"""A process, its command, since when, and a token that no other one has."""


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
def held(path: Path, command: str, location: str | None = None) -> Iterator[None]:
    """Hold the lock while the block runs. Raises InputError naming the owner, since when, and what to do.

    `location`: of the storage, as people name it, where that is not the lock's folder's.
    """
    myself = owner(command)
    _take(path, myself, location or str(path.parent.parent))
    try:
        with beating(path.stem, lambda: _beat(path, myself)):
            yield
    finally:
        with contextlib.suppress(OSError), _guarded(path):
            if mine(look(path), myself):
                path.unlink()


@contextlib.contextmanager
def beating(name: str, beat: Callable[[], Seen | None], every: float | None = None) -> Iterator[None]:
    """Call `beat` each BEAT or `every` seconds in the block; stop as on Ctrl-C where it returns another owner."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(every or BEAT):
            taken = beat()
            if taken is not None:
                print(f"error: {name} was taken over by {taken.told()}; stopping", file=sys.stderr, flush=True)
                _thread.interrupt_main()
                return

    heart = threading.Thread(target=work, name="heartbeat", daemon=True)
    heart.start()
    try:
        yield
    finally:
        over.set()
        heart.join()


def owner(command: str) -> Owner:
    """This process."""
    return {**processes.myself(), "command": command, "since": provenance.now(), "token": uuid.uuid4().hex}


def look(path: Path) -> Seen | None:
    """The lock that lies there, None where there is none."""
    try:
        changed = path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen(files.read_json(path), changed)


def seen(found: Any, changed: int) -> Seen:
    """A lock that holds `found`."""
    whole = isinstance(found, dict) and {"place", "pid", "born", "host", "since"} <= found.keys()
    return Seen(found if whole else {}, changed)


def _take(path: Path, owner: Owner, location: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    before = look(path)
    if before is not None and not abandoned(before, lambda: look(path), path.name):
        raise InputError(refusal(path, before, location))
    with _guarded(path):
        now = look(path)
        if now is not None:
            if now != before:  # another one was quicker
                raise InputError(refusal(path, now, location))
            print(f"took over the lock of {now.told()}, which ended without giving it back", flush=True)
            path.unlink()
        _create(path, owner, location)


def abandoned(found: Seen, look: Callable[[], Seen | None], name: str) -> bool:
    """The rule at the top of this file; `look` looks again."""
    alive = found.alive
    if alive is not None:
        return not alive
    if abs(found.age) <= LAPSE:
        return False
    print(f"{name} is of {found.told()}; watching it for {WATCH:.0f} s for a heartbeat", flush=True)
    end = time.monotonic() + WATCH
    while time.monotonic() < end:
        time.sleep(min(1.0, WATCH / 4))
        if look() != found:
            return False
    return True


def refusal(place: Path | str, found: Seen, location: str) -> str:
    """Why the lock at `place`, of the storage at `location`, is not given."""
    name = Path(place).stem
    stop = f"stop that process (kill {found.owner['pid']} there)" if found.owner else f"delete {place} if none runs"
    command = f": {found.owner['command']}" if found.owner.get("command") else ""
    return (
        f"sweep {name} is being run by {found.told()}, last heartbeat {found.age:.0f} s ago{command}; wait for its "
        f"end, or {stop}; python -m platform.status {name} --storage {shlex.quote(location)} shows where it stands"
    )


def _beat(path: Path, owner: Owner) -> Seen | None:
    """One heartbeat; returns another one's lock where it lies there."""
    try:
        with _guarded(path):
            found = look(path)
            if found is not None and not mine(found, owner):
                return found
            files.write_json(path, owner | {"beat": time.time()})
    except OSError:  # a full disk, say: the file's time tells that this process lives
        with contextlib.suppress(OSError):
            os.utime(path)
    return None


def mine(found: Seen | None, owner: Owner) -> bool:
    return found is not None and found.owner.get("token") == owner["token"]


def _create(path: Path, owner: Owner, location: str) -> None:
    """Whole or not at all, and never over another one."""
    staging = path.with_name(f".{path.name}.{owner['token'][:8]}")
    try:
        staging.write_text(json.dumps(owner | {"beat": time.time()}), encoding="utf-8")
        os.link(staging, path)
    except FileExistsError:
        raise InputError(refusal(path, look(path) or Seen({}, time.time_ns()), location)) from None
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

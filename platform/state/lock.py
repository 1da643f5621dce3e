"""One driver a sweep: STORAGE/sweeps/NAME-HASH.lock, with its owner and a heartbeat.

Who finds a lock
- of a process that lives on this machine is refused, whatever its heartbeat says;
- of a process that is dead on this machine takes it over at once. A process is its pid and its start, so that a pid
  that was given away again fools nobody;
- of another machine (or container) takes it over only if its heartbeat is more than LAPSE seconds from this machine's
  clock, in either direction, AND the lock does not change while it is watched for WATCH seconds. The clocks alone
  decide nothing: a jump of either one leaves a living driver's lock changing every BEAT seconds.

An owner that finds another one's name in its lock (it slept, and was taken for dead) stops as on Ctrl-C.

A sweep in an object store has a second lock, an object beside the file of this machine. Object stores lock nothing: a
driver writes its own token, waits SETTLE seconds and reads it back. Of several that begin at once the one whose token
stands goes on, for an object store shows the last writing to everybody. A file `.NAME-HASH.lock.guard` beside the lock
is held while the lock is read and written; it stays.
"""

from __future__ import annotations

import _thread
import contextlib
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
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from trainables.common import processes, provenance
from trainables.common.errors import InputError, Unreachable
from trainables.storage.base import Storage
from trainables.storage.files import parse_object, write_json

if TYPE_CHECKING:
    from trainables.storage.object_store import ObjectStore

BEAT, LAPSE, WATCH, SETTLE = 5.0, 60.0, 20.0, 2.0
"""Seconds."""
Owner = dict[str, Any]
"""A process, its command, since when, and a token that no other one has."""


@dataclass(frozen=True)
class LockState:
    """A lock as it was read; `owner` is empty if it is damaged."""

    owner: Owner
    changed: int
    """The time of the file, ns: it shows even a heartbeat for which the disk had no room."""

    @classmethod
    def parse(cls, content: bytes, changed: int) -> LockState:
        owner = parse_object(content) or {}
        return cls(owner if {"place", "pid", "born", "host", "since"} <= owner.keys() else {}, changed)

    @property
    def age(self) -> float:
        """Seconds by this machine's clock since the last heartbeat, negative if that lies in the future."""
        return time.time() - max(self.owner.get("beat", 0.0), self.changed / 1e9)

    @property
    def alive(self) -> bool | None:
        """Whether the owner lives; None if nobody here can know."""
        return processes.is_alive(self.owner) if self.owner else None

    def describe(self) -> str:
        if not self.owner:
            return "an unknown process (its lock is damaged)"
        return f"process {self.owner['pid']} on {self.owner['host']} since {self.owner['since']}"


class Lock:
    """A lock in a file or an object; `path`: where it lies, for messages."""

    path: Any

    def read(self) -> LockState | None:
        raise NotImplementedError

    def write(self, owner: Owner) -> None:
        """Write the owner and a heartbeat. Raises OSError or Unreachable."""
        raise NotImplementedError

    def delete(self) -> None:
        raise NotImplementedError

    def touch(self) -> None:
        """Show that the owner lives, after `write` has failed."""

    def exclusive(self) -> contextlib.AbstractContextManager[Any]:
        """Keep other processes from looking at the lock and changing it meanwhile."""
        return contextlib.nullcontext()


class LockFile(Lock):
    def __init__(self, path: Path) -> None:
        self.path: Path = path

    def read(self) -> LockState | None:
        try:
            changed = self.path.stat().st_mtime_ns
            return LockState.parse(self.path.read_bytes(), changed)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, owner: Owner) -> None:
        write_json(self.path, owner | {"beat": time.time()})

    def delete(self) -> None:
        self.path.unlink()

    def touch(self) -> None:
        with contextlib.suppress(OSError):
            os.utime(self.path)

    def exclusive(self) -> FileLock:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.path.with_name(f".{self.path.name}.guard"), poll_interval=0.01)


class LockObject(Lock):
    def __init__(self, store: ObjectStore, name: str) -> None:
        self.store = store
        self.name = name
        self.path = f"{store.uri}/{name}"

    def read(self) -> LockState | None:
        content, entry = self.store.read(self.name), self.store.stat(self.name)
        return LockState.parse(content, (entry.stamp or 0) * 10**9) if content is not None and entry else None

    def write(self, owner: Owner) -> None:
        self.store.write(self.name, json.dumps(owner | {"beat": time.time()}).encode())

    def delete(self) -> None:
        self.store.delete([self.name])


@contextlib.contextmanager
def hold(store: Storage, path: Path, command: str) -> Iterator[None]:
    """Hold a sweep's lock while the block runs. Raises InputError naming the owner, since when, and what to do."""
    with contextlib.ExitStack() as held:
        for lock in _locks(store, path):
            held.enter_context(_hold(lock, describe_owner(command), store.location))
        yield


def read_lock(store: Storage, path: Path) -> LockState | None:
    """Return who holds a sweep, None if nobody does."""
    return _locks(store, path)[-1].read()


def _locks(store: Storage, path: Path) -> list[Lock]:
    """Return the lock that parts the drivers of this machine, then the one that parts machines without a folder."""
    locks: list[Lock] = [LockFile(path)]
    if store.is_remote:
        from trainables.storage.object_storage import ObjectStorage

        assert isinstance(store, ObjectStorage)
        locks.append(LockObject(store.transfer.store, f"sweeps/{path.name}"))
    return locks


@contextlib.contextmanager
def _hold(lock: Lock, owner: Owner, location: str) -> Iterator[None]:
    _acquire(lock, owner, location)
    try:
        with heartbeat(Path(lock.path).stem, lambda: _beat(lock, owner)):
            yield
    finally:
        with contextlib.suppress(OSError, Unreachable), lock.exclusive():
            if _is_mine(lock.read(), owner):
                lock.delete()


@contextlib.contextmanager
def heartbeat(name: str, beat: Callable[[], LockState | None], every: float | None = None) -> Iterator[None]:
    """Call `beat` each BEAT or `every` seconds in the block; stop as on Ctrl-C if it returns another owner."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(every or BEAT):
            other = beat()
            if other is not None:
                print(f"error: {name} was taken over by {other.describe()}; stopping", file=sys.stderr, flush=True)
                _thread.interrupt_main()
                return

    thread = threading.Thread(target=work, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def describe_owner(command: str) -> Owner:
    """Return what this process writes into a lock."""
    return {**processes.describe_self(), "command": command, "since": provenance.now(), "token": uuid.uuid4().hex}


def _acquire(lock: Lock, owner: Owner, location: str) -> None:
    before = lock.read()
    if before is not None and not _is_abandoned(before, lock):
        raise InputError(_refusal(lock, before, location))
    try:
        with lock.exclusive():
            now = lock.read()
            if now is not None and now != before:  # another one was quicker
                raise InputError(_refusal(lock, now, location))
            if now is not None:
                print(f"took over the lock of {now.describe()}, which ended without giving it back", flush=True)
            lock.write(owner)
    except OSError as error:
        raise InputError(f"--storage: cannot write the lock '{lock.path}': {error.strerror}") from error
    if isinstance(lock, LockObject):
        time.sleep(SETTLE)
    now = lock.read()
    if not _is_mine(now, owner):
        raise InputError(_refusal(lock, now or LockState({}, time.time_ns()), location))


def _is_abandoned(found: LockState, lock: Lock) -> bool:
    """Whether a lock may be taken over, by the rule at the top of this file."""
    alive = found.alive
    if alive is not None:
        return not alive
    if abs(found.age) <= LAPSE:
        return False
    name = Path(lock.path).name
    print(f"{name} is of {found.describe()}; watching it for {WATCH:.0f} s for a heartbeat", flush=True)
    end = time.monotonic() + WATCH
    while time.monotonic() < end:
        time.sleep(min(1.0, WATCH / 4))
        if lock.read() != found:
            return False
    return True


def _refusal(lock: Lock, found: LockState, location: str) -> str:
    """Say why a lock is not given."""
    name = Path(lock.path).stem
    stop = f"stop that process (kill {found.owner['pid']} there)" if found.owner else f"delete {lock.path} if none runs"
    command = f": {found.owner['command']}" if found.owner.get("command") else ""
    return (
        f"sweep {name} is being run by {found.describe()}, last heartbeat {found.age:.0f} s ago{command}; wait for its "
        f"end, or {stop}; python -m platform.status {name} --storage {shlex.quote(location)} shows where it stands"
    )


def _beat(lock: Lock, owner: Owner) -> LockState | None:
    """Write one heartbeat; return another owner's lock if it lies there.

    A disk or a store that does not answer changes nothing: who took over is seen when it answers.
    """
    try:
        with lock.exclusive():
            found = lock.read()
            if found is not None and not _is_mine(found, owner):
                return found
            lock.write(owner)
    except (OSError, Unreachable):
        lock.touch()
    return None


def _is_mine(found: LockState | None, owner: Owner) -> bool:
    return found is not None and found.owner.get("token") == owner["token"]

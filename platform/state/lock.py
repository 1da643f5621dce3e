"""The lock of a sweep, so that it has one driver: STORAGE/sweeps/NAME-HASH.lock, with its owner and a heartbeat.

A start that finds a lock
- of a process that lives on this machine is refused, however old the heartbeat is;
- of a process that is dead on this machine takes the lock over at once (a process is its pid and its start time);
- of another machine (or container) takes the lock over if the heartbeat is more than STALE_SECONDS from this machine's
  clock, in either direction, and the lock does not change for WATCH_SECONDS: a jump of a clock takes no lock away.
An owner that finds another owner in its lock (it slept, and was taken for dead) stops as on Ctrl-C.

A sweep in an object store has a second lock there. Object stores lock nothing: a start writes its own token, waits
CONFIRM_SECONDS and reads it back. Of several that start at once the last writer goes on.
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

HEARTBEAT_SECONDS, STALE_SECONDS, WATCH_SECONDS, CONFIRM_SECONDS = 5.0, 60.0, 20.0, 2.0
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

    def is_of(self, owner: Owner) -> bool:
        return self.owner.get("token") == owner["token"]

    def describe(self) -> str:
        if not self.owner:
            return "an unknown process (its lock is damaged)"
        return f"process {self.owner['pid']} on {self.owner['host']} since {self.owner['since']}"


class LockFile:
    """A lock in a file. A file `.NAME-HASH.lock.guard` beside it is locked while it is read and written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

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

    def guard(self) -> contextlib.AbstractContextManager[Any]:
        """Keep other processes from reading and changing the lock meanwhile."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.path.with_name(f".{self.name}.guard"), poll_interval=0.01)


class LockObject:
    """A lock in an object store."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self.store = store
        self.name = name
        self.key = f"sweeps/{name}"
        self.path = f"{store.uri}/{self.key}"

    def read(self) -> LockState | None:
        content, entry = self.store.read(self.key), self.store.stat(self.key)
        return LockState.parse(content, (entry.stamp or 0) * 10**9) if content is not None and entry else None

    def write(self, owner: Owner) -> None:
        self.store.write(self.key, json.dumps(owner | {"beat": time.time()}).encode())

    def delete(self) -> None:
        self.store.delete([self.key])

    def guard(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()


Lock = LockFile | LockObject


@contextlib.contextmanager
def acquire_lock(store: Storage, path: Path, command: str) -> Iterator[None]:
    """Hold a sweep's lock while the block runs. Raises InputError naming the owner, since when, and what to do."""
    owner = describe_owner(command)
    with contextlib.ExitStack() as stack:
        for lock in _locks(store, path):
            stack.enter_context(_acquire(lock, owner, store.location))
        yield


def read_lock(store: Storage, path: Path) -> LockState | None:
    """Return the lock of a sweep, None if nobody holds it."""
    return _locks(store, path)[-1].read()


def describe_owner(command: str) -> Owner:
    """Return what this process writes into a lock."""
    return {**processes.describe_self(), "command": command, "since": provenance.now(), "token": uuid.uuid4().hex}


@contextlib.contextmanager
def repeat(action: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call `action` every so many seconds while the block runs, from a thread, until it returns True."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(seconds) and not action():
            pass

    thread = threading.Thread(target=work, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _locks(store: Storage, path: Path) -> list[Lock]:
    """Return the lock between drivers of this machine (or folder), and that between machines without a folder."""
    locks: list[Lock] = [LockFile(path)]
    if store.is_remote:
        from trainables.storage.object_storage import ObjectStorage

        assert isinstance(store, ObjectStorage)
        locks.append(LockObject(store.transfer.store, path.name))
    return locks


@contextlib.contextmanager
def _acquire(lock: Lock, owner: Owner, location: str) -> Iterator[None]:
    before = lock.read()
    if before is not None and not _is_abandoned(before, lock):
        raise InputError(_refusal(lock, before, location))
    try:
        with lock.guard():
            now = lock.read()
            if now is not None and now != before:  # another one was quicker
                raise InputError(_refusal(lock, now, location))
            if now is not None:
                print(f"took over the lock of {now.describe()}, which ended without giving it back", flush=True)
            lock.write(owner)
    except OSError as error:
        raise InputError(f"--storage: cannot write the lock '{lock.path}': {error.strerror}") from error
    if isinstance(lock, LockObject):
        time.sleep(CONFIRM_SECONDS)
    now = lock.read()
    if now is None or not now.is_of(owner):
        raise InputError(_refusal(lock, now or LockState({}, time.time_ns()), location))
    try:
        with repeat(lambda: _send_heartbeat(lock, owner), HEARTBEAT_SECONDS):
            yield
    finally:
        with contextlib.suppress(OSError, Unreachable), lock.guard():
            if (now := lock.read()) and now.is_of(owner):
                lock.delete()


def _is_abandoned(found: LockState, lock: Lock) -> bool:
    """Return whether a lock may be taken over, by the rule at the top of this file."""
    alive = found.alive
    if alive is not None:
        return not alive
    if abs(found.age) <= STALE_SECONDS:
        return False
    print(f"{lock.name} is of {found.describe()}; watching it for {WATCH_SECONDS:.0f} s for a heartbeat", flush=True)
    end = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < end:
        time.sleep(min(1.0, WATCH_SECONDS / 4))
        if lock.read() != found:
            return False
    return True


def _refusal(lock: Lock, found: LockState, location: str) -> str:
    """Return why a lock is not given."""
    name = lock.name.removesuffix(".lock")
    stop = f"stop that process (kill {found.owner['pid']} there)" if found.owner else f"delete {lock.path} if none runs"
    command = f": {found.owner['command']}" if found.owner.get("command") else ""
    return (
        f"sweep {name} is being run by {found.describe()}, last heartbeat {found.age:.0f} s ago{command}; wait for its "
        f"end, or {stop}; python -m platform.status {name} --storage {shlex.quote(location)} shows where it stands"
    )


def _send_heartbeat(lock: Lock, owner: Owner) -> bool:
    """Write one heartbeat, unless disk or store do not answer.

    Interrupt this process and return True if the lock is another owner's.
    """
    try:
        with lock.guard():
            found = lock.read()
            if found is None or found.is_of(owner):
                lock.write(owner)
                return False
    except (OSError, Unreachable):
        with contextlib.suppress(OSError):
            os.utime(lock.path)  # no such file for an object
        return False
    name = lock.name.removesuffix(".lock")
    print(f"error: {name} was taken over by {found.describe()}; stopping", file=sys.stderr, flush=True)
    _thread.interrupt_main()
    return True

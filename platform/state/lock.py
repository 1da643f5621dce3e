"""The lock of a sweep, so that it has one driver: STORAGE/sweeps/NAME-HASH.lock says whose it is, with a heartbeat.

The driver holds a lock of the file system on `.NAME-HASH.lock.guard` as long as it runs; however it ends, the kernel
gives that back. Machines that share no such lock (object stores, some shared folders) go by the owner:
- one of this machine is alive or dead (a process is its pid and its start time);
- one of another machine or container is taken for dead if its lock does not change for WATCH_SECONDS.
An owner that finds another one in its lock (it slept, and was taken for dead) stops as on Ctrl-C. Where nothing can be
locked, a start waits CONFIRM_SECONDS and reads its token back: of several at once the last writer goes on.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import shlex
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from trainables.common import process_identity, provenance
from trainables.common.errors import InputError, Unreachable
from trainables.storage.atomic_files import parse_object, write_json
from trainables.storage.folder_storage import Storage

HEARTBEAT_SECONDS, WATCH_SECONDS, CONFIRM_SECONDS, END_SECONDS = 5.0, 60.0, 2.0, 5.0
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""Error numbers of a file system without locks."""
Owner = dict[str, Any]
"""A process, its command, since when, its last heartbeat, and a token that no other one has; empty if damaged."""
KEYS = {"place", "pid", "born", "host", "since", "beat"}


def read_lock(store: Storage, path: Path) -> Owner | None:
    """Return the owner of a sweep's lock, None if nobody holds it."""
    content = store.read_newest(path)
    found = parse_object(content or b"") or {}
    return None if content is None else found if found.keys() >= KEYS else {}


@contextlib.contextmanager
def acquire_lock(store: Storage, path: Path, command: str) -> Iterator[None]:
    """Hold a sweep's lock while the block runs. Raises InputError naming the owner, since when, and what to do."""
    owner = describe_owner(command)
    with contextlib.ExitStack() as stack:
        try:
            # the last threads of an owner that was killed may hold it for a moment
            killed = process_identity.is_alive(read_lock(store, path) or {}) is False
            locked = _lock_guard(stack, path, END_SECONDS if killed else 0.0)
            if (found := read_lock(store, path)) is not None:
                if _is_driven(found, store, path):
                    raise InputError(_explain_refusal(found, store, path))
                print(f"took over the lock of {_describe(found)}, which ended without giving it back", flush=True)
            _write(owner, store, path)
        except Timeout:
            raise InputError(_explain_refusal(read_lock(store, path), store, path)) from None
        except OSError as error:
            raise InputError(f"--storage: cannot write the lock '{path}': {error.strerror}") from error
        if store.is_remote or not locked:
            time.sleep(CONFIRM_SECONDS)
            if not _is_of(owner, found := read_lock(store, path)):
                raise InputError(_explain_refusal(found, store, path))
        try:
            with repeat(lambda: _send_heartbeat(owner, store, path), HEARTBEAT_SECONDS):
                yield
        finally:
            with contextlib.suppress(OSError, Unreachable):
                if _is_of(owner, read_lock(store, path)):
                    store.remove(path)


def describe_owner(command: str) -> Owner:
    """Return what this process writes into a lock."""
    known = {"command": command, "since": provenance.now(), "token": uuid.uuid4().hex, "beat": time.time()}
    return process_identity.describe_self() | known


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


def _lock_guard(stack: contextlib.ExitStack, path: Path, seconds: float) -> bool:
    """Lock the file beside a sweep's lock; whether its file system has locks. Raises Timeout if another one has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    guard = path.with_name(f".{path.name}.guard")
    try:
        stack.enter_context(FileLock(guard, seconds, poll_interval=0.02, fallback_to_soft=False))
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        print(f"warning: {path.parent} is on a file system without locks; start a sweep there once at a time")
        return False
    return True


def _write(owner: Owner, store: Storage, path: Path) -> None:
    write_json(path, owner | {"beat": time.time()}, durable=False)
    store.push(path)


def _is_of(owner: Owner, found: Owner | None) -> bool:
    return found is not None and found.get("token") == owner["token"]


def _is_driven(found: Owner, store: Storage, path: Path) -> bool:
    """Return whether the owner that was found may still run, by the rule at the top of this file."""
    alive = process_identity.is_alive(found)
    if alive is not None:
        return alive
    print(f"{path.name} is of {_describe(found)}; watching it for {WATCH_SECONDS:.0f} s for a heartbeat", flush=True)
    end = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < end:
        time.sleep(min(1.0, WATCH_SECONDS / 4))
        if (now := read_lock(store, path)) != found:
            return now is not None
    return False


def _explain_refusal(found: Owner | None, store: Storage, path: Path) -> str:
    """Return why a lock is not given."""
    known, name = "", path.stem
    if found:
        known = f", last heartbeat {time.time() - found['beat']:.0f} s ago: {found.get('command')}"
    stop = f", or stop that process (kill {found['pid']} there)" if found else ""
    return (
        f"sweep {name} is being run by {_describe(found)}{known}; wait for its end{stop}; "
        f"python -m platform.status {name} --storage {shlex.quote(store.location)} shows where it stands"
    )


def _describe(owner: Owner | None) -> str:
    if not owner:
        return "an unknown process (its lock is damaged)"
    return f"process {owner['pid']} on {owner['host']} since {owner['since']}"


def _send_heartbeat(owner: Owner, store: Storage, path: Path) -> bool:
    """Write one heartbeat, unless disk or store do not answer.

    Interrupt this process and return True if the lock is another owner's.
    """
    with contextlib.suppress(OSError, Unreachable):
        found = read_lock(store, path)
        if found is not None and not _is_of(owner, found):
            print(f"error: {path.stem} was taken over by {_describe(found)}; stopping", file=sys.stderr, flush=True)
            _thread.interrupt_main()
            return True
        _write(owner, store, path)
    return False

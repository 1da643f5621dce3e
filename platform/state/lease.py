"""One driver a sweep in a storage elsewhere: an object beside the lock of this machine.

A driver writes its own token, waits SETTLE seconds and reads it back: of several that begin at once the one whose token
stands goes on (an object store shows the last writing to everybody). Who is taken for dead, and the heartbeat, are as
in platform.state.lock; that one parts the drivers of this machine.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from platform.state import lock
from platform.state.lock import Owner, Seen
from trainables.common.errors import InputError, Unreachable
from trainables.storage.base import Storage

if TYPE_CHECKING:
    from trainables.storage.object_store import ObjectStore

SETTLE = 2.0
"""Seconds that a writing may be under way before the token is read back."""


@contextlib.contextmanager
def held(store: Storage, path: Path, command: str) -> Iterator[None]:
    """Hold a sweep while the block runs. Raises InputError naming the owner, since when, and what to do."""
    with lock.held(path, command, store.location):
        remote = _remote(store)
        if remote is None:
            yield
            return
        with _leased(remote, f"sweeps/{path.name}", lock.owner(command)):
            yield


def look(store: Storage, path: Path) -> Seen | None:
    """Who holds a sweep, None where nobody does."""
    remote = _remote(store)
    return lock.look(path) if remote is None else _look(remote, f"sweeps/{path.name}")


def _remote(store: Storage) -> ObjectStore | None:
    if not store.is_remote:
        return None
    from trainables.storage.object_storage import ObjectStorage

    return store.transfer.store if isinstance(store, ObjectStorage) else None


@contextlib.contextmanager
def _leased(remote: ObjectStore, name: str, owner: Owner) -> Iterator[None]:
    _take(remote, name, owner)
    try:
        with lock.beating(name, lambda: _beat(remote, name, owner)):
            yield
    finally:
        with contextlib.suppress(Unreachable):
            if lock.mine(_look(remote, name), owner):
                remote.delete([name])


def _take(remote: ObjectStore, name: str, owner: Owner) -> None:
    seen, place = _look(remote, name), f"{remote.uri}/{name}"
    if seen is not None:
        if not lock.abandoned(seen, lambda: _look(remote, name), Path(name).name):
            raise InputError(lock.refusal(place, seen, remote.uri))
        print(f"took over the lock of {seen.told()}, which ended without giving it back", flush=True)
    _write(remote, name, owner)
    time.sleep(SETTLE)
    now = _look(remote, name)
    if not lock.mine(now, owner):
        raise InputError(lock.refusal(place, now or Seen({}, time.time_ns()), remote.uri))


def _look(remote: ObjectStore, name: str) -> Seen | None:
    content, entry = remote.read(name), remote.stat(name)
    if content is None or entry is None:
        return None
    try:
        found = json.loads(content)
    except ValueError:
        found = {}
    return lock.seen(found, (entry.stamp or 0) * 10**9)


def _write(remote: ObjectStore, name: str, owner: Owner) -> None:
    remote.write(name, json.dumps(owner | {"beat": time.time()}).encode())


def _beat(remote: ObjectStore, name: str, owner: Owner) -> Seen | None:
    """As platform.state.lock's. A store that does not answer changes nothing: who took over is seen when it answers."""
    with contextlib.suppress(Unreachable):
        found = _look(remote, name)
        if found is not None and not lock.mine(found, owner):
            return found
        _write(remote, name, owner)
    return None

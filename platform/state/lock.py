"""The lock of a sweep, so that it has one driver: STORAGE/sweeps/NAME-HASH.lock says whose it is.

The driver holds filelock's lock on a file beside it as long as it runs; however it ends, the kernel gives that back.
An object store has no locks: there another machine's driver is taken for dead without a note in LOCK_WATCH_SECONDS.
"""

import contextlib
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from trainables.common import cli, process_identity, provenance
from trainables.common.errors import InputError, StoreUnreachable
from trainables.storage.atomic_files import parse_json_object, write_json
from trainables.storage.folder_storage import Storage

LOCK_REFRESH_SECONDS, LOCK_WATCH_SECONDS, LOCK_TIMEOUT_SECONDS = 15.0, 45.0, 2.0
"""Between two notes of a driver; that one of another machine is watched; that a killed one, or a note, may go on."""
LockOwner = dict[str, Any]
"""A process, its command, since when, and when it last wrote this; empty if it cannot be read."""
LOCK_FIELDS = {"place", "pid", "born", "host", "since", "beat"}


def read_lock_owner(store: Storage, path: Path) -> LockOwner | None:
    """Return the owner of a sweep's lock, None if nobody holds it."""
    content = store.read_current_bytes(path)
    found = parse_json_object(content or b"") or {}
    return None if content is None else found if found.keys() >= LOCK_FIELDS else {}


@contextlib.contextmanager
def hold_sweep_lock(store: Storage, path: Path, command: str) -> Iterator[None]:
    """Hold a sweep's lock while the block runs. Raises InputError naming the owner, since when, and what to do."""
    owner = make_lock_owner(command)

    def note() -> None:
        write_json(path, owner | {"beat": time.time()}, durable=False)
        store.push(path)

    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(path.with_name(f".{path.name}.guard"), LOCK_TIMEOUT_SECONDS))
            found = read_lock_owner(store, path)
            if found and store.is_remote and _runs(found, store, path):
                raise InputError(_explain_refusal(found, store, path))
            note()
        except Timeout:
            raise InputError(_explain_refusal(read_lock_owner(store, path), store, path)) from None
        except OSError as error:
            raise InputError(f"--storage: cannot write the lock '{path}': {error.strerror}") from error
        try:
            with call_periodically_in_thread(note, LOCK_REFRESH_SECONDS):
                yield
        finally:
            with contextlib.suppress(OSError, StoreUnreachable):
                store.remove(path)


def make_lock_owner(command: str) -> LockOwner:
    return process_identity.identify_self() | {"command": command, "since": provenance.utc_now(), "beat": time.time()}


@contextlib.contextmanager
def call_periodically_in_thread(action: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call `action` every so many seconds while the block runs; that disk or store do not answer ends nothing."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(seconds):
            with contextlib.suppress(OSError, StoreUnreachable):
                action()

    thread = threading.Thread(target=work, name="notes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(LOCK_TIMEOUT_SECONDS)


def _runs(owner: LockOwner, store: Storage, path: Path) -> bool:
    """Return whether an owner still runs: of this machine by its process, of another one by its next note."""
    alive = process_identity.is_process_alive(owner)
    if alive is None:
        cli.print_line(f"{path.stem} was run on {owner['host']}; watching it for {LOCK_WATCH_SECONDS:.0f} s")
        time.sleep(LOCK_WATCH_SECONDS)
        alive = read_lock_owner(store, path) not in (None, owner)
    return alive


def _explain_refusal(found: LockOwner | None, store: Storage, path: Path) -> str:
    owner, stop, name = "an unknown process", "", path.stem
    if found:
        owner = f"process {found['pid']} on {found['host']} since {found['since']}: {found.get('command')}"
        stop = f", or stop that process (kill {found['pid']} there)"
    status = f"python -m platform.status {name} --storage {shlex.quote(store.location)}"
    return f"sweep {name} is being run by {owner}; wait for its end{stop}; {status} shows where it stands"

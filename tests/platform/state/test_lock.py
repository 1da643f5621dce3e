"""One driver a sweep: who is refused, who takes over, and that no jump of a clock decides it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from platform.state import lock
from tests.support import machines
from tests.support.machines import Machine, put
from trainables.common.errors import InputError
from trainables.storage.folder_storage import Storage

machine = machines.machine
HOLD = """
import sys
from pathlib import Path
from platform.state import lock
from trainables.storage.folder_storage import Storage
path = Path(sys.argv[1])
with lock.hold_sweep_lock(Storage(path.parent.parent), path, "python -m platform.sweep tiny"):
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


def take(path: Path) -> None:
    with lock.hold_sweep_lock(Storage(path.parent.parent), path, "mine"):
        found = json.loads(path.read_text())
        assert (found["pid"], found["host"], found["command"]) == (os.getpid(), os.uname().nodename, "mine")
        assert abs(found["beat"] - time.time()) < 60
    assert not path.exists()


def test_a_killed_driver_leaves_no_lock_that_blocks(path: Path, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    take(path)


@pytest.mark.parametrize("content", ['{"pid": 12', "{}"])
def test_a_note_of_a_driver_that_cannot_be_read_blocks_nobody(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)
    take(path)


def test_a_sweep_in_an_object_store_has_one_driver(machine: Machine) -> None:
    here, there = machine("here"), machine("there")
    path, other = (store.lock("tiny", "0" * 8) for store in (here, there))
    with lock.hold_sweep_lock(here, path, "the first"):
        found = lock.read_lock_owner(there, other)
        assert found is not None
        assert found["command"] == "the first"
        refused = pytest.raises(InputError, match=r"tiny-00000000 is being run by process .*: the first; wait")
        with refused, lock.hold_sweep_lock(there, other, "the second"):
            pass
    assert lock.read_lock_owner(there, other) is None


@pytest.mark.parametrize("beats", [True, False])
def test_the_driver_of_another_machine_is_watched(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, beats: bool
) -> None:
    here = machine("here")
    path = here.lock("tiny", "0" * 8)

    def write(seconds: float = 0.0) -> None:
        owner = lock.make_lock_owner("elsewhere") | {"place": "another machine", "beat": 1.0 + seconds}
        put(here, f"sweeps/{path.name}", json.dumps(owner).encode())

    write()
    monkeypatch.setattr(time, "sleep", write if beats else lambda seconds: None)
    expected = pytest.raises(InputError, match="elsewhere") if beats else contextlib.nullcontext()
    with expected, lock.hold_sweep_lock(here, path, "mine"):
        pass

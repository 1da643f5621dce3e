"""One driver a sweep whose storage is elsewhere: who is refused, who goes on, and how a far one is watched."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import pytest

from platform.state import lease, lock
from tests.support import machines
from tests.support.machines import Machine
from trainables.common.errors import InputError
from trainables.storage.object_storage import ObjectStorage

machine = machines.machine


def test_a_sweep_has_one_driver(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT", 0.2)
    monkeypatch.setattr(lease, "SETTLE", 0.5)
    here, there = machine("here"), machine("there")
    with lease.held(here, here.lock("tiny", "0" * 8), "the first"):
        seen = lease.look(there, there.lock("tiny", "0" * 8))
        assert seen is not None
        assert seen.owner["command"] == "the first"
        with (
            pytest.raises(InputError, match=r"sweep tiny-00000000 is being run by process .*: the first; wait"),
            lease.held(there, there.lock("tiny", "0" * 8), "the second"),
        ):
            pass
    assert lease.look(there, there.lock("tiny", "0" * 8)) is None
    with lease.held(there, there.lock("tiny", "0" * 8), "the third"):
        pass


def test_of_two_drivers_at_once_one_goes_on(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "SETTLE", 1.0)
    stores, outcomes, both = (machine("here"), machine("there")), [], threading.Barrier(2)

    def drive(store: ObjectStorage) -> None:
        both.wait()
        try:
            with lease.held(store, store.lock("tiny", "0" * 8), "mine"):
                time.sleep(2.5)
                outcomes.append("ran")
        except InputError:
            outcomes.append("refused")

    threads = [threading.Thread(target=drive, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["ran", "refused"]


def test_the_driver_of_another_machine_is_watched(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "WATCH", 1.0)
    monkeypatch.setattr(lease, "SETTLE", 0.1)
    here = machine("here")
    path = here.lock("tiny", "0" * 8)
    owner = lock.owner("elsewhere") | {"place": "another machine"}
    remote_ = here.transfer.store
    remote_.write(f"sweeps/{path.name}", json.dumps(owner | {"beat": time.time() - 5}).encode())
    with pytest.raises(InputError, match="elsewhere"), lease.held(here, path, "mine"):
        pass
    seen = lease.look(here, path)
    assert seen is not None
    old = replace(seen, owner=owner | {"beat": time.time() - 500}, changed=0)
    monkeypatch.setattr(lease, "_look", lambda *_, kept=lease._look: found if (found := kept(*_)) != seen else old)
    with lease.held(here, path, "mine"):
        pass

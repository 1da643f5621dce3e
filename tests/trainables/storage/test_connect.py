"""Which addresses a storage may have, and what is said of one that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import machines
from tests.support.machines import Machine, names, write_trial
from trainables.common.errors import InputError, Unreachable
from trainables.storage import atomic_files, object_storage
from trainables.storage.folder_storage import set_aside
from trainables.storage.object_storage import ObjectStorage
from trainables.storage.opening import open_storage, open_unchecked

machine = machines.machine


def test_an_address_with_its_server_in_it(object_store: dict[str, str], tmp_path: Path, monkeypatch: Any) -> None:
    for name, value in object_store.items():
        if name != "AWS_ENDPOINT_URL":
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path))
    server = object_store["AWS_ENDPOINT_URL"].removeprefix("http://")
    found = open_storage(f"s3://bucket/asked?endpoint_override={server}&scheme=http&region=us-east-1")
    path = found.sweep("tiny", "0" * 8)
    atomic_files.write_json(path, {})
    found.push(path)
    assert found.uri(path) == "s3://bucket/asked/sweeps/tiny-00000000.json"
    found.sync_trials()
    assert found.exists(path)


def test_a_file_system_of_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path))
    here = open_storage("memory://runs/one")
    assert isinstance(here, ObjectStorage)
    write_trial(here, "a1")
    here.push_trial("a1")
    monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path / "there"))
    there = open_storage("memory://runs/one")
    there.sync_trials(["a1"])
    assert there.result("a1") == here.result("a1")
    set_aside([there.trial("a1")], there)
    assert {name.split("/")[0] for name in names(here)} == {"set_aside"}


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "nowhere://bucket/x",
            "is no address of a storage: Protocol not known: nowhere; known: a folder, file://, s3://",
        ),
        ("s3://", "names no bucket"),
        ("runs?new", r"holds \?, # or %, which MLflow cannot have"),
        ("ftp://127.0.0.1:9/x", "cannot be used: .*refused; set AWS_.*: what its package reads"),
        ("s3://nobucket/x", "there is no bucket 'nobucket' for 's3://nobucket/x'; make it, or name another"),
        ("s3://me:hunter2@bucket/x", "holds a user name or password; leave them out and set AWS_ACCESS_KEY_ID"),
    ],
)
def test_an_address_that_cannot_be_used(machine: Machine, address: str, said: str) -> None:
    with pytest.raises(InputError, match=f"^--storage: .*{said}") as told:
        open_storage(address)
    assert "hunter2" not in str(told.value)


def test_a_store_that_does_not_answer(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path))
    with pytest.raises(Unreachable, match=r"--storage: 's3://bucket/x' cannot be used: .*Could not connect.* set AWS_"):
        open_storage("s3://bucket/x")
    monkeypatch.setattr(object_storage, "WAITS", (0.0,))
    here = open_unchecked("s3://bucket/x")
    assert isinstance(here, ObjectStorage)
    write_trial(here, "a1")
    assert not here.push_trial("a1")
    assert "warning: --storage: " in capsys.readouterr().err

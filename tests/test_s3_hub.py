"""What was fetched from the hub for a storage in a bucket, and is there already."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest
from hub_bench import ROWS, ROWS_ID, Bench

from trainables import storage
from trainables.storage import Storage
from trainables.wanted import Wanted


def open_bucket(object_store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A storage in a bucket, by a machine that has nothing of it."""
    for name, value in object_store.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path / "machine"))
    store = storage.open_storage(f"s3://bucket/{uuid.uuid4().hex}")
    store.refresh()
    return store


def test_rows_that_the_bucket_has_are_read_by_another_revision_too(
    bench: Bench, object_store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("forget01.json", "{}", f"datasets/{ROWS_ID}")
    bench.write("README.md", "---\nlicense: mit\n---\n", f"datasets/{ROWS_ID}")
    bench.store = open_bucket(object_store, tmp_path, monkeypatch)
    bench.fetch(ROWS)
    shutil.rmtree(bench.folder(ROWS))  # another machine's copy has it not
    named = Wanted("datasets", ROWS_ID, bench.hub.commit("datasets", ROWS_ID))
    bench.fetch(named)
    assert {path.name for path in bench.folder(named).iterdir()} == {"README.md", "forget01.json", ".whole"}

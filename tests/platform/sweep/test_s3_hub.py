"""What was fetched from the hub for a storage in a bucket: sent once, also where the bucket did not answer first."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from tests.support.hub_bench import MODEL_ID, ROWS, ROWS_ID, SHARDS, TARGET, HubBench
from trainables.common.errors import Unreachable
from trainables.data.hub_folders import HubRequirement
from trainables.storage.object_storage import ObjectStorage
from trainables.storage.opening import open_storage


@pytest.fixture
def bucket(
    bench: HubBench, object_store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStorage:
    """Make a bucket the bench's storage, on a machine that has nothing of it."""
    for name, value in object_store.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path / "machine"))
    store = open_storage(f"s3://bucket/{uuid.uuid4().hex}")
    assert isinstance(store, ObjectStorage)
    store.sync_trials()
    bench.store = store
    return store


def test_what_could_not_be_sent_is_sent_by_the_next_start(
    bench: HubBench, bucket: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise Unreachable("--storage: no answer")

    with monkeypatch.context() as patched:
        patched.setattr(bucket, "push", refuse)
        with pytest.raises(Unreachable):
            bench.fetch(TARGET)
    folder = bench.root / f"models--somebody--tiny@{bench.hub.commit('models', MODEL_ID)}"
    bench.hub.requests.clear()
    bench.fetch(TARGET)
    assert bench.hub.downloads() == []
    for name in SHARDS:
        assert (folder / name).read_bytes() == bench.served(name).read_bytes()
    assert bucket.exists(folder)
    assert not [path for path in folder.parent.iterdir() if path.name.endswith(".part")]


def test_rows_that_the_bucket_has_are_read_by_another_revision_too(bench: HubBench, bucket: ObjectStorage) -> None:
    bench.write("forget01.json", "{}", f"datasets/{ROWS_ID}")
    bench.write("README.md", "---\nlicense: mit\n---\n", f"datasets/{ROWS_ID}")
    bench.fetch(ROWS)
    shutil.rmtree(bench.folder(ROWS))  # another machine's copy has it not
    named = HubRequirement("datasets", ROWS_ID, bench.hub.commit("datasets", ROWS_ID))
    bench.fetch(named)
    assert {path.name for path in bench.folder(named).iterdir()} == {"README.md", "forget01.json", ".sha256", ".whole"}

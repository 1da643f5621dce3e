"""What was fetched from the hub for a storage in a bucket, and could not be sent there, or is there already."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from tests.support.hub_bench import ASKED_ID, MODEL_ID, ROWS, ROWS_ID, SHARDS, TARGET, Bench
from tests.trainables.data.test_hub_readers import write_questions
from trainables.benchmarks import lm_eval_questions
from trainables.common.errors import Unreachable
from trainables.data.hub import HubRequirement, hub_root
from trainables.storage.base import Storage
from trainables.storage.location import open_storage
from trainables.storage.object_storage import ObjectStorage


def open_bucket(object_store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A storage in a bucket, by a machine that has nothing of it."""
    for name, value in object_store.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path / "machine"))
    store = open_storage(f"s3://bucket/{uuid.uuid4().hex}")
    store.sync_trials()
    return store


def unsendable(bench: Bench, monkeypatch: pytest.MonkeyPatch, *things: HubRequirement) -> None:
    """Fetch these while the bucket takes no folder: they stay on this machine."""
    assert isinstance(bench.store, ObjectStorage)

    def refuse(path: Path) -> None:
        raise Unreachable("--storage: no answer")

    with monkeypatch.context() as patched:
        patched.setattr(bench.store.transfer, "push", refuse)
        for thing in things:
            with pytest.raises(Unreachable):
                bench.fetch(thing)
    bench.said.clear()
    bench.hub.asked.clear()


def test_what_could_not_be_sent_is_not_fetched_again(
    bench: Bench, object_store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.store = open_bucket(object_store, tmp_path, monkeypatch)
    write_questions(bench)
    monkeypatch.setattr(lm_eval_questions, "source_of", lambda task: (ASKED_ID, "wmdp-bio"))
    task = HubRequirement("tasks", "arc_easy", None, "hub:arc_easy", "benchmark.sources=arc_easy=DIR")
    unsendable(bench, monkeypatch, TARGET, task)
    bench.fetch(TARGET, task)
    model, asked = bench.folder(TARGET), bench.folder(task)
    assert bench.said == [
        f"model {MODEL_ID}: an earlier start left it in {model}; it is checked and sent",
        f"questions of arc_easy: an earlier start left it in {asked}; it is checked and sent",
    ]
    assert [line for line in bench.hub.asked if line.startswith("GET") and "/resolve/" in line] == [
        f"GET /datasets/{ASKED_ID}/resolve/{bench.hub.commit('datasets', ASKED_ID)}/README.md"
    ]
    assert bench.store.exists(model)
    assert bench.store.exists(asked)
    assert not [path for path in model.parent.iterdir() if path.name.endswith(".part")]


def test_what_could_not_be_sent_and_is_damaged_is_fetched_again(
    bench: Bench, object_store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.store = open_bucket(object_store, tmp_path, monkeypatch)
    unsendable(bench, monkeypatch, TARGET)
    (folder,) = (path for path in hub_root(bench.store).iterdir() if path.name.startswith("models--"))
    damaged = folder / SHARDS[1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    bench.fetch(TARGET)
    assert f"model {MODEL_ID}: {folder} is not as the hub has it; fetching it again" in bench.said
    assert damaged.read_bytes() == (bench.hub.home / "models" / MODEL_ID / SHARDS[1]).read_bytes()
    assert bench.store.exists(folder)


def test_rows_that_the_bucket_has_are_read_by_another_revision_too(
    bench: Bench, object_store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("forget01.json", "{}", f"datasets/{ROWS_ID}")
    bench.write("README.md", "---\nlicense: mit\n---\n", f"datasets/{ROWS_ID}")
    bench.store = open_bucket(object_store, tmp_path, monkeypatch)
    bench.fetch(ROWS)
    shutil.rmtree(bench.folder(ROWS))  # another machine's copy has it not
    named = HubRequirement("datasets", ROWS_ID, bench.hub.commit("datasets", ROWS_ID))
    bench.fetch(named)
    assert {path.name for path in bench.folder(named).iterdir()} == {"README.md", "forget01.json", ".whole"}

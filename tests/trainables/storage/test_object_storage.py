"""Storages elsewhere: what is seen of them, when, and by whom. Against a local server that speaks S3."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.support import machines
from tests.support.machines import Machine, names, record_puts, write_folder, write_trial
from trainables.benchmarks.local_paths import localize
from trainables.common.errors import InputError, Unreachable
from trainables.config.settings import Benchmark, Model, RetainEvaluation
from trainables.config.trial import Trial
from trainables.storage import atomic_files, object_storage, object_store
from trainables.storage.folder_storage import set_aside
from trainables.storage.names import CHECKPOINT, CONFIG, EVALUATIONS, PROGRESS, RESULT, STEPS, WEIGHTS
from trainables.storage.object_store import Entry, is_same
from trainables.storage.trial_files import read_result

machine = machines.machine


def names_below(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_a_trial_is_seen_elsewhere_when_its_result_is_there(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = machine("here"), machine("there", writable=False)
    order = record_puts(here, monkeypatch)
    here.start_trial("a1", {"method": "ga"})
    folder = write_trial(here, "a1")
    write_folder(folder / WEIGHTS, "model.safetensors", "config.json")
    atomic_files.write_json(folder / PROGRESS, {})
    here.push_trial("a1")
    assert order[-1] == "trials/a1/result.json"
    assert order.index("trials/a1/weights/.whole") > order.index("trials/a1/weights/model.safetensors")
    assert "trials/a1/progress.json" not in order
    there.sync_trials(["a1"])
    assert there.result("a1") == here.result("a1")
    assert there.finished_trials() == ["a1"]
    assert not (there.trial("a1") / STEPS).exists()  # a reader of results has no need of it
    assert there.exists(there.trial("a1") / WEIGHTS)
    assert not (there.trial("a1") / WEIGHTS).exists()
    there.fetch(there.trial("a1") / WEIGHTS)
    assert names_below(there.trial("a1") / WEIGHTS) == {".sha256", ".whole", "config.json", "model.safetensors"}
    assert there.size(there.root) == there.size(there.root / "trials") > 0
    there.remove(there.trial("a1") / WEIGHTS)
    assert not there.exists(there.trial("a1") / WEIGHTS)
    assert {name for name in names(here) if "weights" in name} == set()


def test_a_trial_cut_off_while_it_is_sent_has_no_result(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = machine("here"), machine("there")
    write_folder(write_trial(here, "a1") / WEIGHTS, "model.safetensors")
    write = here.store._write

    def cut(name: str, pieces: Any) -> None:
        if name.endswith(RESULT):
            raise Unreachable("gone")
        write(name, pieces)

    monkeypatch.setattr(object_storage, "WAITS", (0.0,))
    monkeypatch.setattr(here.store, "_write", cut)
    here.push_trial("a1")
    assert not here.is_sent("a1")
    assert {"trials/a1/steps.parquet", "trials/a1/weights/model.safetensors"} <= names(here)
    there.sync_trials(["a1"])
    assert not there.has("a1")
    before = names(here)
    machine("here", writable=False).sync_trials(["a1"])  # a dry run sends nothing
    assert names(here) == before
    again = machine("here")  # the next start on that machine
    again.sync_trials(["a1"])
    assert again.is_sent("a1")
    there.sync_trials(["a1"])
    assert there.result("a1") == here.result("a1")


def test_a_folder_appears_whole(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = machine("here"), machine("there")
    order = record_puts(here, monkeypatch)
    here.push(write_folder(here.model("m"), "config.json", "parts/weights.safetensors"))
    assert order[-1] == "shared/models/m/.whole"
    here.store.delete(["shared/models/m/.whole"])
    there.fetch(there.model("m"))
    assert not there.model("m").exists()  # half a folder is none
    here.push(here.model("m"))
    there.fetch(there.model("m"))
    assert (there.model("m") / "parts/weights.safetensors").read_text() == "what parts/weights.safetensors holds"
    there.sync_trials()
    assert there.exists(there.model("m"))
    here.store.write("shared/models/n/.whole", json.dumps({"config.json": 9}).encode())
    here.store.write("shared/models/n/config.json", b"short")
    with pytest.raises(Unreachable, match=r"shared/models/n/config\.json of .* is missing or not as it was written"):
        there.fetch(there.model("n"))
    assert not there.model("n").exists()


def test_what_is_unchanged_is_not_asked_for_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "RECENT", -1.0)  # as if all that were long ago
    here, there = machine("here"), machine("there")
    for key in ("a1", "a2", "a3"):
        write_trial(here, key)
        here.push_trial(key)
    there.sync_trials(["a1", "a2", "a3"])
    asked: list[str] = []
    for name in ("_copy", "stat"):
        kept = getattr(there.store, name)
        monkeypatch.setattr(there.store, name, lambda *given, kept=kept: (asked.append(given[0]), kept(*given))[1])
    write_trial(here, "a2", note="again")
    here.push_trial("a2")
    there.sync_trials(["a1", "a2", "a3"])
    assert set(asked) <= {f"trials/a2/{name}" for name in (RESULT, CONFIG, STEPS)}
    assert (there.result("a2") or {})["note"] == "again"
    asked.clear()
    here.sync_trials(["a1", "a2", "a3"])  # sent by this machine: known as they are
    there.sync_trials(["a1", "a2", "a3"])
    assert asked == []


def test_progress_of_what_is_made_is_mirrored_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine's own progress is newer than what it sent last."""
    here, there = machine("here"), machine("there")
    asked, kept = [], here.store.list
    monkeypatch.setattr(here.store, "list", lambda below="": (asked.append(below), kept(below))[1])
    own, other = (store.root / "shared/making" / key / PROGRESS for store, key in ((here, "a"), (there, "b")))
    for store, path in ((here, own), (there, other)):
        atomic_files.write_json(path, {"step": 1})
        store.push(path)
    atomic_files.write_json(own, {"step": 2})
    here.sync_making()
    copy = here.root / there.name(other)
    assert [atomic_files.read_json(path) for path in (own, copy)] == [{"step": 2}, {"step": 1}]
    assert asked == ["shared/making"]


def test_what_is_gone_or_set_aside_goes_from_every_copy(machine: Machine) -> None:
    here, there = machine("here"), machine("there")
    for key in ("a1", "a2"):
        write_trial(here, key)
        write_folder(here.trial(key) / WEIGHTS, "model.safetensors")
        here.push_trial(key)
    atomic_files.write_json(here.sweep("tiny", "0" * 8), {"name": "tiny"})
    here.push(here.sweep("tiny", "0" * 8))
    there.sync_trials(["a1", "a2"])
    here.store.delete(["sweeps/tiny-00000000.json", *(name for name in names(here) if "/a2/" in name)])
    here.store.write("trials/a1/steps.parquet", b"PAR1 cut short")
    there.sync_trials(["a1", "a2"])
    assert (there.has("a1"), there.has("a2")) == (True, False)
    assert not there.sweep("tiny", "0" * 8).exists()
    assert read_result(there, "a1")[1] == [there.trial("a1") / STEPS]
    place = set_aside([there.trial("a1")], there)
    assert (place / "a1" / STEPS).read_bytes() == b"PAR1 cut short"
    kept = {"config.json", "steps.parquet", "result.json", "weights/model.safetensors", "weights/.whole"}
    assert names(there) == {f"set_aside/{place.name}/a1/{name}" for name in kept}
    here.sync_trials(["a1"])
    assert not here.has("a1")


def test_a_table_of_an_earlier_attempt_goes_when_the_trial_ran_again_elsewhere(machine: Machine) -> None:
    """A copy that is only read fetches tables when it draws figures; they would not fit the new result's sums."""
    here, there = machine("here"), machine("there", writable=False)
    for steps in (1, 300):
        folder = write_trial(here, "a1", attempt=str(steps))
        atomic_files.write_rows(folder / STEPS, [{"step": step, "loss": 1 / step} for step in range(1, steps + 1)])
        result = atomic_files.read_json(folder / RESULT) or {}
        atomic_files.write_json(folder / RESULT, result | {"files": {STEPS: atomic_files.sha256(folder / STEPS)}})
        here.push_trial("a1")
        there.sync_trials(["a1"])
        assert read_result(there, "a1")[1] == []
        there.fetch_trial("a1")
        assert read_result(there, "a1")[1] == []
        assert len(atomic_files.read_rows(there.trial("a1") / STEPS)) == steps


def test_a_refusal_does_not_replace_the_result_of_a_run(machine: Machine) -> None:
    here, there = machine("here"), machine("there")
    write_trial(there, "a1", attempt="one")
    there.push_trial("a1")
    write_trial(here, "a1", attempt=None, status="lost")
    here.push_trial("a1")
    assert here.is_sent("a1")
    assert here.result("a1") == there.result("a1")
    there.sync_trials(["a1"])
    assert (there.result("a1") or {})["attempt"] == "one"


def test_a_checkpoint_counts_when_all_of_it_is_there(machine: Machine) -> None:
    here, there = machine("here"), machine("there")
    folder = here.trial("a1") / CHECKPOINT
    write_folder(folder / "step-2", "shard")
    assert here.try_push(folder / "step-2")
    there.fetch_trial("a1")
    assert not (there.trial("a1") / CHECKPOINT).exists()
    write_folder(here.trial("a1") / EVALUATIONS, "2.json")
    atomic_files.write_json(folder / "meta.json", {"tag": "step-2"})
    here.finish_checkpoint(folder, "step-2")
    there.fetch_trial("a1")
    assert (there.trial("a1") / CHECKPOINT / "step-2" / "shard").is_file()
    assert (there.trial("a1") / EVALUATIONS / "2.json").is_file()

    write_folder(folder / "step-4", "shard")
    atomic_files.write_json(folder / "meta.json", {"tag": "step-4"})
    here.try_push(folder / "step-4")
    here.finish_checkpoint(folder, "step-4")
    kept = {"checkpoint/meta.json", "checkpoint/step-4/shard", "evaluations/2.json"}
    assert names(here) == {f"trials/a1/{name}" for name in kept}
    write_folder(there.trial("a1") / CHECKPOINT / "step-9", "shard")  # of an attempt that was never sent
    there.fetch_trial("a1")
    assert {str(path.relative_to(there.trial("a1"))) for path in there.trial("a1").rglob("*") if path.is_file()} == kept
    for status, left in (("lost", True), ("finished", False)):  # of a lost trial it stays
        write_trial(here, "a1", status=status)
        here.push_trial("a1")
        assert ("trials/a1/checkpoint/meta.json" in names(here)) == left


def test_paths_become_those_of_the_machine(machine: Machine) -> None:
    here, there = machine("here"), machine("there")
    here.push(write_folder(here.model("m"), "config.json"))
    atomic_files.write_json(here.evaluation("e") / RESULT, {"id": "e"})
    here.push_parts(here.evaluation("e"))
    trial = Trial(
        method="ga",
        target=Model(path=str(here.model("m")), fingerprint="recipe:m"),
        retain_evaluation=RetainEvaluation(path=str(here.evaluation("e") / RESULT), fingerprint="e"),
        benchmark=Benchmark(data="/data/tofu", split="forget05"),
    )
    moved = localize(trial, there)
    assert moved.id() == trial.id()
    assert moved.target.path == str(there.model("m"))
    assert (there.model("m") / "config.json").is_file()
    assert moved.retain_evaluation is not None
    assert atomic_files.read_json(Path(moved.retain_evaluation.path)) == {"id": "e"}
    assert moved.benchmark.data == "/data/tofu"


def test_weights_of_an_earlier_attempt_are_not_taken_for_the_new_ones(machine: Machine) -> None:
    here, there = machine("here"), machine("there")
    write_trial(here, "a1")
    write_folder(here.trial("a1") / WEIGHTS, "old.safetensors")
    here.push_trial("a1")
    there.sync_trials(["a1"])
    there.fetch(there.trial("a1") / WEIGHTS)
    here.sync_trials()
    set_aside([here.trial("a1")], here)
    here.fetch_trial("a1")
    write_trial(here, "a1", note="again")
    write_folder(here.trial("a1") / WEIGHTS, "new.safetensors")
    here.push_trial("a1")
    there.sync_trials(["a1"])
    there.fetch(there.trial("a1") / WEIGHTS)
    assert names_below(there.trial("a1") / WEIGHTS) == {".sha256", ".whole", "new.safetensors"}
    here.sync_trials()
    set_aside([here.trial("a1")], here)
    there.fetch_trial("a1")  # before it runs there, without weights kept
    assert not (there.trial("a1") / WEIGHTS).exists()


def test_nothing_leads_out_of_the_copy(machine: Machine, object_store: dict[str, str], tmp_path: Path) -> None:
    here = machine("here")
    boto3.client("s3").put_object(Bucket="bucket", Key=f"{here.location[12:]}/sweeps/../../../out.json", Body=b"{}")
    here.sync_trials()
    assert here.listed.below("") == {}
    with pytest.raises(InputError, match="leads out of the storage's copy"):
        localize(Model(path=str(here.root / ".." / "out")), here)
    assert not list(tmp_path.rglob("out*"))


@pytest.mark.parametrize(
    ("entry", "nanoseconds", "same"),
    [((4, 5), 0, True), ((4, 6), 0, False), ((5, 5), 0, False), ((4, None), 0, False), ((4, 5), 1, False)],
    ids=["as sent", "later", "longer", "unknown time", "written here in that second"],
)
def test_a_file_is_known_by_size_and_time(
    tmp_path: Path, entry: tuple[int, int | None], nanoseconds: int, same: bool
) -> None:
    (tmp_path / "file").write_text("four")
    os.utime(tmp_path / "file", ns=(0, 5 * 10**9 + nanoseconds))
    assert is_same(tmp_path / "file", Entry(*entry)) == same


def test_empty_objects_that_mark_folders_are_ignored(machine: Machine) -> None:
    """As S3's console makes them: nothing is under way by one, and nothing is fetched."""
    here, there = machine("here"), machine("there")
    write_trial(here, "a1")
    here.push_trial("a1")
    bucket, _, folder = here.location.removeprefix("s3://").partition("/")
    for name in ("trials/", "trials/a1/", "trials/a1/checkpoint/", "trials/a2/checkpoint/", "sweeps/"):
        here.store.files.create_dir(f"{bucket}/{folder}/{name}".rstrip("/"))
    there.sync_trials(["a1", "a2"])
    there.fetch_trial("a2")
    assert there.finished_trials() == ["a1"]
    assert [there.under_way(key) for key in ("a1", "a2")] == [False, False]
    assert there.result("a1") is not None
    assert not any(name.endswith("/") for name in names(there))

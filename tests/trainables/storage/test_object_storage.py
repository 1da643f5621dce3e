"""Storages elsewhere: what is seen of them, when, and by whom. Against a local server that speaks S3."""

import signal
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from tests.support import machines
from tests.support.environment import ROOT, clean_environment
from tests.support.machines import Machine, delete, names, record_puts, write_folder, write_trial
from tests.support.strange_server import serve_strangely
from trainables.benchmarks.local_paths import localize_paths
from trainables.common.errors import InputError, StoreUnreachable
from trainables.config.settings import Benchmark, Model, RetainEvaluationFile
from trainables.config.trial import Trial
from trainables.storage import atomic_files, object_storage
from trainables.storage.file_names import CHECKPOINT, CONFIG, EVALUATIONS, META_FILE, PROGRESS, RESULT, STEPS, WEIGHTS
from trainables.storage.folder_storage import move_to_dated_folder
from trainables.storage.opening import open_storage

machine = machines.machine


def test_a_trial_is_seen_elsewhere_when_its_result_is_there(machine: Machine) -> None:
    here, there = machine("here"), machine("there", writable=False)
    order = record_puts(here)
    here.write_trial_config("a1", {"method": "ga"})
    folder = write_trial(here, "a1")
    write_folder(folder / WEIGHTS, "model.safetensors", "config.json")
    atomic_files.write_json(folder / PROGRESS, {})
    here.push_trial("a1")
    assert order[-1].endswith("trials/a1/result.json")
    assert names(here) == {
        f"trials/a1/{name}"
        for name in (CONFIG, STEPS, RESULT, "weights/config.json", "weights/model.safetensors", "weights/.complete")
    }
    there.download_sweeps_and_results(["a1"])
    assert there.result("a1") == here.result("a1")
    assert not (there.trial("a1") / STEPS).exists()  # a reader of results has no need of it
    assert there.exists(there.trial("a1") / WEIGHTS)
    assert not (there.trial("a1") / WEIGHTS).exists()
    there.fetch(there.trial("a1") / WEIGHTS)
    fetched = {path.name for path in (there.trial("a1") / WEIGHTS).glob("[!.]*")}
    assert fetched == {"config.json", "model.safetensors"}
    there.remove(there.trial("a1") / WEIGHTS)
    assert not there.exists(there.trial("a1") / WEIGHTS)
    assert {name for name in names(here) if "weights" in name} == set()


def test_a_result_that_the_store_never_had_stays_and_is_sent_later(machine: Machine) -> None:
    """Another process of the machine looks while it is sent, or after it could not be sent."""
    here = machine("here")
    folder = write_trial(here, "a1")
    machine("here", writable=False).download_sweeps_and_results(["a1"])
    assert (folder / RESULT).exists()
    here.push_unsent_results(["a1"])
    assert f"trials/a1/{RESULT}" in names(here)
    delete(here, f"trials/a1/{RESULT}")
    machine("here", writable=False).download_sweeps_and_results(["a1"])
    assert not (folder / RESULT).exists(), "it was there, and somebody took it away"
    write_trial(here, "a2")
    here.fetch_trial("a2")
    assert f"trials/a2/{RESULT}" in names(here), "a start sends it before it asks what is there"


def test_a_trial_cut_off_while_it_is_sent_has_no_result_elsewhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = machine("here"), machine("there")
    write_folder(write_trial(here, "a1") / WEIGHTS, "model.safetensors")
    files = here.files
    record_puts(here, refused=RESULT)
    monkeypatch.setattr(object_storage, "PUSH_RETRY_WAITS_SECONDS", (0.0,))
    assert not here.push_trial("a1")
    assert "warning: --storage: " in capsys.readouterr().err
    assert {"trials/a1/steps.parquet", "trials/a1/weights/model.safetensors"} <= names(here)
    here.files = files
    for store in (here, there):
        store.download_sweeps_and_results(["a1"])
    assert (here.has_result("a1"), there.has_result("a1")) == (True, False)


def test_a_folder_appears_whole(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = machine("here"), machine("there")
    order = record_puts(here)
    atomic_files.write_recipe_file(write_folder(here.model("m"), "config.json", "parts/weights.safetensors"), {})
    here.push(here.model("m"))
    assert order[-1].endswith("shared/models/m/.complete")
    delete(here, "shared/models/m/.complete")
    there.fetch(there.model("m"))
    assert not there.model("m").exists()  # half a folder is none
    there.read_json(there.model("m") / "config.json")  # and a file of it is no folder
    here.push(here.model("m"))
    with monkeypatch.context() as patched:
        patched.setattr(there, "_list", lambda name: here._list(name) | {f"{name}/removed.txt": (1, None)})
        with pytest.raises(InputError, match="shared/models/m: a part of it was removed while it was fetched"):
            there.fetch(there.model("m"))
    there.fetch(there.model("m"))
    assert (there.model("m") / "parts/weights.safetensors").read_text() == "what parts/weights.safetensors holds"
    there.download_sweeps_and_results()
    assert there.exists(there.model("m"))
    for store in (here, there):
        atomic_files.check_folder_unchanged(store.model("m"), "target")
    count = len(order)
    here.push(here.model("m"))
    assert len(order) == count


def test_ctrl_c_ends_a_command_at_a_store_that_does_not_answer(tmp_path: Path) -> None:
    """pyarrow lets no process end that waits for an answer to it: 99 s went by."""
    with serve_strangely("silent") as (server, asked):
        environment = clean_environment(AWS_ENDPOINT_URL_S3=f"http://{server}", UNLEARN_CACHE=str(tmp_path))
        command = [sys.executable, "-m", "platform.status", "own", "--storage", "s3://bucket/runs"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_what_is_gone_or_set_aside_goes_from_every_copy(machine: Machine) -> None:
    here, there = machine("here"), machine("there")
    for key in ("a1", "a2"):
        write_trial(here, key)
        write_folder(here.trial(key) / WEIGHTS, "model.safetensors")
        here.push_trial(key)
    there.download_sweeps_and_results(["a1", "a2"])
    delete(here, *(name for name in names(here) if "/a2/" in name))
    there.download_sweeps_and_results(["a1", "a2"])
    assert (there.has_result("a1"), there.has_result("a2")) == (True, False)
    place = move_to_dated_folder([there.trial("a1")], there)
    kept = {"config.json", "steps.parquet", "result.json", "weights/model.safetensors", "weights/.complete"}
    assert names(there) == {f"set_aside/{place.name}/a1/{name}" for name in kept}
    here.download_sweeps_and_results(["a1"])
    assert not here.has_result("a1")


def test_a_table_of_an_earlier_attempt_goes_when_the_trial_ran_again_elsewhere(machine: Machine) -> None:
    """A copy that is only read fetches tables when it draws figures."""
    here, there = machine("here"), machine("there", writable=False)
    for steps in (1, 300):
        folder = write_trial(here, "a1", attempt=str(steps))
        atomic_files.write_parquet_rows(
            folder / STEPS, [{"step": step, "loss": 1 / step} for step in range(1, steps + 1)]
        )
        here.push_trial("a1")
        there.download_sweeps_and_results(["a1"])
        there.fetch(there.trial("a1") / STEPS)
        assert len(atomic_files.read_parquet_rows(there.trial("a1") / STEPS)) == steps


def test_a_checkpoint_counts_when_all_of_it_is_there(machine: Machine) -> None:
    here, there = machine("here"), machine("there")
    folder = here.trial("a1") / CHECKPOINT
    write_folder(folder / "step-2", "shard")
    assert here.try_push(folder / "step-2")
    there.fetch_trial("a1")
    assert not (there.trial("a1") / CHECKPOINT / META_FILE).exists()
    write_folder(here.trial("a1") / EVALUATIONS, "2.json")
    atomic_files.write_json(folder / "meta.json", {"tag": "step-2"})
    here.publish_checkpoint(folder, "step-2")
    there.fetch_trial("a1")
    assert (there.trial("a1") / CHECKPOINT / "step-2" / "shard").is_file()
    assert (there.trial("a1") / EVALUATIONS / "2.json").is_file()

    write_folder(folder / "step-4", "shard")
    atomic_files.write_json(folder / "meta.json", {"tag": "step-4"})
    here.try_push(folder / "step-4")
    here.publish_checkpoint(folder, "step-4")
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
    here.push(here.evaluation("e"), changing=True)
    trial = Trial(
        method="ga",
        target=Model(path=str(here.model("m")), fingerprint="recipe:m"),
        retain_evaluation=RetainEvaluationFile(path=str(here.evaluation("e") / RESULT), fingerprint="e"),
        benchmark=Benchmark(data="/data/tofu", split="forget05"),
    )
    moved = localize_paths(trial, there)
    assert moved.id() == trial.id()
    assert moved.target.path == str(there.model("m"))
    assert (there.model("m") / "config.json").is_file()
    assert moved.retain_evaluation is not None
    assert atomic_files.read_json(Path(moved.retain_evaluation.path)) == {"id": "e"}
    assert moved.benchmark.data == "/data/tofu"
    here.push(write_folder(here.data_folder("k"), "answers.jsonl"))  # which one machine made for all
    sources = (f"answers={here.data_folder('k') / 'answers.jsonl'}", "forget=/mine/forget.jsonl")
    own = Benchmark(name="own", data="own", split="own", fingerprint="files:1", sources=sources)
    found = localize_paths(own, there).places
    assert found == {"answers": str(there.data_folder("k") / "answers.jsonl"), "forget": "/mine/forget.jsonl"}
    assert Path(found["answers"]).is_file()


def test_nothing_leads_out_of_the_copy(machine: Machine, object_store: dict[str, str], tmp_path: Path) -> None:
    here = machine("here")
    boto3.client("s3").put_object(Bucket="bucket", Key=f"{here.location[12:]}/sweeps/../../../out.json", Body=b"{}")
    here.download_sweeps_and_results()
    assert here.listed == {}
    with pytest.raises(InputError, match="leads out of the storage's copy"):
        localize_paths(Model(path=str(here.root / ".." / "out")), here)
    assert not list(tmp_path.rglob("out*"))


# Addresses


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


def test_a_store_that_does_not_answer(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path))
    with pytest.raises(
        StoreUnreachable, match=r"--storage: 's3://bucket/x' cannot be used: .*Could not connect.* set AWS_"
    ):
        open_storage("s3://bucket/x")

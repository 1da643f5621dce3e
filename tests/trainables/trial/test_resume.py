"""A trial that is interrupted goes on from its checkpoint and ends as if nothing had happened, bit for bit."""

import json
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.support import machines, ranks
from tests.support.interrupted import alike, configuration, finish, same
from tests.support.machines import Machine
from trainables.common.errors import InputError
from trainables.common.fingerprints import RECIPE_FILE
from trainables.config.settings import Resources
from trainables.storage import atomic_files
from trainables.storage.file_names import CHECKPOINT, CONFIG, META_FILE, RESULT, ROWS, STEPS, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.trial.runner import TrialRun
from trainables.workers import ray_processes

SLOW = pytest.mark.slow
machine = machines.machine


@pytest.fixture(scope="module")
def undisturbed(trial_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """`configuration(trial_inputs)`, run to its end by one process."""
    result, store = finish(configuration(trial_inputs), tmp_path_factory.mktemp("undisturbed"))
    assert result["status"] == "finished"
    return store


@pytest.fixture(scope="module")
def stopped(trial_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """The same trial, dropped after step 5: its checkpoint is of step 4. Not to be changed."""
    begun, store = finish(configuration(trial_inputs), tmp_path_factory.mktemp("stopped"), stop_after=5)
    assert begun == {}
    assert store.result(configuration(trial_inputs).id()) is None
    return store


def copy_target(trial_inputs: Any, folder: Path, **settings: Any) -> Any:
    """The same inputs with other settings of the target; without its recipe it is no model of ours."""
    shutil.copytree(trial_inputs.target, folder, ignore=shutil.ignore_patterns(RECIPE_FILE))
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    if settings.get("tie_word_embeddings"):
        weights = load_file(folder / "model.safetensors")
        del weights["lm_head.weight"]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return replace(trial_inputs, target=folder)


def copy_of(stopped: Storage, folder: Path) -> Storage:
    shutil.copytree(stopped.root, folder)
    return Storage(folder)


def test_interrupted_trial_goes_on_bit_for_bit(
    trial_inputs: Any, undisturbed: Storage, stopped: Storage, tmp_path: Path
) -> None:
    """It counts the seconds before its checkpoint, which is taken for one that 1,110 s led to."""
    config, store = configuration(trial_inputs), copy_of(stopped, tmp_path / "broken")
    path = store.trial(config.id()) / CHECKPOINT / META_FILE
    meta = atomic_files.read_json(path) or {}
    before = {"loading": 100.0, "training": 1000.0, "evaluation": 10.0, "total": 1110.0}
    atomic_files.write_json(path, meta | {"seconds": before})
    resumed, store = finish(config, store.root)
    assert resumed["training"] == {"steps": 7, "skipped": 0, "resumed_at": 4}
    same(undisturbed, store, config)
    assert not (store.trial(config.id()) / CHECKPOINT).exists()
    for name, least in before.items():
        assert least < resumed["seconds"][name] < least + 100


@pytest.mark.parametrize(
    ("stage", "offload"), [(3, True), *(pytest.param(*case, marks=SLOW) for case in ((1, True), (3, False)))]
)
def test_other_stages_go_on_bit_for_bit(trial_inputs: Any, tmp_path: Path, stage: int, offload: bool) -> None:
    config = configuration(trial_inputs)
    resources = Resources(zero_stage=stage, offload_optimizer=offload, checkpoint_every=2)
    config = config.model_copy(update={"resources": resources})
    whole, complete = finish(config, tmp_path / "whole")
    assert whole["status"] == "finished"
    finish(config, tmp_path / "broken", stop_after=5)
    resumed, store = finish(config, tmp_path / "broken")
    assert resumed["training"] == {"steps": 7, "skipped": 0, "resumed_at": 4}
    same(complete, store, config)


def test_trial_with_dropout_goes_on_bit_for_bit(trial_inputs: Any, stopped: Storage, tmp_path: Path) -> None:
    """Random numbers are those of the step, whatever was drawn before it; the reference sums are without dropout."""
    inputs, plain = copy_target(trial_inputs, tmp_path / "noisy", attention_dropout=0.2), configuration(trial_inputs)
    config = configuration(inputs)
    _, complete = finish(config, tmp_path / "whole")
    _, store = finish(config, tmp_path / "broken", stop_after=5)
    folders = [place.trial(c.id()) / CHECKPOINT for place, c in ((store, config), (stopped, plain))]
    noisy, silent = ((atomic_files.read_json(folder / META_FILE) or {})["reference"] for folder in folders)
    assert [*noisy.items()] == [*silent.items()] != []
    losses = [[row["loss"] for row in atomic_files.read_parquet_rows(folder / "step-4" / STEPS)] for folder in folders]
    assert losses[0] != pytest.approx(losses[1], rel=1e-4)
    resumed, store = finish(config, tmp_path / "broken")
    assert resumed["training"]["resumed_at"] == 4
    same(complete, store, config)


@pytest.mark.parametrize(
    ("kind", "stage"),
    [("adapters", 3), *(pytest.param(*case, marks=SLOW) for case in (("adapters", 2), ("tied", 2), ("tied", 3)))],
)
def test_two_ranks_go_on_and_keep_the_weights_of_one(trial_inputs: Any, tmp_path: Path, kind: str, stage: int) -> None:
    """Adapters, or tied embeddings: plain weights, adapters folded in, that transformers loads."""
    tied = {"tie_word_embeddings": True}
    inputs = copy_target(trial_inputs, tmp_path / "model", **tied) if kind == "tied" else trial_inputs
    plain = configuration(inputs, lora_rank=2 if kind == "adapters" else None, max_steps=3)
    finish(plain, tmp_path / "one")
    spread = plain.model_copy(update={"resources": Resources(ranks=2, zero_stage=stage, checkpoint_every=1)})
    job = {"trial": spread.model_dump(), "storage": str(tmp_path / "two")}
    ranks.run(2, [{**job, "stop_after": 2}, job], trial_inputs, tmp_path)
    one, two = (Storage(tmp_path / name) for name in ("one", "two"))
    folder = two.trial(spread.id())
    assert (two.result(spread.id()) or {})["training"]["resumed_at"] == 2
    alike(one.trial(plain.id()), folder, Path(plain.target.path))
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder / WEIGHTS, output_loading_info=True)
    network, report = loaded
    assert not any(report.values()), report
    kept = load_file(folder / WEIGHTS / "model.safetensors")
    assert ("lm_head.weight" in kept) == (kind != "tied")
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, kept[name]), name


def test_checkpoint_of_another_layout_is_refused(trial_inputs: Any, stopped: Storage, tmp_path: Path) -> None:
    store, other = copy_of(stopped, tmp_path / "runs"), configuration(trial_inputs, stage=2)
    store.trial(configuration(trial_inputs).id()).rename(store.trial(other.id()))
    with pytest.raises(InputError, match="written with zero_stage=1, this trial has 2"):
        finish(other, store.root)


class Planted:
    """What a pickle may hold: an order to make a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.place,))


def test_checkpoint_that_would_run_something_runs_nothing(
    trial_inputs: Any, stopped: Storage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is dropped. Only the first step of the trial that begins again is waited for."""
    config, store = configuration(trial_inputs), copy_of(stopped, tmp_path / "runs")
    folder = store.trial(config.id()) / CHECKPOINT
    (kept,) = folder.glob("step-4/*optim_states.pt")
    torch.save({**torch.load(kept, weights_only=False), "param_shapes": Planted(tmp_path / "ran")}, kept)
    finish(config, store.root, stop_after=1)
    assert not (tmp_path / "ran").exists()
    assert not list(folder.glob("step-4"))
    assert "Weights only load failed" in capsys.readouterr().err


def test_damaged_checkpoint_is_dropped_and_the_trial_begins_again(
    trial_inputs: Any, undisturbed: Storage, stopped: Storage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Full of zeros, as after a loss of power."""
    config, store = configuration(trial_inputs), copy_of(stopped, tmp_path / "runs")
    (file,) = (store.trial(config.id()) / CHECKPOINT).glob("step-4/average-0.safetensors")
    file.write_bytes(bytes(file.stat().st_size))
    result, _ = finish(config, store.root)
    said = capsys.readouterr().err
    assert f"warning: trial {config.id()}: its checkpoint cannot be read (" in said
    assert "; the trial begins again" in said
    assert result["training"] == {"steps": 7, "skipped": 0, "resumed_at": None}
    assert result["damaged_checkpoint"]
    same(undisturbed, store, config)


@SLOW
def test_two_ranks_survive_the_death_of_one(trial_inputs: Any, ray_session: None, tmp_path: Path) -> None:
    """Of Ray Train, ZeRO 3, one row a micro-batch."""
    resources = Resources(ranks=2, zero_stage=3, micro_batch=1, checkpoint_every=2)
    config = configuration(trial_inputs).model_copy(update={"resources": resources})
    complete, store = (Storage(tmp_path / name) for name in ("complete", "store"))
    whole = ray_processes.run_trial_on_ranks(config, complete, keep=True)
    assert (whole["status"], whole["topology"]["ranks"]) == ("finished", 2), whole["error"]
    killed: list[int] = []
    killer = threading.Thread(target=kill_one, args=(store.trial(config.id()) / CHECKPOINT / "meta.json", killed))
    killer.start()
    result = ray_processes.run_trial_on_ranks(config, store, keep=True)
    killer.join()
    assert killed, "no rank was killed in time"
    assert result["training"]["resumed_at"] in (2, 4, 6)
    same(complete, store, config)


def kill_one(checkpoint: Path, killed: list[int]) -> None:
    """SIGKILL one rank as soon as there is a checkpoint to go on from."""
    deadline = time.monotonic() + 180
    while not checkpoint.is_file():
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
    for process in psutil.Process().children(recursive=True):
        if "RayTrainWorker" in " ".join(process.cmdline()):
            process.kill()
            killed.append(process.pid)
            return


# From machine to machine


def test_another_machine_goes_on_from_the_last_checkpoint(
    trial_inputs: Any, undisturbed: Storage, machine: Machine
) -> None:
    """It shares only the bucket with the one that has begun."""
    config, one, other = configuration(trial_inputs), machine("one"), machine("other")
    for event in TrialRun(config, one).run_and_yield_events():
        if event["phase"] == "training" and event["step"] == 5:
            break
    other.download_sweeps_and_results([config.id()])
    assert not other.has_result(config.id())
    other.fetch_trial(config.id())
    assert (atomic_files.read_json(other.trial(config.id()) / "checkpoint" / "meta.json") or {})["step"] == 4
    *_, last = TrialRun(config, other, keep_weights=True).run_and_yield_events()
    assert last["result"]["training"]["resumed_at"] == 4
    same(undisturbed, other, config)
    kept = {name.removeprefix(f"trials/{config.id()}/") for name in machines.names(other)}
    assert {name.split("/")[0] for name in kept} == {CONFIG, RESULT, STEPS, ROWS, WEIGHTS}
    one.download_sweeps_and_results([config.id()])  # the machine that had begun it takes what the other one found
    assert (one.result(config.id()) or {}).items() >= last["result"].items()

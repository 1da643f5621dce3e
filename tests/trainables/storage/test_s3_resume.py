"""A trial that one machine has begun goes on, bit for bit, on another one that shares only the bucket with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import machines, ranks
from tests.support.interrupted import configuration, finish, same
from tests.support.machines import Machine
from trainables.benchmarks.local_paths import localize_paths
from trainables.config.settings import Rectifier, TaskVector
from trainables.storage import atomic_files
from trainables.storage.file_names import CONFIG, RESULT, ROWS, STEPS, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.storage.opening import open_storage
from trainables.trial.runner import TrialRun

machine = machines.machine


def test_another_machine_goes_on_from_the_last_checkpoint(trial_inputs: Any, machine: Machine, tmp_path: Path) -> None:
    config, one, other = configuration(trial_inputs), machine("one"), machine("other")
    whole, undisturbed = finish(config, tmp_path / "whole")
    for event in TrialRun(config, one).run_events():
        if event["phase"] == "training" and event["step"] == 5:
            break
    other.download_sweeps_and_results([config.id()])
    assert not other.has(config.id())
    other.fetch_trial(config.id())
    assert (atomic_files.read_json(other.trial(config.id()) / "checkpoint" / "meta.json") or {})["step"] == 4
    *_, last = TrialRun(localize_paths(config, other), other, keep_weights=True).run_events()
    assert last["result"]["training"]["resumed_at"] == 4
    assert last["result"]["metrics"] == whole["metrics"]
    same(undisturbed, other, config)
    kept = {name.removeprefix(f"trials/{config.id()}/") for name in machines.names(other)}
    assert {name.split("/")[0] for name in kept} == {CONFIG, RESULT, STEPS, ROWS, WEIGHTS}
    one.download_sweeps_and_results([config.id()])  # the machine that had begun it takes what the other one found
    assert (one.result(config.id()) or {}).items() >= last["result"].items()


@pytest.mark.slow
def test_ranks_on_machines_of_their_own_go_on_and_share_a_direction(
    trial_inputs: Any, object_store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks that see each other's files only in the bucket; the second start has nothing but the bucket."""
    for name, value in object_store.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path / "reader"))
    config = configuration(trial_inputs, ranks=2, stage=2)
    vector = config.model_copy(
        update={"method": "tru", "rectifier": Rectifier(), "task_vector": TaskVector(stg=4.0, batches=2)}
    )
    uri = "s3://bucket/spread"
    apart = {"trial": config.model_dump(), "storage": uri}
    jobs = [
        {"trial": config.model_dump(), "storage": str(tmp_path / "whole")},
        {"trial": vector.model_dump(), "storage": str(tmp_path / "whole")},
        {**apart, "machines": str(tmp_path / "first"), "stop_after": 5},
        {**apart, "machines": str(tmp_path / "second")},
        {**apart, "machines": str(tmp_path / "second"), "trial": vector.model_dump()},
    ]
    ranks.run(2, jobs, trial_inputs, tmp_path)
    found, whole = open_storage(uri), Storage(tmp_path / "whole")
    found.download_sweeps_and_results([config.id(), vector.id()])
    for name in (WEIGHTS, STEPS, ROWS):
        found.fetch(found.trial(config.id()) / name)
    assert (found.result(config.id()) or {})["training"]["resumed_at"] == 4
    same(whole, found, config)
    results = [store.result(vector.id()) or {} for store in (whole, found)]
    assert results[0]["status"] == results[1]["status"] == "finished"
    assert results[0]["metrics"] == results[1]["metrics"]

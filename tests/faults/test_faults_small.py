"""The small part of the fault matrix (test_faults.py) that every run of the tests has: one sweep, two kills."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psutil

from platform.plan.build import make_plan
from platform.plan.overrides import apply_overrides
from search_spaces.tofu_tiny import SWEEP
from tests.faults.checks import differences, litter, mirrored, restarted, rewritten, twice
from tests.faults.sweep import PATIENCE, Command, Round, Watch, saved, sweep_of, type_words, write_inputs
from tests.support import small_sweep
from tests.support.environment import TrialInputs
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import CONFIG, PROGRESS, RESULT
from trainables.storage.folder_storage import Storage
from trainables.trial.runner import TrialRun


def test_sweep_survives_the_death_of_a_worker_and_of_its_driver(
    trial_inputs: TrialInputs, joined: dict[str, str], tmp_path: Path
) -> None:
    """What was under way at a kill goes on from its checkpoint and ends as if undisturbed; the rest is not touched."""
    store, base = Storage(tmp_path / "runs"), Storage(tmp_path / "undisturbed")
    settings = write_inputs(trial_inputs, tmp_path)
    only = ["method=ga", "rectifier.name=gru"]
    small_sweep.evaluate_references(make_plan(apply_overrides(SWEEP, settings), store, only=only), store)
    arguments = type_words(settings, "--only", only[0], "--only", only[1], "--max-concurrent", "1")
    one = Round(0, tmp_path, arguments, joined, random.Random(0), Watch(store))
    with one.followed():
        driver = one.start()
        killed, step = kill_at_a_checkpoint(one, driver)
        disturbed, first = under_way(store), one.saved
        one.wait_for(driver, 1)
        one.record_fault(driver)
        one.saved = first | one.saved
        disturbed |= under_way(store)
        driver.process.kill()
        driver.end(-9)
        done = len(one.results())
        assert f": 2 trials, {done} done, {2 - done} to run" in one.start("--resume").end()
    results = {name: store.result(name) or {} for name in sweep_of(store).trials}
    assert [result.get("status") for result in results.values()] == ["finished"] * 2
    assert (rewritten(one), twice(one.watch, ()), list(mirrored(store)), litter(store)) == ([], [], [], [])
    assert restarted(one) == []
    assert results[killed]["training"]["resumed_at"] >= step
    assert disturbed
    for name in disturbed:
        config = Trial.model_validate(atomic_files.read_json(store.trial(name) / CONFIG))
        assert len(list(TrialRun(config, base).run_events())) > 1
    assert differences(store, base, disturbed) == []


def kill_at_a_checkpoint(one: Round, driver: Command) -> tuple[str, int]:
    """Kill the worker of a trial that has a checkpoint: the trial, and the step that it goes on from."""
    deadline = time.monotonic() + PATIENCE
    while not saved(one.store):
        assert driver.running, driver.said
        assert time.monotonic() < deadline, driver.said
        time.sleep(0.01)
    one.record_fault(driver)
    killed, (_, step) = next(iter(one.saved.items()))
    told = atomic_files.read_json(one.store.trial(killed) / PROGRESS) or {}
    psutil.Process(told["pid"]).kill()
    return killed, step


def under_way(store: Storage) -> set[str]:
    return {folder.name for folder in store.root.glob("trials/*") if not (folder / RESULT).exists()}

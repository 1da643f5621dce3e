"""A start that finds failed, lost or damaged trials: which run again, and what is set aside; the driver is not run."""

import json
from typing import Any

import pytest

from platform.plan.plan import Plan
from platform.state import manifest
from platform.state.limits import SweepStopper
from platform.state.trial_outcomes import SweepState
from platform.sweep.run_sweep_on_ray import make_trial_queue
from tests.support import starts
from tests.support.small_sweep import Small
from tests.support.starts import finish, in_process, refuse
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import CHECKPOINT, LOST, META_FILE, PROGRESS, RESULT
from trainables.storage.folder_storage import Storage, remove_trial_leftovers
from trainables.storage.sweep_file import FILE_FORMAT_VERSION

runs, signals = starts.runs, starts.signals
Ended = tuple[list[Any], Storage, Plan]


@pytest.fixture
def ended(small: Small, store: Storage, runs: list[SweepState]) -> Ended:
    """A sweep of 55 trials that all ended: 50 finished, one diverged, two failed, two out of memory; its command."""
    command = ["tofu_tiny", "--storage", store.root, *small.flags("benchmark.split=forget01")]
    assert in_process(*command).exit_code == 0
    plan = runs.pop().plan
    for number, status in enumerate(["failed", "failed", "out_of_memory", "out_of_memory", "diverged"]):
        finish(store, [plan.trials[number]], status)
    finish(store, plan.trials[5:])
    return command, store, plan


def aside(store: Storage) -> set[str]:
    return {path.name for path in (store.root / "set_aside").glob("*/*")}


@pytest.mark.parametrize(
    ("flags", "again"),
    [
        ([], []),
        (["--resume"], []),
        (["--retry-failed"], [0, 1, 2, 3]),
        (["--retry-failed", "--reason", "out_of_memory"], [2, 3]),
        (["--retry-failed", "--reason", "failed", "--resume"], [0, 1]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_failed_trials_run_again_only_when_asked(
    ended: Ended, runs: list[SweepState], flags: list[str], again: list[int]
) -> None:
    command, store, plan = ended
    done = in_process(*command, *flags)
    assert done.exit_code == 0, done.stderr
    assert runs[-1].remaining == [plan.trials[number] for number in again]
    assert aside(store) == {plan.trials[number].id() for number in again}
    assert (f"{len(again)} trials to run again; results set aside in" in done.stdout) == bool(again)


@pytest.mark.parametrize(
    ("axis", "left"),
    [
        ("seed=0,1,2,3", None),
        ("training.lr=log(1e-6..1e-3)", None),
        ("seed=0,1,2,3", f"{CHECKPOINT}/{META_FILE}"),
        ("training.lr=log(1e-6..1e-3)", PROGRESS),
    ],
)
def test_a_search_asks_first_for_trials_to_run_again(
    small: Small, store: Storage, runs: list[SweepState], axis: str, left: str | None
) -> None:
    """Two of the six trials of a study failed, or were killed with a checkpoint or without one yet.

    Optuna would go on with other points.
    """
    flags = small.flags(axis, "benchmark.split=forget05", "method=npo", "rectifier.name=gru")
    command = ["tofu_tiny", "--storage", store.root, *flags, "--strategy", "optuna", "--trials", "6"]

    def start(*more: str) -> Any:
        done = in_process(*command, *more)
        assert done.exit_code == 0, done.output
        return make_trial_queue(runs[-1], store, SweepStopper(), "PACK", "none")

    search = start()
    trials = [Trial.model_validate_json(search.suggest(str(number))["trial"]) for number in range(6)]
    for trial in trials:
        store.write_trial_config(trial.id(), trial.model_dump(mode="json"))
    finish(store, trials[:4])
    if left:
        for trial in trials[4:]:
            atomic_files.write_json(store.trial(trial.id()) / left, {"step": 4})
    else:
        finish(store, trials[4:], "failed")
    search = start(*(["--resume"] if left else ["--retry-failed", "--reason", "failed"]))
    asked = {Trial.model_validate_json(search.suggest(str(k))["trial"]).id() for k in range(runs[-1].number_to_run)}
    assert asked == {trial.id() for trial in trials[4:]}


@pytest.mark.parametrize("flag", ["--resume", "--retry-failed"])
def test_lost_trial_goes_on_from_its_checkpoint_when_resumed(ended: Ended, runs: list[SweepState], flag: str) -> None:
    """Its process died too often: that is no result, and what it had is not thrown away."""
    command, store, plan = ended
    lost, others = plan.trials[7], plan.trials[8:]
    folder = store.trial(lost.id())
    finish(store, [lost], LOST)
    kept = ("checkpoint/meta.json", "evaluations/step_2.json", "retry.json")
    for name in kept:
        (folder / name).parent.mkdir(exist_ok=True)
        atomic_files.write_json(folder / name, {})
    remove_trial_leftovers(folder)
    assert "1 of its 55 trials are missing; add --resume" in refuse(*command)
    assert in_process(*command, flag).exit_code == 0
    assert lost in runs[-1].remaining
    assert {trial.id() for trial in runs[-1].remaining}.isdisjoint(trial.id() for trial in others)
    assert all((folder / name).is_file() for name in kept)


def test_dry_run_tells_of_failed_and_damaged_trials(ended: Ended) -> None:
    command, store, plan = ended
    path = store.trial(plan.trials[9].id()) / RESULT
    path.write_text("")
    said = in_process(*command, "--dry-run").stdout
    assert "strategy grid, 55 trials, 54 done" in said
    assert "4 trials failed and count as done; --retry-failed runs them again" in said
    assert f"damaged: {path}; its trial runs again" in said
    found = json.loads(in_process(*command, "--dry-run", "--json", "--retry-failed", "--reason", "failed").stdout)
    ids = [trial.id() for trial in plan.trials]
    assert found["retried"] == ids[:2]
    assert found["failed"] == {ids[2]: "out_of_memory", ids[3]: "out_of_memory"}
    assert found["damaged"] == [str(path)]
    assert sum(trial["done"] for trial in found["trials"]) == 52
    assert aside(store) == set()


def test_a_sweep_file_that_cannot_be_read_or_is_of_another_format_is_refused(ended: Ended) -> None:
    command, store, plan = ended
    path = store.sweep("tofu_tiny", plan.hash)
    whole = path.read_text()
    path.write_text(whole[:50])
    assert f"error: {path} cannot be read (no JSON object); move it away and start" in refuse(*command, "--resume")
    path.write_text(whole.replace(f'"format": {FILE_FORMAT_VERSION}', '"format": 1'))
    assert f"error: {path} is of a storage of format 1, and this version reads and writes" in refuse(*command)
    path.unlink()
    assert in_process(*command, "--resume").exit_code == 0
    assert manifest.find_ready_sweeps("tofu_tiny", store)[0].trials == tuple(trial.id() for trial in plan.trials)

"""What a start makes of an earlier one: refused, resumed, set aside, extended, interrupted; the driver is not run."""

import contextlib
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import platform.status as status
import platform.sweep.__main__ as sweep
from platform.schedule import capacity
from platform.state import lock, manifest
from platform.state.manifest import format_resume_command
from platform.state.trial_outcomes import SweepState
from tests.support import starts
from tests.support.small_sweep import Small
from tests.support.starts import finish, in_process, invoke, refuse
from trainables.storage import atomic_files
from trainables.storage.file_names import LOST, RESULT
from trainables.storage.folder_storage import Storage

runs, signals = starts.runs, starts.signals
Typed = list[object]
Runs = list[SweepState]


@pytest.fixture
def command(small: Small, store: Storage) -> Typed:
    return ["tofu_tiny", "--storage", store.root, *small.flags("benchmark.split=forget01")]


def start(*arguments: object) -> str:
    done = in_process(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_unfinished_sweep_goes_on_with_resume_only(command: Typed, store: Storage, runs: Runs) -> None:
    nothing = f"nothing to resume: {store.root} has none of this sweep's trials; it begins here"
    assert nothing in start(*command, "--resume"), "the storage's name may be mistyped"
    trials = runs[-1].plan.trials
    finish(store, trials[:40])
    refused = refuse(*command)
    assert refused.startswith(f"error: sweep {runs[-1].plan.name} is unfinished: 15 of its 55 trials are missing; ")
    assert "add --resume to run them, or --new to set its results aside" in refused
    assert nothing not in start(*command, "--resume")
    assert runs[-1].remaining == list(trials[40:])
    assert len(runs) == 2


@pytest.mark.parametrize(
    "given",
    [
        (["--resume"], ["--only", "method=ga", "--resume"], 1),
        (["--only", "method=ga", "--resume"], ["--only", "method=npo", "--resume"], 2),
        (["--only", "method=ga", "--resume"], ["--resume"], -1),
    ],
    ids=["a part of it", "another part", "the whole"],
)
def test_status_names_the_commands_that_run_all_that_is_left(
    command: Typed, store: Storage, runs: Runs, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    """Of two starts the first one, both or the last one."""
    *parts, named = given
    for part in parts:
        monkeypatch.setattr(sys, "argv", ["sweep.py", *map(str, command), *part])
        start(*command, *part)
    told = invoke(status.main, "tofu_tiny", "--storage", store.root).stdout.splitlines()[2]
    shown = [shlex.split(one) for one in told.removeprefix("no driver; go on with: ").split("; ")]
    place = ["--storage", str(store.root)]
    words = [word for word in map(str, command) if word not in place]
    chosen = parts[-1:] if named < 0 else parts[:named]
    assert shown == [["python", "-m", "platform.sweep", *words, *part, *place] for part in chosen]


def test_new_sets_results_aside_and_starts_again(command: Typed, store: Storage, runs: Runs) -> None:
    start(*command)
    finish(store, runs[-1].plan.trials[:3])
    assert "55 trials, 3 done" in start(*command, "--dry-run")
    lost, strange = (store.trial(trial.id()) / RESULT for trial in runs[-1].plan.trials[:2])
    atomic_files.write_json(lost, (atomic_files.read_json(lost) or {}) | {"status": LOST})
    versions = {"versions": {"torch": "1.0"}, "commit": "ffff", "code": "01d"}
    atomic_files.write_json(strange, (atomic_files.read_json(strange) or {}) | versions)
    assert "1 result made by other code" in start(*command, "--dry-run")
    planned = start(*command, "--new", "--dry-run")
    assert "55 trials, 0 done" in planned
    assert "--new sets the results of 3 trials aside" in planned
    assert "other code" not in planned
    start(*command, "--new")
    assert len(runs[-1].remaining) == 55
    kept = {path.parent.name for path in (store.root / "set_aside").glob("*/*/result.json")}
    assert kept == {trial.id() for trial in runs[-1].plan.trials[:3]}
    assert not list((store.root / "trials").iterdir())


def test_more_seeds_of_a_finished_sweep_need_no_resume(command: Typed, store: Storage, runs: Runs) -> None:
    start(*command, "--strategy", "paper")
    finish(store, runs[-1].plan.trials)
    start(*command, "--strategy", "paper", "--seeds", "0,1")
    assert {trial.seed for trial in runs[-1].remaining} == {1}
    assert len(manifest.find_ready_sweeps("tofu_tiny", store)[0].trials) == 2 * 20 - 1  # TV has one seed


def test_spent_budget_of_optuna_is_no_unfinished_sweep(command: Typed, store: Storage, runs: Runs) -> None:
    optuna = [*command, "--strategy", "optuna", "--trials", 2]
    start(*optuna)
    for trials in runs[-1].plan.group_trials_by_study().values():
        finish(store, trials[:2])
    meant = sum(min(2, len(trials)) for trials in runs[-1].plan.group_trials_by_study().values())
    assert manifest.find_ready_sweeps("tofu_tiny", store)[0].planned_trial_count == meant < len(runs[-1].plan.trials)
    start(*optuna)
    assert len(runs) == 2
    assert manifest.find_ready_sweeps("tofu_tiny", store)[0].planned_trial_count == meant


def test_a_search_that_goes_on_in_part_forgets_none_of_the_rest(command: Typed, store: Storage, runs: Runs) -> None:
    optuna = [*command, "--strategy", "optuna", "--trials", 2]
    start(*optuna)
    meant = manifest.find_ready_sweeps("tofu_tiny", store)[0].planned_trial_count
    start(*optuna, "--only", "method=ga", "--only", "rectifier.name=none", "--resume")
    assert runs[-1].number_to_run < meant
    (sweep,) = manifest.find_ready_sweeps("tofu_tiny", store)
    assert (sweep.planned_trial_count, len(sweep.unfinished)) == (meant, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_prints_the_command_that_goes_on(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def interrupted(*given: Any, **options: Any) -> int:
        signal.raise_signal(number)
        return 0

    monkeypatch.setattr(sweep, "run_plan_and_report", interrupted)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    command = ["tofu_tiny", "--storage", str(tmp_path / "runs of mine"), *small.flags()]
    for more in ([], ["--resume"], ["--new"], ["--retry-failed", "--reason", "failed"]):
        monkeypatch.setattr(sys, "argv", ["sweep.py", *more, *command])
        done = in_process(*more, *command)
        assert done.exit_code == 130
        resumed = done.stderr.strip().removeprefix("stopped; go on with: ")
        assert shlex.split(resumed) == ["python", "-m", "platform.sweep", *command, "--resume"]


def test_second_driver_is_refused_before_anything_else(command: Typed, store: Storage, runs: Runs) -> None:
    """Also with --new, which would set the first one's results aside."""
    start(*command)
    finish(store, runs[-1].plan.trials[:3])
    path = store.lock("tofu_tiny", runs[-1].plan.hash)
    assert not path.exists()
    with lock.hold_sweep_lock(store, path, "the first one"):
        for more in ([], ["--new"]):
            refused = refuse(*command, *more)
            running = f"error: sweep {runs[-1].plan.name} is being run by process {os.getpid()} on "
            assert refused.startswith(running)
            assert "the first one; wait for its end" in refused
    assert (len(runs), (store.root / "set_aside").exists()) == (1, False)


def test_driver_holds_the_lock_and_sees_what_ended_before_it_got_it(
    small: Small, store: Storage, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver finishes between this one's plan and its lock."""
    real, locks = lock.hold_sweep_lock, []

    @contextlib.contextmanager
    def late(store: Storage, path: Path, command: str) -> Iterator[None]:
        plan = small.plan(store)
        finish(store, plan.trials[:40])
        with real(store, path, command):
            locks.append(path.is_file())
            yield

    monkeypatch.setattr(lock, "hold_sweep_lock", late)
    start("tofu_tiny", "--storage", store.root, *small.flags())
    assert runs[-1].remaining == list(runs[-1].plan.trials[40:])
    assert locks == [True]


def test_full_disk_is_refused_before_the_driver(
    command: Typed, store: Storage, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=3_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    refused = refuse(*command)
    assert refused.startswith("error: --storage: disk: at least ")
    assert "; what helps: another disk, a smaller --keep, " in refused
    monkeypatch.setattr(capacity, "DEVICE_FOLDER", store.root)
    lacks = "resources.gpus: a trial asks for 1, this machine has 0; --cluster FILE runs it on one that has them"
    assert refuse(*command, "--set", "resources.gpus=1") == f"error: {lacks}\n", "what it needs first comes first"
    assert runs == []
    assert "needs: disk: at least " in start(*command, "--dry-run")
    monkeypatch.setattr(capacity, "read_usable_machine_memory", lambda: 10**6)
    small = start("quickstart", "--storage", store.root, "--dry-run")
    assert "needs: GB of memory for weights and optimizer: a trial asks for 0.0" in small


@pytest.mark.parametrize("given", ["--storage=runs/x --new", "--storage 'runs of mine' --retry-failed --reason lost"])
def test_commands_go_on_in_a_storage_that_was_moved(given: str) -> None:
    first = "python -m platform.sweep own --only method=ga"
    assert format_resume_command(f"{first} {given}", " --storage moved") == f"{first} --resume --storage moved"

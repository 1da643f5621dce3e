"""What a start makes of an earlier one: refused, resumed, set aside, extended, interrupted; the driver is not run."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from small_sweep import Small
from typer.testing import CliRunner

import platform.driver as driver
import platform.lock as lock
import platform.manifest as manifest
import platform.plan as planning
import platform.sweep as sweep
from platform.plan import Plan
from trainables import remains, storage
from trainables.config import Trial
from trainables.storage import Storage


def in_process(*arguments: object) -> Any:
    app = typer.Typer()
    app.command()(sweep.main)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A start sets the process's signal handlers; the tests' own come back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that reach the driver, which itself is not run."""
    plans: list[Plan] = []

    def record(plan: Plan, store: Storage, **options: Any) -> int:
        manifest.write(plan, store, options["command"])
        plans.append(plan)
        return 0

    monkeypatch.setattr(driver, "run", record)
    return plans


TOLD = {"status": "finished", "metrics": {}, "config": {}, "started": "then"}


def finish(store: Storage, trials: Iterable[Trial], status: str = "finished") -> None:
    for trial in trials:
        told = {**TOLD, "id": trial.id(), "status": status, "config": trial.model_dump(mode="json")}
        storage.write_json(store.trial(trial.id()) / storage.RESULT, told)


def test_unfinished_sweep_goes_on_with_resume_only(small: Small, tmp_path: Path, runs: list[Plan]) -> None:
    store = Storage(tmp_path / "runs")
    command = ["tofu_tiny", "--storage", store.root, *small.flags()]
    assert in_process(*command).exit_code == 0
    trials = runs[-1].trials
    finish(store, trials[:40])
    refused = in_process(*command)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: sweep {runs[-1].name} is unfinished: 125 of its 165 trials are missing; ")
    assert "add --resume to run them, or --new to set its results aside" in refused.stderr
    assert in_process(*command, "--resume").exit_code == 0
    assert runs[-1].left == list(trials[40:])
    assert len(runs) == 2


def test_resume_says_where_there_is_nothing_to_resume(small: Small, tmp_path: Path, runs: list[Plan]) -> None:
    """A storage's name that is mistyped, say."""
    store = Storage(tmp_path / "runs")
    command = ["tofu_tiny", "--storage", store.root, *small.flags()]
    said = f"nothing to resume: {store.root} has none of this sweep's trials; it begins here"
    assert said in in_process(*command, "--resume").stdout
    finish(store, runs[-1].trials[:1])
    assert said not in in_process(*command, "--resume").stdout


@pytest.mark.parametrize(
    ("command", "there"),
    [
        ("python -m platform.sweep tiny --storage runs/x --set training.lr=1 --new", " --set training.lr=1"),
        ("python -m platform.sweep tiny --storage=runs/x --retry-failed --reason failed", ""),
        ("python -m platform.sweep tiny", ""),
    ],
)
def test_what_goes_on_names_the_storage_as_it_is_now(command: str, there: str) -> None:
    """It was moved since the command was typed."""
    assert (
        manifest.go_on(command, " --storage moved") == f"python -m platform.sweep tiny{there} --resume --storage moved"
    )
    assert manifest.go_on(command, "") == f"python -m platform.sweep tiny{there} --resume"


def test_new_sets_results_aside_and_starts_again(small: Small, tmp_path: Path, runs: list[Plan]) -> None:
    store = Storage(tmp_path / "runs")
    command = ["tofu_tiny", "--storage", store.root, *small.flags(), "--only", "benchmark.split=forget01"]
    assert in_process(*command).exit_code == 0
    finish(store, runs[-1].trials[:3])
    assert in_process(*command, "--new").exit_code == 0
    assert len(runs[-1].left) == 55
    kept = {path.parent.name for path in (store.root / "set_aside").glob("*/*/result.json")}
    assert kept == {trial.id() for trial in runs[-1].trials[:3]}
    assert not list((store.root / "trials").iterdir())


def test_more_seeds_of_a_finished_sweep_need_no_resume(small: Small, tmp_path: Path, runs: list[Plan]) -> None:
    store = Storage(tmp_path / "runs")
    command = ["tofu_tiny", "--storage", store.root, *small.flags(), "--strategy", "paper"]
    assert in_process(*command).exit_code == 0
    finish(store, runs[-1].trials)
    assert in_process(*command, "--seeds", "0,1").exit_code == 0
    assert {trial.seed for trial in runs[-1].left} == {1}
    assert len(manifest.read("tofu_tiny", store)["trials"]) == 2 * 60 - 3  # TV has one seed


def test_spent_budget_of_optuna_is_no_unfinished_sweep(small: Small, tmp_path: Path, runs: list[Plan]) -> None:
    store = Storage(tmp_path / "runs")
    command = ["tofu_tiny", "--storage", store.root, *small.flags(), "--strategy", "optuna", "--trials", 2]
    assert in_process(*command).exit_code == 0
    for trials in runs[-1].studies().values():
        finish(store, trials[:2])
    meant = sum(min(2, len(trials)) for trials in runs[-1].studies().values())
    assert manifest.read("tofu_tiny", store)["target"] == meant < len(runs[-1].trials)
    assert in_process(*command).exit_code == 0
    assert len(runs) == 2
    assert manifest.read("tofu_tiny", store)["target"] == meant


@pytest.fixture
def ended(small: Small, tmp_path: Path, runs: list[Plan]) -> tuple[list[Any], Storage, Plan]:
    """A sweep of 55 trials that all ended: 50 finished, one diverged, two failed, two out of memory; its command."""
    store = Storage(tmp_path / "runs")
    command = ["tofu_tiny", "--storage", store.root, *small.flags(), "--only", "benchmark.split=forget01"]
    assert in_process(*command).exit_code == 0
    plan = runs.pop()
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
    ended: tuple[list[Any], Storage, Plan], runs: list[Plan], flags: list[str], again: list[int]
) -> None:
    command, store, plan = ended
    done = in_process(*command, *flags)
    assert done.exit_code == 0, done.stderr
    assert runs[-1].left == [plan.trials[number] for number in again]
    assert aside(store) == {plan.trials[number].id() for number in again}
    assert (f"{len(again)} failed trials to run again; results set aside in" in done.stdout) == bool(again)


@pytest.mark.parametrize("flag", ["--resume", "--retry-failed"])
def test_lost_trial_goes_on_from_its_checkpoint_when_resumed(
    ended: tuple[list[Any], Storage, Plan], runs: list[Plan], flag: str
) -> None:
    """Its process died too often: that is no result, and what it had is not thrown away."""
    command, store, plan = ended
    lost, others = plan.trials[7], plan.trials[8:]
    folder = store.trial(lost.id())
    finish(store, [lost], storage.LOST)
    for name in ("checkpoint/meta.json", "evaluations/step_2.json", "retry.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        storage.write_json(folder / name, {})
    remains.tidy(folder)
    refused = in_process(*command)
    assert refused.exit_code == 2
    assert "1 of its 55 trials are missing; add --resume" in refused.stderr
    assert in_process(*command, flag).exit_code == 0
    assert lost in runs[-1].left
    assert {trial.id() for trial in runs[-1].left}.isdisjoint(trial.id() for trial in others)
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json")) == [
        "checkpoint/meta.json",
        "evaluations/step_2.json",
        "retry.json",
    ]


def test_result_that_came_since_a_plan_was_made_is_not_set_aside(small: Small, tmp_path: Path) -> None:
    """Between the plan and the lock another driver ran the failed trial again."""
    store = Storage(tmp_path / "runs")
    first = small.plan(store, only=["benchmark.split=forget01"]).trials[0]
    finish(store, [first], "failed")
    plan = small.plan(store, only=["benchmark.split=forget01"], retry=("failed",))
    assert plan.retried == (first.id(),)
    finish(store, [first])
    assert planning.current(plan, store).retried == ()


def test_settings_that_change_no_number_change_no_name(small: Small, tmp_path: Path) -> None:
    """Else a second driver of the same trials would have a lock of its own."""
    store = Storage(tmp_path / "runs")
    plain = small.plan(store)
    for setting in ("checkpoint_every=7", "gpu_memory=80"):
        other = small.plan(store, f"resources.{setting}")
        assert [trial.id() for trial in other.trials] == [trial.id() for trial in plain.trials]
        assert other.hash == plain.hash


def test_dry_run_tells_of_failed_and_damaged_trials(ended: tuple[list[Any], Storage, Plan]) -> None:
    command, store, plan = ended
    path = store.trial(plan.trials[9].id()) / storage.RESULT
    path.write_text("")
    said = in_process(*command, "--dry-run").stdout
    assert "strategy grid, 55 trials, 54 done" in said
    assert "4 trials failed and count as done; --retry-failed runs them again" in said
    assert f"damaged: {path}; a start sets it aside and runs its trial again" in said
    found = json.loads(in_process(*command, "--dry-run", "--json", "--retry-failed", "--reason", "failed").stdout)
    ids = [trial.id() for trial in plan.trials]
    assert found["retried"] == ids[:2]
    assert found["failed"] == {ids[2]: "out_of_memory", ids[3]: "out_of_memory"}
    assert found["damaged"] == [str(path)]
    assert sum(trial["done"] for trial in found["trials"]) == 52
    assert aside(store) == set()


def test_damaged_results_are_named_set_aside_and_run_again(
    ended: tuple[list[Any], Storage, Plan], runs: list[Plan]
) -> None:
    """A result cut short, one that is no result, a table of steps cut short; what was written stays to be looked at."""
    command, store, plan = ended
    folders = [store.trial(plan.trials[number].id()) for number in (7, 8, 9)]
    storage.write_rows(folders[2] / storage.STEPS, [{"step": 1}])
    spoilt = [folders[0] / storage.RESULT, folders[1] / storage.RESULT, folders[2] / storage.STEPS]
    spoilt[0].write_bytes(spoilt[0].read_bytes()[:-9])
    spoilt[1].write_text("{}")
    spoilt[2].write_bytes(spoilt[2].read_bytes()[:-1])
    left = spoilt[2].read_bytes()
    refused = in_process(*command)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert (
        f"unfinished: 3 of its 55 trials are missing ({', '.join(map(str, spoilt))} cannot be read)" in refused.stderr
    )
    assert aside(store) == set()
    done = in_process(*command, "--resume")
    assert done.exit_code == 0
    for path in spoilt:
        assert f"damaged: {path}; set aside in {store.root / 'set_aside'}" in done.stdout
    assert runs[-1].left == [plan.trials[number] for number in (7, 8, 9)]
    assert aside(store) == {folder.name for folder in folders}
    assert [path.read_bytes() for path in store.root.glob("set_aside/*/*/steps.parquet")] == [left]


def test_damaged_sweep_file_is_set_aside_and_written_anew(
    ended: tuple[list[Any], Storage, Plan], runs: list[Plan]
) -> None:
    command, store, plan = ended
    path = store.sweep("tofu_tiny", plan.hash)
    path.write_bytes(path.read_bytes()[:50])
    done = in_process(*command)
    assert done.exit_code == 0
    assert f"damaged: {path}; set aside in " in done.stdout
    assert aside(store) == {path.name}
    assert manifest.read("tofu_tiny", store)["trials"] == [trial.id() for trial in plan.trials]
    (store.trial(plan.trials[20].id()) / storage.RESULT).unlink()
    path.write_bytes(b"")
    refused = in_process(*command)
    assert refused.exit_code == 2
    assert f"1 of its 55 trials are missing ({path} cannot be read)" in refused.stderr


def test_every_cut_of_a_table_is_damage(tmp_path: Path) -> None:
    storage.write_json(tmp_path / storage.RESULT, {**TOLD, "id": tmp_path.name})
    path = tmp_path / storage.ROWS
    storage.write_rows(path, [{"task": "forget", "index": number, "rouge": number / 7} for number in range(50)])
    whole = path.read_bytes()
    assert remains.read_result(tmp_path)[1] == []
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert remains.read_result(tmp_path)[1] == [path], length
    path.write_bytes(bytes(len(whole)))
    assert remains.read_result(tmp_path)[1] == [path]


@pytest.mark.parametrize(
    "change",
    [{"id": "another"}, {"config": None}, {"metrics": None}, *({name: ...} for name in (*TOLD, "id"))],
    ids=str,
)
def test_a_result_of_something_else_is_damage(tmp_path: Path, change: dict[str, Any]) -> None:
    told = {**TOLD, "id": tmp_path.name}
    storage.write_json(tmp_path / storage.RESULT, told)
    assert remains.read_result(tmp_path) == (told, [])
    changed = {name: value for name, value in (told | change).items() if value is not ...}
    storage.write_json(tmp_path / storage.RESULT, changed)
    assert remains.read_result(tmp_path) == (None, [tmp_path / storage.RESULT])


def test_interrupt_prints_the_command_that_goes_on(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any, **options: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "run", interrupted)
    command = ["tofu_tiny", "--storage", str(tmp_path / "runs of mine"), *small.flags()]
    for more in ([], ["--resume"], ["--new"], ["--retry-failed", "--reason", "failed"]):
        monkeypatch.setattr(sys, "argv", ["sweep.py", *more, *command])
        done = in_process(*more, *command)
        assert done.exit_code == 130
        resumed = done.stderr.strip().removeprefix("stopped; go on with: ")
        assert shlex.split(resumed) == ["python", "-m", "platform.sweep", *command, "--resume"]


def test_second_driver_is_refused_before_anything_else(small: Small, tmp_path: Path, runs: list[Plan]) -> None:
    """Also with --new, which would set the first one's results aside."""
    store = Storage(tmp_path / "runs")
    command = ["tofu_tiny", "--storage", store.root, *small.flags(), "--only", "benchmark.split=forget01"]
    assert in_process(*command).exit_code == 0
    finish(store, runs[-1].trials[:3])
    path = store.lock("tofu_tiny", runs[-1].hash)
    assert not path.exists()
    with lock.held(path, "the first one"):
        for more in ([], ["--resume"], ["--new"]):
            refused = in_process(*command, *more)
            assert (refused.exit_code, refused.stdout) == (2, "")
            assert refused.stderr.startswith(f"error: sweep {runs[-1].name} is being run by process {os.getpid()} on ")
            assert "the first one; wait for its end" in refused.stderr
    assert (len(runs), (store.root / "set_aside").exists()) == (1, False)


def test_driver_holds_the_lock_and_sees_what_ended_before_it_got_it(
    small: Small, tmp_path: Path, runs: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver finishes between this one's plan and its lock."""
    store = Storage(tmp_path / "runs")
    real, locks = lock.held, []

    @contextlib.contextmanager
    def late(path: Path, *command: str) -> Iterator[None]:
        plan = small.plan(store)
        finish(store, plan.trials[:40])
        with real(path, *command):
            locks.append(path.is_file())
            yield

    monkeypatch.setattr(lock, "held", late)
    assert in_process("tofu_tiny", "--storage", store.root, *small.flags()).exit_code == 0
    assert runs[-1].left == list(runs[-1].trials[40:])
    assert locks == [True]


def test_full_disk_is_refused_before_the_driver(
    small: Small, tmp_path: Path, runs: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=3 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    for more in ([], ["--dry-run"]):
        done = in_process("tofu_tiny", *more, "--storage", tmp_path / "runs", *small.flags())
        assert (done.exit_code, done.stdout, runs) == (2, "", [])
        assert done.stderr == f"error: --storage: 3 MB free at '{tmp_path / 'runs'}', at least 64 MB are needed\n"


def test_a_sweep_lists_every_command_that_its_trials_come_from() -> None:
    """The report says how to reproduce all of them; a start that only goes on with one is not another."""
    first, second = "python -m platform.sweep own --only method=ga", "python -m platform.sweep own --seeds 0,1"
    listed = manifest._commands({"command": first}, f"{first} --resume")
    assert listed == [first]
    listed = manifest._commands({"command": first, "commands": listed}, second)
    assert manifest._commands({"commands": listed}, f"{first} --retry-failed") == [first, second]

"""What a person types and gets: listings, dry runs, and one line for every way to be wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from platform.driver import finish
from tests.support.small_sweep import Small
from trainables.common import cli, paths
from trainables.storage.base import Storage

HEAVY = ("torch", "ray", "mlflow", "transformers", "deepspeed", "datasets", "optuna")
SECONDS_OF_CPU, SECONDS, TRIES = 2.0, 4.0, 3  # a busy machine may take longer once
RunModule = Callable[..., subprocess.CompletedProcess[str]]


def message(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a refusal."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    return done.stderr


# Listings and dry runs


def test_list_names_every_sweep(run_module: RunModule, root: Path) -> None:
    done = run_module("platform.sweep", "--list")
    assert (done.returncode, done.stderr) == (0, "")
    names = [line.split()[0] for line in done.stdout.splitlines()]
    files = {path.stem for path in (root / "search_spaces").glob("*.py")} - {"__init__"}
    assert set(names) == files
    assert "tofu_tiny" in names
    rows = json.loads(run_module("platform.sweep", "--list", "--json").stdout)
    assert [row["name"] for row in rows] == names
    assert all(row.keys() == {"name", "title"} and row["title"] for row in rows)


def test_dry_run_tells_what_would_run(run_module: RunModule, small: Small, tmp_path: Path) -> None:
    arguments = ["tofu_tiny", "--dry-run", "--storage", tmp_path / "runs", *small.flags()]
    done = run_module("platform.sweep", *arguments, "--strategy", "paper", "--only", "method=ga,npo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "strategy paper, 12 trials, 0 done" in done.stdout
    assert "forget05/npo/gru" in done.stdout
    assert "/gd/" not in done.stdout
    assert "needs" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_dry_run_as_json(run_module: RunModule, small: Small, tmp_path: Path) -> None:
    arguments = ["tofu_tiny", "--dry-run", "--json", "--storage", tmp_path / "runs", *small.flags(), "--seeds", "0,1"]
    done = run_module("platform.sweep", *arguments, "--strategy", "optuna", "--trials", 3)
    assert (done.returncode, done.stderr) == (0, "")
    plan = json.loads(done.stdout)
    expected = small.plan(Storage(tmp_path / "runs"), "seed=0,1", strategy="optuna")
    assert (plan["sweep"], plan["hash"], plan["strategy"], plan["budget"]) == ("tofu_tiny", expected.hash, "optuna", 3)
    assert plan["storage"] == str(tmp_path / "runs")
    assert [trial["id"] for trial in plan["trials"]] == [trial.id() for trial in expected.trials]
    assert plan["trials"][0] == {
        "id": expected.trials[0].id(),
        "label": "ga-forget01-s0",
        "study": "forget01/ga/none",
        "done": False,
    }
    assert {"study": "forget10/npo/gru", "trials": 8, "done": 0} in plan["studies"]
    assert (plan["models"], plan["needs"]) == ([], [])
    assert plan["resources"]["cpus"] == 1
    assert plan["disk_bytes"] > 0
    assert plan["title"]
    assert list(tmp_path.iterdir()) == []


def test_dry_run_without_data_lists_needs(run_module: RunModule, tmp_path: Path) -> None:
    done = run_module("platform.sweep", "tofu_tiny", "--dry-run", "--storage", tmp_path / "runs")
    assert done.returncode == 0
    assert "needs: data set locuslab/TOFU from the hub" in done.stdout
    assert "--set benchmark.data=DIR" in done.stdout


@pytest.mark.parametrize("arguments", [["--list"], ["tofu_tiny", "--dry-run"]], ids=["list", "dry-run"])
def test_listing_and_planning_are_light_and_quick(
    arguments: list[str], small: Small, root: Path, tmp_path: Path
) -> None:
    if "--dry-run" in arguments:
        arguments = [*arguments, *small.flags(), "--storage", str(tmp_path / "runs")]
    code = f"""
import runpy, sys, time
sys.argv = ["sweep", *{arguments!r}]
try:
    runpy.run_module("platform.sweep", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print([name for name in {HEAVY!r} if name in sys.modules], time.process_time())
"""
    wall = []
    for _ in range(TRIES):
        begun = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
        wall.append(time.monotonic() - begun)
        assert done.returncode == 0, done.stderr
        loaded, cpu = done.stdout.splitlines()[-1].rsplit(" ", 1)
        assert loaded == "[]"
        assert float(cpu) <= SECONDS_OF_CPU
        if wall[-1] <= SECONDS:
            break
    assert min(wall) <= SECONDS


# Every way to be wrong


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], ["name a sweep: ", "tofu_tiny"]),
        (["tofu_tini"], ["unknown sweep 'tofu_tini'; did you mean 'tofu_tiny'? known: "]),
        (["tofu_tiny", "--resume", "--new"], ["--resume and --new exclude each other"]),
        (["tofu_tiny", "--retry-failed", "--new"], ["--retry-failed and --new exclude each other"]),
        (["tofu_tiny", "--reason", "failed"], ["--reason: ", "add --retry-failed"]),
        (["tofu_tiny", "--retry-failed", "--reason", "oom"], ["unknown reason 'oom'", "known: failed, out_of_memory"]),
        (["tofu_tiny", "--dry-run", "--strategy", "gird"], ["--strategy", "'gird'", "grid, paper, optuna"]),
        (["tofu_tiny", "--dry-run", "--set", "trainin.lr=1"], ["--set trainin.lr=1", "did you mean 'training.lr'?"]),
        (["tofu_tiny", "--dry-run", "--set", "training.lr=fast"], ["training.lr", "'fast'", "valid number"]),
        (["tofu_tiny", "--dry-run", "--set", "method=gaa"], ["method: ", "'gaa'", "'ga', 'ga_kl', "]),
        (["tofu_tiny", "--dry-run", "--seeds", "0,one"], ["--seeds 0,one", "'one'", "no whole number"]),
        (["tofu_tiny", "--dry-run", "--seeds=-1"], ["--seeds -1", "no whole number from 0 on"]),
        (["tofu_tiny", "--dry-run", "--only", "method=ga,gaa"], ["--only", "method=gaa", "known: ga, ga_kl, gd, "]),
        (["tofu_tiny", "--dry-run", "--set", "benchmark.data=./nowhere"], ["benchmark.data", "'./nowhere'"]),
        (["quickstart", "--dry-run", "--set", "method=rmu"], ["objective.layer: RMU", "the model has 2, got 7"]),
        (["tofu_tiny", "--dry-run", "--storage", "s4://bucket/runs"], ["--storage", "'s4://bucket/runs'", "file://"]),
    ],
    ids=lambda value: " ".join(value)[:40] or "nothing",
)
def test_bad_input_is_one_line_that_says_how_to_mend_it(
    run_module: RunModule, arguments: list[str], said: list[str]
) -> None:
    text = message(run_module("platform.sweep", *arguments))
    assert [part for part in said if part not in text] == [], text


def test_broken_data_and_models_are_told_together_by_a_start_too(
    run_module: RunModule, small: Small, tmp_path: Path
) -> None:
    """Missing file, missing column and unknown template at once; then the models. Nothing begins."""
    shutil.copytree(small.data, tmp_path / "data")
    (tmp_path / "data" / "forget01.json").unlink()
    perturbed = tmp_path / "data" / "forget10_perturbed.json"
    perturbed.write_text(perturbed.read_text().replace("paraphrased_answer", "paraphrase"))
    settings = small.flags(f"benchmark.data={tmp_path / 'data'}", "benchmark.template=llama")
    text = message(run_module("platform.sweep", "tofu_tiny", "--storage", tmp_path / "runs", *settings))
    assert "has no forget01.json" in text
    assert "row 1 of forget10_perturbed in" in text
    assert "'paraphrased_answer'; its columns: question, answer, paraphrase" in text
    assert "unknown template 'llama'; did you mean 'llama3'?" in text
    shutil.copytree(small.models, tmp_path / "models")
    (tmp_path / "models" / "full" / "model.safetensors").unlink()
    settings = small.flags(f"models={tmp_path / 'models'}")
    text = message(run_module("platform.sweep", "tofu_tiny", "--storage", tmp_path / "runs", *settings))
    assert f"models/full: model folder {tmp_path / 'models' / 'full'} has no model.safetensors; it has" in text
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("dry", [True, False], ids=["dry run", "start"])
@pytest.mark.parametrize("inside", [True, False], ids=["below a file", "a file"])
def test_storage_that_cannot_be_written(
    run_module: RunModule, small: Small, tmp_path: Path, dry: bool, inside: bool
) -> None:
    (tmp_path / "file").write_text("in the way")
    place = tmp_path / "file" / "runs" if inside else tmp_path / "file"
    more = ["--dry-run"] if dry else []
    text = message(run_module("platform.sweep", "tofu_tiny", *more, "--storage", place, *small.flags()))
    assert f"--storage: cannot write to '{place}'" in text


def test_points_of_a_study_are_optunas(run_module: RunModule, tmp_path: Path) -> None:
    done = run_module("platform.sweep", "quickstart", "--dry-run", "--trials", 4, "--storage", tmp_path / "runs")
    assert done.returncode == 2
    assert "--trials: the points of each study with --strategy optuna; --strategy grid has its own" in done.stderr


def test_dry_run_says_how_many_steps_there_are(run_module: RunModule, small: Small, tmp_path: Path) -> None:
    """`max_steps` only cuts a trial short: that epochs and batches allow no more is said."""
    arguments = ["tofu_tiny", "--dry-run", "--storage", tmp_path / "runs", *small.flags()]
    arguments += ["--set", "training.max_steps=500", "--set", "training.epochs=1", "--set", "training.batch_size=2"]
    (line,) = (line for line in run_module("platform.sweep", *arguments).stdout.splitlines() if "each trial" in line)
    told = {"forget01": 2, "forget05": 10, "forget10": 20}  # rows of a hundred authors with two questions each
    parts = [
        f"{n // 2} on {split} (not 500: there are no more in 1 epoch of {n} rows in batches of 2)"
        for split, n in told.items()
    ]
    assert line.endswith(f"fp32, steps: {', '.join(parts)}")
    one = run_module("platform.sweep", *arguments, "--set", "benchmark.split=forget01").stdout
    assert "fp32, 1 step (not 500: there are no more in 1 epoch of 2 rows in batches of 2)\n" in one
    alike = run_module("platform.sweep", *arguments, "--set", "training.max_steps=1").stdout
    assert "fp32, 1 step\n" in alike


@pytest.mark.parametrize(
    ("amount", "told"), [(12.34, "12.3"), (1, "1.0"), (0.994, "0.99"), (0.0347, "0.03"), (0.004, "less than 0.01")]
)
def test_small_amounts_are_not_told_as_nothing(amount: float, told: str) -> None:
    assert cli.format_amount(amount) == told


def test_what_the_quickstart_ends_with_is_a_part_of_the_next_sweep(
    run_module: RunModule, small: Small, tmp_path: Path
) -> None:
    typed, _, told = finish.AFTER_QUICKSTART.partition("   ")
    words = typed.removeprefix(".venv/bin/python -m platform.sweep ").split()
    done = run_module("platform.sweep", *words, *small.flags(), "--storage", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    assert "strategy grid, 10 trials, 0 done" in done.stdout
    whole = run_module("platform.sweep", "tofu_tiny", "--dry-run", *small.flags(), "--storage", tmp_path / "runs")
    assert "strategy grid, 165 trials, 0 done" in whole.stdout
    assert told == "(TOFU's real rows, 10 of its 165 trials)"


def test_places_are_told_so_that_they_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.describe_path("rows") == f"'rows', looked for at {tmp_path / 'rows'}"
    assert paths.describe_path("/rows") == "'/rows'"
    assert str(paths.shorten(tmp_path / "runs" / "x")) == "runs/x"
    assert str(paths.shorten(tmp_path.parent)) == str(tmp_path.parent), "and never as ../.."

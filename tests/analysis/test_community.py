"""The folders that open-unlearning's community/methods/ asks for, of an invented sweep in its dialect."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest

from analysis import community
from tests.support import sweep_store
from tests.support.small_sweep import Small
from tests.support.starts import in_process, invoke
from tests.support.sweep_store import NONE, write, write_sweep, write_trial
from trainables.storage.folder_storage import Storage

TUNED = {"name": "gru", "gamma": 0.8, "tau": None}


def write_store(store: Path, dialect: str = "open-unlearning", **given: Any) -> Path:
    """NPO alone at two rates, and with GRU at two seeds, as `--set training.lr=1e-5,2e-5` gives them."""
    trials = []
    for rectifier, lr, seed, fq in (
        (NONE, 1e-5, 0, -9.0),
        (NONE, 2e-5, 0, -4.0),
        (TUNED, 1e-5, 0, -2.0),
        (TUNED, 1e-5, 1, -3.0),
    ):
        values = {"fq": fq, "mu": 0.85, "lr": lr, "seed": seed} | given
        trials.append(write_trial(store, f"{len(trials):012x}", "npo", rectifier, **values))
        for path in (store / "trials" / trials[-1]).glob("*.json"):
            document = json.loads(path.read_text().replace('"dialect": "paper"', f'"dialect": "{dialect}"'))
            if path.name == "result.json":
                document["metrics"]["forget_quality_pvalue"] = math.exp(fq)
                document["topology"] |= {"zero_stage": 3}
            write(path, document)
    write_sweep(store, trials, splits=("forget05",), name="tofu_tiny")
    (path,) = (store / "sweeps").glob("*.json")
    axes = {"method": ["npo"], "rectifier.name": ["none", "gru"], "rectifier.gamma": [0.8], "rectifier.tau": [None]}
    axes |= {"benchmark.split": ["forget05"], "training.lr": [1e-5, 2e-5], "seed": [0, 1]}
    typed = "python -m platform.sweep tofu_tiny --set models=/home/me/models --set training.epochs=7 --seeds 0,1"
    typed += " --set objective.idk=/home/me/idk.txt"
    write(path, json.loads(path.read_text()) | {"axes": axes, "command": typed})
    return store


def test_each_method_has_a_folder_with_results_in_their_form(tmp_path: Path) -> None:
    done = invoke(
        community.main, "tofu_tiny", "--storage", write_store(tmp_path / "runs"), "--output", tmp_path / "out"
    )
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["NPO", "NPO_GRU"]
    text = (tmp_path / "out" / "NPO_GRU" / "README.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("# ")] == [
        "# NPO w/ GRU",
        "# Setup",
        "# Results",
        "# Citation",
    ]
    head, _, *lines = sweep_store.grid(text)
    assert [head, *lines] == [
        ["Method", "split", "seed", "forget_quality", "model_utility"],
        ["NPO w/ GRU", "forget05", "0", f"{math.exp(-2):.3g}", "0.85"],
        ["NPO w/ GRU", "forget05", "1", f"{math.exp(-3):.3g}", "0.85"],
    ]
    assert "settings that were run: 2, of method: " in (tmp_path / "out" / "NPO" / "README.md").read_text()
    assert "ZeRO stage 3" in text
    assert "/home/me" not in text + (tmp_path / "out" / "NPO_GRU" / "run.sh").read_text()


@pytest.mark.parametrize(
    ("folder", "rectifier", "lr", "seeds"), [("NPO", "none", 2e-5, [0]), ("NPO_GRU", "gru", 1e-5, [0, 1])]
)
def test_run_sh_plans_the_chosen_trials(
    folder: str, rectifier: str, lr: float, seeds: list[int], tmp_path: Path, small: Small
) -> None:
    community.build("tofu_tiny", str(write_store(tmp_path / "runs")), tmp_path)
    lines = (tmp_path / folder / "run.sh").read_text().splitlines()
    (command,) = (line for line in lines if line.startswith("python -m platform.sweep "))
    words = shlex.split(command)[3:]
    done = in_process(*words, *small.flags(), "--dry-run", "--json", "--storage", tmp_path / "plan")
    assert done.exit_code == 0, done.output
    trials = small.plan(Storage(tmp_path / "plan"), *words[2::2]).trials
    assert [trial["id"] for trial in json.loads(done.stdout)["trials"]] == [trial.id() for trial in trials]
    assert [trial.seed for trial in trials] == seeds
    for trial in trials:
        assert (trial.method, trial.rectifier.name, trial.training.lr) == ("npo", rectifier, lr)
        assert (trial.training.epochs, trial.benchmark.split) == (7, "forget05")


def test_what_their_tables_cannot_hold_is_refused(tmp_path: Path) -> None:
    for name, store, message in (
        (
            "paper",
            write_store(tmp_path / "paper", "paper"),
            "run the sweep with --set benchmark.dialect=open-unlearning",
        ),
        ("failed", write_store(tmp_path / "failed", status="failed", fq=None, mu=None), "no trial has a result"),
        (
            "own",
            write_store(tmp_path / "own", benchmark="own", metrics={"utility": 0.5}),
            "is of own; open-unlearning's",
        ),
    ):
        done = invoke(community.main, "tofu_tiny", "--storage", store, "--output", tmp_path / f"{name}-out")
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
        assert message in done.stderr
        assert not (tmp_path / f"{name}-out").exists()

"""docs/adding.md, done word for word in a copy of the checkout: each in one file of under twenty lines."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support import pages, small_sweep
from tests.support.environment import clean_environment
from tests.support.small_sweep import Small
from tests.support.starts import in_process
from trainables.storage import atomic_files
from trainables.storage.file_names import RESULT

FILES = pages.files(pages.read("docs/adding.md"))
SWEEP, OBJECTIVE, RECTIFIER, BENCHMARK, MEASURE, BACKBONE = (
    "search_spaces/npo_gammas.py",
    "trainables/methods/custom/known.py",
    "trainables/methods/custom/agree.py",
    "trainables/benchmarks/tofu_alone.py",
    "trainables/benchmarks/measures/verbatim.py",
    "search_spaces/backbones/smollm2.py",
)
PACKAGES = ("platform", "search_spaces", "trainables", "analysis")
Run = Callable[..., subprocess.CompletedProcess[str]]
Changes = Sequence[tuple[str, tuple[str, str], str]]
"""A file, what is replaced by what in it, and what is said of it then."""


@pytest.fixture(scope="module")
def copy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code with every file of the section, and the names that the section says to add."""
    place = tmp_path_factory.mktemp("checkout")
    for package in PACKAGES:
        shutil.copytree(root / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("pyproject.toml", "Makefile"):
        shutil.copy(root / path, place)
    for path, text in (FILES | pages.files(pages.read("README.md"))).items():
        assert not (place / path).exists()
        (place / path).write_text(text)
    return place


@pytest.fixture(scope="module")
def run(copy: Path) -> Run:
    """`run(module, *arguments)` from the root of the copy, or `run("-c", code)`."""

    def start(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        typed = [sys.executable, *([] if module == "-c" else ["-m"]), module, *map(str, arguments)]
        return subprocess.run(typed, cwd=copy, env=clean_environment(), capture_output=True, text=True, check=False)

    return start


def planned(run: Run, *typed: object) -> dict[str, Any]:
    done = run("platform.sweep", *typed, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_section_adds_six_things_in_few_lines_that_pass_the_style(run: Run) -> None:
    assert list(FILES) == [SWEEP, OBJECTIVE, RECTIFIER, BENCHMARK, MEASURE, BACKBONE]
    assert max(len([line for line in text.splitlines() if line]) for text in FILES.values()) < 20
    for words in (("check",), ("format", "--check")):
        done = run("ruff", *words, *FILES)
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_added_sweep(run: Run, small: Small) -> None:
    told = planned(run, "npo_gammas", *small.flags())
    labels = [trial["label"] for trial in told["trials"]]
    assert len(set(labels)) == len(labels) == 5 * (1 + 5)
    assert "gru-npo-forget05-g0.4-tnone-s3" in labels


def test_an_added_objective_and_rectifier_are_planned_in_any_sweep(run: Run, small: Small) -> None:
    split = ("--set", "benchmark.split=forget05")
    flags = (*small.flags("method=known,npo", "rectifier.name=none,agree"), *split)
    found = planned(run, "tofu_tiny", *flags, "--only", "rectifier.name=agree")
    assert {trial["study"] for trial in found["trials"]} == {"forget05/known/agree", "forget05/npo/agree"}
    assert "agree-known-forget05-g0.8-s0" in {trial["label"] for trial in found["trials"]}
    (row,) = planned(run, "tofu_phi", "--set", "method=known", "--set", "rectifier.name=agree", *split)["memory"]
    assert row["bytes"]["average"] > row["bytes"]["frozen"] == 0, "what the files say of their needs"
    refused = run("platform.sweep", "tofu_tiny", "--dry-run", *small.flags("method=knowm", "rectifier.name=agre"))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "'pdu' or 'known' (got 'knowm')" in refused.stderr
    assert "'agree' or 'equal' (got 'agre')" in refused.stderr


def run_beside_wrong_files(copy: Path, changes: Changes, run: Run, *commands: tuple[object, ...]) -> list[Any]:
    """Write each file with a change as wrong_NUMBER.py beside it, and run commands until they are removed.

    The first says in one line what is wrong with each of the files, and exits with 2.
    """
    files = [(copy / file).with_name(f"wrong_{number}.py") for number, (file, _, _) in enumerate(changes)]
    for path, (file, change, _) in zip(files, changes, strict=True):
        assert change[0] in FILES[file]
        path.write_text(FILES[file].replace(*change, 1))
    done = [run(*command) for command in commands]
    for path, (_, _, words) in zip(files, changes, strict=True):
        path.unlink()
        assert f"{path.relative_to(copy)}: {words}" in done[0].stderr
    assert (done[0].returncode, done[0].stderr.count("\n")) == (2, 1)
    return done


WRONG_FILES = (
    (OBJECTIVE, ("def make(", "def mak("), "it has no make(constants, seed), which returns the objective"),
    (OBJECTIVE, ("import math", "import maths"), "No module named 'maths'"),
    (OBJECTIVE, ("return -(", "return --*("), "invalid syntax (wrong_2.py, line "),
    (OBJECTIVE, ("NEEDS = ()", 'NEEDS = ("frozen",)'), "NEEDS is no tuple of 'retain_loss', 'frozen_model', "),
    (RECTIFIER, ("class Rectifier(", "class Agree("), "it has no class Rectifier"),
    (RECTIFIER, ('("gamma",)', '("gama",)'), "TAKES is no tuple of 'gamma', 'tau'"),
    (RECTIFIER, ("Rectifier(GRU):", "Rectifier(GRU):\n    adds_retain = True\n"), "write ADDS_RETAIN = True"),
)


def test_wrong_files_are_named_before_they_run_and_hinder_no_other(copy: Path, run: Run, small: Small) -> None:
    wrong = small.flags("method=wrong_0,wrong_1,wrong_2,wrong_3", "rectifier.name=wrong_4,wrong_5,wrong_6")
    dry = ("platform.sweep", "tofu_tiny", "--dry-run")
    _, other = run_beside_wrong_files(copy, WRONG_FILES, run, (*dry, *wrong), (*dry, *small.flags("method=npo")))
    assert other.returncode == 0


def test_an_added_backbone(run: Run, copy: Path) -> None:
    found = planned(run, "tofu_phi", "--strategy", "paper", "--set", "backbone=SmolLM2-360M-Instruct")
    assert len(found["trials"]) == 28
    assert any("HuggingFaceTB/SmolLM2-360M-Instruct" in need for need in found["needs"])
    larger = json.loads(in_process("tofu_phi", "--strategy", "paper", "--dry-run", "--json").stdout)
    assert 0 < found["gpu_hours"] < larger["gpu_hours"]
    assert all(need["bytes"]["weights"] == pytest.approx(2 * 361.8e6, rel=0.01) for need in found["memory"])
    dry = ("platform.sweep", "tofu_phi", "--dry-run", "--set", "backbone=Phi-1.5")
    for lr, words in (('"fast"', "lr: Input should be a valid number"), ("1e-5", "another backbone is called SmolLM2")):
        run_beside_wrong_files(copy, ((BACKBONE, ("lr=2e-5", f"lr={lr}"), words),), run, dry)


def test_a_trial_of_what_is_added(run: Run, trial_inputs: Any, tmp_path: Path) -> None:
    data = small_sweep.cut_short(trial_inputs.data, tmp_path / "data")
    config = {
        "method": "known",
        "rectifier": {"name": "agree", "gamma": 0.8},
        "benchmark": {"name": "tofu_alone", "data": str(data), "split": trial_inputs.split, "limit": 2},
        "target": {"path": str(trial_inputs.target)},
        "training": {"lr": 2e-3, "batch_size": 8, "max_steps": 2, "epochs": 10, "max_length": 192},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run("trainables.run", tmp_path / "config.json", "--storage", tmp_path / "store")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "store/trials").iterdir()
    result = atomic_files.read_json(folder / RESULT) or {}
    assert (result["status"], result["config"]["method"]) == ("finished", "known")
    assert 0 < result["metrics"]["forget_prob"] < 1
    questions = pd.read_parquet(folder / "evaluation.parquet")
    assert set(questions["verbatim"]) <= {0.0, 1.0}
    for task, part in questions.groupby("task"):
        assert result["metrics"][f"{task}_verbatim"] == part["verbatim"].mean()
    assert result["metrics"]["forget_quality"] is None
    steps = pd.read_parquet(folder / "steps.parquet")
    assert len(steps) == 2
    assert steps["loss"].between(-math.log(2), 0).all(), "a mean over label tokens of which likely ones alone count"
    assert steps["skipped"].equals(steps["rectified"]), "no step against the retain gradient"


LABELS = """
from analysis.figures import style
from analysis.labels import format_table_row_label as label
looks = [style.marker_style("known", name) for name in ("none", "agree", "equal", "gru")]
print(label("known", "none"), "|", label("known", "agree"), "|", label("known", "equal"))
assert len({(str(look["marker"]), "markerfacecolor" in look) for look in looks}) == 4
"""


def test_reports_know_the_labels_of_what_is_added(run: Run) -> None:
    done = run("-c", LABELS)
    assert (done.stdout, done.stderr) == ("known | w/ agreement | w/ equal lengths\n", "")


WRONG_SWEEPS = (
    (SWEEP, ('"axes"', '"axis"'), "a sweep has no setting 'axis'; it has name, title, "),
    (SWEEP, ('gamma"', 'gama"'), "axes: rectifier.gama cannot be an axis; known: benchmark.split, method, "),
    (SWEEP, ("SWEEP =", "SWEPT ="), "it has no SWEEP (search_spaces.schema.sweep.Sweep)"),
    (SWEEP, ("from ", "import nowhere\nfrom "), "No module named 'nowhere'"),
    (SWEEP, ("(0, 1, 2, 3, 4)", "3"), "axes: seed: write a tuple of values or Range(LOW, HIGH) (got 3)"),
    (SWEEP, ('("npo",)', '("npoo",)'), "axes: method: Input should be 'ga', 'ga_kl', 'gd', 'wga', 'npo', 'npo_kl', "),
    (SWEEP, ("npo_gammas", "npo_gammas"), "its SWEEP is called 'npo_gammas'; a sweep's name is its file's"),
)


def test_wrong_sweep_files_are_named_and_hide_no_other(copy: Path, run: Run) -> None:
    commands = (("platform.sweep", "--list"), ("platform.sweep", "wrong_1", "--dry-run"))
    done, alone = run_beside_wrong_files(copy, WRONG_SWEEPS, run, *commands)
    assert alone.returncode == 2
    assert alone.stderr.startswith(f"error: search_spaces/wrong_1.py: {WRONG_SWEEPS[1][2]}")
    assert "tofu_tiny " in done.stdout
    assert "npo_gammas " in done.stdout

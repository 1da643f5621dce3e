"""docs/adding.md, done word for word in a copy of the checkout: each in one file of under twenty lines."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support import pages, small_sweep
from tests.support.environment import clean_environment
from tests.support.small_sweep import Small
from trainables import benchmarks
from trainables.common import fingerprints
from trainables.config.settings import Benchmark, Model, Training
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.names import RESULT

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


@pytest.fixture(scope="module")
def copy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code with every file of the section, and the names that the section says to add."""
    place = tmp_path_factory.mktemp("checkout")
    for package in PACKAGES:
        shutil.copytree(root / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("pyproject.toml", "Makefile"):
        shutil.copy(root / path, place)
    for path, text in FILES.items():
        assert not (place / path).exists()
        (place / path).write_text(text)
    return place


@pytest.fixture(scope="module")
def run(copy: Path) -> Run:
    """`run(module, *arguments)` from the root of the copy."""

    def start(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        typed = [sys.executable, "-m", module, *map(str, arguments)]
        env = clean_environment()
        return subprocess.run(typed, cwd=copy, env=env, capture_output=True, text=True, check=False)

    return start


def planned(run: Run, *typed: object) -> dict[str, Any]:
    done = run("platform.sweep", *typed, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_section_adds_six_things_in_few_lines() -> None:
    assert list(FILES) == [SWEEP, OBJECTIVE, RECTIFIER, BENCHMARK, MEASURE, BACKBONE]
    assert max(len([line for line in text.splitlines() if line]) for text in FILES.values()) < 20


def test_what_is_added_passes_the_style(copy: Path) -> None:
    """ruff knows the page's blocks too (`make lint` formats them)."""
    for words in (("check",), ("format", "--check")):
        done = subprocess.run([sys.executable, "-m", "ruff", *words, *FILES], cwd=copy, capture_output=True, text=True)
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
    assert "'gru' or 'agree' (got 'agre')" in refused.stderr


WRONG_FILES = (
    (OBJECTIVE, ("def make(", "def mak("), "it has no make(constants, seed), which returns the objective"),
    (OBJECTIVE, ("import math", "import maths"), "No module named 'maths'"),
    (OBJECTIVE, ("return -(", "return --*("), "invalid syntax (wrong_2.py, line "),
    (OBJECTIVE, ("NEEDS = ()", 'NEEDS = ("frozen",)'), "NEEDS is no tuple of 'retain_loss', 'frozen_model', "),
    (RECTIFIER, ("class Rectifier(", "class Agree("), "it has no class Rectifier"),
    (RECTIFIER, ('("gamma",)', '("gama",)'), "TAKES is no tuple of 'gamma', 'tau'"),
)


def test_wrong_files_are_named_before_they_run_and_hinder_no_other(copy: Path, run: Run, small: Small) -> None:
    files = [(copy / file).with_name(f"wrong_{number}.py") for number, (file, _, _) in enumerate(WRONG_FILES)]
    for path, (file, change, _) in zip(files, WRONG_FILES, strict=True):
        assert change[0] in FILES[file]
        path.write_text(FILES[file].replace(*change, 1))
    wrong = small.flags("method=wrong_0,wrong_1,wrong_2,wrong_3", "rectifier.name=wrong_4,wrong_5")
    try:
        done = run("platform.sweep", "tofu_tiny", "--dry-run", *wrong)
        assert run("platform.sweep", "tofu_tiny", "--dry-run", *small.flags("method=npo")).returncode == 0
    finally:
        for path in files:
            path.unlink()
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    for problem, path, (_, _, words) in zip(
        done.stderr.removeprefix("error: ").split("; trainables/"), files, WRONG_FILES, strict=True
    ):
        assert problem.removeprefix("trainables/").startswith(f"methods/custom/{path.name}: {words}")


def test_an_added_backbone(run: Run, copy: Path) -> None:
    found = planned(run, "tofu_phi", "--strategy", "paper", "--set", "backbone=SmolLM2-135M-Instruct")
    assert len(found["trials"]) == 28
    assert found["tables"] == []
    assert any("HuggingFaceTB/SmolLM2-135M-Instruct" in need for need in found["needs"])
    larger = planned(run, "tofu_phi", "--strategy", "paper")
    assert found["gpu_hours"] == pytest.approx(larger["gpu_hours"] * 134.5 / 1418, rel=0.05), "by parameters"
    text = FILES[BACKBONE]
    (copy / BACKBONE).write_text(text.replace("lr=2e-5", 'lr="fast"'))
    try:
        done = run("platform.sweep", "tofu_phi", "--dry-run", "--set", "backbone=Phi-1.5")
    finally:
        (copy / BACKBONE).write_text(text)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {BACKBONE}: lr: Input should be a valid number")


def test_a_trial_of_what_is_added(run: Run, trial_inputs: Any, tmp_path: Path) -> None:
    data = small_sweep.cut_short(trial_inputs.data, tmp_path / "data")
    found = benchmarks.find("tofu").fingerprint(Benchmark(data=str(data), split=trial_inputs.split))
    plain = Trial(
        method="ga",
        benchmark=Benchmark(data=str(data), split=trial_inputs.split, fingerprint=found, limit=2),
        target=Model(
            path=str(trial_inputs.target), fingerprint="files:" + fingerprints.hash_model(trial_inputs.target)
        ),
        training=Training(lr=2e-3, batch_size=8, max_steps=2, epochs=10, max_length=192),
    )
    config: dict[str, Any] = plain.model_dump(mode="json") | {"method": "known"}
    config["rectifier"] = {"name": "agree", "gamma": 0.8}
    config["benchmark"]["name"] = "tofu_alone"
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
from analysis.labels import row_label
print(row_label("known", "none"), "|", row_label("known", "agree"), "|", style.marker("known", "agree")["fillstyle"])
published = [style.rectifier_look(name) for name in ("none", "clip", "agem", "gru")]
assert style.rectifier_look("agree") not in published
"""


def test_reports_know_the_labels_of_what_is_added(copy: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LABELS], cwd=copy, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("known | w/ agreement | bottom\n", "")


WRONG_SWEEPS = {
    ('"axes"', '"axis"'): "a sweep has no setting 'axis'; it has name, title, ",
    ('gamma"', 'gama"'): "axes: rectifier.gama cannot be an axis; known: benchmark.split, method, ",
    ("SWEEP =", "SWEPT ="): "it has no SWEEP (search_spaces.schema.sweep.Sweep)",
    ("from ", "import nowhere\nfrom "): "No module named 'nowhere'",
    ("(0, 1, 2, 3, 4)", "3"): "axes: seed: write a tuple of values or Range(LOW, HIGH) (got 3)",
    ('("npo",)', '("npoo",)'): "axes: method: Input should be 'ga', 'ga_kl', 'gd', 'wga', 'npo', 'npo_kl', ",
    ("npo_gammas", "npo_gammas"): "its SWEEP is called 'npo_gammas'; a sweep's name is its file's",
}


def test_wrong_sweep_files_are_named_and_hide_no_other(copy: Path, run: Run) -> None:
    text, files = (FILES[SWEEP], [copy / f"search_spaces/wrong_{number}.py" for number in range(len(WRONG_SWEEPS))])
    for file, change in zip(files, WRONG_SWEEPS, strict=True):
        assert change[0] in text
        file.write_text(text.replace(*change, 1))
    try:
        done, alone = run("platform.sweep", "--list"), run("platform.sweep", "wrong_1", "--dry-run")
    finally:
        for file in files:
            file.unlink()
    assert (done.returncode, alone.returncode) == (2, 2)
    assert done.stderr.count("\n") == 1
    found = done.stderr.removeprefix("error: ").split("; search_spaces/")
    for file, words, problem in zip(files, WRONG_SWEEPS.values(), found, strict=True):
        assert problem.removeprefix("search_spaces/").startswith(f"{file.name}: {words}")
    assert alone.stderr == f"error: search_spaces/{found[1]}\n"
    assert "tofu_tiny " in done.stdout
    assert "npo_gammas " in done.stdout

"""A short trial of every family of methods gives the numbers that it gave before: recorded once, compared for good."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny
from tests.support.starts import invoke
from trainables import run
from trainables.data import fictional
from trainables.storage import atomic_files

GOLDEN = Path(__file__).with_name("golden.json")
"""Case -> what of its configuration is its own, and the numbers: metrics, and of every step loss, norm and cosine."""
STEP_COLUMNS = ("loss", "retain_loss", "cos_before", "grad_norm", "rectified_norm", "dot")
TOLERANCE = 2e-4
"""Relative; processors differ in the last bits. On one machine the numbers are equal bit for bit."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Made-up rows of each benchmark and a random model, as the parts of a configuration that name them."""
    place = tmp_path_factory.mktemp("golden")
    fictional.write_fictional_authors(place / "authors", authors=8, questions=3, forget_percent=(25,), seed=3)
    own = {part: str(file) for part, file in tiny.own(place / "own").items()}
    return {
        "target": {"path": str(tiny.write_model(place / "target", seed=1))},
        "tofu": {"name": "tofu", "data": str(place / "authors"), "split": "forget25"},
        "muse": {"name": "muse", "data": str(tiny.muse(place / "muse")), "split": "news"},
        "own": {
            "name": "own",
            "split": "own",
            "data": "own",
            "sources": [f"{part}={own[part]}" for part in sorted(own)],
        },
    }


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text()))
def test_numbers_are_what_they_were(case: str, inputs: dict[str, Any], tmp_path: Path) -> None:
    known = json.loads(GOLDEN.read_text())[case]
    found = measure(known["configuration"], inputs, tmp_path)
    assert found["metrics"].keys() == known["numbers"]["metrics"].keys()
    assert all(
        value == pytest.approx(known["numbers"]["metrics"][name], rel=TOLERANCE, abs=1e-6)
        for name, value in found["metrics"].items()
    ), found["metrics"]
    assert len(found["steps"]) == len(known["numbers"]["steps"])
    for step, recorded in zip(found["steps"], known["numbers"]["steps"], strict=True):
        assert step == pytest.approx(recorded, rel=TOLERANCE, abs=1e-6)


def measure(configuration: dict[str, Any], inputs: dict[str, Any], place: Path) -> dict[str, Any]:
    """Run a trial as a command and return its numbers."""
    training = {"lr": 2e-3, "batch_size": 4, "max_steps": 3, "epochs": 10, "max_length": 192}
    benchmark = inputs[configuration["benchmark"]]
    whole = configuration | {"target": inputs["target"], "benchmark": benchmark, "training": training}
    (place / "config.json").write_text(json.dumps(whole))
    done = invoke(run.main, place / "config.json", "--storage", place / "runs")
    assert done.exit_code == 0, done.output
    (trial,) = (place / "runs" / "trials").iterdir()
    metrics = atomic_files.read_json(trial / "result.json") or {}
    numbers = {name: value for name, value in metrics["metrics"].items() if value is not None}
    rows = atomic_files.read_parquet_rows(trial / "steps.parquet") if (trial / "steps.parquet").exists() else []
    kept = [{name: row[name] for name in STEP_COLUMNS if row.get(name) is not None} for row in rows]
    steps = [{name: value for name, value in row.items() if math.isfinite(value)} for row in kept]
    return {"metrics": numbers, "steps": steps}

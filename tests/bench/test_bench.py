"""The GPU run is rehearsed, small."""

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import gpu
from tests.support import shrunk_sweeps
from tests.support.environment import clean_environment, type_settings
from trainables.data import fictional


@pytest.mark.slow
def test_rehearsal_of_gpu_day_without_a_gpu(trial_inputs: Any, root: Path, tmp_path: Path) -> None:
    """Two models are made, 24 trials run and are reported; every part of bench/gpu.py has its rows and its time."""
    data, day = tmp_path / "authors", tmp_path / "day"
    fictional.write_fictional_authors(data, authors=20, questions=3, forget_percent=(5,), seed=3)
    settings = shlex.join(type_settings([*shrunk_sweeps.SMALL, "benchmark.template=llama2"]))
    given = [f"GPU_DAY={day}", f"BASE={trial_inputs.target}", f"DATA={data}", "MINUTES=30"]
    given += [f"ARGS={settings}", "BENCH=--quick --template llama2"]
    command = ["make", "-o", ".venv/.setup-stamp", "gpu-day", *given]
    done = subprocess.run(command, cwd=root, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads(file.read_text()) for file in day.glob("trials/*/result.json")]
    assert [result["status"] for result in results] == ["finished"] * 24
    files = ("shared/models/*", "reports/*/index.html", "gpu-*.json")
    assert [len(list(day.glob(names))) for names in files] == [2, 1, 1]
    found = json.loads(next(day.glob("gpu-*.json")).read_text())
    assert not [row for row in found if "error" in row]
    assert {row["part"] for row in found if "part_seconds" in row} == set(gpu.MEASUREMENTS)
    row = found[0]
    assert {"torch", "transformers", "deepspeed"} <= row["versions"].keys()
    assert row["commit"]
    assert row["tokens_per_step"] == 2 * 4 * 24
    assert row["flops_per_step"] == pytest.approx(2 * 4 * 24 * 6 * row["parameters"], rel=0.1), "6 N D"
    assert row["projected_steps"] == row["clipped_steps"] == 2
    assert (row["peak_bytes"], row["utilisation"]) == (None, None)
    evaluated = [row for row in found if "evaluation_rows" in row]
    assert [row["evaluation_rows"] for row in evaluated] == [4, 8]
    alone, both = (row for row in found if "model" in row)
    assert both["first_work_seconds"] > 0
    assert 0 < both["warm_seconds"] < alone["process_seconds"]


def test_a_part_that_fails_or_takes_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next goes on, which has a second at least."""

    def fail(_: object) -> Iterator[dict[str, Any]]:
        yield {"before": 1}
        raise RuntimeError("no such thing")

    parts = {"first": fail, "second": lambda _: iter([time.sleep(30)]), "third": lambda _: iter([{"after": 3}])}
    monkeypatch.setattr(gpu, "MEASUREMENTS", parts)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpu.main(["--quick", "--minutes", "0.02", "--json", str(tmp_path / "rows.json")])
    found = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["part"], row.get("error")) for row in found] == [
        ("first", None),
        ("first", "RuntimeError: no such thing"),
        ("second", "TimeoutError: the time is up"),
        ("third", None),
        ("third", None),
    ]
    assert (found[0]["before"], found[3]["after"]) == (1, 3)

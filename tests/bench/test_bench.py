"""The measurements here end early where their file cannot be written; the GPU run is rehearsed, small."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bench

Run = Callable[..., Any]
SCRIPTS = sorted(path.stem for path in Path(bench.__path__[0]).glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_file_that_cannot_be_written_is_said_before_the_work(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"bench.{name}").main(["--json", "/nowhere/rows.json"])
    assert ended.value.code == 2
    assert "--json: no folder /nowhere" in capsys.readouterr().err


@pytest.mark.slow
def test_rehearsal_without_a_gpu(trial_inputs: Any, tmp_path: Path, run_module: Run) -> None:
    sizes = ("--device", "cpu", "--size", "tiny", "--rows", 4, "--length", 24, "--repeats", 2)
    rows = ("--data", trial_inputs.data, "--split", trial_inputs.split, "--limit", 2)
    done = run_module("bench.gpu", *sizes, *rows, "--json", tmp_path / "rows.json", timeout=300)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert {"torch", "transformers", "deepspeed"} <= row["versions"].keys()
    assert row["commit"]
    assert all(name in done.stdout for name in row.keys() - {"versions", "commit", "cores", "code", "dirty"})
    assert row["tokens_per_step"] == 2 * 4 * 24
    assert row["flops_per_step"] == pytest.approx(2 * 4 * 24 * 6 * row["parameters"], rel=0.1), "6 N D"
    assert row["projected_steps"] == row["clipped_steps"] == 2
    assert row["evaluation_seconds"] > 0
    assert row["evaluation_rows"] == 8
    assert (row["peak_bytes"], row["utilisation"]) == (None, None)

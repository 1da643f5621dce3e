"""Every named sweep, shrunk by --set and --only to two trials on a random model of its backbone's family.

From the command to the report: Ray, preparation, Tune, results.
"""

import json
import math
from pathlib import Path

import pytest

from search_spaces.schema import sweep as spaces
from tests.support import shrunk_sweeps
from tests.support.environment import RunModule
from trainables import benchmarks
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import RESULT, WEIGHTS
from trainables.storage.folder_storage import Storage


def test_every_sweep_is_here() -> None:
    assert set(shrunk_sweeps.SWEEPS) == set(spaces.list_sweep_names())


@pytest.mark.slow
@pytest.mark.parametrize("name", shrunk_sweeps.SWEEPS)
def test_a_sweep_runs_to_its_report(name: str, join: RunModule, tmp_path: Path) -> None:
    sweep, chosen, store = spaces.import_sweep(name), shrunk_sweeps.SWEEPS[name], Storage(tmp_path / "runs")
    done = join(*chosen.typed(tmp_path, sweep), "--storage", store.root, "--keep", "all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done 2 | running 0 | failed 0 | left 0" in done.stdout
    assert "no report" not in done.stdout
    (manifest,) = (store.root / "sweeps").glob("*.json")
    results = [store.result(key) or {} for key in json.loads(manifest.read_text())["trials"]]
    for result in results:
        assert result["status"] == "finished", result["error"]
        config = Trial.model_validate(result["config"])
        gains = benchmarks.orient_goal_values(config.benchmark.name, result["metrics"])
        assert gains is not None, result["metrics"]
        assert all(math.isfinite(gain) for gain in gains), result["metrics"]
        if config.task_vector:
            assert (store.root / "shared" / "directions" / result["direction"] / RESULT).is_file()
        else:
            assert (result["training"]["steps"], result["topology"]["micro_batch"]) == (2, 2)
        targets = (result["calibration"] or {}).get("targets", [])
        assert tuple(item["target"] for item in targets) == config.calibration.targets
        for folder in (Path(result["config"]["target"]["path"]), store.trial(result["id"]) / WEIGHTS):
            known = atomic_files.read_json(folder / "config.json") or {}
            assert known["architectures"] == [f"{shrunk_sweeps.family(sweep)}ForCausalLM"]
    assert results[0]["metrics"] != results[1]["metrics"]

"""Sweeps on several nodes: raylets of one machine, which come and go as machines do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import small_sweep
from tests.support.environment import RunModule, clean_environment, type_settings
from trainables.storage import atomic_files
from trainables.storage.file_names import CONFIG, STEPS
from trainables.storage.folder_storage import Storage

pytestmark = pytest.mark.slow
SETTINGS = (
    "benchmark.split=forget25",
    "training.batch_size=8",
    "training.max_length=192",
    "training.lr=2e-3",
    "rectifier.gamma=0.8",
    "rectifier.tau=none",
    "training.epochs=2000",
    "training.max_steps=300",
    "resources.checkpoint_every=15",
)


MEMORY = {"object_store_memory": 80 * 2**20}


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster whose head has no CPU of its own."""
    from ray.cluster_utils import Cluster

    place = tempfile.mkdtemp(prefix="nodes-", dir="/tmp")  # sockets have short names
    head = {"num_cpus": 0, "temp_dir": place, "include_dashboard": False, **MEMORY}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()
    shutil.rmtree(place, ignore_errors=True)


def next_checkpoint(sweep: subprocess.Popen[str], store: Storage, after: int) -> int:
    """Wait for a checkpoint of the sweep's only trial after this step; return its step."""
    end, found = time.monotonic() + 300, 0
    while found <= after:
        assert sweep.poll() is None, sweep.communicate()
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.1)
        for path in store.root.glob("trials/*/checkpoint/meta.json"):
            found = (atomic_files.read_json(path) or {}).get("step", 0)
    return found


def test_a_trial_goes_on_elsewhere_as_often_as_its_node_is_lost(
    cluster: Any, trial_inputs: Any, run_module: RunModule, root: Path, tmp_path: Path
) -> None:
    """Three times, where a trial that comes no further has two retries: each time it comes further."""
    store, alone, step = Storage(tmp_path / "runs"), Storage(tmp_path / "alone"), 0
    node = cluster.add_node(num_cpus=1, **MEMORY)
    sets = type_settings((*small_sweep.write_inputs(trial_inputs, tmp_path), *SETTINGS))
    command = [sys.executable, "-m", "platform.sweep", "tofu_tiny", *sets, "--storage", str(store.root)]
    command += ["--only", "method=npo", "--only", "rectifier.name=gru"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    sweep = subprocess.Popen(command, cwd=root, env=clean_environment(RAY_ADDRESS=cluster.address), **pipes)
    for _ in range(3):
        step = next_checkpoint(sweep, store, step)
        cluster.remove_node(node, allow_graceful=False)  # as a machine that is switched off
        node = cluster.add_node(num_cpus=1, **MEMORY)
    said, _ = sweep.communicate(timeout=400)
    assert sweep.returncode == 0, said
    (result,) = (json.loads(path.read_text()) for path in store.root.glob("trials/*/result.json"))
    assert result["status"] == "finished"
    assert result["training"]["resumed_at"] >= step >= 45
    assert said.count("its process or node went away; it goes on from its last checkpoint") >= 3
    done = run_module("trainables.run", store.trial(result["id"]) / CONFIG, "--storage", alone.root)
    assert done.returncode == 0, done.stderr
    assert result["metrics"] == (alone.result(result["id"]) or {})["metrics"]
    rows = [atomic_files.read_rows(one.trial(result["id"]) / STEPS) for one in (store, alone)]
    series = [[row["loss"] for row in found] for found in rows]
    assert len(series[0]) == 300
    assert series[0] == series[1]

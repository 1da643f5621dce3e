"""Sweeps on several nodes: raylets of one machine, which come and go as machines do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import small_sweep
from tests.support.environment import RunModule, clean_environment, type_settings
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CONFIG, STEPS

pytestmark = pytest.mark.slow
SETTINGS = (
    "benchmark.split=forget25",
    "training.batch_size=8",
    "training.max_length=192",
    "training.lr=2e-3",
    "rectifier.gamma=0.8",
    "rectifier.tau=none",
)


class Nodes:
    """A cluster whose head has no CPU of its own."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.address: str = cluster.address

    def add(self, cpus: int) -> Any:
        return self.cluster.add_node(num_cpus=cpus, object_store_memory=80 * 2**20)

    def lose(self, node: Any) -> None:
        """As a machine does that is switched off."""
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    from ray.cluster_utils import Cluster

    place = tempfile.mkdtemp(prefix="nodes-", dir="/tmp")  # sockets have short names
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "object_store_memory": 80 * 2**20,
            "temp_dir": place,
            "include_dashboard": False,
        },
    )
    yield Nodes(cluster)
    cluster.shutdown()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def arguments(trial_inputs: Any, tmp_path: Path) -> list[str]:
    """A sweep of one trial, on a models folder and rows of which the general ones are cut short."""
    sets = type_settings((*small_sweep.write_inputs(trial_inputs, tmp_path), *SETTINGS))
    return ["tofu_tiny", *sets, "--only", "method=npo", "--only", "rectifier.name=gru"]


def until(holds: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.1)


class Sweep:
    """A start of platform.sweep on a cluster, which goes on while nodes come and go."""

    def __init__(self, nodes: Nodes, arguments: list[str], store: Storage, root: Path) -> None:
        command = [sys.executable, "-m", "platform.sweep", *arguments, "--storage", str(store.root)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.child = subprocess.Popen(command, cwd=root, env=clean_environment(RAY_ADDRESS=nodes.address), **pipes)
        self.store = store

    def checkpoint(self) -> int | None:
        """The step of the trial's checkpoint."""
        found = [atomic_files.read_json(path) or {} for path in self.store.root.glob("trials/*/checkpoint/meta.json")]
        return found[0].get("step") if found else None

    def beyond(self, step: int) -> None:
        """Wait for a checkpoint after `step`."""
        until(lambda: self.child.poll() is not None or (self.checkpoint() or 0) > step)
        assert self.child.poll() is None, self.child.communicate()

    def end(self) -> str:
        said, _ = self.child.communicate(timeout=400)
        assert self.child.returncode == 0, said
        return said


LONG = ("training.epochs=2000", "training.max_steps=300")


def test_a_trial_goes_on_elsewhere_as_often_as_its_node_is_lost(
    nodes: Nodes, arguments: list[str], run_module: RunModule, root: Path, tmp_path: Path
) -> None:
    """Three times, where a trial that comes no further has two retries: each time it comes further."""
    sets = type_settings((*LONG, "resources.checkpoint_every=15"))
    place = nodes.add(1)
    sweep = Sweep(nodes, [*arguments, *sets], Storage(tmp_path / "runs"), root)
    step = 0
    for _ in range(3):
        sweep.beyond(step)
        step = sweep.checkpoint() or 0
        nodes.lose(place)
        place = nodes.add(1)
    said = sweep.end()
    (result,) = (json.loads(path.read_text()) for path in sweep.store.root.glob("trials/*/result.json"))
    assert result["status"] == "finished"
    assert result["training"]["resumed_at"] >= step >= 45
    assert said.count("its process or node went away; it goes on from its last checkpoint") >= 3
    config, alone = sweep.store.trial(result["id"]) / CONFIG, Storage(tmp_path / "alone")
    done = run_module("trainables.run", config, "--storage", alone.root)
    assert done.returncode == 0, done.stderr
    assert result["metrics"] == (alone.result(result["id"]) or {})["metrics"]
    series = [
        [row["loss"] for row in atomic_files.read_rows(one.trial(result["id"]) / STEPS)] for one in (sweep.store, alone)
    ]
    assert len(series[0]) == 300
    assert series[0] == series[1]

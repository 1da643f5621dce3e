"""Sweeps on several nodes: raylets of one machine, which come and go as machines do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import small_sweep
from conftest import RunModule

from trainables.storage import Storage

pytestmark = pytest.mark.slow
SETTINGS = (
    "benchmark.split=forget25",
    "training.batch_size=8",
    "training.max_length=192",
    "training.lr=2e-3",
    "rectifier.gamma=0.8",
    "rectifier.tau=none",
)
PLACED = """
import os, sys
import ray
from trainables import storage, workers
from trainables.config import Resources

def told(config):
    with open(f"{config['folder']}/{os.getpid()}", "w") as stream:
        stream.write(ray.get_runtime_context().get_node_id())

address, folder, root, strategy = sys.argv[1:]
ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": root}})
resources = Resources(ranks=2)
workers._fit(told, {"folder": folder}, resources, storage.open_storage(folder + "/store"), "placed", strategy)
"""


class Nodes:
    """A cluster whose head has no CPU of its own."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    @property
    def address(self) -> str:
        return self.cluster.address

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
def arguments(house: Any, tmp_path: Path) -> list[str]:
    """A sweep of one trial, on a models folder and rows of which the general ones are cut short."""
    shutil.copytree(house.target, tmp_path / "models" / "full")
    shutil.copytree(house.retain, tmp_path / "models" / "retain75")
    small_sweep.cut_short(house.data, tmp_path / "data")
    settings = (f"benchmark.data={tmp_path / 'data'}", f"models={tmp_path / 'models'}", *SETTINGS)
    sets = (part for setting in settings for part in ("--set", setting))
    return ["tofu_tiny", *sets, "--only", "method=npo", "--only", "rectifier.name=gru"]


def results(store: Storage) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in store.root.glob("trials/*/result.json")]


def test_ranks_go_on_one_node_that_holds_them_else_across_with_a_warning(
    nodes: Nodes, arguments: list[str], run_module: RunModule, root: Path, tmp_path: Path
) -> None:
    store = Storage(tmp_path / "runs")
    wide = [*arguments, "--set", "resources.ranks=2", "--set", "training.max_steps=2"]
    nodes.add(1)
    nodes.add(1)
    done = run_module("platform.sweep", *wide, "--storage", store.root, timeout=400, RAY_ADDRESS=nodes.address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning: no node holds the 2 ranks of a trial; they run across nodes" in done.stdout
    assert [result["status"] for result in results(store)] == ["finished"]
    assert results(store)[0]["topology"]["ranks"] == 2
    nodes.add(2)
    for strategy, used in (("STRICT_PACK", 1), ("SPREAD", 2)):
        folder = tmp_path / strategy
        folder.mkdir()
        command = [sys.executable, "-c", PLACED, nodes.address, str(folder), str(root), strategy]
        told = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=200, check=False)
        assert told.returncode == 0, told.stderr
        places = [path.read_text() for path in folder.iterdir() if path.is_file()]
        assert (len(places), len(set(places))) == (2, used)

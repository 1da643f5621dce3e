"""What a cluster holds: trials on nodes of several kinds, nodes that may start, and what is refused."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
import ray

from platform.schedule import capacity, placement, ray_environment
from platform.schedule.capacity import Growth, NodeKind
from trainables.common.errors import InputError
from trainables.config.settings import Resources

HEAD, GPUS = {"CPU": 8.0, capacity.HEAD: 1.0}, {"CPU": 96.0, "GPU": 8.0}
FILE = """
head_node_type: head
max_workers: 6
available_node_types:
  head: {resources: {CPU: 8}, node_config: {}}
  a100: {resources: {CPU: 96, GPU: 8}, min_workers: 0, max_workers: 4}
  small: {resources: {CPU: 16, GPU: 1}}
"""


@pytest.mark.parametrize(("visible", "count"), [(None, 3), ("0,2", 2), ("", 0), ("0,1,2,3,4", 3)])
def test_gpus_of_this_machine_are_those_that_cuda_leaves(
    visible: str | None, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(capacity, "DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert capacity.count_local_gpus() == count


def node(resources: dict[str, float], alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"memory": 1e9, **resources}}


@pytest.mark.parametrize(
    ("cpus", "gpus", "expected"),
    [(1, 0, 96), (10, 0, 9), (1, 1, 8), (1, 4, 2), (1, 16, 0), (1, 0.5, 16), (1, 0.3, 24), (1, 0.1, 80), (20, 0.5, 4)],
)
def test_ranks_on_a_node(cpus: int, gpus: float, expected: int) -> None:
    """A part of a GPU lies on one GPU: three trials of 0.3, not 26 on eight."""
    assert capacity.count_ranks(GPUS, Resources(cpus=cpus, gpus=gpus)) == expected


def packed(free: tuple[int, ...], ranks: int) -> int:
    """By trying: the most trials that nodes with so many free places take, each on one node."""
    return max(sum(held) for held in itertools.product(*(range(places // ranks + 1) for places in free)))


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_trials_on_nodes_are_what_trying_gives(ranks: int) -> None:
    wanted = Resources(ranks=ranks)
    for free in itertools.product(range(5), repeat=3):
        shapes = [NodeKind({"CPU": float(places)}, 1, 1) for places in free]
        assert capacity.count_trials(shapes, wanted) == (packed(free, ranks) or sum(free) // ranks)
        assert capacity.fits_on_one_node(shapes, wanted) == any(places >= ranks for places in free)


@pytest.fixture
def growth(tmp_path: Path) -> Growth:
    (tmp_path / "file.yaml").write_text(FILE)
    return capacity.read_growth(tmp_path / "file.yaml")


def test_node_types_of_the_autoscaler(growth: Growth, tmp_path: Path) -> None:
    """As Ray fills in what is left out: no further heads, else as many as the cluster has in all."""
    types = [NodeKind({"CPU": 8}, 0), NodeKind({"CPU": 96, "GPU": 8}, 4), NodeKind({"CPU": 16, "GPU": 1}, 6)]
    assert growth == Growth(6, types)
    assert capacity.read_growth(tmp_path / "none.yaml") == Growth()


def test_nodes_that_may_start_count_once_and_within_the_limit_of_all(growth: Growth) -> None:
    """Four of the large type and two of the small: six in all, one of which is there."""
    found = capacity.list_node_kinds([node(HEAD), node(GPUS)], growth)
    kinds = [(shape.resources.get("GPU", 0), shape.most, shape.existing) for shape in found]
    assert kinds == [(8, 4, 1), (1, 2, 0), (0, 1, 1)]
    assert [capacity.count_trials(found, Resources(ranks=ranks, gpus=1)) for ranks in (1, 4, 16)] == [34, 8, 2]


def test_no_node_with_gpus_is_started_for_cpus_that_others_have(growth: Growth) -> None:
    """Ray itself would rent them; those that are there, or are the only ones that fit, are used."""
    alone = capacity.list_node_kinds([node(HEAD)], growth)
    assert capacity.count_trials(capacity.avoid_gpu_nodes(alone, Resources(cpus=1)), Resources(cpus=1)) == 8
    beside = capacity.list_node_kinds([node(HEAD), node(GPUS)], growth)
    assert capacity.count_trials(capacity.avoid_gpu_nodes(beside, Resources(cpus=1)), Resources(cpus=1)) == 8 + 96
    for wanted in (Resources(cpus=9), Resources(cpus=1, gpus=1)):
        assert capacity.avoid_gpu_nodes(alone, wanted) == alone


def test_nodes_of_one_size_are_counted_once() -> None:
    """A head of a worker's size is no worker, and types of one size share its nodes."""
    size = {"CPU": 48.0, "GPU": 4.0}
    head, growth = {**size, capacity.HEAD: 1.0}, Growth(1, [NodeKind(size, 1)])
    for nodes, there in (([node(head)], 0), ([node(head), node(size)], 1)):
        assert capacity.list_node_kinds(nodes, growth) == [NodeKind(size, 1, there), NodeKind(size, 1, 1)]
    found = capacity.list_node_kinds([node(size)] * 6, Growth(6, [NodeKind(size, 4), NodeKind(size, 2)]))
    assert [(shape.most, shape.existing) for shape in found] == [(4, 4), (2, 2)]


@pytest.fixture
def joined(growth: Growth, monkeypatch: pytest.MonkeyPatch) -> placement.Session:
    """A session on a head that may grow and has nothing else yet."""
    monkeypatch.setattr(ray, "nodes", lambda: [node(HEAD)])
    for name, value in ray_environment.RAY_SETTINGS.items():
        monkeypatch.setenv(name, value)
    return placement.Session(growth)


def test_what_may_still_come_is_not_refused(joined: placement.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    asked = Resources(gpus=1, cpus=2)
    joined.check_resources(asked)
    room = joined.place_trials(asked, None, said.append)
    assert (room.slots, room.strategy, said) == (34, "STRICT_PACK", [])
    assert os.environ[ray_environment.PENDING] == "34"
    coming = "0 of up to 6 nodes for it are there, more start on demand (ray status follows them)"
    assert room.describe_coming() == coming
    assert joined.place_trials(asked, 5, said.append).slots == 5
    assert joined.describe_coming(Resources(cpus=9)) is not None
    assert placement.Session(Growth()).describe_coming(Resources()) is None


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"gpus": 40}, "resources.gpus: a trial asks for 40, the cluster has 0 and grows to 34"),
        (
            {"gpus": 6, "ranks": 5},
            "resources.ranks: a trial asks for 5 times 1 CPUs and 6 GPUs, more than the cluster's nodes hold "
            "(4 nodes of 96 CPUs and 8 GPUs, 2 nodes of 16 CPUs and 1 GPUs, 1 node of 8 CPUs)",
        ),
    ],
)
def test_what_could_never_run_is_refused_with_the_numbers(
    joined: placement.Session, resources: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        joined.check_resources(Resources(**resources))
    assert str(refused.value) == message


def test_ranks_that_no_node_holds_are_spread_with_a_warning(joined: placement.Session) -> None:
    said: list[str] = []
    assert joined.place_trials(Resources(ranks=16, gpus=1), None, said.append).strategy == "PACK"
    assert said == [
        "warning: no node holds the 16 ranks of a trial; they run across nodes, and every step waits for the network "
        "between them"
    ]


def test_start_waits_for_the_nodes_that_a_cluster_always_has(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    rounds = iter([1, 1, 2, 3])
    monkeypatch.setattr(ray, "nodes", lambda: [node(HEAD)] * next(rounds, 1))
    monkeypatch.setattr(placement.time, "sleep", lambda seconds: None)
    cluster = placement.Session(Growth(2, [NodeKind({}, 2)], least=2))
    cluster.wait_for_nodes(said.append)
    assert said == ["waiting for the cluster's nodes: 1 of 3 are there"]
    assert next(rounds, None) is None
    monkeypatch.setattr(placement, "PATIENCE", -1.0)
    cluster.wait_for_nodes(said.append)
    assert said[1:] == ["warning: 1 of the cluster's 3 nodes are there; going on with them"]

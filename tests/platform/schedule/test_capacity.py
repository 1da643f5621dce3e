"""What a cluster holds: trials on nodes of several kinds, nodes that may start, and what is refused."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import ray

from platform.schedule import capacity, ray_session
from platform.schedule.capacity import AutoscalerLimits, NodeKind
from tests.support import own_rows, tiny
from tests.support.starts import in_process
from trainables.common.errors import InputError
from trainables.config.settings import Resources

HEAD, GPUS = {"CPU": 8.0, capacity.HEAD_NODE_RESOURCE: 1.0}, {"CPU": 96.0, "GPU": 8.0}
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
    monkeypatch.setattr(capacity, "DEVICE_FOLDER", tmp_path)
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
    assert capacity.count_ranks_that_fit(NodeKind(96, 8, 1), Resources(cpus=cpus, gpus=gpus)) == expected


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_trials_on_nodes_are_what_trying_gives(ranks: int) -> None:
    wanted = Resources(ranks=ranks)
    for free in itertools.product(range(5), repeat=3):
        shapes = [NodeKind(places, 0, 1) for places in free]
        packed = max(map(sum, itertools.product(*(range(places // ranks + 1) for places in free))))  # each on one node
        count, on_one_node = packed or sum(free) // ranks, any(places >= ranks for places in free)
        assert capacity.fit_parallel_trials(shapes, wanted) == (count, on_one_node)


@pytest.fixture
def growth(tmp_path: Path) -> AutoscalerLimits:
    (tmp_path / "file.yaml").write_text(FILE)
    return capacity.read_autoscaler_limits(tmp_path / "file.yaml")


def test_nodes_that_may_start_count_once_and_within_the_limit_of_all(growth: AutoscalerLimits) -> None:
    """Four of the large type and two of the small: six in all, one of which is there."""
    found = capacity.list_node_kinds([node(HEAD), node(GPUS)], growth)
    assert [(shape.gpus, shape.most) for shape in found] == [(8, 4), (1, 2), (0, 1)]
    counts = [capacity.fit_parallel_trials(found, Resources(ranks=ranks, gpus=1)) for ranks in (1, 4, 16)]
    assert counts == [(34, True), (8, True), (2, False)]


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that has nothing else yet."""
    monkeypatch.setattr(ray, "nodes", lambda: [node(HEAD)])


@pytest.mark.usefixtures("head")
def test_trials_are_placed_on_what_may_still_come(growth: AutoscalerLimits, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks that no node holds are spread, with a warning."""
    asked = Resources(gpus=1, cpus=2)
    assert ray_session.choose_placement(growth, asked, None) == (34, "STRICT_PACK")
    assert ray_session.choose_placement(growth, asked, 5) == (5, "STRICT_PACK")
    assert capsys.readouterr().out == ""
    assert ray_session.choose_placement(growth, Resources(ranks=16, gpus=1), None) == (2, "PACK")
    assert capsys.readouterr().out == (
        "warning: no node holds the 16 ranks of a trial; they run across nodes, and every step waits for the network "
        "between them\n"
    )


@pytest.mark.usefixtures("head")
def test_what_could_never_run_is_refused_with_the_numbers(growth: AutoscalerLimits) -> None:
    with pytest.raises(InputError) as refused:
        ray_session.choose_placement(growth, Resources(gpus=6, ranks=5), None)
    assert str(refused.value) == (
        "resources: a trial asks for 5 times 1 CPUs and 6 GPUs, more than the nodes hold (4 nodes of "
        "96 CPUs and 8 GPUs, 2 nodes of 16 CPUs and 1 GPUs, 1 node of 8 CPUs)"
    )


def test_start_waits_for_the_nodes_that_a_cluster_always_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = iter([1, 1, 2, 3])
    monkeypatch.setattr(ray, "nodes", lambda: [node(HEAD)] * next(rounds, 1))
    monkeypatch.setattr(ray_session.time, "sleep", lambda seconds: None)
    growth = AutoscalerLimits(2, [NodeKind(0, 0, 2)], least=2)
    ray_session.wait_for_minimum_nodes(growth)
    assert capsys.readouterr().out == "waiting for the cluster's nodes: 1 of 3 are there\n"
    assert next(rounds, None) is None
    monkeypatch.setattr(ray_session, "NODE_WAIT_SECONDS", -1.0)
    ray_session.wait_for_minimum_nodes(growth)
    assert capsys.readouterr().out == "warning: 1 of the cluster's 3 nodes are there; going on with them\n"


@pytest.mark.usefixtures("head")
def test_on_kuberay_max_concurrent_says_how_many_trials_nodes_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers start when trials wait for them, so that a head alone refuses none."""
    monkeypatch.setenv(ray_session.KUBERAY_VARIABLE, "unlearning-x")
    placed = [ray_session.choose_placement(AutoscalerLimits(), Resources(gpus=8, cpus=8), most) for most in (None, 4)]
    assert placed == [(1, "PACK"), (4, "PACK")]


@pytest.mark.parametrize(
    ("gpu", "cpus", "room", "count"),
    [("auto", 16, 900, 4), ("auto", 6, 900, 3), ("auto", 3, 900, 1), ("auto", 16, 2.2, 2), ("0.5", 16, 900, 2)],
)
def test_small_trials_share_a_gpu(
    gpu: str, cpus: int, room: float, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as have two CPUs and `room` for the largest; what a person asks for stays, and so do ids."""
    monkeypatch.setattr(capacity, "count_local_gpus", lambda: 1)
    monkeypatch.setattr(capacity, "count_usable_cpus", lambda: cpus)
    settings = own_rows.settings(tiny.write_model(tmp_path / "model"), tiny.own(tmp_path / "own"))
    typed = [word for one in settings for word in ("--set", one)]
    command = ("own", *typed, "--dry-run", "--storage", tmp_path / "runs", "--set")
    whole = json.loads(in_process(*command, "resources.gpus=1", "--json").stdout)
    size = max(need["total_bytes"] for need in whole["memory"]) * room / 0.92 / 1e9
    command = (*command, f"resources.gpu_memory={size}", "--set", f"resources.gpus={gpu}")
    found = json.loads(in_process(*command, "--json").stdout)
    assert found["resources"]["gpus"] == pytest.approx(1 / count)
    assert (found["trials"], found["hash"]) == (whole["trials"], whole["hash"])
    said = f"{count} trials run side by side on each GPU"
    assert any(line.startswith(said) for line in in_process(*command).stdout.splitlines()) == (count > 1)

"""What a cluster holds: trials on nodes of several kinds, nodes that may start, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import ray
import requests
import yaml

from platform.schedule import capacity, ray_session
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
        shapes = [NodeKind({"CPU": float(places)}, 1) for places in free]
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
    assert [(shape.resources.get("GPU", 0), shape.most) for shape in found] == [(8, 4), (1, 2), (0, 1)]
    assert [capacity.count_trials(found, Resources(ranks=ranks, gpus=1)) for ranks in (1, 4, 16)] == [34, 8, 2]


def test_nodes_of_one_size_are_counted_once() -> None:
    """A head of a worker's size is no worker, and types of one size share its nodes."""
    size = {"CPU": 48.0, "GPU": 4.0}
    head, growth = {**size, capacity.HEAD: 1.0}, Growth(1, [NodeKind(size, 1)])
    for nodes in ([node(head)], [node(head), node(size)]):
        assert capacity.list_node_kinds(nodes, growth) == [NodeKind(size, 1), NodeKind(size, 1)]
    found = capacity.list_node_kinds([node(size)] * 6, Growth(6, [NodeKind(size, 4), NodeKind(size, 2)]))
    assert [shape.most for shape in found] == [4, 2]


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that has nothing else yet."""
    monkeypatch.setattr(ray, "nodes", lambda: [node(HEAD)])


@pytest.mark.usefixtures("head")
def test_trials_are_placed_on_what_may_still_come(growth: Growth) -> None:
    """Ranks that no node holds are spread, with a warning."""
    said: list[str] = []
    asked = Resources(gpus=1, cpus=2)
    assert ray_session.place_trials(growth, asked, None, said.append) == ray_session.Placement(34, "STRICT_PACK")
    assert ray_session.place_trials(growth, asked, 5, said.append).slots == 5
    assert said == []
    assert ray_session.place_trials(growth, Resources(ranks=16, gpus=1), None, said.append).strategy == "PACK"
    assert said == [
        "warning: no node holds the 16 ranks of a trial; they run across nodes, and every step waits for the network "
        "between them"
    ]


@pytest.mark.usefixtures("head")
@pytest.mark.parametrize(
    ("resources", "asked"),
    [({"gpus": 40}, "1 times 1 CPUs and 40 GPUs"), ({"gpus": 6, "ranks": 5}, "5 times 1 CPUs and 6 GPUs")],
)
def test_what_could_never_run_is_refused_with_the_numbers(
    growth: Growth, resources: dict[str, Any], asked: str
) -> None:
    with pytest.raises(InputError) as refused:
        ray_session.place_trials(growth, Resources(**resources), None, print)
    assert str(refused.value) == (
        f"resources: a trial asks for {asked}, more than the cluster's nodes hold (4 nodes of 96 CPUs and 8 GPUs, "
        "2 nodes of 16 CPUs and 1 GPUs, 1 node of 8 CPUs)"
    )


def test_start_waits_for_the_nodes_that_a_cluster_always_has(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    rounds = iter([1, 1, 2, 3])
    monkeypatch.setattr(ray, "nodes", lambda: [node(HEAD)] * next(rounds, 1))
    monkeypatch.setattr(ray_session.time, "sleep", lambda seconds: None)
    growth = Growth(2, [NodeKind({}, 2)], least=2)
    ray_session.wait_for_nodes(growth, said.append)
    assert said == ["waiting for the cluster's nodes: 1 of 3 are there"]
    assert next(rounds, None) is None
    monkeypatch.setattr(ray_session, "PATIENCE", -1.0)
    ray_session.wait_for_nodes(growth, said.append)
    assert said[1:] == ["warning: 1 of the cluster's 3 nodes are there; going on with them"]


# KubeRay


@pytest.fixture
def answer(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> requests.Response:
    """Return what Kubernetes answers in a pod of the cluster of clusters/kuberay.yaml; `job` is its content."""
    job = yaml.safe_load((root / "clusters" / "kuberay.yaml").read_text())
    response = requests.Response()
    response.status_code = 200
    monkeypatch.setattr(response, "json", lambda: {"spec": job["spec"]["rayClusterSpec"]})
    (tmp_path / "token").write_text("a token")
    monkeypatch.setattr(capacity, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("RAY_CLUSTER_NAME", "unlearning-x")
    monkeypatch.setenv("RAY_CLUSTER_NAMESPACE", "research")

    def get(address: str, **options: Any) -> requests.Response:
        assert address.endswith("/apis/ray.io/v1/namespaces/research/rayclusters/unlearning-x")
        assert (options["headers"], options["verify"]) == ({"Authorization": "Bearer a token"}, f"{tmp_path}/ca.crt")
        return response

    monkeypatch.setattr(requests, "get", get)
    return response


def test_nodes_of_the_autoscaler_count_before_they_are_there(answer: requests.Response) -> None:
    """The shipped file starts with the head alone, on which no trial runs."""
    growth = capacity.read_growth(ray_session.BOOTSTRAP)
    assert growth == Growth(4, [NodeKind({"CPU": 90, "GPU": 8}, 4)], 0)
    kinds = capacity.list_node_kinds([node({**HEAD, "CPU": 0.0})], growth)
    assert capacity.count_trials(kinds, Resources(gpus=8, cpus=8)) == 4


def test_without_an_autoscaler_the_nodes_are_a_fixed_number(answer: requests.Response) -> None:
    spec = answer.json()["spec"]
    spec["enableInTreeAutoscaling"] = False
    spec["workerGroupSpecs"][0] |= {"replicas": 2, "maxReplicas": 2**31 - 1}
    spec["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "7500m"}
    assert capacity.read_growth(ray_session.BOOTSTRAP) == Growth(2, [NodeKind({"CPU": 7.5, "GPU": 0}, 2)], 2)
    del spec["workerGroupSpecs"]
    assert capacity.read_growth(ray_session.BOOTSTRAP) == Growth(0, [], 0)


@pytest.mark.parametrize("mistake", ["forbidden", "no limits", "no login"])
def test_what_cannot_be_read_is_a_warning(
    answer: requests.Response, mistake: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if mistake == "forbidden":
        answer.status_code = 403
    elif mistake == "no limits":
        answer.json()["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"] = {}
    else:
        (tmp_path / "token").unlink()
    assert capacity.read_growth(ray_session.BOOTSTRAP) == Growth()
    said = capsys.readouterr().err
    assert said.startswith("warning: the RayCluster unlearning-x cannot be read (")
    assert said.endswith("do not count: give each worker group minReplicas above 0\n")
    assert ("403" in said) == (mistake == "forbidden")

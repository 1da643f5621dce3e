"""What KubeRay may start, read from the RayCluster as Kubernetes answers for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from platform.schedule import capacity, ray_session
from platform.schedule.capacity import Growth, NodeKind
from trainables.config.settings import Resources

HEAD = {"CPU": 8.0, capacity.HEAD: 1.0}


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
    kinds = capacity.list_node_kinds([{"Alive": True, "Resources": {**HEAD, "CPU": 0.0}}], growth)
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

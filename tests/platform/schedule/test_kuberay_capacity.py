"""What KubeRay may start, read from the RayCluster by Ray's own client, over TLS from an API server on loopback."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from ray.autoscaler._private.kuberay import node_provider

from platform.schedule import capacity, ray_session
from platform.schedule.capacity import Growth, NodeKind
from tests.support.kubernetes_server import Kubernetes, serve
from trainables.config.settings import Resources

HEAD = {"CPU": 8.0, capacity.HEAD: 1.0}


def write_certificate(path: Path) -> None:
    """Write a key and a certificate for 127.0.0.1, signed by itself, into one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(hours=1))
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = builder.add_extension(alternative, critical=False).sign(key, hashes.SHA256())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(key.private_bytes(*form) + certificate.public_bytes(serialization.Encoding.PEM))


@pytest.fixture
def cluster(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubernetes]:
    """Yield an API server that a pod's client finds, with the cluster of clusters/kuberay.yaml."""
    write_certificate(tmp_path / "certificate")
    (tmp_path / "token").write_text("a token")
    job = yaml.safe_load((root / "clusters" / "kuberay.yaml").read_text())
    state = Kubernetes()
    metadata = {"name": "unlearning-x", "namespace": "research"}
    state.objects["rayclusters"]["unlearning-x"] = {"metadata": metadata, "spec": job["spec"]["rayClusterSpec"]}
    monkeypatch.setenv("RAY_CLUSTER_NAME", "unlearning-x")
    monkeypatch.setenv("RAY_CLUSTER_NAMESPACE", "research")
    monkeypatch.setattr(node_provider, "IN_CLUSTER_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(node_provider, "IN_CLUSTER_CA_CERT_PATH", str(tmp_path / "certificate"))
    with serve(state, tmp_path / "certificate") as address:
        # url_from_resource has the address of the environment at its import as a default
        values = (*(node_provider.url_from_resource.__defaults__ or ())[:-1], address)
        monkeypatch.setattr(node_provider.url_from_resource, "__defaults__", values)
        yield state


def test_nodes_of_the_autoscaler_count_before_they_are_there(cluster: Kubernetes) -> None:
    """The shipped file starts with the head alone, on which no trial runs."""
    growth = capacity.read_growth(ray_session.BOOTSTRAP)
    (head, gpu) = growth.types
    assert (growth.most, growth.least, head.most, gpu.most) == (4, 0, 0, 4)
    assert {name: gpu.resources[name] for name in ("CPU", "GPU")} == {"CPU": 90, "GPU": 8}
    kinds = capacity.list_node_kinds([{"Alive": True, "Resources": {**HEAD, "CPU": 0.0}}], growth)
    assert capacity.count_trials(kinds, Resources(gpus=8, cpus=8)) == 4
    assert cluster.asked == [("GET", "/apis/ray.io/v1/namespaces/research/rayclusters/unlearning-x")]


def test_without_an_autoscaler_the_nodes_are_a_fixed_number(cluster: Kubernetes) -> None:
    spec = cluster.objects["rayclusters"]["unlearning-x"]["spec"]
    spec["enableInTreeAutoscaling"] = False
    spec["workerGroupSpecs"][0] |= {"replicas": 2, "maxReplicas": 2**31 - 1}
    growth = capacity.read_growth(ray_session.BOOTSTRAP)
    assert (growth.most, growth.least, [kind.most for kind in growth.types]) == (2, 2, [0, 2])
    del spec["workerGroupSpecs"]
    assert (growth := capacity.read_growth(ray_session.BOOTSTRAP)).most == growth.least == 0


@pytest.mark.parametrize("mistake", ["forbidden", "no cpu", "renamed"])
def test_what_cannot_be_read_is_a_warning(
    cluster: Kubernetes, mistake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = cluster.objects["rayclusters"]["unlearning-x"]["spec"]["workerGroupSpecs"][0]
    if mistake == "forbidden":
        cluster.refused = {"GET rayclusters": "a service account of your own"}
    elif mistake == "no cpu":
        group["template"]["spec"]["containers"][0]["resources"] = {}
    else:
        monkeypatch.delattr(node_provider, "KubernetesHttpApiClient")
    assert capacity.read_growth(ray_session.BOOTSTRAP) == Growth()
    said = capsys.readouterr().err
    assert said.startswith("warning: the RayCluster unlearning-x cannot be read (")
    assert said.endswith("do not count: give each worker group minReplicas above 0\n")
    assert ("403" in said) == (mistake == "forbidden")


def test_elsewhere_the_file_of_ray_up_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_CLUSTER_NAME", raising=False)
    (tmp_path / "file.yaml").write_text("max_workers: 2\navailable_node_types: {a: {resources: {CPU: 4}}}")
    assert capacity.read_growth(tmp_path / "file.yaml") == Growth(2, [NodeKind({"CPU": 4}, 2)])

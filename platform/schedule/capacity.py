"""The size of this machine and of a Ray cluster: nodes that exist, and those that its autoscaler may start."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platform.schedule.ray_environment import LOCAL, resolve_address
from trainables.common.errors import first_line
from trainables.config.settings import Resources

HEAD = "node:__internal_head__"
"""Ray's own resource of the head, of which every head has 1."""
TINY = 1e-6
CGROUP = Path("/sys/fs/cgroup/cpu.max")
DEVICES = Path("/dev")
KUBERNETES = "https://kubernetes.default.svc"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds Kubernetes, and its own login and the certificate there."""
Amounts = Mapping[str, float]
"""By Ray's names of resources."""


@dataclass(frozen=True)
class NodeKind:
    """Nodes of one size: what each has, and how many there are or can be."""

    resources: Amounts
    most: int

    def __str__(self) -> str:
        parts = [f"{self.resources[name]:g} {name}s" for name in ("CPU", "GPU") if self.resources.get(name)]
        return f"{self.most} node{'s' if self.most != 1 else ''} of {' and '.join(parts) or 'no CPU'}"


@dataclass(frozen=True)
class Growth:
    """How many nodes an autoscaler may start in all, of which types, and how many it always has.

    A type's `resources` are empty where only its nodes themselves know them (provider local).
    """

    most: int = 0
    types: Sequence[NodeKind] = ()
    least: int = 0


def count_ranks(node: Amounts, wanted: Resources) -> int:
    """Return how many ranks of a trial a node holds. A part of a GPU lies on one GPU."""
    count = int(node.get("CPU", 0.0) / wanted.cpus + TINY)
    if 0 < wanted.gpus < 1:
        return min(count, int(node.get("GPU", 0.0)) * int(1 / wanted.gpus + TINY))
    return min(count, int(node.get("GPU", 0.0) / wanted.gpus + TINY)) if wanted.gpus else count


def fits_on_one_node(kinds: Iterable[NodeKind], wanted: Resources) -> bool:
    """Return whether some node holds all ranks of a trial."""
    return any(kind.most and count_ranks(kind.resources, wanted) >= wanted.ranks for kind in kinds)


def count_trials(kinds: Sequence[NodeKind], wanted: Resources) -> int:
    """Return how many trials all nodes hold at a time: each on one node if some node holds one, else across nodes."""
    each = [(kind.most, count_ranks(kind.resources, wanted)) for kind in kinds]
    if fits_on_one_node(kinds, wanted):
        return sum(most * (ranks // wanted.ranks) for most, ranks in each)
    return sum(most * ranks for most, ranks in each) // wanted.ranks


def list_node_kinds(nodes: Iterable[Mapping[str, Any]], growth: Growth) -> list[NodeKind]:
    """Return the kinds of nodes (as of ray.nodes()) that live or may start; the head is a kind of its own."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    counted = Counter(_size(node) for node in alive if HEAD not in node)
    room, found = growth.most, []
    for kind in sorted(growth.types, key=lambda kind: _size(kind.resources)[::-1], reverse=True):
        most = min(kind.most, room)  # of all types together: those with the most GPUs first
        if kind.resources and most:
            room -= most
            counted[_size(kind.resources)] -= most  # those that are there already
            found.append(NodeKind(kind.resources, most))
    found += [_make_kind(_size(node), 1) for node in alive if HEAD in node]
    return found + [_make_kind(size, count) for size, count in counted.items() if count > 0]


def _size(resources: Amounts) -> tuple[float, float]:
    return resources.get("CPU", 0.0), resources.get("GPU", 0.0)


def _make_kind(size: tuple[float, float], count: int) -> NodeKind:
    return NodeKind({"CPU": size[0], "GPU": size[1]}, count)


def read_growth(file: Path) -> Growth:
    """Return what the autoscaler of the cluster with this head may start: KubeRay's, else that of `file`."""
    import yaml

    name, namespace = os.environ.get("RAY_CLUSTER_NAME"), os.environ.get("RAY_CLUSTER_NAMESPACE")
    if name and namespace:  # set by KubeRay
        return _read_kuberay_growth(name, namespace)
    if not file.expanduser().is_file():
        return Growth()
    found = yaml.safe_load(file.expanduser().read_text(encoding="utf-8"))
    head, most, nodes = found.get("head_node_type"), found.get("max_workers", 0), found.get("available_node_types", {})
    types = [
        NodeKind(node.get("resources") or {}, node.get("max_workers", 0 if name == head else most))
        for name, node in nodes.items()
    ]
    return Growth(most, types, sum(node.get("min_workers", 0) for node in nodes.values()))


def _read_kuberay_growth(name: str, namespace: str) -> Growth:
    """Return what Kubernetes says of the worker groups of a RayCluster; nothing, with a warning, if it does not answer.

    Without an autoscaler its nodes are a fixed number, which join when they have started.
    """
    import requests

    address = f"{KUBERNETES}/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{name}"
    try:
        login = {"Authorization": f"Bearer {(SERVICE_ACCOUNT / 'token').read_text()}"}
        answer = requests.get(address, headers=login, verify=str(SERVICE_ACCOUNT / "ca.crt"), timeout=60)
        answer.raise_for_status()
        spec = answer.json()["spec"]
        groups = spec.get("workerGroupSpecs", [])
        high, low = ("maxReplicas", "minReplicas") if spec.get("enableInTreeAutoscaling") else ("replicas", "replicas")
        types = [NodeKind(_read_limits(group), group.get(high, 0)) for group in groups]
    except (OSError, LookupError, ValueError) as error:  # a service account without the right, no such host
        print(
            f"warning: the RayCluster {name} cannot be read ({first_line(error)}); nodes that are still to start do "
            "not count: give each worker group minReplicas above 0",
            file=sys.stderr,
        )
        return Growth()
    return Growth(sum(kind.most for kind in types), types, sum(group.get(low, 0) for group in groups))


def _read_limits(group: Mapping[str, Any]) -> Amounts:
    """Return the CPUs and GPUs of a worker group's pods, by the limits of their first container, where Ray runs."""
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    cpus = str(limits["cpu"])
    gpus = sum(float(amount) for name, amount in limits.items() if name.endswith("/gpu"))
    return {"CPU": float(cpus[:-1]) / 1000 if cpus.endswith("m") else float(cpus), "GPU": gpus}


def count_cpus() -> int:
    """Return the CPUs that this process may use: a job of Slurm's or a container's are some of the machine's."""
    found = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota, _, period = CGROUP.read_text().partition(" ") if CGROUP.is_file() else ("max", "", "")
    return found if quota == "max" else max(1, min(found, int(quota) // int(period)))


def count_local_gpus() -> int:
    """Return the number of NVIDIA's devices here, those that CUDA_VISIBLE_DEVICES leaves."""
    found = len(list(DEVICES.glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return found if visible is None else min(found, len([part for part in visible.split(",") if part.strip()]))


def find_shortages(wanted: Resources, address: str | None) -> list[str]:
    """Return what a trial asks for beyond this machine, in words; nothing where a cluster runs it."""
    if resolve_address(address) != LOCAL:
        return []
    found = {"gpus": count_local_gpus(), "cpus": count_cpus()}
    asked = {"gpus": wanted.gpus * wanted.ranks, "cpus": wanted.cpus * wanted.ranks}
    elsewhere = "--cluster FILE runs it on one that has them"
    return [
        f"resources.{kind}: a trial asks for {amount:g}, this machine has {found[kind]}; {elsewhere}"
        for kind, amount in asked.items()
        if amount > found[kind]
    ]


def count_slots(wanted: Resources, trials: int, max_concurrent: int | None, address: str | None) -> int:
    """Return how many of `trials` run at a time at least: a cluster's size is not known before it is asked."""
    here = NodeKind({"CPU": count_cpus(), "GPU": count_local_gpus()}, 1)
    count = count_trials([here], wanted) if resolve_address(address) == LOCAL else max_concurrent or 1
    return max(1, min(count, max_concurrent or count, trials))

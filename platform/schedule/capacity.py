"""What a Ray cluster holds: the nodes that are there, and those that its autoscaler may start."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainables.config.settings import Resources

BOOTSTRAP = "~/ray_bootstrap_config.yaml"
"""What `ray up` leaves on the head, and the autoscaler goes by. Ray 2.60 tells node types to nobody else: the GCS has
a place for them (`get_cluster_config`), which only KubeRay fills."""
HEAD = "node:__internal_head__"
"""Ray's own resource of the head, of which every head has 1."""
PATIENCE = 120.0
"""Seconds to wait at a start for the nodes that a cluster always has (`min_workers`)."""
TINY = 1e-6
Amounts = Mapping[str, float]


@dataclass(frozen=True)
class Shape:
    """Nodes of one kind: what each has, by Ray's names; how many there can be, and how many there are."""

    resources: Amounts
    most: int
    there: int

    def told(self) -> str:
        """`4 nodes of 96 CPUs and 8 GPUs`"""
        parts = [f"{self.resources[name]:g} {name}s" for name in ("CPU", "GPU") if self.resources.get(name)]
        return f"{self.most} node{'s' if self.most != 1 else ''} of {' and '.join(parts) or 'no CPU'}"


@dataclass(frozen=True)
class Growth:
    """A node type of the autoscaler; `resources` is empty where only its nodes themselves know (provider local)."""

    resources: Amounts
    least: int
    most: int


def ranks_on(node: Amounts, wanted: Resources) -> int:
    """How many ranks of a trial a node holds. A part of a GPU lies on one GPU."""
    count = int(node.get("CPU", 0.0) / wanted.cpus + TINY)
    if 0 < wanted.gpus < 1:
        return min(count, int(node.get("GPU", 0.0)) * int(1 / wanted.gpus + TINY))
    return min(count, int(node.get("GPU", 0.0) / wanted.gpus + TINY)) if wanted.gpus else count


def on_one_node(shapes: Iterable[Shape], wanted: Resources) -> bool:
    """Whether some node holds all ranks of a trial."""
    return any(shape.most and ranks_on(shape.resources, wanted) >= wanted.ranks for shape in shapes)


def trials(shapes: Sequence[Shape], wanted: Resources) -> int:
    """How many trials all nodes hold at a time: each on one node where some node holds one, else across nodes."""
    each = [(shape.most, ranks_on(shape.resources, wanted)) for shape in shapes]
    if on_one_node(shapes, wanted):
        return sum(most * (ranks // wanted.ranks) for most, ranks in each)
    return sum(most * ranks for most, ranks in each) // wanted.ranks


def shapes(nodes: Iterable[Mapping[str, Any]], growth: tuple[int, Sequence[Growth]]) -> list[Shape]:
    """The kinds of nodes: `nodes` as of ray.nodes(), `growth` as of `grown`. Dead nodes do not count.

    The head is a kind of its own: it may have the size of a worker.
    """
    heads, counted = [], Counter()
    for node in nodes:
        if not node["Alive"]:
            continue
        cpus, gpus = key = _key(node["Resources"])
        if HEAD in node["Resources"]:
            heads.append(Shape({"CPU": cpus, "GPU": gpus}, 1, 1))
        else:
            counted[key] += 1
    room, types = growth
    found = []
    for kind in sorted(types, key=lambda kind: _key(kind.resources)[::-1], reverse=True):
        most = min(kind.most, room)  # of all types together: those with the most GPUs first
        if kind.resources and most:
            room -= most
            there = min(counted[_key(kind.resources)], most)  # types of one size share the nodes of that size
            counted[_key(kind.resources)] -= there
            found.append(Shape(kind.resources, most, there))
    rest = [Shape({"CPU": cpus, "GPU": gpus}, count, count) for (cpus, gpus), count in counted.items() if count]
    return found + heads + rest


def avoid_gpu_nodes(kinds: Sequence[Shape], wanted: Resources) -> Sequence[Shape]:
    """The kinds without further nodes that have GPUs, for a trial that asks for none, if it fits on the others.

    Ray would start such nodes for CPUs as well.
    """
    spared = [replace(kind, most=kind.there) if kind.resources.get("GPU") else kind for kind in kinds]
    return kinds if wanted.gpus or not trials(spared, wanted) else spared


def _key(resources: Amounts) -> tuple[float, float]:
    return resources.get("CPU", 0.0), resources.get("GPU", 0.0)


def grown(file: Path) -> tuple[int, list[Growth]]:
    """How many nodes an autoscaler may start in all, and of which types; nothing where there is no such file."""
    import yaml

    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0, []
    head, most = document.get("head_node_type"), document.get("max_workers", 0)
    types = []
    for name, kind in document.get("available_node_types", {}).items():
        limit = kind.get("max_workers", 0 if name == head else most)
        types.append(Growth(kind.get("resources") or {}, kind.get("min_workers", 0), limit))
    return most, types


def wait_for_nodes(
    growth: tuple[int, Sequence[Growth]], look: Callable[[], list[dict[str, Any]]], say: Callable[[str], None]
) -> None:
    """Wait for the nodes that the cluster always has, which join within seconds of `ray up`; not for ever."""
    expected = 1 + sum(kind.least for kind in growth[1])
    end, told = time.monotonic() + PATIENCE, False
    while (there := sum(node["Alive"] for node in look())) < expected:
        if time.monotonic() > end:
            say(f"warning: {there} of the cluster's {expected} nodes are there; going on with them")
            return
        if not told:
            say(f"waiting for the cluster's nodes: {there} of {expected} are there")
            told = True
        time.sleep(1.0)

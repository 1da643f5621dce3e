"""The size of this machine and of a Ray cluster: nodes that exist, and those that its autoscaler may start."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from platform.plan.costs import GPU_DATA_SHEETS, find_local_gpu_name
from platform.plan.plan import Plan
from platform.schedule.ray_environment import LOCAL_RAY, resolve_ray_address
from trainables.config.settings import Resources
from trainables.training.memory import USABLE_SHARE, WEIGHT_BYTES, read_usable_machine_memory

HEAD_NODE_RESOURCE = "node:__internal_head__"
"""Ray's own resource of the head, of which every head has 1."""
TOLERANCE = 1e-6
CPU_LIMIT_FILE = Path("/sys/fs/cgroup/cpu.max")
DEVICE_FOLDER = Path("/dev")
MAX_TRIALS_PER_GPU = 4
TRIAL_CPUS, HOST_BYTES_PER_GPU_TRIAL, USABLE_HOST_MEMORY_SHARE = 2, 4e9, 0.8
"""CPUs and bytes beside two copies of its weights that a trial on a GPU keeps busy, and of the memory what all take."""


@dataclass(frozen=True)
class NodeKind:
    """Nodes of one size: what each has, and how many there are or can be."""

    cpus: float
    gpus: float
    most: int

    def __str__(self) -> str:
        parts = [f"{count:g} {name}s" for name, count in (("CPU", self.cpus), ("GPU", self.gpus)) if count]
        return f"{self.most} node{'s' if self.most != 1 else ''} of {' and '.join(parts) or 'no CPU'}"


@dataclass(frozen=True)
class AutoscalerLimits:
    """How many nodes an autoscaler may start, and always has; a type has no CPUs with provider local."""

    most: int = 0
    types: Sequence[NodeKind] = ()
    least: int = 0


def count_ranks_that_fit(node: NodeKind, wanted: Resources) -> int:
    """Return how many ranks of a trial a node holds. A part of a GPU lies on one GPU."""
    count = int(node.cpus / wanted.cpus + TOLERANCE)
    if 0 < wanted.gpus < 1:
        return min(count, int(node.gpus) * int(1 / wanted.gpus + TOLERANCE))
    return min(count, int(node.gpus / wanted.gpus + TOLERANCE)) if wanted.gpus else count


def fit_parallel_trials(kinds: Sequence[NodeKind], wanted: Resources) -> tuple[int, bool]:
    """Return how many trials all nodes hold at a time, and whether each is on one node: else none holds all ranks."""
    each = [(kind.most, count_ranks_that_fit(kind, wanted)) for kind in kinds]
    packed = sum(most * (ranks // wanted.ranks) for most, ranks in each)
    return packed or sum(most * ranks for most, ranks in each) // wanted.ranks, packed > 0


def list_node_kinds(nodes: Iterable[Mapping[str, Any]], growth: AutoscalerLimits) -> list[NodeKind]:
    """Return the kinds of nodes (as of ray.nodes()) that live or may start; the head is a kind of its own."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    counted = Counter(_size(node) for node in alive if HEAD_NODE_RESOURCE not in node)
    room, found = growth.most, []
    for kind in sorted(growth.types, key=lambda kind: (kind.gpus, kind.cpus), reverse=True):
        most = min(kind.most, room)  # of all types together: those with the most GPUs first
        if kind.cpus and most:
            room -= most
            counted[kind.cpus, kind.gpus] -= most  # those that are there already
            found.append(replace(kind, most=most))
    found += [NodeKind(*_size(node), 1) for node in alive if HEAD_NODE_RESOURCE in node]
    return found + [NodeKind(*size, count) for size, count in counted.items() if count > 0]


def _size(resources: Mapping[str, float]) -> tuple[float, float]:
    return resources.get("CPU", 0.0), resources.get("GPU", 0.0)


def read_autoscaler_limits(file: Path) -> AutoscalerLimits:
    """Return what the autoscaler of the cluster with this head may start: `file` is what `ray up` leaves there."""
    import yaml

    if not file.expanduser().is_file():
        return AutoscalerLimits()
    found = yaml.safe_load(file.expanduser().read_text(encoding="utf-8"))
    head, most, nodes = found.get("head_node_type"), found.get("max_workers", 0), found.get("available_node_types", {})
    types = [
        NodeKind(*_size(node.get("resources") or {}), node.get("max_workers", 0 if name == head else most))
        for name, node in nodes.items()
    ]
    return AutoscalerLimits(most, types, sum(node.get("min_workers", 0) for node in nodes.values()))


def count_usable_cpus() -> int:
    """Return the CPUs that this process may use: a job of Slurm's or a container's are some of the machine's."""
    found = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota, _, period = CPU_LIMIT_FILE.read_text().partition(" ") if CPU_LIMIT_FILE.is_file() else ("max", "", "")
    return found if quota == "max" else max(1, min(found, int(quota) // int(period)))


def count_local_gpus() -> int:
    """Return the number of NVIDIA's devices here, those that CUDA_VISIBLE_DEVICES leaves."""
    found = len(list(DEVICE_FOLDER.glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return found if visible is None else min(found, len([part for part in visible.split(",") if part.strip()]))


def describe_missing_resources(plan: Plan, address: str | None) -> list[str]:
    """Return what a trial asks for beyond this machine, in words; nothing where a cluster runs it."""
    if resolve_ray_address(address) != LOCAL_RAY:
        return []
    wanted, elsewhere = plan.sweep.resources, "--cluster FILE runs it on one that has them"
    alone = wanted.ranks == 1 and not wanted.gpus  # of several ranks the run chooses the ZeRO stage
    states = max((fit.peak.states.total for fit in plan.needs.values() if alone), default=0) / 1e9
    asked = {
        "resources.gpus": (wanted.gpus * wanted.ranks, count_local_gpus()),
        "resources.cpus": (wanted.cpus * wanted.ranks, count_usable_cpus()),
        "GB of memory for weights and optimizer": (states, read_usable_machine_memory() / 1e9),
    }
    return [
        f"{what}: a trial asks for {amount:.4g}, this machine has {here:.4g}; {elsewhere}"
        for what, (amount, here) in asked.items()
        if amount > here
    ]


def estimate_parallel_trials(wanted: Resources, trials: int, max_concurrent: int | None, address: str | None) -> int:
    """Return how many of `trials` run at a time at least: a cluster's size is not known before it is asked."""
    here = NodeKind(count_usable_cpus(), count_local_gpus(), 1)
    alone = resolve_ray_address(address) == LOCAL_RAY
    count = fit_parallel_trials([here], wanted)[0] if alone else max_concurrent or 1
    return max(1, min(count, max_concurrent or count, trials))


def choose_gpu_share(plan: Plan, address: str | None) -> Resources:
    """Return a plan's resources with the part of a GPU that fills it: one, a half, a third or a quarter.

    Trials keep their micro-batch; there are CPUs and memory of this machine for all of them, and no more than there are
    trials. A cluster's GPUs, and those of unknown memory, stay whole.
    """
    wanted, gpus = plan.sweep.resources, count_local_gpus() or 1
    largest = max(plan.needs.values(), key=lambda fit: fit.peak.total, default=None)
    name, most = wanted.gpu_name or find_local_gpu_name(), 1.0
    size = wanted.gpu_memory or (GPU_DATA_SHEETS[name]["memory"] / 1e9 if name else None)
    if size and largest and plan.shape and wanted.ranks == 1 and resolve_ray_address(address) == LOCAL_RAY:
        memory = USABLE_HOST_MEMORY_SHARE * read_usable_machine_memory() / gpus
        room = memory / (HOST_BYTES_PER_GPU_TRIAL + 2 * WEIGHT_BYTES[wanted.precision] * plan.shape.parameter_count)
        cpus, trials = count_usable_cpus() / gpus / max(TRIAL_CPUS, wanted.cpus), -(-sum(plan.planned.values()) // gpus)
        most = min(MAX_TRIALS_PER_GPU, USABLE_SHARE * size * 1e9 / largest.least, cpus, room, trials)
    return wanted.model_copy(update={"share_gpus": False, "gpus": 1 / max(1, int(most))})

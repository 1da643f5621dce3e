"""What this machine has, told without Ray: what a start without a cluster will find here."""

from __future__ import annotations

import os
from pathlib import Path

from platform.schedule import capacity
from trainables.config.settings import Resources

CGROUP = Path("/sys/fs/cgroup/cpu.max")
DEVICES = Path("/dev")


def is_used(address: str | None) -> bool:
    """Whether a start runs its trials here and not on a cluster."""
    return not (address or os.environ.get("RAY_ADDRESS"))


def cores() -> int:
    """CPUs of this machine, or as many as a container's limit (cgroup v2) leaves."""
    found = os.cpu_count() or 1
    quota, _, period = CGROUP.read_text().partition(" ") if CGROUP.is_file() else ("max", "", "")
    return found if quota == "max" else max(1, min(found, int(quota) // int(period)))


def gpus() -> int:
    """NVIDIA's devices, those that CUDA_VISIBLE_DEVICES leaves."""
    found = len(list(DEVICES.glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return found if visible is None else min(found, len([part for part in visible.split(",") if part.strip()]))


def lacks(wanted: Resources) -> list[str]:
    """What a trial asks for beyond this machine."""
    found = {"cpus": cores(), "gpus": gpus()}
    asked = {"cpus": wanted.cpus * wanted.ranks, "gpus": wanted.gpus * wanted.ranks}
    return [
        f"resources.{kind}: a trial asks for {amount:g}, this machine has {found[kind]}; --address names a cluster"
        for kind, amount in asked.items()
        if amount > found[kind]
    ]


def slots(wanted: Resources, trials: int, max_concurrent: int | None, address: str | None) -> int:
    """Return how many of so many trials run side by side at least: a cluster's size is not known before it is asked."""
    here = capacity.Shape({"CPU": cores(), "GPU": gpus()}, 1, 1)
    count = capacity.trials([here], wanted) if is_used(address) else max_concurrent or 1
    return max(1, min(count, max_concurrent or count, trials))

"""Where trials run on a cluster: whether its nodes can hold one, and how many run at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ray

from platform.schedule import capacity
from platform.schedule.capacity import Growth, NodeKind
from platform.schedule.ray_environment import PENDING, RAY_SETTINGS
from trainables.common.errors import InputError
from trainables.config.settings import Resources

PATIENCE = 120.0
"""Seconds to wait at a start for the nodes that a cluster always has (`min_workers`)."""


@dataclass(frozen=True)
class Placement:
    """How many trials run at a time, Ray's placement strategy for the ranks of one, and what tells of nodes to come."""

    slots: int
    strategy: str
    describe_coming: Callable[[], str | None]


@dataclass(frozen=True)
class Session:
    """The nodes of the Ray that was joined or started, and what its autoscaler may add, as far as its head knows."""

    growth: Growth

    def node_kinds(self, wanted: Resources) -> Sequence[NodeKind]:
        """Return the kinds of nodes, with those that may still start for such trials."""
        return capacity.avoid_gpu_nodes(capacity.list_node_kinds(ray.nodes(), self.growth), wanted)

    def wait_for_nodes(self, print_line: Callable[[str], None]) -> None:
        """Wait up to PATIENCE for the nodes that the cluster always has, which join within seconds of `ray up`."""
        expected = 1 + self.growth.least
        end, waiting = time.monotonic() + PATIENCE, False
        while (existing := sum(node["Alive"] for node in ray.nodes())) < expected:
            if time.monotonic() > end:
                print_line(f"warning: {existing} of the cluster's {expected} nodes are there; going on with them")
                return
            if not waiting:
                print_line(f"waiting for the cluster's nodes: {existing} of {expected} are there")
                waiting = True
            time.sleep(1.0)

    def check_resources(self, wanted: Resources) -> None:
        """Raise InputError on what no node has or may have: Tune would wait for it without end."""
        kinds = self.node_kinds(wanted)
        for name, amount in resources_of_trial(wanted).items():
            existing = sum(kind.existing * kind.resources.get(name, 0) for kind in kinds)
            most = sum(kind.most * kind.resources.get(name, 0) for kind in kinds)
            if amount > most:
                grow = f" and grows to {most:g}" if most > existing else ""
                setting = f"resources.{name.lower()}s"
                raise InputError(f"{setting}: a trial asks for {amount:g}, the cluster has {existing:g}{grow}")
        if not capacity.count_trials(kinds, wanted):
            each = f"{wanted.cpus} CPUs and {wanted.gpus:g} GPUs" if wanted.gpus else f"{wanted.cpus} CPUs"
            raise InputError(
                f"resources.ranks: a trial asks for {wanted.ranks} times {each}, more than the cluster's nodes hold "
                f"({', '.join(map(str, kinds))})"
            )

    def place_trials(
        self, wanted: Resources, max_concurrent: int | None, print_line: Callable[[str], None]
    ) -> Placement:
        """Return how Tune places trials: on all nodes that there can be, so that as many are asked for at once.

        The ranks of a trial share a node wherever some node holds them all.
        """
        kinds = self.node_kinds(wanted)
        count = capacity.count_trials(kinds, wanted)
        slots = max(1, min(max_concurrent or count, count))
        if os.environ[PENDING] == RAY_SETTINGS[PENDING]:
            os.environ[PENDING] = str(max(slots, int(RAY_SETTINGS[PENDING])))
        packed = capacity.fits_on_one_node(kinds, wanted)
        if not packed:
            print_line(
                f"warning: no node holds the {wanted.ranks} ranks of a trial; they run across nodes, and every step "
                "waits for the network between them"
            )
        return Placement(slots, "STRICT_PACK" if packed else "PACK", lambda: self.describe_coming(wanted))

    def describe_coming(self, wanted: Resources) -> str | None:
        """Return what nodes for a trial may still start, None if none may."""
        kinds = self.node_kinds(wanted)
        least = wanted.ranks if capacity.fits_on_one_node(kinds, wanted) else 1
        fitting = [kind for kind in kinds if capacity.count_ranks(kind.resources, wanted) >= least]
        existing, most = sum(kind.existing for kind in fitting), sum(kind.most for kind in fitting)
        if existing >= most:
            return None
        return f"{existing} of up to {most} nodes for it are there, more start on demand (ray status follows them)"


def resources_of_trial(wanted: Resources) -> dict[str, float]:
    """Return what a trial takes of a cluster, by Ray's names."""
    return {"CPU": wanted.cpus * wanted.ranks, "GPU": wanted.gpus * wanted.ranks}

"""The Ray session that a sweep runs in: one of its own, or a running cluster's; and what a trial takes of it."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from platform.plan.value import Plan
from platform.schedule import capacity
from trainables.common import provenance
from trainables.common.errors import InputError
from trainables.config.settings import Resources

PENDING = "TUNE_MAX_PENDING_TRIALS_PG"
QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    PENDING: "8",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "900",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
LOCAL = "local"


def settle(address: str | None) -> None:
    """Ray's settings, which it reads at its import.

    A Ray that is started here listens on the loopback address alone, by the setting that Ray has for it.
    """
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    if _place(address) == LOCAL:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def _place(address: str | None) -> str:
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


@dataclass(frozen=True)
class Room:
    """How many trials run at a time, Ray's strategy for the ranks of one, and the nodes for it that may still start."""

    slots: int
    strategy: str
    coming: Callable[[], str | None]


@dataclass(frozen=True)
class Session:
    """A Ray that was joined or started, and what its autoscaler may add, as far as its head knows."""

    growth: tuple[int, Sequence[capacity.Growth]] = (0, ())

    def shapes(self, wanted: Resources) -> Sequence[capacity.Shape]:
        """The kinds of nodes, with those that may still start for such trials."""
        import ray

        return capacity.avoid_gpu_nodes(capacity.shapes(ray.nodes(), self.growth), wanted)

    def wait_for_nodes(self, say: Callable[[str], None]) -> None:
        """Wait for the nodes that the cluster always has."""
        import ray

        capacity.wait_for_nodes(self.growth, ray.nodes, say)

    def check(self, plan: Plan) -> None:
        """Refuse what Tune would wait for without end: what neither is there nor may come."""
        wanted = plan.sweep.resources
        kinds = self.shapes(wanted)
        for name, amount in needed(plan).items():
            there = sum(kind.there * kind.resources.get(name, 0) for kind in kinds)
            most = sum(kind.most * kind.resources.get(name, 0) for kind in kinds)
            if amount > most:
                grow = f" and grows to {most:g}" if most > there else ""
                setting = f"resources.{name.lower()}s"
                raise InputError(f"{setting}: a trial asks for {amount:g}, the cluster has {there:g}{grow}")
        if not capacity.trials(kinds, wanted):
            each = f"{wanted.cpus} CPUs and {wanted.gpus:g} GPUs" if wanted.gpus else f"{wanted.cpus} CPUs"
            raise InputError(
                f"resources.ranks: a trial asks for {wanted.ranks} times {each}, more than the cluster's nodes hold "
                f"({', '.join(kind.told() for kind in kinds)})"
            )

    def placement(self, plan: Plan, say: Callable[[str], None]) -> str:
        """Ray's strategy for the ranks of a trial: one node wherever some node holds them all."""
        wanted = plan.sweep.resources
        if capacity.on_one_node(self.shapes(wanted), wanted):
            return "STRICT_PACK"
        say(
            f"warning: no node holds the {wanted.ranks} ranks of a trial; they run across nodes, and every step waits "
            "for the network between them"
        )
        return "PACK"

    def room(self, plan: Plan, max_concurrent: int | None, say: Callable[[str], None]) -> Room:
        """What Tune is told: for all nodes that there can be, so that as many are asked for at once."""
        count = capacity.trials(self.shapes(plan.sweep.resources), plan.sweep.resources)
        slots = max(1, min(max_concurrent or count, count))
        if os.environ[PENDING] == QUIET[PENDING]:
            os.environ[PENDING] = str(max(slots, int(QUIET[PENDING])))
        return Room(slots, self.placement(plan, say), lambda: self.coming(plan))

    def coming(self, plan: Plan) -> str | None:
        """The nodes for a trial that may still start, None where there are none."""
        wanted = plan.sweep.resources
        kinds = self.shapes(wanted)
        least = wanted.ranks if capacity.on_one_node(kinds, wanted) else 1
        fitting = [kind for kind in kinds if capacity.ranks_on(kind.resources, wanted) >= least]
        there, most = sum(kind.there for kind in fitting), sum(kind.most for kind in fitting)
        if there >= most:
            return None
        return f"{there} of up to {most} nodes for it are there, more start on demand (ray status follows them)"


def start(address: str | None) -> Session:
    """Join the cluster at `address`, the running one (RAY_ADDRESS), or start one here.

    Raises InputError where no cluster answers, RayError where Ray does not start.
    """
    place = _place(address)
    import ray
    import ray.exceptions

    ended = signal.getsignal(signal.SIGTERM)
    env = {"PYTHONPATH": str(provenance.ROOT), **{name: os.environ[name] for name in QUIET}}
    try:
        ray.init(
            address=place,
            runtime_env={"env_vars": env},
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False if place == LOCAL else None,
        )
    except ConnectionError as error:
        raise InputError(f"--address: no Ray cluster answers at '{place}' ({error})") from error
    except Exception as error:  # Ray raises no narrower one where its processes take too long to start
        raise ray.exceptions.RayError(f"it did not start ({error})") from error
    signal.signal(signal.SIGTERM, ended)  # Ray's own handler ends the process without a word
    mine = ray.get_runtime_context().get_node_id()
    on_head = any(node["NodeID"] == mine and capacity.HEAD in node["Resources"] for node in ray.nodes())
    if place == LOCAL or not on_head:
        return Session()
    return Session(capacity.grown(Path(capacity.BOOTSTRAP).expanduser()))


def needed(plan: Plan) -> dict[str, float]:
    """What a trial takes of a cluster, by Ray's names."""
    wanted = plan.sweep.resources
    return {"CPU": wanted.cpus * wanted.ranks, "GPU": wanted.gpus * wanted.ranks}

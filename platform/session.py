"""The Ray session that a sweep runs in: one of its own, or a running cluster's; and what a trial takes of it."""

from __future__ import annotations

import logging
import os
import signal

from platform.plan import Plan
from trainables import provenance
from trainables.errors import InputError

QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "8",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
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


def start(address: str | None) -> int:
    """Join the cluster at `address`, the running one (RAY_ADDRESS), or start one here; returns its CPUs.

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
    return int(ray.cluster_resources().get("CPU", 1))


def check(plan: Plan) -> None:
    """Refuse what Tune would wait for without end."""
    import ray

    there = ray.cluster_resources()
    for kind, amount in needed(plan).items():
        if amount > there.get(kind, 0):
            setting = f"resources.{kind.lower()}s"
            raise InputError(f"{setting}: a trial asks for {amount:g}, the cluster has {there.get(kind, 0):g}")


def needed(plan: Plan) -> dict[str, float]:
    """What a trial takes of a cluster, by Ray's names."""
    wanted = plan.sweep.resources
    return {"CPU": wanted.cpus * wanted.ranks, "GPU": wanted.gpus * wanted.ranks}


def slots(plan: Plan, cpus: int, max_concurrent: int | None) -> int:
    """How many trials run at a time."""
    import ray

    resources = plan.sweep.resources
    count = min(max_concurrent or cpus, cpus // (resources.cpus * resources.ranks))
    if resources.gpus:
        count = min(count, int(ray.cluster_resources().get("GPU", 0) / (resources.gpus * resources.ranks)))
    return max(1, count)

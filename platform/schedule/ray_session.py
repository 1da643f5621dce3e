"""Joining the Ray of a running cluster, or starting one for a sweep alone."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from pathlib import Path

import ray
import ray.exceptions

from platform.schedule import capacity
from platform.schedule.capacity import Growth
from platform.schedule.placement import Session
from platform.schedule.ray_environment import LOCAL, RAY_SETTINGS, resolve_address
from trainables.common import provenance
from trainables.common.errors import InputError

BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
"""What `ray up` leaves on the head, and the autoscaler goes by; KubeRay's goes by the RayCluster. Ray 2.60 reports node
types nowhere else: the GCS has a place for them (`get_cluster_config`), which nothing in Ray or KubeRay fills."""


def start_session(address: str | None) -> Session:
    """Join the cluster at `address`, the running one (RAY_ADDRESS), or start one here.

    Raises InputError if no cluster answers, RayError if Ray does not start.
    """
    place = resolve_address(address)
    on_terminate = signal.getsignal(signal.SIGTERM)
    env = {"PYTHONPATH": str(provenance.ROOT), **{name: os.environ[name] for name in RAY_SETTINGS}}
    try:
        with contextlib.chdir(provenance.ROOT):  # workers import from this folder before any other
            ray.init(
                address=place,
                runtime_env={"env_vars": env},
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False if place == LOCAL else None,
                num_cpus=capacity.count_cpus() if place == LOCAL else None,
            )
    except ConnectionError as error:
        raise InputError(f"--address: no Ray cluster answers at '{place}' ({error})") from error
    except Exception as error:  # Ray raises no narrower one where its processes take too long to start
        raise ray.exceptions.RayError(f"it did not start ({error})") from error
    signal.signal(signal.SIGTERM, on_terminate)  # Ray's own handler ends the process without a word
    mine = ray.get_runtime_context().get_node_id()
    on_head = any(node["NodeID"] == mine and capacity.HEAD in node["Resources"] for node in ray.nodes())
    return Session(capacity.read_growth(BOOTSTRAP) if on_head and place != LOCAL else Growth())

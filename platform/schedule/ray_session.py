"""The Ray that a sweep runs on: joined or started here, how its nodes hold trials, and what happens when parts die."""

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import psutil
import ray.exceptions
from ray.air.execution._internal import actor_manager
from ray.tune import Callback
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from platform.schedule import capacity
from platform.schedule.capacity import AutoscalerLimits
from platform.schedule.ray_environment import LOCAL_RAY, RAY_ENVIRONMENT_DEFAULTS, resolve_ray_address
from trainables.common import cli, provenance
from trainables.common.deadlines import ANSWER_TIMEOUT, CONNECT_TIMEOUT, NOTICE_SECONDS, START_TIMEOUT, call_within
from trainables.common.errors import InputError, extract_last_error_line
from trainables.config.settings import Resources

BOOTSTRAP_FILE = Path("~/ray_bootstrap_config.yaml")
"""What `ray up` leaves on the head, and the autoscaler goes by: Ray 2.60 reports node types nowhere else."""
KUBERAY_VARIABLE = "RAY_CLUSTER_NAME"
NODE_WAIT_SECONDS = 120.0
HEAD_RETRY_SECONDS, INTERRUPTED_SHUTDOWN_SECONDS = 20.0, 2.0
"""How long Ray's head may be away (Ray ends this process after 60 s, without a word), and Ray's end after Ctrl-C."""
MAX_RESTARTS_WITHOUT_PROGRESS = 2
"""How often a trial whose process died runs again, from its last checkpoint, without coming further."""
RAYLET_CHECK_SECONDS = 5.0


def join_or_start_ray(address: str | None) -> AutoscalerLimits:
    """Join the cluster at `address`, or start one here; return what it may add. Raises InputError or RayError."""
    place = resolve_ray_address(address)
    on_terminate = signal.getsignal(signal.SIGTERM)
    path = f"{provenance.CODE_ROOT}{os.pathsep}${{PYTHONPATH}}"  # Ray fills in the node's, which may bring packages
    env = {"PYTHONPATH": path, **{name: os.environ[name] for name in RAY_ENVIRONMENT_DEFAULTS}}
    host, _, port = place.removeprefix("ray://").rpartition(":")
    try:
        if host:  # Ray itself would ask for 14 minutes where nobody listens
            check_ray_head_responds(f"{host}:{port}")
        with contextlib.chdir(provenance.CODE_ROOT):  # workers import from this folder before any other
            ray.init(
                address=place,
                runtime_env={"env_vars": env},
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False if place == LOCAL_RAY else None,
                num_cpus=capacity.count_usable_cpus() if place == LOCAL_RAY else None,
            )
    except Exception as error:  # Ray raises no narrower one where its processes take too long to start
        if place != LOCAL_RAY and isinstance(error, OSError | ValueError | OverflowError):
            raise InputError(f"--address: no Ray cluster answers at '{place}' ({error})") from error
        raise ray.exceptions.RayError(f"it did not start ({error})") from error
    signal.signal(signal.SIGTERM, on_terminate)  # Ray's own handler ends the process without a word
    mine = ray.get_runtime_context().get_node_id()
    on_head = any(node["NodeID"] == mine and capacity.HEAD_NODE_RESOURCE in node["Resources"] for node in ray.nodes())
    return capacity.read_autoscaler_limits(BOOTSTRAP_FILE) if on_head and place != LOCAL_RAY else AutoscalerLimits()


def check_ray_head_responds(place: str) -> None:
    """Raise OSError where nobody listens or answers as Ray does: its own client would wait longer, deaf to Ctrl-C."""
    host, _, port = place.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT).close()
    if os.environ.get("RAY_USE_TLS", "0") == "0":
        with grpc.insecure_channel(place) as channel:
            call_within(ANSWER_TIMEOUT, f"Ray at {place}", grpc.channel_ready_future(channel).result)


def watch_ray_head(place: str, resume: str) -> None:
    """Print how to go on, and end this thread, where Ray's head answers neither now nor HEAD_RETRY_SECONDS later."""
    for wait in (0.0, HEAD_RETRY_SECONDS):
        time.sleep(wait)
        try:
            check_ray_head_responds(place)
        except OSError:
            continue
        return
    cli.print_line(f"Ray failed: its head does not answer\ngo on with: {resume}")
    sys.exit()  # ends this thread alone; Ray ends the process a minute later


def wait_for_minimum_nodes(growth: AutoscalerLimits) -> None:
    """Wait up to NODE_WAIT_SECONDS for the nodes that the cluster always has, which join within seconds of `ray up`."""
    expected = 1 + growth.least
    end, waiting = time.monotonic() + NODE_WAIT_SECONDS, False
    while (existing := sum(node["Alive"] for node in ray.nodes())) < expected:
        if time.monotonic() > end:
            cli.print_line(f"warning: {existing} of the cluster's {expected} nodes are there; going on with them")
            return
        if not waiting:
            cli.print_line(f"waiting for the cluster's nodes: {existing} of {expected} are there")
            waiting = True
        time.sleep(1.0)


def check_nodes_start_processes() -> None:
    """Run a task on every node that is there. Raises RayError if none ends well: trials would wait without end."""
    hosts = {}
    for node in (node for node in ray.nodes() if node["Alive"]):
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = ray.remote(provenance.utc_now).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        hosts[task.remote()] = node["NodeManagerAddress"]
    started, waiting = ray.wait(list(hosts), num_returns=len(hosts), timeout=NOTICE_SECONDS)
    if waiting:
        cli.print_line(f"waiting for Ray to start a process on {', '.join(hosts[one] for one in waiting)}")
        started, waiting = ray.wait(list(hosts), num_returns=len(hosts), timeout=START_TIMEOUT - NOTICE_SECONDS)
    bad = {hosts[one]: "" for one in waiting}
    for one in started:
        try:
            ray.get(one)
        except ray.exceptions.RayError as error:
            bad[hosts[one]] = f" ({extract_last_error_line(error)})"
    if bad:
        problem = f"no process started within {START_TIMEOUT:.0f} s on {', '.join(map(''.join, bad.items()))}"
        if len(bad) == len(hosts):
            session = ray.get_runtime_context().get_session_name()
            log = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", session, "logs", "raylet.err")
            end = log.read_text(errors="replace").splitlines()[-12:] if log.is_file() else ["(it is not here)"]
            raise ray.exceptions.RayError("\n".join([f"{problem}. The end of {log}:", *end]))
        cli.print_line(f"warning: {problem}; trials wait for other nodes")


def shut_down_ray() -> None:
    """Shut Ray down; where one of its processes has stopped, which Ray would wait for, kill those started here."""
    try:
        seconds = INTERRUPTED_SHUTDOWN_SECONDS if isinstance(sys.exception(), KeyboardInterrupt) else CONNECT_TIMEOUT
        call_within(seconds, "Ray to end", ray.shutdown)
    except TimeoutError:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))  # which Ray has undone below Python


def choose_placement(growth: AutoscalerLimits, wanted: Resources, max_concurrent: int | None) -> tuple[int, str]:
    """Return how many trials run at a time, and Ray's strategy for a trial's ranks: on one node if some node holds all.

    Raises InputError where the cluster cannot hold a trial: Tune would wait without end.
    """
    kinds = capacity.list_node_kinds(ray.nodes(), growth)
    count, packed = capacity.fit_parallel_trials(kinds, wanted)
    strategy = "STRICT_PACK" if packed else "PACK"
    if KUBERAY_VARIABLE in os.environ:  # what its autoscaler may start is not known here
        if max_concurrent is None:
            cli.print_line("KubeRay may start nodes for more trials at a time: --max-concurrent N says for how many")
        return max_concurrent or max(1, count), strategy
    if not count:
        each = f"{wanted.cpus} CPUs and {wanted.gpus:g} GPUs" if wanted.gpus else f"{wanted.cpus} CPUs"
        known = ", ".join(map(str, kinds))
        raise InputError(f"resources: a trial asks for {wanted.ranks} times {each}, more than the nodes hold ({known})")
    if not packed:
        slow = "they run across nodes, and every step waits for the network between them"
        cli.print_line(f"warning: no node holds the {wanted.ranks} ranks of a trial; {slow}")
    return min(max_concurrent or count, count), strategy


class RayFailureCallback(Callback):
    """Raises RayError out of Tune's loop if Ray's process here has died: Tune would wait for its trials for ever.

    Counts a trial's failures anew when it comes further than ever: one that dies at the same step is given up.
    """

    def __init__(self) -> None:
        self.node = ray.get_runtime_context().get_node_id()
        self.last_look = time.monotonic()
        self.furthest: dict[str, int] = {}

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if time.monotonic() - self.last_look < RAYLET_CHECK_SECONDS:
            return
        self.last_look = time.monotonic()
        if not any(node["Alive"] for node in ray.nodes() if node["NodeID"] == self.node):
            raise ray.exceptions.RayError("its raylet on this machine has died")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        step = result.get("step", 0)
        if step > self.furthest.get(trial.trial_id, 0):
            self.furthest[trial.trial_id] = step
            trial.run_metadata.num_failures = 0


def read_trial_error(trial: Any) -> str:
    """Return what Tune has noted of a trial's end in Ray's session, which is not in the storage: it may be full."""
    path = trial.error_file
    text = Path(path).read_text(encoding="utf-8") if path and Path(path).is_file() else "its process died"
    if used := re.search(r"low on memory.* was ([\d.]+)GB used / ([\d.]+)GB", text):
        text += f"\nkilled: machine short of memory ({used[1]} of {used[2]} GB); try --max-concurrent 1"
    return text


def make_tune_retry_memory_kills() -> None:
    """Make Tune treat a kill by Ray's memory monitor like a dead actor: Tune of Ray 2.60 ends with a traceback."""
    deaths = (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError)
    actor_manager.RayActorError = deaths  # type: ignore[assignment, misc]

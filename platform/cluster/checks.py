"""What is wrong in a cluster file, in words: Ray's own check stops at the first problem and lets most typos by."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platform.cluster import aws_checks
from platform.cluster.file import (
    OWN_KEYS,
    ClusterFile,
    as_list,
    as_mapping,
    is_filled,
    storage_address_problems,
    unknown_keys,
)
from platform.schedule.ray_environment import NO_METRICS, TOKEN
from trainables.common import provenance
from trainables.common.errors import closest
from trainables.common.redaction import redact

LOCAL_KEYS = ("type", "head_ip", "worker_ips", "external_head_ip", *OWN_KEYS)
HEAD, RAY_MAX_WORKERS = "head_node_type", 2
"""Workers that Ray starts at most where the file gives no number."""
SETUP = "cd ~/unlearning && make setup"
ENVIRONMENT = (
    "cd ~/unlearning && "
    ".venv/bin/python -m platform.cluster environment ~/ray_bootstrap_config.yaml >> ~/.unlearning.env"
)
SPOT = (
    "RAY_AUTH_MODE=token setsid flock -n /tmp/spot.lock python ~/unlearning/clusters/spot.py < /dev/null "
    "> /tmp/spot.log 2>&1 &"
)
NODE_SIZE = ("--num-cpus=", "--num-gpus=", "--memory=", "--object-store-memory=", "--resources=", "--labels=")
"""Options of `ray start` that a file may add: they give what a node offers."""


def find_problems(file: ClusterFile) -> list[str]:
    """Return all that keeps the file from being used, as `place: what is wrong; what to do`."""
    import ray.autoscaler

    schema = Path(ray.autoscaler.__path__[0]) / "ray-schema.json"
    found = [*unfilled_problems(file), *schema_problems(file, schema), *_worker_problems(file)]
    found += [*_command_problems(file), *_local_file_problems(file), *_mlflow_problems(file)]
    match file.provider.get("type"):
        case "aws":
            return [*found, *aws_checks.find_problems(file)]
        case "local":
            found += _own_machine_problems(file)
    return [*found, *storage_address_problems(file.storage)]


def find_notes(file: ClusterFile) -> Iterator[str]:
    """Yield what a person should know, although the file can be used."""
    most, nodes = file.content.get("max_workers", RAY_MAX_WORKERS), file.workers.values()
    total = sum(high for node in nodes if isinstance(high := node.get("max_workers"), int))
    if isinstance(most, int) and total > most:
        yield f"max_workers: Ray starts {most} workers at most, although the node types have {total} together"
    if SETUP not in file.commands("setup_commands"):
        yield f"setup_commands: lacks `{SETUP}`; something else has to make ~/unlearning/.venv on every node"
    if (provider := file.provider.get("type")) not in ("aws", "local"):
        yield f"provider.type: '{provider}' was never tried; aws and local were"


def unfilled_problems(file: ClusterFile) -> Iterator[str]:
    """Yield the lines left to fill in."""
    for number, line in enumerate(file.path.expanduser().read_text(encoding="utf-8").splitlines(), 1):
        if not is_filled(written := line.partition("#")[0].strip()):
            yield f"line {number}: still to be filled in ({written})"


def schema_problems(file: ClusterFile, schema: Path) -> Iterator[str]:
    """Yield unknown keys, each with the nearest known one, and what else a file's schema refuses."""
    import jsonschema

    for error in jsonschema.Draft7Validator(json.loads(schema.read_text())).iter_errors(file.content):
        place = ".".join(map(str, error.absolute_path))
        if error.validator == "additionalProperties":
            yield from unknown_keys(error.instance, error.schema["properties"], f"{place}." if place else "")
        else:
            yield f"{place or file.path}: {error.message.replace(chr(10), ' ')}"


def _worker_problems(file: ClusterFile) -> Iterator[str]:
    most, nodes, head = file.content.get("max_workers", RAY_MAX_WORKERS), file.node_types, file.content.get(HEAD)
    if nodes and head not in nodes:
        yield f"{HEAD}: '{head}' is no node type; {closest(str(head), nodes)}"
    lows = {name: low for name, node in nodes.items() if isinstance(low := node.get("min_workers", 0), int)}
    for name, low in lows.items():
        high = nodes[name].get("max_workers")
        if isinstance(high, int) and low > high:
            yield f"available_node_types.{name}.min_workers: {low} is more than its max_workers of {high}"
    if isinstance(most, int) and sum(lows.values()) > most:
        yield f"max_workers: {most} is less than the min_workers of all node types together ({sum(lows.values())})"
    if file.workers and (most == 0 or all(node.get("max_workers") == 0 for node in file.workers.values())):
        yield "max_workers: 0; no worker would ever start"


def _local_file_problems(file: ClusterFile) -> Iterator[str]:
    """Yield what this machine lacks: folders to send, the key, and the version of Ray that the nodes get."""
    import ray

    for remote, local in as_mapping(file.content.get("file_mounts")).items():
        if isinstance(local, str) and not Path(local).expanduser().exists():
            yield f"file_mounts.{remote}: '{local}' is not there"
    key = file.auth.get("ssh_private_key")
    if is_filled(key) and not Path(key).expanduser().is_file():
        yield f"auth.ssh_private_key: '{key}' is not there"
    pinned = re.search(r"^ray(?:\[[\w,]*\])?==([\w.]+)", (provenance.ROOT / "constraints.txt").read_text(), re.M)
    if pinned and pinned[1] != ray.__version__:
        yield f"ray: {ray.__version__} is installed here, the nodes get {pinned[1]} (constraints.txt); run: make setup"


def _mlflow_problems(file: ClusterFile) -> Iterator[str]:
    backend = str(file.provider.get("mlflow_backend", "sqlite"))
    without_user = re.sub(r"(?<=://)[^:/@]+@", "", backend, count=1)
    if backend not in ("sqlite", "postgresql") and "://" not in backend:
        yield (
            f"provider.mlflow_backend: '{backend}'; {closest(backend, ('sqlite', 'postgresql'))}, or the address "
            "of a database such as postgresql://USER@HOST/DATABASE"
        )
    elif redact(without_user) != without_user:
        yield "provider.mlflow_backend: holds a password; leave it out and put it into ~/.pgpass on the head"


def _own_machine_problems(file: ClusterFile) -> Iterator[str]:
    """Yield what provider local needs: a user, a storage that every machine sees, and addresses, each once."""
    yield from unknown_keys(file.provider, LOCAL_KEYS, "provider.")
    if not file.auth.get("ssh_user"):
        yield "auth.ssh_user: missing; name the user that `ray up` logs in as"
    if file.storage is None:
        yield "provider.storage: missing; a folder that every node has mounted (NFS) at the same path, or s3://..."
    elif is_filled(file.storage) and "://" not in file.storage and not file.storage.startswith("/"):
        yield f"provider.storage: '{file.storage}' is a relative path; write the whole one, the same on every node"
    head, workers = file.provider.get("head_ip"), as_list(file.provider.get("worker_ips"))
    if head is None:
        yield "provider.head_ip: missing"
    if not workers:
        yield "provider.worker_ips: missing; a list of the workers' addresses"
    places = {"provider.head_ip": head} | {f"provider.worker_ips[{k}]": worker for k, worker in enumerate(workers)}
    first: dict[Any, str] = {}
    for place, address in places.items():
        if is_filled(address) and first.setdefault(address, place) != place:
            yield f"{place}: '{address}' is {first[address]}, too; each node has its own address"


def generate_commands(provider: str | None) -> dict[str, list[str]]:
    """Return, by section of the file, the commands that every cluster of this provider needs.

    The dashboard listens on loopback, MLflow at a socket. With provider local Ray's second autoscaler takes the head
    for a worker, and no worker joins; on AWS workers tell Ray when EC2 takes them back.
    """
    local = provider == "local"
    limit, autoscaler = ("", "RAY_enable_autoscaler_v2=0 ") if local else ("ulimit -n 65536; ", "")
    settings = " ".join(f"{name}={value}" for name, value in NO_METRICS.items())
    before, start = f"unset OMP_NUM_THREADS; {limit}", f"{settings} RAY_AUTH_MODE=token ray start"
    head = f"{before}{autoscaler}{start} --head --port=6379 --dashboard-host=127.0.0.1"
    head += " --autoscaling-config=~/ray_bootstrap_config.yaml"
    worker = f"{before}{start} --address=$RAY_HEAD_IP:6379"
    return {
        "head_setup_commands": [ENVIRONMENT],
        "head_start_ray_commands": ["ray stop", head, "bash ~/unlearning/clusters/mlflow.sh"],
        "worker_start_ray_commands": ["ray stop", worker, *([SPOT] if provider == "aws" else [])],
    }


def _command_problems(file: ClusterFile) -> Iterator[str]:
    """Yield the generated commands that a file lacks or has in other words, and a missing mount of this repository."""
    for section, commands in generate_commands(file.provider.get("type")).items():
        present = [
            [word for word in command.split() if not word.startswith(NODE_SIZE)] for command in file.commands(section)
        ]
        for command in commands:
            if command.split() not in present:
                yield f"{section}: lacks `{command}`, or has it changed"
    home = "/root" if file.auth.get("ssh_user") == "root" else f"/home/{file.auth.get('ssh_user')}"
    mounts = {str(remote).rstrip("/") for remote in as_mapping(file.content.get("file_mounts"))}
    if not {"~/unlearning", f"{home}/unlearning"} & mounts:
        yield "file_mounts: puts nothing at ~/unlearning, where the commands go; add `~/unlearning: .`"
    if TOKEN not in mounts:
        yield f"file_mounts: lacks `{TOKEN}: {TOKEN}`, the token by which nodes know each other"

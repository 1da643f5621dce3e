"""The commands that decide what a node of a cluster runs, where it listens and how it joins.

They follow from the provider. `cluster.yaml` and `clusters/*.yaml` hold them, and `check` compares a file with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from platform.cluster.file import ClusterFile, as_mapping

SETUP = "cd ~/unlearning && make setup"
ENVIRONMENT = (
    "cd ~/unlearning && "
    ".venv/bin/python -m platform.cluster environment ~/ray_bootstrap_config.yaml >> ~/.unlearning.env"
)
SPOT = "setsid flock -n /tmp/spot.lock python ~/unlearning/clusters/spot.py < /dev/null > /tmp/spot.log 2>&1 &"
NODE_SIZE = ("--num-cpus=", "--num-gpus=", "--memory=", "--object-store-memory=", "--resources=", "--labels=")
"""Options of `ray start` that a file may add: they say what a node offers."""


def generate_commands(provider: str | None) -> dict[str, list[str]]:
    """Return, by section of the file, the commands that every cluster of this provider needs.

    Dashboard and MLflow listen on loopback. With provider local Ray's second autoscaler takes the head for a worker,
    and no worker joins; on AWS workers tell Ray when EC2 takes them back.
    """
    local = provider == "local"
    limit, autoscaler = ("", "RAY_enable_autoscaler_v2=0 ") if local else ("ulimit -n 65536; ", "")
    start = f"unset OMP_NUM_THREADS; {limit}{autoscaler}RAY_AUTH_MODE=disabled ray start"
    head = f"{start} --head --port=6379 --dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml"
    worker = f"unset OMP_NUM_THREADS; {limit}RAY_AUTH_MODE=disabled ray start --address=$RAY_HEAD_IP:6379"
    return {
        "head_setup_commands": [ENVIRONMENT],
        "head_start_ray_commands": ["ray stop", head, "bash ~/unlearning/clusters/mlflow.sh"],
        "worker_start_ray_commands": ["ray stop", worker, *([SPOT] if provider == "aws" else [])],
    }


def command_problems(file: ClusterFile) -> Iterator[str]:
    """Yield the generated commands that a file lacks or has in other words, and a missing mount of this repository."""
    for section, commands in generate_commands(file.provider.get("type")).items():
        present = [_without_node_size(command) for command in file.commands(section)]
        for command in commands:
            if command.split() not in present:
                yield f"{section}: lacks `{command}`, or has it changed"
    home = "/root" if file.auth.get("ssh_user") == "root" else f"/home/{file.auth.get('ssh_user')}"
    mounts = {str(remote).rstrip("/") for remote in as_mapping(file.content.get("file_mounts"))}
    if not {"~/unlearning", f"{home}/unlearning"} & mounts:
        yield "file_mounts: puts nothing at ~/unlearning, where the commands go; add `~/unlearning: .`"


def command_notes(file: ClusterFile) -> Iterator[str]:
    """Yield the commands of the file's own, which nothing checks, and what they have to do."""
    for section, commands in generate_commands(file.provider.get("type")).items():
        known = [command.split() for command in commands]
        for index, command in enumerate(file.commands(section)):
            if _without_node_size(command) not in known:
                yield f"{section}[{index}]: a command of your own; nobody checked what it starts or opens"
    if SETUP not in file.commands("setup_commands"):
        yield f"setup_commands: lacks `{SETUP}`; something else has to make ~/unlearning/.venv on every node"


def _without_node_size(command: str) -> list[str]:
    return [word for word in command.split() if not word.startswith(NODE_SIZE)]

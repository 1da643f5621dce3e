"""What can be wrong in the commands and folders of a cluster file: what would keep the nodes apart, bare or open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from platform.cluster.file import ClusterFile, listing, mapping
from trainables.common import provenance

SETUP = ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands")
OPEN = re.compile(r"(?<![\d.])0\.0\.0\.0(?!\d)|--(?:dashboard-)?host[= ]'?(?:::|\*)")
HEAD = re.compile(r"ray start\b.*--head\b", re.S)
PORT = re.compile(r"--port[= ](\S+)")
DEFAULT_PORT = "6379"
"""Ray's own, where the head names none."""
JOINED = re.compile(r"RAY_HEAD_IP\}?['\"]?:(\d+)")
PINNED = re.compile(r"\bray(?:\[[\w,]*\])?==([\w.]+)")
ENVIRONMENT = "cd ~/unlearning && .venv/bin/python -m platform.cluster environment ~/ray_bootstrap_config.yaml"
GOES = re.compile(r"\bcd\s+['\"]?((?:~|\$HOME|\$\{HOME\})/[^\s;&|'\"]+)")
INSTALLS = re.compile(r"\bmake\b[^;&|]*\bsetup\b|\.venv(?![/\w])")
"""`make setup`, or a command that names the .venv itself, such as a link to one."""


def problems(file: ClusterFile) -> Iterator[str]:
    """All that is wrong in the commands, and in what they need on the nodes."""
    yield from _open(file)
    yield from _head(file)
    yield from _joins(file)
    yield from _environment(file)
    yield from _mounts(file)
    yield from _goes(file)
    yield from _installed(file)
    yield from _version(file)


def _open(file: ClusterFile) -> Iterator[str]:
    for place, command in file.commands():
        if OPEN.search(command):
            yield f"{place}: listens on every address (0.0.0.0); use 127.0.0.1 and look at it through ssh"


def _heads(file: ClusterFile) -> list[tuple[str, str]]:
    return [item for item in file.commands("head_start_ray_commands") if HEAD.search(item[1])]


def _head(file: ClusterFile) -> Iterator[str]:
    heads = _heads(file)
    if not heads:
        yield (
            "head_start_ray_commands: none of them is `ray start --head`"
            if listing(file.content.get("head_start_ray_commands"))
            else "head_start_ray_commands: missing; Ray's own open the dashboard on every address"
        )
    for place, command in heads:
        if "--autoscaling-config" not in command:
            yield f"{place}: lacks --autoscaling-config=~/ray_bootstrap_config.yaml; no worker would ever start"
        if file.provider.get("type") == "local" and not re.search(r"RAY_enable_autoscaler_v2=0\b", command):
            yield (
                f"{place}: lacks RAY_enable_autoscaler_v2=0 before `ray start`; with provider local Ray's second "
                "autoscaler takes the head for a worker, and no worker joins"
            )


def _joins(file: ClusterFile) -> Iterator[str]:
    """Workers that start no Ray, or look for the head's where it is not."""
    starts = [item for item in file.commands("worker_start_ray_commands") if "ray start" in item[1]]
    if not starts and "worker_start_ray_commands" in file.content and set(file.node_types) != {file.head}:
        yield (
            "worker_start_ray_commands: none of them is `ray start`, no worker would join; "
            f"add: ray start --address=$RAY_HEAD_IP:{DEFAULT_PORT}"
        )
    named = [PORT.search(command) for _, command in _heads(file)]
    ports = {found[1].strip("'\"") if found else DEFAULT_PORT for found in named}
    for place, command in starts:
        joined = JOINED.search(command)
        if "RAY_HEAD_IP" not in command:
            yield f"{place}: lacks --address=$RAY_HEAD_IP:{DEFAULT_PORT}; the worker would not find the head"
        elif joined and ports and all(port.isdigit() and port != joined[1] for port in ports):
            yield f"{place}: looks for the head at port {joined[1]}, it listens at {'/'.join(ports)} (its --port)"


def _environment(file: ClusterFile) -> Iterator[str]:
    setup = [command for _, command in file.commands("setup_commands", "head_setup_commands")]
    if not any("UNLEARN_STORAGE=" in command or "platform.cluster environment" in command for command in setup):
        yield (
            "head_setup_commands: none of them sets UNLEARN_STORAGE, results would stay on the head; "
            f"add: {ENVIRONMENT} >> ~/.unlearning.env"
        )


def _mounts(file: ClusterFile) -> Iterator[str]:
    for remote, local in mapping(file.content.get("file_mounts")).items():
        if isinstance(local, str) and not Path(local).expanduser().exists():
            yield f"file_mounts.{remote}: '{local}' is not there"


def _goes(file: ClusterFile) -> Iterator[str]:
    """Folders of the nodes that commands go to, and nothing puts there."""
    user = mapping(file.content.get("auth")).get("ssh_user")
    home = "/root" if user == "root" else f"/home/{user}"
    remotes = map(str, mapping(file.content.get("file_mounts")))
    mounts = [re.sub(rf"^{re.escape(home)}(?=/|$)", "~", remote) for remote in remotes]
    told: set[str] = set()
    for place, command in file.commands():
        for folder in GOES.findall(command):
            folder = re.sub(r"^\$\{?HOME\}?", "~", folder).rstrip("/")
            there = any(f"{folder}/".startswith(f"{remote.rstrip('/')}/") for remote in mounts)
            if not there and folder not in told and not _made(file, folder):
                told.add(folder)
                yield f"file_mounts: puts nothing at {folder}, where {place} goes; add `{folder}: .`"


def _made(file: ClusterFile, folder: str) -> bool:
    """Whether a command makes this folder."""
    makes = re.compile(
        rf"\b(?:git clone|mkdir|ln)\b[^;&|]*\b{re.escape(Path(folder).name)}(?:/|\.git)?['\"]?(?=[\s;&|]|$)"
    )
    return any(makes.search(command) for _, command in file.commands(*SETUP))


def _installed(file: ClusterFile) -> Iterator[str]:
    uses = next((place for place, command in file.commands() if ".venv/bin" in command), None)
    if uses and not any(INSTALLS.search(command) for _, command in file.commands(*SETUP)):
        yield f"setup_commands: none of them makes the .venv that {uses} names; add: cd ~/unlearning && make setup"


def _version(file: ClusterFile) -> Iterator[str]:
    """Head, workers and the machine that types `ray up` must have one version of Ray."""
    import ray

    pinned = PINNED.search((provenance.ROOT / "constraints.txt").read_text())
    if pinned and pinned[1] != ray.__version__:
        yield f"ray: {ray.__version__} is installed here, the nodes get {pinned[1]} (constraints.txt); run: make setup"
    for place, command in file.commands():
        for found in PINNED.findall(command):
            if found != ray.__version__:
                yield f"{place}: installs ray {found}, here it is {ray.__version__}; they must be the same"

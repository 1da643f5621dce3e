"""Where the checkout is, the environment of commands that tests start, and what trials of tests stand on."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Ray lowers the priority of its workers: on a busy machine a trial would get next to nothing of a core.
RAY_PRIORITY = {"RAY_worker_niceness": "0"}

RunModule = Callable[..., subprocess.CompletedProcess[str]]


def clean_environment(**more: str) -> dict[str, str]:
    """Return the caller's environment without settings that would change what a command does, and with `more`."""
    dropped = ("PYTHON", "PYTEST_", "RAY_", "MLFLOW_", "UNLEARN_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | RAY_PRIORITY | more


def type_settings(settings: Iterable[str]) -> list[str]:
    """Return settings as a person types them."""
    return [word for setting in settings for word in ("--set", setting)]


@dataclass(frozen=True)
class TrialInputs:
    """What the tests of trials stand on: rows in TOFU's format and two tiny models."""

    data: Path
    target: Path
    retain: Path
    split: str


def free_port() -> int:
    """Return a port of this machine that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

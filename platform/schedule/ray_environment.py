"""Environment variables that Ray reads when it is imported: this module is imported before Ray, and without it."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import tempfile
from pathlib import Path

RAY_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "900",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
NO_METRICS = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1", "DASHBOARD_METRIC_PORT": "-1"}
"""Ray's ports of metrics ask for no token: with these the agents', the autoscaler's and the dashboard's do not open."""
LOCAL = "local"
TOKEN = "~/.ray/auth_token"
"""The file of the token without which Ray answers nobody."""
SOCKET = len("/ray/session_2026-11-23_07-36-50_591063_4194304/sockets/plasma_store")
PREFIX = "unlearn-"
LONGEST_SOCKET = 103 if sys.platform == "darwin" else 107
"""Characters that the path of a socket may have."""


def set_ray_environment(address: str | None) -> None:
    """Set what Ray reads from the environment when it is imported.

    A Ray that is started here listens on the loopback address alone, by the setting that Ray has for it, asks other
    users of this machine for a token, serves no metrics, and keeps its logs and sockets where they cannot look.
    """
    os.environ.update({name: value for name, value in RAY_SETTINGS.items() if name not in os.environ})
    if resolve_address(address) == LOCAL:
        make_token()
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.update({name: value for name, value in NO_METRICS.items() if name not in os.environ})
        if "RAY_TMPDIR" not in os.environ:
            os.environ["RAY_TMPDIR"] = make_private_folder()


def resolve_address(address: str | None) -> str:
    """Return the address of the Ray to join, or LOCAL."""
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


def make_private_folder() -> str:
    """Return a new folder of this user alone for Ray's logs and sockets, in TMPDIR where the paths of sockets fit."""
    parent = tempfile.gettempdir()
    fits = len(f"{parent}/{PREFIX}12345678{SOCKET}") <= LONGEST_SOCKET
    return tempfile.mkdtemp(prefix=PREFIX, dir=parent if fits else "/tmp")


def make_token() -> None:
    """Make Ray's token where there is none, and let nobody else read it: Ray itself makes it readable for all."""
    path = Path(TOKEN).expanduser()
    with contextlib.suppress(OSError):  # Ray says what is wrong
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with tempfile.NamedTemporaryFile("w", dir=path.parent) as stream:  # readable by this user alone
                stream.write(secrets.token_hex(32))
                stream.flush()
                with contextlib.suppress(FileExistsError):  # another start was quicker
                    os.link(stream.name, path)
        path.chmod(0o600)

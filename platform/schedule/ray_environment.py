"""Environment variables that Ray reads when it is imported: this module is imported before Ray, and without it."""

from __future__ import annotations

import os

PENDING = "TUNE_MAX_PENDING_TRIALS_PG"
RAY_SETTINGS = {
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


def set_ray_environment(address: str | None) -> None:
    """Set what Ray reads from the environment when it is imported.

    A Ray that is started here listens on the loopback address alone, by the setting that Ray has for it.
    """
    os.environ.update({name: value for name, value in RAY_SETTINGS.items() if name not in os.environ})
    if resolve_address(address) == LOCAL:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def resolve_address(address: str | None) -> str:
    """Return the address of the Ray to join, or LOCAL."""
    return address or os.environ.get("RAY_ADDRESS") or LOCAL

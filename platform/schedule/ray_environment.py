"""Environment variables that Ray reads when it is imported: this module is imported before Ray, and without it."""

import contextlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path

from trainables.common.process_identity import identify_self, is_process_alive
from trainables.storage.atomic_files import read_json, write_json

RAY_ENVIRONMENT_DEFAULTS = {
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
METRICS_DISABLED = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1", "DASHBOARD_METRIC_PORT": "-1"}
"""Ray's ports of metrics ask for no token: with these the agents', the autoscaler's and the dashboard's do not open."""
LOCAL_RAY = "local"
RAY_FOLDERS_PARENT, RAY_FOLDER_PREFIX, RAY_FOLDER_OWNER_FILE = Path("/tmp"), "unlearn-", "owner.json"
"""Where a Ray's own folder lies (its sockets need short paths), and the file in it that names its process."""
RAY_TOKEN_FILE = "~/.ray/auth_token"
"""The file of the token without which Ray answers nobody."""


def set_ray_environment(address: str | None) -> None:
    """Set what Ray reads when it is imported: one that starts here answers this user alone and serves no metrics."""
    os.environ.update({name: value for name, value in RAY_ENVIRONMENT_DEFAULTS.items() if name not in os.environ})
    if resolve_ray_address(address) != LOCAL_RAY:
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")  # of 40 s each, 20 by default, where no Ray answers
        return
    ensure_ray_token()
    # Processes ahead of any work lack the settings of a start, and `init` waits without end if they cannot start.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.update({name: value for name, value in METRICS_DISABLED.items() if name not in os.environ})
    if "RAY_TMPDIR" not in os.environ:  # a folder for logs and sockets; those of this user's starts that have died go
        for owner in RAY_FOLDERS_PARENT.glob(f"{RAY_FOLDER_PREFIX}*/{RAY_FOLDER_OWNER_FILE}"):
            if owner.lstat().st_uid == os.getuid() and is_process_alive(read_json(owner) or {}) is False:
                shutil.rmtree(owner.parent, ignore_errors=True)
        folder = tempfile.mkdtemp(prefix=RAY_FOLDER_PREFIX, dir=RAY_FOLDERS_PARENT)
        write_json(Path(folder, RAY_FOLDER_OWNER_FILE), identify_self(), durable=False)
        os.environ["RAY_TMPDIR"] = folder


def remove_own_ray_folder() -> None:
    """Remove the folder of a Ray that this process has started and shut down."""
    folder = Path(os.environ.get("RAY_TMPDIR", ""))
    if (read_json(folder / RAY_FOLDER_OWNER_FILE) or {}).get("pid") == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


def resolve_ray_address(address: str | None) -> str:
    """Return the address of the Ray to join, or LOCAL_RAY."""
    return address or os.environ.get("RAY_ADDRESS") or LOCAL_RAY


def ensure_ray_token() -> None:
    """Make Ray's token where there is none, and let nobody else read it: Ray itself makes it readable for all."""
    path = Path(RAY_TOKEN_FILE).expanduser()
    with contextlib.suppress(OSError):  # Ray says what is wrong
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with tempfile.NamedTemporaryFile("w", dir=path.parent) as stream:  # readable by this user alone
                stream.write(secrets.token_hex(32))
                stream.flush()
                with contextlib.suppress(FileExistsError):  # another start was quicker
                    os.link(stream.name, path)
        path.chmod(0o600)

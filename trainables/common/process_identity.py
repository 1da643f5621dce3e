"""Which process on which machine wrote a file, and whether it still runs: kept as JSON beside what it writes."""

import os
import sys
from collections.abc import Mapping
from typing import Any

import psutil

START_TOLERANCE = 60.0
"""By how much the time at which a process started may seem to change when the clock is set."""


def identify_self() -> dict[str, Any]:
    """Return `host` for people, and `place`, `pid` and `born`, which together name one process."""
    born = psutil.Process().create_time()
    return {"host": os.uname().nodename, "place": machine_id(), "pid": os.getpid(), "born": born}


def is_first_local_rank() -> bool:
    """Whether this is the first of a trial's ranks on this machine, or its only process."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def is_process_alive(process: Mapping[str, Any]) -> bool | None:
    """Return whether a process still runs, not a later one of the same pid; None if it is of another machine."""
    if process.get("place") != machine_id():
        return None
    try:
        found = psutil.Process(process["pid"])
        return found.status() != psutil.STATUS_ZOMBIE and abs(found.create_time() - process["born"]) < START_TOLERANCE
    except psutil.NoSuchProcess:
        return False


def machine_id() -> str:
    """Return where a pid means something: the machine, and the pid namespace (of a container)."""
    namespace = os.readlink("/proc/self/ns/pid") if sys.platform == "linux" else ""
    return f"{os.uname().nodename}/{namespace}"

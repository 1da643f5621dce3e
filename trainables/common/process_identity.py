"""Which process on which machine wrote a file, and whether it still runs: kept as JSON beside what it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

Identity = dict[str, Any]
"""`host` for people, and `place`, `pid` and `born`, which together name one process for ever."""


def describe_self() -> Identity:
    """Return the identity of this process."""
    pid = os.getpid()
    return {"host": os.uname().nodename, "place": machine_id(), "pid": pid, "born": start_time(pid)}


def is_first_rank() -> bool:
    """Whether this is the first of a trial's ranks on this machine, or its only process."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def is_alive(process: Mapping[str, Any]) -> bool | None:
    """Return whether a process still runs, not a later one of the same pid; None if it is of another machine."""
    if process.get("place") != machine_id():
        return None
    started = start_time(process["pid"])
    return started is not None and started == process["born"]


def machine_id() -> str:
    """Return where a pid means something: the machine since its last start, and the pid namespace (of a container)."""
    parts = [os.uname().nodename]
    if sys.platform == "linux":
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def start_time(pid: int) -> float | None:
    """Return when a process started, None if there is none or only a zombie.

    On Linux in ticks since the machine's start, which no jump of the clock moves; elsewhere in seconds since 1970.
    """
    try:
        if sys.platform == "linux":
            text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
            state, *rest = text.rsplit(")")[-1].split()
            return None if state in "ZX" else float(rest[18])
        found = psutil.Process(pid)
        return None if found.status() == psutil.STATUS_ZOMBIE else found.create_time()
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return None

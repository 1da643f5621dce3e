"""Which process on which machine wrote a file, and whether it is still alive: kept as JSON beside what it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

Identity = dict[str, Any]
"""`host` for people, `place`, `pid` and `born`, which together name one process for ever."""


def myself() -> Identity:
    """This process."""
    return {"host": os.uname().nodename, "place": place(), "pid": os.getpid(), "born": born(os.getpid())}


def first_here() -> bool:
    """Whether this is the first of a trial's ranks on this machine, or its only process."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def alive(process: Mapping[str, Any]) -> bool | None:
    """Whether a process still runs; None: it belongs to another machine (or another container), nobody here knows.

    A pid that was given to a later process does not count: the start times differ.
    """
    if process.get("place") != place():
        return None
    found = born(process["pid"])
    return found is not None and found == process["born"]


def place() -> str:
    """The machine since its last start, and its room of pids (a container has its own): where a pid means something."""
    parts = [os.uname().nodename]
    if sys.platform == "linux":
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def born(pid: int) -> float | None:
    """When a process started, None where there is none or only its corpse.

    On Linux in ticks since the machine's start, which no jump of the clock moves; elsewhere in seconds since 1970.
    """
    try:
        if sys.platform == "linux":
            told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
            state, *rest = told.rsplit(")")[-1].split()
            return None if state in "ZX" else float(rest[18])
        found = psutil.Process(pid)
        return None if found.status() == psutil.STATUS_ZOMBIE else found.create_time()
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return None

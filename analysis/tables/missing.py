"""The commands that fill a table's missing cells."""

from __future__ import annotations

import shlex

from analysis.labels import DASH
from analysis.tables.layout import Layout

MODULE = "platform.sweep"
FLAGS = ("--new", "--resume", "--dry-run", "--json")
"""Options of an earlier start that are no part of one which goes on."""
VALUES = ("--only", "--strategy", "--trials", "--reason")
"""The same of options with a value."""
FIELDS = {"method": "method", "split": "benchmark.split", "rectifier": "rectifier.name"}
Keys = list[dict[str, str]]


def find_name(command: str) -> str:
    """Return the sweep that a command of `platform.sweep` starts, empty without one."""
    parts = shlex.split(command)
    return parts[parts.index(MODULE) + 1] if MODULE in parts[:-1] else ""


def list_notes(layout: Layout, missing: Keys, command: str = "") -> list[str]:
    """Return what a table says of its missing cells: the commands that fill them, `command` being the sweep's.

    Without one they are those of the paper's sweeps, of cells on its backbones. Reference models need none: any start
    of their sweep makes them.
    """
    missing = [key for key in missing if key["method"] not in ("original", "retain")]
    starts = {command: missing} if command else {}
    for backbone, sweep in {} if command else layout.sweeps.items():
        starts[f"python -m {MODULE} {sweep}"] = [key for key in missing if key["backbone"] == backbone]
    found = [f"`{_narrow(layout, keys, start)}`" for start, keys in starts.items() if keys]
    return [f"{DASH}: no result yet. To fill: {', '.join(found)}"] if found else []


def _narrow(layout: Layout, missing: Keys, command: str) -> str:
    """Return the command, narrowed to the rows and columns of the missing cells; trials that are done do not run again.

    The published settings are enough for a cell of the main tables; of a sensitivity table only its own sweep's
    strategy `paper` is the whole line.
    """
    kept, strategy = _keep_options(command)
    if not layout.axis or find_name(command) in layout.sweeps.values():
        strategy = ["--strategy", "paper"]
    fields = FIELDS | ({"setting": f"rectifier.{layout.axis}"} if layout.axis else {})
    for name, field in fields.items():
        strategy += ["--only", f"{field}={','.join(dict.fromkeys(key[name] for key in missing))}"]
    return shlex.join([*kept, *strategy, "--resume"])


def _keep_options(command: str) -> tuple[list[str], list[str]]:
    """Return a start's parts without what is only for that start, and its strategy."""
    kept, strategy = [], []
    parts = iter(shlex.split(command))
    for part in parts:
        option, joined, value = part.partition("=")
        if option in FLAGS:
            continue
        if option in VALUES:
            value = value if joined else next(parts, "")
            strategy = [option, value] if option == "--strategy" else strategy
        else:
            kept.append(part)
    return kept, strategy

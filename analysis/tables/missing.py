"""The commands that fill a table's missing cells."""

from __future__ import annotations

import argparse
import shlex

from analysis.labels import DASH
from analysis.tables.layout import Layout

MODULE = "platform.sweep"
FLAGS = ("--new", "--resume", "--dry-run", "--json")
"""Options of an earlier start that are no part of one which goes on."""
VALUES = ("--only", "--strategy", "--trials", "--reason")
"""The same of options with a value."""


def find_name(command: str) -> str:
    """Return the sweep that a command of `platform.sweep` starts, empty without one."""
    parts = shlex.split(command)
    return parts[parts.index(MODULE) + 1] if MODULE in parts[:-1] else ""


def list_notes(layout: Layout, backbones: set[str], command: str = "") -> list[str]:
    """Return what a table with missing cells of these backbones says of them: the commands that fill them.

    `command` is the sweep's; without one they are those of the paper's sweeps. Trials that are done do not run again.
    The published settings are enough for a cell of the main tables; of a sensitivity table only its own sweep's
    strategy `paper` is the whole line.
    """
    starts = [f"python -m {MODULE} {sweep}" for backbone, sweep in layout.sweeps.items() if backbone in backbones]
    found = []
    for start in [command] * bool(backbones) if command else starts:
        kept, strategy = _keep_options(start)
        if not layout.axis or find_name(start) in layout.sweeps.values():
            strategy = ["--strategy", "paper"]
        found.append(f"`{shlex.join([*kept, *strategy, '--resume'])}`")
    return [f"{DASH}: no result yet. To fill: {', '.join(found)}"] if found else []


def _keep_options(command: str) -> tuple[list[str], list[str]]:
    """Return a start's parts without what is only for that start, and its strategy."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in FLAGS:
        parser.add_argument(flag, action="store_true")
    for option in VALUES:
        parser.add_argument(option, nargs="?")
    found, kept = parser.parse_known_args(shlex.split(command))
    return kept, ["--strategy", found.strategy] if found.strategy else []

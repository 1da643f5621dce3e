"""The commands that fill a table's missing cells."""

from __future__ import annotations

import re
from collections.abc import Mapping

from analysis.number_format import DASH
from analysis.tables.layout import Layout

START = re.compile(r"(?:python -m platform\.|unlearn )sweep (\S+)")
STRATEGY = re.compile(r" --strategy[ =]\S+")
OTHERS = re.compile(r" --(new|resume|dry-run|json)\b| --(only|trials|reason)[ =]('[^']*'|\S+)")
"""Options of an earlier start that are no part of one which goes on."""


def find_name(command: str) -> str:
    """Return the sweep that a command of `platform.sweep` starts, empty without one."""
    found = START.search(command)
    return found[1] if found else ""


def list_notes(layout: Layout, backbones: set[str], commands: Mapping[str, str]) -> list[str]:
    """Return what a table with missing cells of these backbones says of them: the commands that fill them.

    `commands` are the sweeps', by backbone. Trials that are done do not run again. The published settings are enough
    for a cell of the main tables; of a sensitivity table only its own sweep's strategy `paper` is the whole line.
    """
    found = []
    for start in dict.fromkeys(command for backbone, command in commands.items() if backbone in backbones and command):
        typed = STRATEGY.search(start)
        strategy = typed[0] if typed else ""
        if not layout.axis or find_name(start) in layout.sweeps.values():
            strategy = " --strategy paper"
        found.append(f"`{OTHERS.sub('', STRATEGY.sub('', start))}{strategy} --resume`")
    return [f"{DASH}: no result yet. To fill: {', '.join(found)}"] if found else []

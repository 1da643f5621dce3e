"""The commands that fill a table's missing cells."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from analysis.tables.format import DASH
from analysis.tables.layout import Layout

MODULE = "platform.sweep"
FLAGS = ("--new", "--resume", "--dry-run", "--json")
"""Options of an earlier start that are no part of one which goes on."""
VALUES = ("--only", "--strategy", "--trials", "--reason")
"""The same of options with a value."""
FIELDS = {"method": "method", "split": "benchmark.split", "rectifier": "rectifier.name"}


def name(command: str) -> str:
    """Return the sweep that a command of `platform.sweep` starts, empty without one."""
    parts = shlex.split(command)
    return parts[parts.index(MODULE) + 1] if MODULE in parts[:-1] else ""


def notes(layout: Layout, missing: list[dict[str, str]], command: str = "") -> list[str]:
    """Return what a table says of its missing cells: the commands that fill them, `command` being the sweep's.

    Without one they are those of the paper's sweeps, of cells on its backbones. Reference models need none: any start
    of their sweep makes them.
    """
    backbones = [""] if command else [backbone for backbone in layout.sweeps if _of(missing, backbone)]
    commands = []
    for backbone in backbones:
        start = command or f"python -m {MODULE} {layout.sweeps[backbone]}"
        commands.append(_command(layout, _of(missing, backbone) if backbone else missing, start))
    found = [f"`{text}`" for text in commands if text]
    return [f"{DASH}: no result yet. To fill: {', '.join(found)}"] if found else []


def _of(missing: list[dict[str, str]], backbone: str) -> list[dict[str, str]]:
    return [key for key in missing if key["backbone"] == backbone]


def _command(layout: Layout, missing: list[dict[str, str]], command: str) -> str:
    """Return the command, narrowed to the rows and columns of the missing cells; trials that are done do not run again.

    The published settings are enough for a cell of the main tables; of a sensitivity table only its own sweep's
    strategy `paper` is the whole line.
    """
    cells = [key for key in missing if key["method"] not in ("original", "retain")]
    if not cells:
        return ""
    published = not layout.axis or name(command) in layout.sweeps.values()
    kept, strategy = _kept(command)
    strategy = ["--strategy", "paper"] if published else strategy
    only = [f"{field}={_several(key[name] for key in cells)}" for name, field in FIELDS.items()]
    if layout.axis:
        only.append(f"rectifier.{layout.axis}={_several(key['setting'] for key in cells)}")
    return shlex.join([*kept, *strategy, *(part for text in only for part in ("--only", text)), "--resume"])


def _several(values: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(values))


def _kept(command: str) -> tuple[list[str], list[str]]:
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

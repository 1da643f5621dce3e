"""A table that is redrawn on a terminal while a sweep runs, plain lines everywhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainables.common.cli import escape_controls
from trainables.common.redaction import redact

if TYPE_CHECKING:
    from platform.sweep.running_counts import Counts, Waiting
    from trainables.storage.folder_storage import Storage

PLAIN_SECONDS, TABLE_SECONDS = 30.0, 1.0
"""Between two plain lines of where a sweep stands, and between two tables of it."""
SHOWN = 12
"""The most running trials that are shown; `platform.status --json` lists all."""


def print_line(text: str) -> None:
    """Print a line without secrets and terminal escapes."""
    print(escape_controls(redact(text)), flush=True)


class Screen:
    """A table below the lines that stay on a terminal; in files and pipes, a line of counts now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self.shown = time.monotonic()
        if self.live:
            self.live.start()

    def print_line(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(escape_controls(text), markup=False, emoji=False, highlight=False, soft_wrap=True)

    def show(self, counts: Counts, waiting: Waiting, store: Storage, *, last: bool = False) -> None:
        """Show where the sweep stands, if it is time to."""
        if not last and time.monotonic() - self.shown < (TABLE_SECONDS if self.live else PLAIN_SECONDS):
            return
        self.shown, reason = time.monotonic(), waiting.reason(counts)
        if self.live:
            self.live.update(draw_counts(counts, reason, counts.describe_running(store)))
        else:
            self.print_line(" | ".join(filter(None, [str(counts), reason])))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.live:
            self.live.stop()


def draw_counts(counts: Counts, waiting: str | None, rows: Sequence[Sequence[str]]) -> Group:
    """Return the table of a sweep under way; `rows`: its running trials."""
    head, ended = Table.grid(padding=(0, 2)), counts.done + counts.failed
    head.add_row(Text(counts.name, style="bold"), ProgressBar(total=max(1, counts.total), completed=ended, width=30))
    parts: list[Table | Text] = [head, Text(str(counts))]
    if waiting:
        parts.append(Text(waiting, style="yellow"))
    if rows:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("running", "phase", "step", "for", "left"):  # the first two give way on a narrow terminal
            table.add_column(name, no_wrap=name in ("step", "for", "left"))
        for row in rows[:SHOWN]:
            table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
        parts.append(table)
    if len(rows) > SHOWN:
        parts.append(Text(f"and {len(rows) - SHOWN} more"))
    return Group(*parts)

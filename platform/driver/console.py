"""A table that is redrawn on a terminal while a sweep runs, plain lines everywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainables.common.redaction import redact

if TYPE_CHECKING:
    from platform.driver.counts import View

PLAIN_SECONDS, TABLE_SECONDS = 30.0, 1.0
"""Between two plain lines of where a sweep stands, and between two tables of it."""
SHOWN = 12
"""So many running trials are shown; --json of platform.status lists all."""


def print_line(text: str) -> None:
    """Print a line without secrets."""
    print(redact(text), flush=True)


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
        self.console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def show(self, make_view: Callable[[], View], *, last: bool = False) -> None:
        """Show where the sweep stands; `make_view` is called only when it is time to show it."""
        if not last and time.monotonic() - self.shown < (TABLE_SECONDS if self.live else PLAIN_SECONDS):
            return
        self.shown, view = time.monotonic(), make_view()
        if self.live:
            self.live.update(draw_view(view))
        else:
            self.print_line(" | ".join(filter(None, [view.counts, view.waiting])))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.live:
            self.live.stop()


def draw_view(view: View) -> Group:
    """Return the table of a sweep under way."""
    head = Table.grid(padding=(0, 2))
    head.add_row(Text(view.title, style="bold"), ProgressBar(total=max(1, view.total), completed=view.done, width=30))
    parts: list[Table | Text] = [head, Text(view.counts)]
    if view.waiting:
        parts.append(Text(view.waiting, style="yellow"))
    if view.rows:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("running", "phase", "step", "for", "left"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for row in view.rows[:SHOWN]:
            table.add_row(*row)
        parts.append(table)
    if len(view.rows) > SHOWN:
        parts.append(Text(f"and {len(view.rows) - SHOWN} more"))
    return Group(*parts)

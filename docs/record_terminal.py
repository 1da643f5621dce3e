"""Record a command as an SVG that plays once: `python docs/record_terminal.py FILE.svg COMMAND ...`.

The lines are what the command prints into a pipe, and appear in the order and at the relative times at which they came,
in SECONDS altogether. Nothing is left out; long lines are wrapped.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from rich.console import Console

SECONDS, WIDTH = 20.0, 110
STYLE = """
    @keyframes appear {{ from {{ opacity: 0 }} to {{ opacity: 1 }} }}
    text[clip-path] {{ animation: appear 1ms both }}
    @media (prefers-reduced-motion) {{ text[clip-path] {{ animation: none }} }}
    {delays}
"""


def run(command: list[str]) -> list[tuple[float, str]]:
    """Run the command, and return the lines that it printed with the seconds from its start."""
    begun, lines = time.monotonic(), [(0.0, f"$ {' '.join(command)}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            sys.stdout.write(line)
            lines.append((time.monotonic() - begun, line.rstrip()))
    return lines


def draw(lines: list[tuple[float, str]]) -> str:
    """Return the SVG of lines with their seconds."""
    rows = [(at, row) for at, line in lines for row in textwrap.wrap(line, WIDTH, drop_whitespace=False) or [""]]
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print("\n".join(row for _, row in rows), highlight=False, markup=False, emoji=False)
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="", unique_id="terminal"), flags=re.DOTALL)
    pace = (SECONDS - 1) / max(at for at, _ in rows)
    delays = "".join(
        f'text[clip-path$="-line-{place})"] {{ animation-delay: {pace * at:.2f}s }} '
        for place, (at, _) in enumerate(rows)
    )
    return svg.replace("</style>", STYLE.format(delays=delays) + "</style>", 1)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(run(sys.argv[2:])), encoding="utf-8")

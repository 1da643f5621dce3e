"""Make the pictures of README.md and docs/ again: `make pictures`.

The figures are drawn from the points that lie beside them as CSV. The recording of a run of the quickstart plays once:
its lines are what the command prints into a pipe, and appear in the order and at the relative times at which they came,
in SECONDS altogether. Nothing is left out; long lines are wrapped.
"""

import io
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pandas as pd
from rich.console import Console

from analysis.figures import changes, style, tradeoff
from analysis.labels import list_goals_of_benchmark
from analysis.stats.rectifier_comparison import ES_GOAL
from trainables.config.settings import Selection

DOCS = Path(__file__).parent
GOALS = (*list_goals_of_benchmark("tofu").all_goals, ES_GOAL)
RECORDED = [".venv/bin/python", "-m", "platform.sweep", "quickstart"]
SECONDS, WIDTH = 20.0, 110
STYLE = """
    @keyframes appear {{ from {{ opacity: 0 }} to {{ opacity: 1 }} }}
    text[clip-path] {{ animation: appear 1ms both }}
    @media (prefers-reduced-motion) {{ text[clip-path] {{ animation: none }} }}
    {delays}
"""


def draw_figures(docs: Path = DOCS) -> None:
    """Write the PNGs of the example report, of the runs on a GPU and of the arena."""
    forest = docs / "arena/figures/rectifiers-forget05"
    found = pd.read_csv(f"{forest}.csv")
    own = found.loc[found["basis"] == "own best"]  # the file also has all rectifiers at the settings of none
    figures = {forest: changes.draw_rectifier_forest_plot(own, GOALS)}
    for place in (docs / "example_report/figures/tradeoff", docs / "smollm2/tradeoff"):
        figures[place] = tradeoff.draw_tradeoff(pd.read_csv(f"{place}.csv").assign(backbone=""), Selection())
    for place, figure in figures.items():
        with style.mpl.rc_context(style.FIGURE_RC_PARAMS):
            figure.savefig(f"{place}.png", dpi=200, metadata=style.METADATA_WITHOUT_DATES["png"])


def run_timed(command: list[str]) -> list[tuple[float, str]]:
    """Run the command, and return the lines that it printed with the seconds from its start."""
    begun, lines = time.monotonic(), [(0.0, f"$ {' '.join(command)}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            sys.stdout.write(line)
            lines.append((time.monotonic() - begun, line.rstrip()))
    return lines


def draw_terminal(lines: list[tuple[float, str]]) -> str:
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


def record_quickstart(file: Path = DOCS / "quickstart.svg") -> None:
    """Run the quickstart in a folder of its own and write the recording; its paths are those of a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        lines = run_timed([*RECORDED, "--storage", f"{folder}/runs"])
    shown = [(at, line.replace(f" --storage {folder}/runs", "").replace(f"{folder}/", "")) for at, line in lines]
    file.write_text(draw_terminal(shown), encoding="utf-8")


if __name__ == "__main__":
    draw_figures()
    if "--figures" not in sys.argv:
        record_quickstart()

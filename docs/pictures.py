"""Make the pictures of README.md and docs/ again: `make pictures`.

The figures are drawn from the points that lie beside them as CSV, the recording is of a run of the quickstart.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pandas as pd

from analysis.figures import rectifiers, style, tradeoff
from analysis.load.goal_columns import find_goals
from analysis.stats.rectifier_comparison import ES_GOAL
from docs import record_terminal
from trainables.config.settings import Selection

DOCS = Path(__file__).parent
GOALS = (*find_goals("tofu").all_goals, ES_GOAL)
RECORDED = [".venv/bin/python", "-m", "platform.sweep", "quickstart"]


def draw_figures(docs: Path = DOCS) -> None:
    """Write the PNGs of the example report and of the arena."""
    trials, changes = (docs / path for path in ("example_report/figures/tradeoff", "arena/figures/rectifiers-forget05"))
    found = pd.read_csv(f"{changes}.csv")
    own = found.loc[found["basis"] == "own best"]  # the file also has all rectifiers at the settings of none
    for place, figure in (
        (trials, tradeoff.draw(pd.read_csv(f"{trials}.csv").assign(backbone=""), Selection())),
        (changes, rectifiers.draw_differences(own, GOALS)),
    ):
        with style.mpl.rc_context(style.RC_PARAMS):
            figure.savefig(f"{place}.png", dpi=200, metadata=style.METADATA_WITHOUT_DATES["png"])


def record_quickstart(file: Path = DOCS / "quickstart.svg") -> None:
    """Run the quickstart in a folder of its own and write the recording; its paths are those of a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        lines = record_terminal.run([*RECORDED, "--storage", f"{folder}/runs"])
    shown = [(at, line.replace(f" --storage {folder}/runs", "").replace(f"{folder}/", "")) for at, line in lines]
    file.write_text(record_terminal.draw(shown), encoding="utf-8")


if __name__ == "__main__":
    draw_figures()
    if "--figures" not in sys.argv:
        record_quickstart()

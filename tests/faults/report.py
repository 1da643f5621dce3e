"""The log of all rounds of the fault matrix; `python tests/faults/report.py [FILE]` prints it as a table.

A round is one JSON line: fault, seed, moment, seconds, the counts of `fault_checks.Outcome` (absent where the round
broke off before it could be judged), and the problem that ended it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LOG = Path(os.environ.get("FAULTS_LOG") or Path(__file__).resolve().parents[2] / "runs" / "faults.jsonl")
COUNTS = ("lost", "doubled", "wrong", "mlflow", "restarted", "litter")
HEAD = (
    "fault",
    "rounds",
    "lost",
    "doubled",
    "other numbers",
    "MLflow differs",
    "restarted",
    "litter",
    "broke off",
    "median s",
)


def note(line: dict[str, Any], log: Path = LOG) -> None:
    """Append a round."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def table(lines: Iterable[str]) -> str:
    """Markdown, one row a fault."""
    rounds: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, lines):
        rounds.setdefault(line["fault"], []).append(line)
    shown = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for fault, found in rounds.items():
        sums = [str(sum(one.get(name, 0) for one in found)) for name in COUNTS]
        broken = sum("lost" not in one for one in found)
        middle = statistics.median(one["seconds"] for one in found)
        shown.append(f"| {fault} | {len(found)} | {' | '.join(sums)} | {broken} | {middle:.0f} |")
    return "\n".join(shown)


if __name__ == "__main__":
    print(table(Path(sys.argv[1] if len(sys.argv) > 1 else LOG).read_text(encoding="utf-8").splitlines()))

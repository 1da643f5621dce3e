"""The log of all rounds of the fault matrix, a JSON line each; `python tests/faults/report.py` prints it as a table.

Of a round that broke off before it could be judged the counts are absent.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd

LOG = Path(os.environ.get("FAULTS_LOG") or Path(__file__).resolve().parents[2] / "runs" / "faults.jsonl")
COUNTS = ("lost", "doubled", "wrong", "mlflow", "restarted", "litter")


def append_round(line: dict[str, Any]) -> None:
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    lines = [dict.fromkeys(COUNTS) | json.loads(line) for line in LOG.read_text(encoding="utf-8").splitlines()]
    rounds: Any = pd.DataFrame(lines).groupby("fault", sort=False)
    shown = rounds[[*COUNTS]].sum().assign(rounds=rounds.size(), seconds=rounds["seconds"].median().round())
    print(shown.assign(broke_off=shown["rounds"] - rounds["lost"].count()).astype(int).to_string())

"""What attacks brought back, in a report: from the storage to table, figure and sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from analysis import report
from analysis.tables import detail_tables
from tests.support import sweep_store
from tests.support.sweep_store import write
from trainables.storage.file_names import ATTACK_RESULTS_FILE
from trainables.storage.folder_storage import Storage

copy, store = sweep_store.store_copy, sweep_store.tiny_store


def told(attack: str, share: float | None, step: int = 0, **changes: Any) -> dict[str, Any]:
    values = {"before": 0.2, "after": 0.3, "target": 0.8, "retain": 0.05, "retain_before": 0.05}
    return {"attack": attack, "step": step, "title": f"the {attack}", **values, "share": share} | changes


def attack(store: Path, trial: str, *rows: dict[str, Any], started: str | None = None) -> None:
    result = Storage(store).result(trial) or {}
    document = {
        "measure": "extraction_strength",
        "started": started or result["started"],
        "attacks": {},
        "shares": list(rows),
    }
    write(store / "stress" / trial / ATTACK_RESULTS_FILE, document)


def chosen(store: Path, method: str, rectifier: str) -> list[str]:
    trials = sweep_store.read(store).chosen_trials
    own = (trials["method"] == method) & (trials["rectifier.name"] == rectifier)
    return trials.loc[own & (trials["benchmark.split"] == "forget05"), "id"].tolist()


def test_means_over_seeds_of_each_attacks_last_step(copy: Path, tmp_path: Path) -> None:
    assert sweep_store.read(copy).recovered_shares.empty
    for trial, share in zip(chosen(copy, "npo", "gru"), (0.1, 0.3), strict=True):
        attack(copy, trial, told("nf4", share), told("relearn", 0.2, 4), told("relearn", 0.6, 13))
    attack(copy, chosen(copy, "gd", "none")[0], told("nf4", None), told("relearn", 0.04, 13))
    results = sweep_store.read(copy)
    (other, *_) = sorted({*results.runs["id"]} - {*results.chosen_trials["id"]})
    attack(copy, other, told("nf4", 0.9))
    attack(copy, chosen(copy, "gd", "gru")[0], told("nf4", 0.9), started="2026-01-01T00:00:00+00:00")  # an earlier run
    means = sweep_store.read(copy).recovered_shares
    assert len(means) == 5
    table = detail_tables.tabulate_attacks(means)
    assert table.to_dict("records") == [
        {"Split": "forget05 (5%)", "Method": "GD", "n": "1", "the nf4": "—", "the relearn": "4 %"},
        {"Split": "forget05 (5%)", "Method": "NPO w/ GRU", "n": "2", "the nf4": "20 ± 14 %", "the relearn": "60 ± 0 %"},
    ]
    folder = report.build_report("tiny", copy, tmp_path / "out")
    page = (folder / "index.html").read_text()
    assert "Does it last" in page
    assert "20 ± 14 %" in page
    assert len(pd.read_csv(folder / "tables" / "attacks.csv")["share"].dropna()) == 4

"""The numbers that open-unlearning publishes, beside those of trials in its dialect."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from analysis import paper, report
from analysis.report import Source
from analysis.tables import detail_tables
from tests.support import sweep_store
from tests.support.sweep_store import write_sweep, write_trial

MODEL = "Llama-3.2-1B-Instruct"


def write(store: Path, dialect: str) -> Path:
    """GA alone and with GRU, and NPO without a retain term, of which nothing is published."""
    trials = [
        write_trial(store, "00000000000a", "ga", fq=-30.0, mu=0.3, lr=2e-5),
        write_trial(store, "00000000000b", "ga", sweep_store.GRU, fq=-20.0, mu=0.4, lr=2e-5),
        write_trial(store, "00000000000c", "npo", fq=-2.0, mu=0.5, lr=2e-5),
    ]
    for path in store.glob("trials/*/*.json"):
        path.write_text(path.read_text().replace('"dialect": "paper"', f'"dialect": "{dialect}"'))
    write_sweep(store, trials, backbone=MODEL, splits=("forget05",))
    return store


def test_chosen_settings_stand_beside_what_is_published(tmp_path: Path) -> None:
    table = detail_tables.list_open_unlearning(sweep_store.read(write(tmp_path, "open-unlearning")))
    assert table[["Method", "FQ published", "FQ here", "MU published", "MU here"]].to_numpy().tolist() == [
        ["Original", f"{math.log(1.33e-13):.4f}", "-21.4000", "0.6000", "0.9000"],
        ["Retrain", "0.0000", "0.0000", "0.6000", "0.8800"],
        ["GA", f"{math.log(1.94e-119):.4f}", "-30.0000", "0.0000", "0.3000"],
    ]
    other = sweep_store.read(tmp_path)
    assert detail_tables.list_open_unlearning(other.with_runs(other.runs.assign(backbone="Phi-1.5"))).empty
    assert detail_tables.list_open_unlearning(sweep_store.read(write(tmp_path / "paper", "paper"))).empty
    folder = report.build("tiny", tmp_path, tmp_path / "out", source=Source.BOTH)
    assert "Beside open-unlearning" in (folder / "index.html").read_text()


def test_numbers_are_those_of_the_reference(shared: Path) -> None:
    """Every number of ours is in the collection of published ones, under the project's own names."""
    names = {"original": "Finetuned", "retain": "Retain", "ga": "GradAscent", "gd": "GradDiff", "rmu": "RMU"}
    names |= {"npo_gd": "NPO", "simnpo_gd": "SimNPO"}
    models = {MODEL: MODEL, "Llama-2-7B-chat": "Llama-2-7b-chat-hf"}
    with (shared / "reference" / "published_tofu_ou.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if "repro.md" in row["source"]]
    known = {(row["model"], row["split"], row["method"], row["metric"]): float(row["value"]) for row in rows}
    for backbone, model in models.items():
        ours = paper.load_open_unlearning(backbone)
        assert len(ours) == 3 * 7 * 2
        for split, method, metric, value in ours[["split", "method", "metric", "value"]].to_numpy():
            printed = known[model, split, names[method], metric]
            assert value == pytest.approx(math.log(printed) if metric == "forget_quality" else printed)

"""Whom a report shows: the sweep's selection rule, halves of the rows, steps, in every part of the page."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import report
from analysis.tables import detail_tables, table_definitions
from tests.support import sweep_store
from tests.support.benchmark_store import SAME_ROWS, main_rows, metrics, write_store
from tests.support.sweep_store import GRU, NONE, SweepResults, make_sweep, read, write, write_sweep, write_trial
from trainables.config.settings import Selection
from trainables.storage.file_names import ATTACK_RESULTS_FILE
from trainables.storage.folder_storage import Storage


def halved(store: Path, rule: dict[str, Any], lacking: bool = False) -> SweepResults:
    """Write and read a sweep whose first half of rows prefers gamma 0.05, the second gamma 0.8; all rows: nonsense."""
    trials = []
    values = [((30, 40, 50), (31, 41, 51)), ((20, 30, 52), (2, 3, 54)), ((8, 10, 53), (9, 7, 40))]
    for halves, rectifier in zip(values, (NONE, GRU, GRU | {"gamma": 0.05}), strict=True):
        measured = [metrics("muse", half, privleak=7.0) for half in halves]
        full = metrics("muse", (99.0, 99.0, 99.0), privleak=99.0) | {"relative_change": 0.02}
        given = {"benchmark": "muse", "split": "news", "metrics": full, "halves": measured}
        trials.append(write_trial(store, f"{len(trials):012x}", "npo", rectifier, **given))
    if lacking:
        given = {"benchmark": "muse", "split": "news", "metrics": metrics("muse", (0, 0, 55)), "seed": 1}
        trials.append(write_trial(store, "f" * 12, "npo", GRU, **given))
    original = [metrics("muse", half) for half in ((58.0, 60.0, 56.0), (57.0, 59.0, 44.0))]
    retain = [metrics("muse", half) for half in ((20.0, 30.0, 56.0), (21.0, 31.0, 57.0))]
    models = {
        role: {"metrics": metrics("muse", (99.0, 99.0, 99.0)), "halves": found}
        for role, found in (("original", original), ("retain", retain))
    }
    write_sweep(store, trials, name="muse", benchmark="muse", splits=("news",), models=models, selection=rule)
    return read(store)


RULE = {"rule": "utility_floor", "share": 0.9, "halves": True}


def test_halves_choose_on_one_half_and_report_the_other(tmp_path: Path) -> None:
    halved(tmp_path, RULE)
    folder = report.build_report("muse", tmp_path)
    markdown = (folder / "tables/main.md").read_text()
    assert main_rows(markdown) == {
        "Original": ["57.0000", "59.0000", "44.0000", "52.0000"],
        "Retrain": ["21.0000", "31.0000", "57.0000", "52.0000"],
        "NPO": ["31.0000", "41.0000", "**51.0000**", "7.0000"],
        "NPO w/ GRU": ["**9.0000**", "**7.0000**", "40.0000", "7.0000"],
    }
    assert "chosen on every other evaluation row, reported on the remaining ones" in markdown
    assert SAME_ROWS not in markdown
    chosen = pd.read_csv(folder / "tables/chosen.csv").set_index("Method")
    assert chosen.loc["NPO w/ GRU", "gamma"] == "0.05"
    assert chosen["Keeps 90% of KnowMem-R"].to_dict() == {"NPO": "no (115.9%)", "NPO w/ GRU": "yes (90.9%)"}
    page = (folder / "index.html").read_text()
    assert "99.0000" not in page
    for stem in ("figures/tradeoff", "tables/trials"):
        assert not (pd.read_csv(folder / f"{stem}.csv").select_dtypes("number") == 99.0).to_numpy().any()
    assert pd.read_csv(folder / "tables/trials.csv")["choice.utility"].tolist() == [50.0, 52.0, 53.0]
    halved(tmp_path / "whole", RULE | {"halves": False})
    markdown = (report.build_report("muse", tmp_path / "whole") / "tables/main.md").read_text()
    assert main_rows(markdown)["Original"] == ["99.0000", "99.0000", "99.0000", "52.0000"]
    assert SAME_ROWS in markdown


def test_what_has_no_halves_cannot_be_chosen(tmp_path: Path) -> None:
    halved(tmp_path, RULE, lacking=True)
    path = tmp_path / "shared/evaluations/original-news/result.json"
    path.write_text(re.sub(r', "halves": .*\]', "", path.read_text()))
    folder = report.build_report("muse", tmp_path)
    page = (folder / "index.html").read_text()
    lack = "metrics on either half of the evaluation rows"
    assert f"Evaluated trials without {lack}, which the selection rule asks for, are left out: 1." in page
    assert f"news: the original model&#39;s evaluation original-news has no {lack}" in page
    assert "the target model&#39;s utility is not known, so the highest utility is chosen" in page
    chosen = pd.read_csv(folder / "tables/chosen.csv").set_index("Method")
    assert chosen.loc["NPO w/ GRU", ["gamma", "n of planned", "Chosen from"]].tolist() == ["0.05", "1 of 1", 2]


@pytest.mark.parametrize(
    ("rule", "gamma", "words"),
    [
        ({"rule": "highest_removal"}, "0.8", "the most removal (mean of Bio and Cyber, less is more), whatever the"),
        ({"rule": "utility_floor", "share": 0.6}, "0.8", "with at least 60% of the target model's MMLU"),
        ({}, "0.05", "with at least 90% of the target model's MMLU"),
    ],
)
def test_the_rule_of_the_sweep_chooses(tmp_path: Path, rule: dict[str, Any], gamma: str, words: str) -> None:
    results = read(write_store(tmp_path, "wmdp", **({"selection": rule} if rule else {})))
    assert results.rule == Selection(**rule)
    chosen = detail_tables.tabulate_chosen_settings(results).set_index("Method")
    assert chosen.loc["GA w/ GRU", "gamma"] == gamma
    assert words in table_definitions.make_main_layout(results).notes[0]


def test_chosen_steps_and_trials_that_ended_early_are_shown(tmp_path: Path) -> None:
    error = {"kind": "collapsed", "message": "retain loss 9 is above training.stop_above=8", "step": 3}
    given = {"fq": -6.0, "mu": 0.1, "status": "collapsed", "error": error}
    seeds = [given | {"seed": 1 - n, "chosen_step": 10 + 10 * n} for n in (0, 1)]
    make_sweep(tmp_path, *seeds, {"rectifier": GRU, "fq": -4.0, "mu": 0.5})
    folder = report.build_report("tiny", tmp_path)
    assert main_rows((folder / "tables/main.md").read_text())["GA"][:2] == ["-6.0000", "0.1000"]
    assert pd.read_csv(folder / "figures/tradeoff.csv")["kind"].tolist().count("trial") == 3
    chosen = pd.read_csv(folder / "tables/chosen.csv", dtype="str")
    assert chosen[["Seeds", "chosen_step"]].values.tolist() == [["0, 1", "20, 10"], ["0", "—"]]
    assert pd.read_csv(folder / "tables/trials.csv")["chosen_step"].tolist()[:2] == [10, 20]


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
    assert sweep_store.read(copy).attack_recovery.empty
    for trial, share in zip(chosen(copy, "npo", "gru"), (0.1, 0.3), strict=True):
        attack(copy, trial, told("nf4", share), told("relearn", 0.2, 4), told("relearn", 0.6, 13))
    attack(copy, chosen(copy, "gd", "none")[0], told("nf4", None), told("relearn", 0.04, 13))
    results = sweep_store.read(copy)
    (other, *_) = sorted({*results.runs["id"]} - {*results.chosen_trials["id"]})
    attack(copy, other, told("nf4", 0.9))
    attack(copy, chosen(copy, "gd", "gru")[0], told("nf4", 0.9), started="2026-01-01T00:00:00+00:00")  # an earlier run
    means = sweep_store.read(copy).attack_recovery
    assert len(means) == 5
    table = detail_tables.tabulate_recovered_shares(means)
    assert table.to_dict("records") == [
        {"Split": "forget05 (5%)", "Method": "GD", "n": "1", "the nf4": "—", "the relearn": "4 %"},
        {"Split": "forget05 (5%)", "Method": "NPO w/ GRU", "n": "2", "the nf4": "20 ± 14 %", "the relearn": "60 ± 0 %"},
    ]
    folder = report.build_report("tiny", copy, tmp_path / "out")
    page = (folder / "index.html").read_text()
    assert "Does it last" in page
    assert "20 ± 14 %" in page
    assert len(pd.read_csv(folder / "tables" / "attacks.csv")["share"].dropna()) == 4

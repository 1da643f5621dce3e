"""A grid over the learning rate: whether GRU helps at each method's own best rate, not at one rate for both."""

from __future__ import annotations

from pathlib import Path

from analysis.report.verdict import tabulate_differences
from analysis.tables.detail_tables import list_chosen
from tests.support import sweep_store

RATES = (1e-5, 3e-5, 1e-4, 3e-4)
# (FQ, MU) by rate: alone NPO is best at 3e-5, with GRU at 1e-4, which ruins it alone. The target has 0.9.
ALONE = ((-20.0, 0.89), (-10.0, 0.85), (-3.0, 0.30), (-1.0, 0.01))
RECTIFIED = ((-21.0, 0.90), (-16.0, 0.88), (-6.0, 0.84), (-2.0, 0.20))


def test_each_side_is_compared_at_its_own_best_rate(tmp_path: Path) -> None:
    trials = []
    for split in ("forget05", "forget10"):
        for rectifier, found in ((sweep_store.NONE, ALONE), (sweep_store.GRU, RECTIFIED)):
            for lr, (fq, mu) in zip(RATES, found, strict=True):
                given = {"split": split, "lr": lr, "fq": fq, "mu": mu}
                trials.append(sweep_store.write_trial(tmp_path, f"{len(trials):012x}", "npo", rectifier, **given))
    sweep_store.write_sweep(tmp_path, trials)
    results = sweep_store.read(tmp_path)
    chosen = list_chosen(results)
    assert list(zip(chosen["Split"], chosen["Method"], chosen["training.lr"], strict=True)) == [
        (split, method, rate)
        for split in ("forget05", "forget10")
        for method, rate in (("NPO", "3e-05"), ("NPO w/ GRU", "0.0001"))
    ]
    assert "+4.00" in tabulate_differences(results, None).to_string()  # -6 against -10; at one rate for both -6 or -3

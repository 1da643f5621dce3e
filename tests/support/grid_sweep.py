"""A sweep over gamma and tau, and the paper's numbers read without the code, for tests of figures of either.

A test module takes the sweep's fixture by importing it into its own names.
"""

import csv
from pathlib import Path

import pytest

from analysis import paper
from tests.support.sweep_store import GRU, NONE, Results, read, write_sweep, write_trial

FQ, MU = "forget_quality", "model_utility"


def paper_values(table: str) -> dict[tuple[str, ...], float]:
    """Return a table's values by (backbone, split, method, rectifier, gamma, tau, target, metric), as it is stored."""
    with Path(paper.__file__).with_name(f"{table}.csv").open(encoding="utf-8", newline="") as file:
        names = ("backbone", "split", "method", "rectifier", "gamma", "tau", "target", "metric")
        return {tuple(row[name] for name in names): float(row["value"]) for row in csv.DictReader(file)}


def write_grid(store: Path) -> Path:
    """Write a sweep of GA and GD without and with GRU over gamma and tau; two rates and seeds, one cell missing.

    FQ of GRU is -10 gamma - tau (none: 3) - seed, 20 worse at the other learning rate; MU is always above the bar.
    """
    trials: list[str] = []
    for method in ("ga", "gd"):
        for seed in (0, 1):
            name = f"{len(trials):012x}"
            trials.append(write_trial(store, name, method, NONE, fq=-15.0 - seed, mu=0.85, seed=seed))
            for gamma in (0.05, 0.4, 0.8):
                for tau in (None, 0.1, 1.0):
                    for lr in (0.001, 0.002):
                        if (method, gamma, tau) == ("gd", 0.8, 1.0):
                            continue
                        fq = -10 * gamma - (3.0 if tau is None else tau) - seed - 20 * (lr == 0.002)
                        given = {"fq": fq, "mu": 0.85, "seed": seed, "lr": lr}
                        rectifier = GRU | {"gamma": gamma, "tau": tau}
                        trials.append(write_trial(store, f"{len(trials):012x}", method, rectifier, **given))
    write_sweep(store, trials, splits=("forget05",))
    return store


@pytest.fixture(scope="module")
def grid_results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return read(write_grid(tmp_path_factory.mktemp("grid")))

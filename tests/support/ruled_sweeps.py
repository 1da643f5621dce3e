"""Invented sweeps whose values follow a rule: of several rectifiers over seeds, and over gamma and tau.

Beside them the paper's numbers, read without the code. A test module takes a fixture by importing it.
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis import paper
from analysis.stats.sweep_results import SweepResults
from tests.support import sweep_store
from tests.support.sweep_store import GRU, NONE, calibrated, read, write_sweep, write_trial

Value = Callable[[str, str, int, float], tuple[float, float] | None]
"""FQ and MU of a method, rectifier, seed and learning rate; None: the trial diverged."""
NAMES = ("none", "gru", "sago", "blur")


def write_arena(
    store: Path,
    value: Value,
    *,
    names: Iterable[str] = NAMES,
    methods: Mapping[str, Iterable[str]] | None = None,
    seeds: Mapping[float, Iterable[int]] | None = None,
    mixed: bool = False,
    extraction: bool = False,
    **given: Any,
) -> SweepResults:
    """Write methods with their rectifiers (`names`, if `methods` says nothing else) at the seeds of each learning rate.

    `given` is for the sweep's file.
    """
    ids = []
    for method, rectifiers in (methods or {"npo": tuple(names)}).items():
        for name in rectifiers:
            for lr, numbers in (seeds or {1e-3: range(10)}).items():
                for seed in numbers:
                    found = value(method, name, seed, lr)
                    rectifier = {"name": name, "gamma": 0.8 if name == "gru" else None, "tau": None}
                    fields: dict[str, Any] = {"seed": seed, "lr": lr}
                    if found is None:
                        fields |= {"status": "diverged", "error": sweep_store.DIVERGED, "metrics": {}}
                    else:
                        metrics = {"forget_quality": found[0], "model_utility": found[1]}
                        metrics |= {"forget_extraction_strength": -found[0] / 100} if extraction else {}
                        fields |= {"metrics": metrics} | ({"calibration": calibrated(*found)} if mixed else {})
                    ids.append(write_trial(store, f"{len(ids):012x}", method, rectifier, **fields))
    write_sweep(store, ids, name="arena", splits=("forget05",), **given)
    return read(store)


FQ = "forget_quality"


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
def grid_results(tmp_path_factory: pytest.TempPathFactory) -> SweepResults:
    return read(write_grid(tmp_path_factory.mktemp("grid")))

"""One long frame of a sweep's results, in the columns of the paper's tables."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import paper
from tests.support import sweep_store
from tests.support.sweep_store import GRU, NONE, Results, read, write_sweep, write_trial

store, results = sweep_store.tiny_store, sweep_store.tiny_results


def one(frame: pd.DataFrame, **where: object) -> dict[Hashable, Any]:
    for column, value in where.items():
        frame = frame.loc[frame[column] == value]
    assert len(frame) == 1, where
    return frame.to_dict("records")[0]


def test_every_setting_has_a_row_a_metric(results: Results) -> None:
    tiny, published = results.frame, paper.load_table("tofu_main")
    assert list(tiny.columns) == list(published.columns)
    assert [str(tiny[column].dtype) for column in published] == [str(dtype) for dtype in published.dtypes]
    rows = tiny.loc[tiny["metric"] == "forget_quality"]
    assert len(rows) == 2 * (9 + 2)  # settings and reference models on two splits
    first = one(rows, split="forget05", method="gd", rectifier="gru", gamma="0.05", tau="1")
    assert (first["value"], first["n"], first["chosen"]) == (-3.0, 2, False)  # seeds: -4 and -2
    assert first["sd"] == pytest.approx(np.sqrt(2))
    other = one(rows, split="forget05", method="gd", rectifier="gru", gamma="0.8", tau="none")
    assert (other["value"], other["chosen"]) == (-8.0, True)
    plain = one(rows, split="forget05", method="ga", rectifier="none")
    assert (plain["gamma"], plain["tau"], plain["value"], plain["n"]) == ("", "", -22.0, 1)  # its second seed failed
    lost = one(tiny, split="forget10", method="npo", gamma="0.05", metric="model_utility")  # diverged and missing
    assert (lost["n"], lost["chosen"], np.isnan(lost["value"])) == (0, False, True)
    original = one(tiny, split="forget10", method="original", metric="model_utility")
    assert (original["value"], original["rectifier"], original["n"], original["chosen"]) == (0.9, "none", 1, True)


def test_clipping_has_a_tau_and_no_gamma(tmp_path: Path) -> None:
    rectifiers = [NONE, {"name": "clip", "gamma": None, "tau": 100.0}, GRU | {"gamma": None, "tau": 0.001}]
    trials = [write_trial(tmp_path, f"{n:012x}", "ga", r, fq=-1.0, mu=0.1) for n, r in enumerate(rectifiers)]
    write_sweep(tmp_path, trials, splits=())
    found = read(tmp_path).frame
    rows = found.loc[found["metric"] == "model_utility", ["rectifier", "gamma", "tau"]]
    assert rows.to_numpy().tolist() == [["none", "", ""], ["clip", "", "100"], ["gru", "none", "0.001"]]

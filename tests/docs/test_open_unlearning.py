"""The counts and figures of docs/open_unlearning.md."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.support import pages
from tests.support.environment import ROOT

PAGE = "docs/open_unlearning.md"


def count_edited_steps(rows: int, *, micro_batch: int = 4, accumulated: int = 8, epochs: int = 5) -> tuple[int, int]:
    """Return how many optimizer steps take a gradient edited in time, and how many there are.

    The edit runs whenever the micro-batches since the beginning of training are a multiple of `accumulated`; the
    trainer steps at every multiple since the beginning of the epoch, and at its end, and ends after as many steps as
    all micro-batches would make.
    """
    batches, seen, edited, steps = -(-rows // micro_batch), 0, 0, 0
    most = epochs * batches // accumulated
    for _ in range(epochs):
        for batch in range(1, batches + 1):
            seen += 1
            if steps < most and (batch % accumulated == 0 or batch == batches):
                steps += 1
                edited += seen % accumulated == 0
    return edited, steps


@pytest.mark.parametrize(("split", "rows"), [("forget01", 40), ("forget05", 200), ("forget10", 400)])
def test_edited_steps(split: str, rows: int) -> None:
    edited, steps = count_edited_steps(rows)
    text = " ".join(pages.read(PAGE).split())
    assert f"{edited} of {steps}" in text, (split, edited, steps)


def test_rates_are_the_arenas() -> None:
    trials = pd.read_csv(ROOT / "docs/arena/tables/trials.csv")
    trials = trials[(trials["method"] == "ga") & trials["rectifier.name"].isin(["none", "gru"])]
    columns = ["model_utility", "forget_extraction_strength"]
    means = trials.groupby(["rectifier.name", "training.lr"])[columns].mean()
    for lr, utility, strength in pages.rows(pages.read(PAGE), "rate |"):
        assert [f"{value:.3f}" for value in means.loc[("none", float(lr))]] == [utility, strength]
    for rate in ("3e-4", "6e-4"):
        pair = [f"{means.loc[(name, float(rate)), 'model_utility']:.3f}" for name in ("none", "gru")]
        text = " ".join(pages.read(PAGE).split())
        assert f"{pair[0]} without and {pair[1]} with GRU" in text or f"{pair[0]} and {pair[1]}" in text

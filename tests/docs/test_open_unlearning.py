"""The counts of docs/open_unlearning.md."""

from __future__ import annotations

import pytest

from tests.support import pages


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
    text = " ".join(pages.read("docs/open_unlearning.md").split())
    assert f"{edited} of {steps}" in text, (split, edited, steps)

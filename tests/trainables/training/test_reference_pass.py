"""NPO's pass of the target model before the first step: over the rows that the trial draws, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support import tiny
from trainables.common.tokenized_row import Example
from trainables.config.settings import Resources, Training
from trainables.data import text_blocks
from trainables.methods import method_constants, objectives, rectifiers
from trainables.training import engine, forward_backward, loop, sampling
from trainables.training.runtime import prepare_process

TEXTS, STEPS, BATCH, SEED = 60, 2, 4, 3


class Read(Sequence[Example]):
    """Rows that note which of them are asked for."""

    def __init__(self) -> None:
        texts = [tiny.text(k, 3 + k % 5) for k in range(TEXTS)]
        self.rows = text_blocks.TextRows(tiny.tokenizer(), texts, 64)
        self.seen: set[int] = set()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Any) -> Any:
        self.seen.add(at)
        return self.rows[at]


def task(rows: Sequence[Example], method: str = "npo", micro_batch: int | None = None) -> loop.TrainingTask:
    return loop.TrainingTask(
        forget=rows,
        retain=rows,
        objective=objectives.make_objective(method, method_constants.Constants()),
        rectifier=rectifiers.make_rectifier("none", None, None),
        training=Training(lr=1e-3, max_steps=STEPS, epochs=20, batch_size=BATCH),
        seed=SEED,
        pad=2,
        micro_batch=micro_batch,
    )


def drawn() -> set[int]:
    return {row for step in range(STEPS) for row in sampling.forget_batch(SEED, step, 0, TEXTS, BATCH)}


def test_only_the_rows_that_are_drawn_are_read_and_run() -> None:
    """Eight of sixty; training reads no others either."""
    rows, network = Read(), tiny.network(layers=1)
    prepare_process(Resources(cpus=1), SEED)
    runner = engine.create_engine(network.train(), task(rows).training, Resources())
    state = loop.initial_state(runner, task(rows))
    assert rows.seen == drawn()
    assert len(rows.seen) == STEPS * BATCH
    assert state.reference is not None
    assert set(state.reference) == drawn()
    assert len(list(loop.train(runner, task(rows), state))) == STEPS
    assert rows.seen == drawn()
    runner.close()


@pytest.mark.parametrize(("size", "world"), [(1, 1), (3, 1), (1, 3)])
def test_sums_are_those_of_a_pass_over_all_rows(size: int, world: int) -> None:
    """Also where ranks share the rows out: each leaves 0 for those of the others."""
    rows, network, numbers = Read(), tiny.network(layers=1), sorted(drawn())
    whole = forward_backward.row_sums(tiny.PlainEngine(network), rows, range(TEXTS), task(rows), 1)
    engines = [tiny.PlainEngine(network, rank, world) for rank in range(world)]
    parts = [forward_backward.row_sums(each, rows, numbers, task(rows), size) for each in engines]
    for row in numbers:
        (found,) = [part[row] for part in parts if part[row] != 0]
        assert found == (whole[row] if size == 1 else pytest.approx(whole[row], rel=1e-5))

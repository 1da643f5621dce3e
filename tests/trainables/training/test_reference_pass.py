"""NPO's pass of the target model before the first step: over the rows that the trial draws, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from search_spaces.backbones.zephyr import ZEPHYR
from tests.support import tiny
from trainables.common.tokens import Example
from trainables.config.settings import Model, Rectifier, Resources, Training
from trainables.config.trial import Trial
from trainables.data import text_blocks
from trainables.methods import objectives, presets, rectifiers
from trainables.training import effective_batch, engine, flops, loop, sampling
from trainables.training.runtime import prepare_process

TEXTS, STEPS, BATCH, SEED = 60, 2, 4, 3


class Read(Sequence[Example]):
    """Rows that note which of them are asked for."""

    def __init__(self) -> None:
        texts = [tiny.text(k, 3 + k % 5) for k in range(TEXTS)]
        self.rows = text_blocks.Texts(tiny.tokenizer(), texts, 64)
        self.seen: set[int] = set()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Any) -> Any:
        self.seen.add(at)
        return self.rows[at]


class Runner:
    """Rank `rank` of `world`, whose sums stay its own."""

    def __init__(self, inner: Any, rank: int = 0, world: int = 1) -> None:
        self.inner, self.rank, self.world = inner, rank, world
        self.device = torch.device("cpu")

    def total(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        raise AssertionError("a reference pass has no backward pass")


def task(rows: Sequence[Example], method: str = "npo", micro_batch: int | None = None) -> loop.TrainingTask:
    return loop.TrainingTask(
        forget=rows,
        retain=rows,
        objective=objectives.make_objective(method, presets.Constants()),
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


@pytest.mark.parametrize("size", [1, 3])
def test_sums_are_those_of_a_pass_over_all_rows(size: int) -> None:
    rows, network = Read(), tiny.network(layers=1)
    few, all_rows = (
        effective_batch.row_sums(Runner(network), rows, part, task(rows), size)
        for part in (sorted(drawn()), range(TEXTS))
    )
    for row, value in few.items():
        assert value == (all_rows[row] if size == 1 else pytest.approx(all_rows[row], rel=1e-5))


def test_three_ranks_share_the_rows_out() -> None:
    rows, network, numbers = Read(), tiny.network(layers=1), sorted(drawn())
    whole = effective_batch.row_sums(Runner(network), rows, numbers, task(rows), 1)
    parts = [effective_batch.row_sums(Runner(network, rank, 3), rows, numbers, task(rows), 1) for rank in range(3)]
    for row in numbers:
        found = [part[row] for part in parts if part[row] != 0]
        assert found == [whole[row]]


def test_a_row_without_a_sum_is_refused() -> None:
    rows, network = Read(), tiny.network(layers=1)
    asked = task(rows)
    plan: list[effective_batch.TermRows] = [(asked.objective.terms[0], rows, [5])]
    with pytest.raises(KeyError, match="5"):
        effective_batch.accumulate_gradient(Runner(network), plan, asked, {4: 1.0})


def test_another_attempt_takes_rows_that_have_a_sum() -> None:
    asked = task(Read())
    for attempt in range(1, 10):
        again = asked.forget_batch(0, attempt)
        assert set(again) <= drawn()
        assert len(set(again)) == BATCH


def test_over_an_epoch_every_row_is_drawn() -> None:
    assert sampling.sampled_rows(SEED, 15, TEXTS, BATCH) == list(range(TEXTS))
    assert sampling.sampled_rows(SEED, 100, TEXTS, BATCH) == list(range(TEXTS))


def test_the_plan_counts_the_rows_that_are_drawn() -> None:
    """Zephyr, 20 steps of 32 rows: a forward pass over as many, however large the corpus is."""
    shape, tokens = ZEPHYR.shape, 1024.0
    found = {}
    for points in (20 * 32, 25_000):
        for method in ("ga", "npo"):
            config = Trial(
                method=method,  # type: ignore[arg-type]
                target=Model(path="m"),
                training=Training(epochs=20, max_steps=20, batch_size=32),
                rectifier=Rectifier(),
            )
            found[method, points] = flops.operations(config, shape, points, tokens)
    assert found["npo", 25_000] == found["npo", 640]
    extra = found["npo", 25_000] - found["ga", 25_000]
    assert extra == pytest.approx(2 * shape.parameters * 640 * tokens)

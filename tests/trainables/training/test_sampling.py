"""Which rows a step sees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.common.tokenized_row import Example
from trainables.training import sampling

unhurried = settings(deadline=None, max_examples=60)
seeds = st.integers(0, 2**31)
sizes = st.integers(1, 40)


def stream(seed: int, rows: int, batch: int, steps: int) -> list[int]:
    return [row for step in range(steps) for row in sampling.forget_batch(seed, step, 0, rows, batch)]


@unhurried
@given(seeds, sizes, sizes)
def test_forget_stream_is_permutations_one_after_another(seed: int, rows: int, batch: int) -> None:
    epochs = 3
    found = stream(seed, rows, batch, steps=epochs * rows // batch + 1)[: epochs * rows]
    for start in range(0, epochs * rows, rows):
        assert sorted(found[start : start + rows]) == list(range(rows))


@unhurried
@given(seeds, sizes, sizes, sizes)
def test_the_stream_does_not_depend_on_the_batch_size(seed: int, rows: int, one: int, other: int) -> None:
    length = min(3 * one, 3 * other)
    steps = [length // size + 1 for size in (one, other)]
    assert stream(seed, rows, one, steps[0])[:length] == stream(seed, rows, other, steps[1])[:length]


@unhurried
@given(seeds, st.integers(0, 1000), st.integers(0, 9), sizes, sizes)
def test_batches_are_functions_of_seed_step_and_attempt(
    seed: int, step: int, attempt: int, rows: int, batch: int
) -> None:
    """Whatever was drawn before, from any generator."""
    first = [draw(seed, step, attempt, rows, batch) for draw in (sampling.forget_batch, sampling.retain_batch)]
    sampling.forget_batch(seed + 1, step + 1, attempt + 1, rows, batch)
    again = [draw(seed, step, attempt, rows, batch) for draw in (sampling.forget_batch, sampling.retain_batch)]
    assert first == again
    for found in first:
        assert len(found) == batch
        assert all(isinstance(row, int) and 0 <= row < rows for row in found)


@unhurried
@given(seeds, st.integers(0, 100), st.integers(0, 8))
def test_seeds_steps_attempts_and_sides_differ(seed: int, step: int, attempt: int) -> None:
    draws = [
        tuple(draw(seed + more, step + later, attempt + again, 10_000, 16))
        for draw in (sampling.forget_batch, sampling.retain_batch)
        for more in range(2)
        for later in range(2)
        for again in range(2)
    ]
    assert len(set(draws)) == len(draws)


def test_retain_rows_are_uniform_with_replacement() -> None:
    drawn = [row for step in range(400) for row in sampling.retain_batch(0, step, 0, 10, 32)]
    counts = [drawn.count(row) for row in range(10)]
    assert counts == pytest.approx([1280] * 10, rel=0.1)  # three standard deviations are 8 %
    assert any(len(set(sampling.retain_batch(0, step, 0, 40, 32))) < 32 for step in range(3))


@pytest.mark.parametrize(
    ("rows", "batch", "epochs", "most", "steps"),
    [
        (200, 32, 5, None, 31),  # forget05: 1000 rows are 31 batches and a quarter
        (200, 32, 5, 7, 7),
        (200, 32, 5, 1000, 31),
        (10, 32, 1, None, 1),  # never none
        (200, 32, 0.5, None, 3),
    ],
)
def test_steps_are_whole_batches(rows: int, batch: int, epochs: float, most: int | None, steps: int) -> None:
    assert sampling.count_steps(rows, batch, epochs, most) == steps


def answered(seed: int, rows: int, answers: int) -> sampling.AnsweredRows:
    """Rows whose other answer tells row and phrase in its tokens."""
    own = [Example((9, row), 1) for row in range(rows)]
    phrases = [str(number) for number in range(answers)]
    return sampling.AnsweredRows(own, phrases, lambda row, phrase: Example((7, row, int(phrase)), 1), seed)


@unhurried
@given(seeds, sizes, sizes, st.integers(0, 5))
def test_another_answer_is_a_function_of_seed_epoch_and_row(seed: int, rows: int, answers: int, epoch: int) -> None:
    made, again = answered(seed, rows, answers), answered(seed, rows, answers)
    for row in reversed(range(rows)):
        found = made[epoch * rows + row]
        assert (found.input_ids, found.answer_start) == ((9, row), 1)
        assert found.other.input_ids[:2] == (7, row)
        assert found.other == again[epoch * rows + row].other
    assert [row.input_ids for row in made] == [(9, row) for row in range(rows)]


@unhurried
@given(seeds, sizes, sizes)
def test_a_row_has_one_answer_an_epoch_whatever_the_batch_size(seed: int, rows: int, batch: int) -> None:
    """Also where a batch holds the end of one epoch and all of another."""
    made = answered(seed, rows, 3)
    items = [
        item
        for step in range(3 * rows // batch + 1)
        for item in made.number(sampling.forget_batch(seed, step, 0, rows, batch), step * batch)
    ]
    for epoch in range(len(items) // rows):
        assert sorted(items[epoch * rows : (epoch + 1) * rows]) == list(range(epoch * rows, (epoch + 1) * rows))

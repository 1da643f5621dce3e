"""Which rows a step sees."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.common.tokenized_row import Example
from trainables.config.settings import Training
from trainables.training import sampling

unhurried = settings(max_examples=60)
seeds = st.integers(0, 2**31)
sizes = st.integers(1, 40)


def stream(seed: int, rows: int, batch: int, steps: int) -> list[int]:
    return [row for step in range(steps) for row in sampling.draw_forget_row_numbers(seed, step, 0, rows, batch)]


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
@given(seeds, st.integers(0, 100), st.integers(0, 8))
def test_batches_are_functions_of_seed_step_attempt_and_side(seed: int, step: int, attempt: int) -> None:
    def draw_all() -> list[tuple[int, ...]]:
        return [
            tuple(draw(seed + more, step + later, attempt + again, 10_000, 16))
            for draw in (sampling.draw_forget_row_numbers, sampling.draw_retain_row_numbers)
            for more, later, again in itertools.product(range(2), repeat=3)
        ]

    assert draw_all() == draw_all()
    assert len(set(draw_all())) == 16


def test_retain_rows_are_uniform_with_replacement() -> None:
    drawn = [row for step in range(400) for row in sampling.draw_retain_row_numbers(0, step, 0, 10, 32)]
    counts = [drawn.count(row) for row in range(10)]
    assert counts == pytest.approx([1280] * 10, rel=0.1)  # three standard deviations are 8 %
    assert any(len(set(sampling.draw_retain_row_numbers(0, step, 0, 40, 32))) < 32 for step in range(3))


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
    training = Training(batch_size=batch, epochs=epochs, max_steps=most)
    assert sampling.count_steps(training, rows) == steps


def answered(seed: int, rows: int, answers: int) -> sampling.AlternativeAnswerRows:
    """Rows whose other answer tells row and phrase in its tokens."""
    own = [Example((9, row), 1) for row in range(rows)]
    phrases = [str(number) for number in range(answers)]
    return sampling.AlternativeAnswerRows(own, phrases, lambda row, phrase: Example((7, row, int(phrase)), 1), seed)


@unhurried
@given(seeds, sizes, sizes, st.integers(0, 5))
def test_another_answer_is_a_function_of_seed_epoch_and_row(seed: int, rows: int, answers: int, epoch: int) -> None:
    made, again = answered(seed, rows, answers), answered(seed, rows, answers)
    for row in reversed(range(rows)):
        found = made[epoch * rows + row]
        assert (found.input_ids, found.other.input_ids[:2]) == ((9, row), (7, row))
        assert found.other == again[epoch * rows + row].other

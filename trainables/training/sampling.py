"""The rows of an optimizer step: a function of (seed, step, attempt) alone, whatever the ranks or micro-batches.

Forget rows come as a stream of permutations, one an epoch, cut into batches. Retain rows are uniform with
replacement, one for each forget row (as TOFU's published code draws them). A second attempt at a step
(the paper's remark to Theorem 1: draw another batch) takes random rows of those that the run's first attempts take.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainables.common.tokenized_row import Example, RowWithAlternativeAnswer
from trainables.config.settings import Training

FORGET_STREAM, RETAIN_STREAM, RETRY_STREAM, NOISE_STREAM, ANSWER_STREAM = 1, 2, 3, 4, 5


@dataclass(frozen=True, eq=False)
class AlternativeAnswerRows(Sequence[Example]):
    """Rows with another answer beside their own, drawn anew each epoch: item `epoch * len(rows) + row`.

    The answer is a function of (seed, epoch, row) alone. `encode` turns a row's number and an answer into tokens.
    """

    rows: Sequence[Example]
    answers: Sequence[str]
    encode: Callable[[int, str], Example]
    seed: int

    def __len__(self) -> int:
        """Return the number of rows, whatever the epochs."""
        return len(self.rows)

    def __iter__(self) -> Iterator[Example]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, at: Any) -> Any:
        epoch, row = divmod(at, len(self))
        drawn = int(_generator(self.seed, ANSWER_STREAM, epoch, row).integers(len(self.answers)))
        own = self.rows[row]
        return RowWithAlternativeAnswer(own.input_ids, own.answer_start, other=self.encode(row, self.answers[drawn]))


def draw_forget_row_numbers(seed: int, step: int, attempt: int, rows: int, batch_size: int) -> list[int]:
    """Return the row numbers of the effective forget batch of `step` (from 0)."""
    if attempt > 0:
        draw = _generator(seed, RETRY_STREAM, step, attempt)
        return draw.choice(rows, size=batch_size, replace=batch_size > rows).tolist()
    stream: list[int] = []
    start = step * batch_size
    epoch, offset = divmod(start, rows)
    while len(stream) < offset + batch_size:
        stream.extend(_generator(seed, FORGET_STREAM, epoch, 0).permutation(rows).tolist())
        epoch += 1
    return stream[offset : offset + batch_size]


def draw_retain_row_numbers(seed: int, step: int, attempt: int, rows: int, batch_size: int) -> list[int]:
    """Return the row numbers of the effective retain batch of `step` (from 0)."""
    return _generator(seed, RETAIN_STREAM, step, attempt).integers(rows, size=batch_size).tolist()


def make_noise_seed(seed: int, step: int, attempt: int, rank: int) -> int:
    """Return the 64-bit seed of dropout and the like, for one attempt: a resumed trial takes the same."""
    return int(np.random.SeedSequence([seed, NOISE_STREAM, step, attempt, rank]).generate_state(1, np.uint64)[0])


def count_steps(training: Training, rows: int) -> int:
    """Count optimizer steps of a run: epochs over the forget rows, whole batches only, at least one."""
    planned = max(1, int(training.epochs * rows) // training.batch_size)
    return min(planned, training.max_steps or planned)


def _generator(seed: int, stream: int, step: int, attempt: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, stream, step, attempt])))

"""What a process that runs one trial after another keeps from one to the next: values that nothing ever changes.

Each is named by all that it is made from, so that a warm process computes what a fresh one does, bit for bit. What is
not known by its content (a model or rows without a fingerprint) is made anew, and so is everything on many ranks: they
would have to agree on what each of them still has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from trainables import benchmarks
from trainables.benchmarks import Examples
from trainables.config.trial import Trial
from trainables.training import loop
from trainables.training.engine import Engine

MOST = 4
"""Values that are kept: a sweep's studies take turns, and the rows of a corpus are no small thing."""


class Kept:
    """The values that were asked for last, `most` of them."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.values: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """The value of this name, made where it is not there. What `make` raises keeps nothing."""
        if name not in self.values:
            self.values[name] = make()
        self.values.move_to_end(name)
        while len(self.values) > self.most:
            self.values.popitem(last=False)
        return self.values[name]


ROWS, SUMS = Kept(), Kept()


def training_examples(trial: Trial, tokenizer: Any) -> tuple[Examples, Examples]:
    """Forget rows and retain rows as tokens."""
    longest = trial.training.max_length

    def make() -> tuple[Examples, Examples]:
        return benchmarks.find(trial.benchmark.name).training_examples(trial.benchmark, tokenizer, longest)

    return ROWS.get((*_known(trial), longest), make) if _known(trial) else make()


def begin(trial: Trial, training: Engine, task: loop.Task) -> loop.State:
    """The state before the first step, with the target model's S_i^0 where the objective needs them."""
    if not task.objective.needs_reference or not _known(trial):
        return loop.begin(training, task)
    size = (trial.training.max_length, trial.training.batch_size, trial.training.lora_rank, trial.training.lora_alpha)
    name = (
        *_known(trial),
        *size,
        task.micro_batch,
        training.stage,
        trial.resources.model_dump_json(),
        tuple(task.drawn()),
    )
    return loop.State(dict(SUMS.get(name, lambda: loop.begin(training, task).reference)))


def _known(trial: Trial) -> tuple[str, ...]:
    """Model and rows, where both are known by their content and one rank runs the trial; else nothing."""
    target, benchmark = trial.target, trial.benchmark
    if trial.resources.ranks > 1 or target.fingerprint is None or benchmark.fingerprint is None:
        return ()
    return target.model_dump_json(), benchmark.model_dump_json()

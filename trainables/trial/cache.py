"""What a process that runs one trial after another keeps from one to the next: values that nothing ever changes.

Each is named by all that it is made from, so that a warm process computes what a fresh one does, bit for bit. A model
or rows without a fingerprint are loaded anew, and so is everything on many ranks: they would have to agree on what
each of them still has.
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

SIZE = 4
"""Values kept: a sweep's studies take turns, and the rows of a corpus are large."""


class LRU:
    """The values that were asked for last."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self.values: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value of `key`, made if it is not kept. An error of `make` is not kept."""
        if key not in self.values:
            self.values[key] = make()
        self.values.move_to_end(key)
        while len(self.values) > self.size:
            self.values.popitem(last=False)
        return self.values[key]


EXAMPLES, REFERENCE_SUMS = LRU(), LRU()


def load_examples(trial: Trial, tokenizer: Any) -> tuple[Examples, Examples]:
    """Return forget rows and retain rows as tokens."""
    longest = trial.training.max_length

    def load() -> tuple[Examples, Examples]:
        return benchmarks.find(trial.benchmark.name).training_examples(trial.benchmark, tokenizer, longest)

    key = _fingerprints(trial)
    return EXAMPLES.get((*key, longest), load) if key else load()


def begin_training(trial: Trial, engine: Engine, task: loop.Task) -> loop.State:
    """Return the state before the first step, with the target model's S_i^0 if the objective needs them."""
    key = _fingerprints(trial)
    if not task.objective.needs_reference or not key:
        return loop.begin(engine, task)
    training = trial.training
    key += (
        training.max_length,
        training.batch_size,
        training.lora_rank,
        training.lora_alpha,
        task.micro_batch,
        engine.stage,
        trial.resources.model_dump_json(),
        tuple(task.drawn()),
    )
    return loop.State(dict(REFERENCE_SUMS.get(key, lambda: loop.begin(engine, task).reference)))


def _fingerprints(trial: Trial) -> tuple[Hashable, ...]:
    """Return model and rows if both are known by their content and one rank runs the trial, else nothing."""
    target, benchmark = trial.target, trial.benchmark
    if trial.resources.ranks > 1 or target.fingerprint is None or benchmark.fingerprint is None:
        return ()
    return target.model_dump_json(), benchmark.model_dump_json()

"""What a benchmark is: one base class with defaults, and the values that it speaks in."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trainables.common.errors import InputError, suggest_name
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark
from trainables.data import raw_rows
from trainables.data.conversations import Encoder, make_encoder
from trainables.data.hub_folders import HubRequirement
from trainables.data.raw_rows import Row

Records = list[dict[str, Any]]
Metrics = dict[str, float | int | None]
Examples = Sequence[Example]
TARGET_IS_OWN_REFERENCE = "itself"
"""The reference, and its id, of a target model that the others are measured against."""
MMLU_SHOTS = 5
"""Worked examples that each subject of MMLU has."""


@dataclass(frozen=True)
class Goal:
    """A metric that removal is weighed against retention by. `short` and `digits` are for one line of progress."""

    metric: str
    side: Literal["removal", "retention"]
    best: Literal["highest", "lowest"]
    short: str
    title: str
    digits: int = 3
    chance: float | None = None
    """What guessing reaches, where that is known: of questions with four answers a quarter."""

    def orient_value(self, value: float) -> float:
        """Return the value, turned so that more is better."""
        return value if self.best == "highest" else -value


@dataclass(frozen=True)
class TrainingSize:
    """How many rows there are to forget (None: not known), and tokens of a training row, on average and at most.

    `exact`: the number of rows is counted, and not what others have or what a tokenizer may make of texts.
    """

    points: int | None
    mean: float
    longest: int
    exact: bool = False


@dataclass(frozen=True)
class EvaluationSize:
    """How many tokens an evaluation reads, and how many it generates at most."""

    read: float = 0
    generated: float = 0


class BenchmarkBase(ABC):
    """A benchmark: its rows, its measures and its dialects; a subclass is in the file or folder of its name.

    It holds no state. A `reference` is what its metrics need of another model's evaluation.
    """

    GOALS: ClassVar[tuple[Goal, ...]]
    """Removal first, one goal of retention last."""
    SPLITS: ClassVar[Mapping[str, str]] = {}
    """Each split, and the hub id of its rows."""
    TAKES: ClassVar[tuple[str, ...]] = ()
    """Which of `holdout`, `sources`, `shots` and `tasks` it has."""
    TARGET: ClassVar[str] = "target"
    """The role of the target model, and the rows it is fine-tuned on."""
    FORGET_TASK: ClassVar[str] = "forget"
    """The task of the forget rows that measures are searched by."""
    COMPARED_TASKS: ClassVar[tuple[str, str]] = ("forget", "holdout")
    """The tasks of the forget and of the hold-out rows that membership is told by."""
    ASKS_BY_TEMPLATE: ClassVar[bool] = False
    """Whether questions are asked in `benchmark.template`, not as plain text or by lm-eval."""
    TEXT_CUTS: ClassVar[Mapping[str, Callable[..., Examples]]] = {}
    """By dialect, what makes examples of texts to train on, where they are no questions."""
    REFERENCE: ClassVar[str] = "retain"
    """The role of the model whose evaluation is the `reference`: the retain model, or `original`, the target model."""
    SEQUENCE: ClassVar[str] = ""
    """Splits that are unlearned one after another have a number behind it, from 1 on."""

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    def published_data_id(self, split: str) -> str:
        """Return the hub id of the rows. Raises InputError if there is no such split."""
        if split not in self.SPLITS:
            raise InputError(f"benchmark.split: unknown split '{split}'; {suggest_name(split, self.SPLITS)}")
        return self.SPLITS[split]

    def find_preceding_split(self, split: str) -> str | None:
        """Return the split whose unlearned model this one goes on from; None: from the target model."""
        match = re.fullmatch(f"{self.SEQUENCE}([0-9]+)", split) if self.SEQUENCE else None
        before = int(match[1]) - 1 if match else 0
        return f"{self.SEQUENCE}{before:0{len(match[1])}}" if match and before else None

    def retain_role(self, split: str) -> str | None:
        """Return the role of the retain model of a split, such as `retain95`; None: there is no retain model."""
        return None

    def list_data_configs(self, benchmark: Benchmark) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the configurations of the data set that training reads, and those that an evaluation reads."""
        return (), ()

    def check_settings(self, benchmark: Benchmark) -> None:
        """Raise InputError if a setting is none of this benchmark's. Reads no file."""
        self.published_data_id(benchmark.split)
        for name in ("holdout", "sources", "shots", "tasks"):
            if getattr(benchmark, name) and name not in self.TAKES:
                raise InputError(f"benchmark.{name}: {self.name} has no such setting; leave it out")
        if benchmark.shots > MMLU_SHOTS:
            raise InputError(f"benchmark.shots: MMLU has {MMLU_SHOTS} worked examples a subject, got {benchmark.shots}")

    @abstractmethod
    def check_rows(self, benchmark: Benchmark) -> None:
        """Raise InputError if folders do not hold what training and evaluation read. Leaves the hub alone."""

    def describe_odd_rows(self, benchmark: Benchmark) -> str | None:
        """Return what is odd in rows that can be used, None if nothing is. Leaves the hub alone."""
        return None

    def explain_nothing_to_remove(self, metrics: Metrics) -> str | None:
        """Return why the target model's metrics say that it knew nothing of the rows to forget; None: it may have."""
        return None

    def describe_outcome(self, metrics: Metrics, before: Metrics) -> str:
        """Return what a trial's metrics say beside the target model's, `before`, in words; empty: as its goals."""
        return ""

    def hub_requirements(self, benchmark: Benchmark) -> tuple[HubRequirement, ...]:
        """Return what a start has to fetch from the hub, each with the setting that names a folder instead."""
        return raw_rows.hub_requirements(benchmark.data, benchmark.revision)

    def fingerprint(self, benchmark: Benchmark, *, training: bool = True) -> str:
        """Name what all that a trial reads holds: `files:HASH` where a folder is among it, else `hub:ID@REVISION`.

        Without `training`: what an evaluation reads.
        """
        trained, evaluated = self.list_data_configs(benchmark)
        configs = (*trained, *evaluated) if training else evaluated
        return raw_rows.fingerprint_data_source(benchmark.data, configs, benchmark.revision)

    def fingerprint_shared_rows(self, benchmark: Benchmark) -> str:
        """Name the content of all rows that every split of a sweep reads."""
        return self.fingerprint(benchmark, training=False)

    @abstractmethod
    def estimate_training_size(self, benchmark: Benchmark, max_length: int) -> TrainingSize:
        """Return roughly how much there is to train on, before a tokenizer has read it: for plans."""

    def estimate_evaluation_size(self, benchmark: Benchmark) -> EvaluationSize:
        """Return roughly what an evaluation reads and generates, before a tokenizer has read it: for plans."""
        return EvaluationSize()

    @abstractmethod
    def training_rows(self, benchmark: Benchmark) -> tuple[list[Row], list[Row]]:
        """Return forget rows and retain rows as they are trained on, before any tokenizer."""

    def training_examples(self, benchmark: Benchmark, tokenizer: Any, max_length: int) -> tuple[Examples, Examples]:
        """Return forget rows and retain rows as tokens, at most `max_length` each; of texts by TEXT_CUTS."""
        encode: Callable[[Any], Examples]
        if self.ASKS_BY_TEMPLATE:
            encode = partial(self.make_encoder(benchmark, tokenizer).encode, max_length=max_length)
            sides = [[(row["question"], row["answer"]) for row in side] for side in self.training_rows(benchmark)]
        else:
            if benchmark.dialect not in self.TEXT_CUTS:
                raise InputError(f"benchmark.dialect: {self.name} has no TEXT_CUTS of {benchmark.dialect}")
            encode = partial(self.TEXT_CUTS[benchmark.dialect], tokenizer, length=max_length)
            sides = [[row["text"] for row in side] for side in self.training_rows(benchmark)]
        return encode(sides[0]), encode(sides[1])

    def check_rows_are_questions(self, benchmark: Benchmark) -> None:
        if not self.ASKS_BY_TEMPLATE:
            raise InputError(f"method: another answer needs questions to forget; {self.name} has texts")

    def make_encoder(self, benchmark: Benchmark, tokenizer: Any) -> Encoder:
        """Return what turns questions with their answers into tokens."""
        return make_encoder(benchmark.template, tokenizer)

    @abstractmethod
    def measure(
        self, network: Any, tokenizer: Any, benchmark: Benchmark, reference: Any, *, token_budget: int
    ) -> tuple[Metrics, Records]:
        """Return every metric, and the records it is made of. Raises TrialDiverged where the model has diverged."""

    def measure_some_rows(
        self, network: Any, tokenizer: Any, benchmark: Benchmark, reference: Any, *, token_budget: int, most: int
    ) -> tuple[Metrics, Records]:
        """Return what `measure` does, of `most` rows of each task: a quick look at a model that goes on training."""
        fewer = benchmark.model_copy(update={"limit": min(most, benchmark.limit or most)})
        return self.measure(network, tokenizer, fewer, reference, token_budget=token_budget)

    @abstractmethod
    def half_metrics(self, benchmark: Benchmark, half: Records, reference: Any, which: int) -> Metrics:
        """Return the metrics of `half`, `every_other(records, which)`, against that half of the reference."""

    def utility_by_row(self, benchmark: Benchmark, records: Records) -> list[NDArray[np.float64]]:
        """Return what the goal of retention, a harmonic mean, is made of: (rows, numbers) of each set of rows.

        Empty where it is made of more than records.
        """
        return []

    def make_reference_document(self, benchmark: Benchmark, records: Records) -> dict[str, Any]:
        """Return what an evaluation keeps beside its metrics, so that it can be a reference."""
        return {}

    def parse_reference(self, kept: Mapping[str, Any] | None, benchmark: Benchmark, where: str) -> Any:
        """Return the reference in a kept evaluation. Raises InputError, led by `where`, if it is of other rows."""
        raise InputError(f"{where}: {self.name} has no retain model to be measured against; leave it out")


def every_other(records: Records, which: int) -> Records:
    """Return of each task the records 0, 2, 4, ... (`which` 0) or 1, 3, 5, ... (1)."""
    return [record for record in records if record["index"] % 2 == which]


def validate_reference_evaluation(
    kept: Mapping[str, Any] | None, benchmark: Benchmark, where: str, fields: Sequence[str], digest_name: str
) -> Mapping[str, Any]:
    """Return a kept evaluation. Raises InputError if it is none, or was made with other values of `fields`."""
    if kept is None or digest_name not in kept:
        raise InputError(f"{where} is not the output of trainables.evaluate on {benchmark.name}")
    for name in fields:
        theirs, ours = kept["benchmark"].get(name), benchmark.model_dump(mode="json")[name]
        if theirs != ours:
            raise InputError(f"{where} was made with {name} '{theirs}', this evaluation has '{ours}'")
    return kept

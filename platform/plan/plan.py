"""A sweep resolved into trials, as a value. What a storage holds of it: platform.state.trial_outcomes."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from platform.plan.models import PlannedEvaluation
from platform.plan.spaces import StudySpace
from search_spaces.schema.sweep import Range, Sweep
from trainables.config.settings import Benchmark, ModelShape
from trainables.config.shared_artifacts import ModelRecipe
from trainables.config.trial import Trial
from trainables.data.hub_folders import HubRequirement
from trainables.training.memory import MemoryFit


@dataclass(frozen=True)
class StudyMemoryNeed:
    """The memory that the trials of one method, rectifier and split need."""

    method: str
    rectifier: str
    split: str
    fit: MemoryFit

    def to_json_dict(self) -> dict[str, Any]:
        parts = asdict(self.fit.peak)
        parts = parts.pop("states") | parts
        return {
            "method": self.method,
            "rectifier": self.rectifier,
            "split": self.split,
            "zero_stage": self.fit.stage,
            "micro_batch": self.fit.micro_batch,
            "bytes": {name: round(value) for name, value in parts.items()},
            "total_bytes": round(self.fit.peak.total),
            "limit_bytes": None if self.fit.limit is None else round(self.fit.limit),
        }


@dataclass(frozen=True)
class Plan:
    sweep: Sweep
    strategy: str
    hash: str
    trials: tuple[Trial, ...]
    """All that are known: of a space with ranges the published point, and those that earlier starts ran."""
    spaces: dict[str, StudySpace]
    benchmarks: dict[str, Benchmark]
    references: tuple[PlannedEvaluation, ...]
    recipes: tuple[ModelRecipe, ...]
    hub: tuple[HubRequirement, ...]
    budget: int | None = None
    """Trials of each study with `optuna`, None of another strategy."""
    needs: tuple[StudyMemoryNeed, ...] = ()
    """The memory of its kinds of trials; empty if the model's sizes are not known."""
    shape: ModelShape | None = None
    """Sizes of the target model, None where they are not known before it is fetched."""
    warnings: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """The studies that `--only` leaves out."""

    @property
    def largest_memory_need(self) -> StudyMemoryNeed | None:
        return max(self.needs, key=lambda need: need.fit.peak.total, default=None)

    @property
    def name(self) -> str:
        return f"{self.sweep.name}-{self.hash}"

    def trials_by_study(self) -> dict[str, list[Trial]]:
        found: dict[str, list[Trial]] = {}
        for trial in self.trials:
            found.setdefault(trial.study(), []).append(trial)
        return found

    def count_planned(self, study: str, known: int) -> int:
        """Return how many trials of a study are to be run in all starts, of which so many are known."""
        if self.budget is None:
            return known
        points = self.spaces[study].size if self.spaces[study].has_ranges else known
        return self.budget if points is None else min(self.budget, points)

    @cached_property
    def planned(self) -> dict[str, int]:
        """Return how many trials of each study are to be run in all starts."""
        return {name: self.count_planned(name, len(known)) for name, known in self.trials_by_study().items()}

    @property
    def has_ranges(self) -> bool:
        """Return whether trials are made up as the sweep runs."""
        return any(space.has_ranges for space in self.spaces.values())

    def label(self, trial: Trial) -> str:
        """Return a trial's readable name, with its values on the sweep's axes."""
        return trial.label(path for path, axis in self.sweep.axes.items() if isinstance(axis, Range) or len(axis) > 1)

    def backbone_name(self) -> str:
        """Return the name of the sweep's backbone if the target model has its sizes; else an empty text."""
        named, vocabulary = self.sweep.backbone, {"vocabulary": 0, "tied": False}  # which fine-tuning may extend
        if named is None or self.shape is None:
            return ""
        same = self.shape.model_copy(update=vocabulary) == named.shape.model_copy(update=vocabulary)
        return named.name if same else ""

"""A sweep resolved into trials, as a value. What a storage holds of it: platform.state.trial_outcomes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from platform.plan.models import PlannedEvaluation
from platform.plan.spaces import StudySpace
from search_spaces.schema.sweep import Range, Sweep
from trainables.config.settings import Benchmark, ModelShape
from trainables.config.shared_artifacts import ModelRecipe
from trainables.config.trial import Trial
from trainables.data.hub_folders import HubRequirement
from trainables.training.memory import MemoryFit


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
    budget: int | None
    """Trials of each study with `optuna`, None of another strategy."""
    needs: Mapping[str, MemoryFit]
    """The memory that each study's trials need at most; empty if the model's sizes are not known."""
    shape: ModelShape | None
    """Sizes of the target model, None where they are not known before it is fetched."""
    warnings: tuple[str, ...]
    left_out: tuple[str, ...]
    """The studies that `--only` leaves out."""

    @property
    def name(self) -> str:
        return f"{self.sweep.name}-{self.hash}"

    def group_trials_by_study(self) -> dict[str, list[Trial]]:
        found: dict[str, list[Trial]] = {}
        for trial in self.trials:
            found.setdefault(trial.study(), []).append(trial)
        return found

    @cached_property
    def planned(self) -> dict[str, int]:
        """Return how many trials of each study are to be run in all starts."""
        points = {name: len(known) for name, known in self.group_trials_by_study().items()}
        if self.budget is None:
            return points
        sizes = {name: self.spaces[name].size if self.spaces[name].has_ranges else points[name] for name in points}
        return {name: self.budget if size is None else min(self.budget, size) for name, size in sizes.items()}

    @property
    def has_ranges(self) -> bool:
        """Return whether trials are made up as the sweep runs."""
        return any(space.has_ranges for space in self.spaces.values())

    def label(self, trial: Trial) -> str:
        """Return a trial's readable name, with its values on the sweep's axes."""
        return trial.label(path for path, axis in self.sweep.axes.items() if isinstance(axis, Range) or len(axis) > 1)

    def find_backbone_name(self) -> str:
        """Return the name of the sweep's backbone if the target model has its sizes; else an empty text."""
        named, vocabulary = self.sweep.backbone, {"vocabulary": 0, "tied": False}  # which fine-tuning may extend
        if named is None or self.shape is None:
            return ""
        same = self.shape.model_copy(update=vocabulary) == named.shape.model_copy(update=vocabulary)
        return named.name if same else ""

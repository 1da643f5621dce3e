"""A sweep resolved into trials, as a value. What a storage holds of it: platform.state.sweep_state."""

from __future__ import annotations

from dataclasses import dataclass, field

from platform.plan.budget import Budget
from platform.plan.models import Reference
from platform.plan.space import Space
from search_spaces.schema.sweep import Sweep
from trainables.config.settings import Benchmark, Shape
from trainables.config.trial import Recipe, Trial
from trainables.data.hub import HubRequirement


@dataclass(frozen=True)
class Plan:
    """A sweep resolved into trials."""

    sweep: Sweep
    strategy: str
    hash: str
    trials: tuple[Trial, ...]
    """All that are known: of a space with ranges the published point, and those that earlier starts ran."""
    spaces: dict[str, Space]
    """The points of each study, by its name."""
    benchmarks: dict[str, Benchmark]
    references: tuple[Reference, ...]
    recipes: tuple[Recipe, ...]
    hub: tuple[HubRequirement, ...]
    """What it takes from the hub."""
    budget: int | None = None
    """Trials of each study with `optuna`."""
    costs: Budget = field(default_factory=Budget)
    shape: Shape | None = None
    """Sizes of the target model, None where they are not known before it is fetched."""

    @property
    def name(self) -> str:
        return f"{self.sweep.name}-{self.hash}"

    def studies(self) -> dict[str, list[Trial]]:
        """Return the trials of each study, by its name."""
        found: dict[str, list[Trial]] = {}
        for trial in self.trials:
            found.setdefault(trial.study(), []).append(trial)
        return found

    def backbone(self) -> str:
        """Return the name of the sweep's backbone if the target model has its sizes; else an empty text."""
        named, vocabulary = self.sweep.backbone, {"vocabulary": 0, "tied": False}  # which fine-tuning may extend
        if named is None or self.shape is None:
            return ""
        same = self.shape.model_copy(update=vocabulary) == named.shape.model_copy(update=vocabulary)
        return named.name if same else ""

    def retain_reference(self, split: str) -> Reference | None:
        """Return the evaluation of a split's retain model, None if the benchmark has no such model."""
        return next((ref for ref in self.references if ref.split == split and ref.role == "retain"), None)

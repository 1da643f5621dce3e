"""A sweep resolved into trials, as a value. What a storage holds of it: platform.state.sweep_state."""

from __future__ import annotations

from dataclasses import dataclass, field

from platform.plan.budget import Budget
from platform.plan.models import Reference, find_shape
from search_spaces.schema.sweep import Sweep
from trainables.config.settings import Benchmark, Shape
from trainables.config.trial import Recipe, Trial
from trainables.data.hub import HubRequirement
from trainables.storage.base import Storage


@dataclass(frozen=True)
class Plan:
    """A sweep resolved into trials."""

    sweep: Sweep
    strategy: str
    hash: str
    trials: tuple[Trial, ...]
    benchmarks: dict[str, Benchmark]
    references: tuple[Reference, ...]
    recipes: tuple[Recipe, ...]
    hub: tuple[HubRequirement, ...]
    """What it takes from the hub."""
    budget: int | None = None
    """Trials of each study with `optuna`."""
    costs: Budget = field(default_factory=Budget)

    @property
    def name(self) -> str:
        return f"{self.sweep.name}-{self.hash}"

    def studies(self) -> dict[str, list[Trial]]:
        """Return the trials of each study, by its name."""
        found: dict[str, list[Trial]] = {}
        for trial in self.trials:
            found.setdefault(trial.study(), []).append(trial)
        return found

    def target_shape(self, store: Storage) -> Shape | None:
        """Return the sizes of the target model, None where they are not known before it is fetched."""
        recipes = {str(store.model(recipe.id())): recipe for recipe in self.recipes}
        return find_shape(self.sweep, self.trials, recipes)

    def backbone(self, store: Storage) -> str:
        """Return the name of the sweep's backbone if the target model has its sizes; else an empty text."""
        named, shape = self.sweep.backbone, self.target_shape(store)
        same = named is not None and shape is not None and _body(shape) == _body(named.shape)
        return named.name if named is not None and same else ""

    def retain_reference(self, split: str) -> Reference | None:
        """Return the evaluation of a split's retain model, None if the benchmark has no such model."""
        return next((ref for ref in self.references if ref.split == split and ref.role == "retain"), None)


def _body(shape: Shape) -> Shape:
    """Return a model's sizes without its vocabulary, which fine-tuning may extend."""
    return shape.model_copy(update={"vocabulary": 0, "tied": False})

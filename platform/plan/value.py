"""A sweep resolved into trials, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from platform.plan import budget as budgets
from platform.plan.models import Reference
from platform.state import history as histories
from search_spaces.schema.sweep import Sweep
from trainables.config import trial as config
from trainables.config.settings import Benchmark, Shape
from trainables.config.trial import Direction, Recipe, Trial
from trainables.data.hub import HubRequirement
from trainables.storage import complete
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
    needs: tuple[str, ...] = ()
    done: frozenset[str] = frozenset()
    retry: tuple[str, ...] = ()
    """Outcomes whose trials run again."""
    retried: tuple[str, ...] = ()
    """Their ids, and those of lost trials; their results are set aside before that."""
    damaged: tuple[Path, ...] = ()
    """Result files that cannot be read: set aside, and their trials run again."""
    failed: tuple[tuple[str, str], ...] = ()
    """Ids and outcomes of trials that failed and count as done."""
    history: histories.History = field(default_factory=histories.History)
    budget: int | None = None
    costs: budgets.Budget = field(default_factory=budgets.Budget)

    @property
    def name(self) -> str:
        return f"{self.sweep.name}-{self.hash}"

    def backbone(self, store: Storage) -> str:
        """The name of the sweep's backbone where the target model has its sizes; empty where it is another model."""
        named = self.sweep.backbone
        if named is None or not self.trials:
            return ""
        recipes = {str(store.model(recipe.id())): recipe for recipe in self.recipes}
        shape = budgets.shape_of(self.sweep, self.trials[0], recipes)
        return named.name if shape is not None and _body(shape) == _body(named.shape) else ""

    @cached_property
    def left(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.id() not in self.done]

    @cached_property
    def outstanding(self) -> int:
        """How many trials a start has to run: `optuna` stops each study at its budget."""
        if self.strategy != "optuna" or self.budget is None:
            return len(self.left)
        done = {name: sum(trial.id() in self.done for trial in found) for name, found in self.studies().items()}
        return sum(max(0, min(self.budget, len(found)) - done[name]) for name, found in self.studies().items())

    def directions(self) -> list[Direction]:
        """The directions that the trials that are left move along, each once."""
        found = [config.direction(trial) for trial in self.left]
        return list({made.id(): made for made in found if made is not None}.values())

    def studies(self) -> dict[str, list[Trial]]:
        found: dict[str, list[Trial]] = {}
        for trial in self.trials:
            found.setdefault(trial.study(), []).append(trial)
        return found

    def compared(self, store: Storage) -> bool:
        """Whether every reference evaluation is there and can be used."""
        return all(complete.has_result(store.evaluation(ref.evaluation)) for ref in self.references)

    def retain_reference(self, split: str) -> Reference | None:
        return next((ref for ref in self.references if ref.split == split and ref.role == "retain"), None)


def _body(shape: Shape) -> Shape:
    """A model's sizes without its vocabulary, which fine-tuning may extend."""
    return shape.model_copy(update={"vocabulary": 0, "tied": False})

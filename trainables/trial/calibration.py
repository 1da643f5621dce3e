"""A trial's calibration (UWC): its unlearned model mixed with the target model until MU is what was asked for."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainables import benchmarks
from trainables.benchmarks import evaluation
from trainables.common.errors import TrialStopped
from trainables.config.settings import Model
from trainables.config.trial import Trial
from trainables.methods import uwc
from trainables.storage.base import Storage
from trainables.training import models, target_weights
from trainables.trial import step_selection

Metrics = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """The unlearned model and what it is measured with. `weights`: where it was saved, None where it was not."""

    trial: Trial
    network: Any
    tokenizer: Any
    reference: Any
    origin: target_weights.Originals
    store: Storage
    weights: Path | None

    @property
    def goals(self) -> tuple[benchmarks.Goal, ...]:
        return benchmarks.find(self.trial.benchmark.name).GOALS

    def utility(self, metrics: Metrics) -> float:
        """What is to be retained: MU on TOFU."""
        return float(metrics[self.goals[-1].metric])

    def told(self, metrics: Metrics) -> Metrics:
        return {goal.metric: metrics.get(goal.metric) for goal in self.goals}

    def evaluate(self) -> Metrics:
        """All metrics of the network as it is; a mixture that is not finite has no utility."""
        budget = self.trial.resources.evaluation_tokens
        try:
            return evaluation.evaluate(
                self.network, self.tokenizer, self.trial.benchmark, self.reference, token_budget=budget
            )[0]
        except TrialStopped:
            return {goal.metric: 0.0 if goal.side == "retention" else None for goal in self.goals}


def run(subject: Subject, unlearned: Metrics) -> Iterator[dict[str, Any]]:
    """Search the mixture of each target share; yields progress, and with the last event the `calibration`.

    The network is left as the last mixture that was evaluated.
    """
    for left in subject.store.trial(subject.trial.id()).glob(".unlearned-*"):  # of a process that was killed here
        shutil.rmtree(left, ignore_errors=True)
    saved = subject.weights or subject.store.trial(subject.trial.id()) / f".unlearned-{uuid.uuid4().hex[:8]}"
    try:
        if subject.weights is None:
            models.save(subject.network, subject.tokenizer, saved, {"trial": subject.trial.id()})
        yield from _search(subject, unlearned, target_weights.of(Model(path=str(saved))))
    finally:
        if subject.weights is None:
            shutil.rmtree(saved, ignore_errors=True)


def _search(subject: Subject, unlearned: Metrics, after: target_weights.Originals) -> Iterator[dict[str, Any]]:
    settings = subject.trial.calibration
    seen: dict[float, Metrics] = {1.0: unlearned, 0.0: _target(subject, after)}
    known = {weight: subject.utility(metrics) for weight, metrics in seen.items()}
    found: list[dict[str, Any]] = []

    def evaluate(weight: float) -> float:
        target_weights.mix(subject.network, after, subject.origin, weight)
        seen[weight] = subject.evaluate()
        return subject.utility(seen[weight])

    for target in sorted(settings.targets):
        yield {"phase": "calibration", "step": len(found) + 1, "steps": len(settings.targets)}
        outcome = uwc.search(target, target * known[0.0], known, evaluate, settings)
        metrics = seen[outcome.weight]
        found.append({**asdict(outcome), **subject.told(metrics), "metrics": metrics})
    whole = {
        "original_model_utility": known[0.0],
        "monotone": uwc.monotone(known, settings.tolerance),
        "evaluations": [{"weight": weight, **subject.told(seen[weight])} for weight in sorted(seen)],
        "targets": found,
    }
    yield {"phase": "calibration", "step": len(found), "steps": len(found), "calibration": whole}


def _target(subject: Subject, after: target_weights.Originals) -> Metrics:
    """The target model's metrics: its stored evaluation, made once for the sweep, else evaluated as w = 0."""
    kept = step_selection.original(subject.trial, subject.store)
    if kept:
        return kept["metrics"]
    target_weights.mix(subject.network, after, subject.origin, 0.0)
    return subject.evaluate()

"""A trial's calibration (UWC): its unlearned model mixed with the target model until MU is what was asked for."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Generator
from dataclasses import asdict
from typing import Any

from trainables import benchmarks
from trainables.common.errors import TrialStopped
from trainables.config.settings import Model
from trainables.methods import uwc
from trainables.training import model_files, weights_on_disk
from trainables.training.weights_on_disk import TargetWeights
from trainables.trial.record import Event
from trainables.trial.step_selection import Metrics, StepSelection, load_target_evaluation


def calibrate(steps: StepSelection, network: Any, unlearned: Metrics) -> Generator[Event, None, dict[str, Any]]:
    """Search the mixture for each target share of utility; yield progress, return the result's `calibration`.

    `unlearned`: the metrics of `network`, which is left as the last mixture that was evaluated.
    """
    folder = steps.folder.parent
    for left in folder.glob(".unlearned-*"):  # of a process that was killed here
        shutil.rmtree(left, ignore_errors=True)
    saved = steps.weights or folder / f".unlearned-{uuid.uuid4().hex[:8]}"
    try:
        if steps.weights is None:
            model_files.save_model(network, steps.tokenizer, saved, {"trial": steps.trial.id()})
        return (yield from _search(steps, network, unlearned, weights_on_disk.open_weights(Model(path=str(saved)))))
    finally:
        if steps.weights is None:
            shutil.rmtree(saved, ignore_errors=True)


def _search(
    steps: StepSelection, network: Any, unlearned: Metrics, after: TargetWeights
) -> Generator[Event, None, dict[str, Any]]:
    trial, settings = steps.trial, steps.trial.calibration
    before = weights_on_disk.open_weights(trial.target)
    goals = benchmarks.find(trial.benchmark.name).GOALS
    measured: dict[float, Metrics] = {1.0: unlearned}
    utility: dict[float, float] = {1.0: float(unlearned[goals[-1].metric])}

    def evaluate(weight: float) -> float:
        """Return the utility of a mixture; one that is not finite has none."""
        weights_on_disk.mix(network, after, before, weight)
        try:
            measured[weight], _ = steps.measure(network)
        except TrialStopped:
            measured[weight] = {goal.metric: 0.0 if goal.side == "retention" else None for goal in goals}
        return float(measured[weight][goals[-1].metric])

    def goal_metrics(weight: float) -> Metrics:
        return {goal.metric: measured[weight].get(goal.metric) for goal in goals}

    target = load_target_evaluation(trial, steps.store)
    if target:
        measured[0.0] = target["metrics"]
        utility[0.0] = float(target["metrics"][goals[-1].metric])
    else:
        utility[0.0] = evaluate(0.0)
    found: list[dict[str, Any]] = []
    for share in sorted(settings.targets):
        yield {"phase": "calibration", "step": len(found) + 1, "steps": len(settings.targets)}
        outcome = uwc.search_mixture(share, share * utility[0.0], utility, evaluate, settings)
        found.append({**asdict(outcome), **goal_metrics(outcome.weight), "metrics": measured[outcome.weight]})
    return {
        "original_model_utility": utility[0.0],
        "monotone": uwc.is_monotone(utility, settings.tolerance),
        "evaluations": [{"weight": weight, **goal_metrics(weight)} for weight in sorted(measured)],
        "targets": found,
    }

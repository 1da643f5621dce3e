"""A trial's calibration (UWC): its unlearned model mixed with the target model until MU is what was asked for."""

from collections.abc import Generator
from typing import Any

from trainables import benchmarks
from trainables.common.errors import InputError, TrialDiverged
from trainables.methods import uwc
from trainables.trial import weights_on_disk
from trainables.trial.record import TrialEvent
from trainables.trial.step_selection import Metrics, StepSelection, load_target_evaluation


def calibrate(steps: StepSelection, network: Any, unlearned: Metrics) -> Generator[TrialEvent, None, dict[str, Any]]:
    """Search the mixture for each target share of utility; yield progress, return the result's `calibration`."""
    trial, settings = steps.trial, steps.trial.calibration
    before = weights_on_disk.map_tensors_to_files(trial.target)
    after = {name: parameter.detach().to("cpu", copy=True) for name, parameter in network.named_parameters()}
    goals = benchmarks.get_benchmark(trial.benchmark.name).GOALS
    name = goals[-1].metric
    if unlearned[name] is None:
        raise InputError(f"calibration.targets: the trial's {name} is null, which cannot be searched for")
    measured: dict[float, Metrics] = {1.0: unlearned}
    utility = {1.0: float(unlearned[name])}

    def evaluate(weight: float) -> float:
        """Return the utility of a mixture; one that is not finite has none."""
        weights_on_disk.load_mixture(network, after, before, weight)
        try:
            measured[weight], _ = steps.measure_network(network)
        except TrialDiverged:
            measured[weight] = {goal.metric: 0.0 if goal.side == "retention" else None for goal in goals}
        return float(measured[weight][name])

    def goal_metrics(weight: float) -> Metrics:
        return {goal.metric: measured[weight].get(goal.metric) for goal in goals}

    target = None if trial.earlier_trial_id else load_target_evaluation(trial, steps.store)
    if target:  # of the model that is mixed: not the first of requests in a row
        measured[0.0] = target["metrics"]
        utility[0.0] = float(target["metrics"][name])
    else:
        utility[0.0] = evaluate(0.0)
    found: list[dict[str, Any]] = []
    for share in sorted(settings.targets):
        yield {"phase": "calibration", "step": len(found) + 1, "steps": len(settings.targets)}
        mixture = uwc.search_mixture(share * utility[0.0], utility, evaluate, settings)
        weight = mixture["weight"]
        found.append({"target": share, **mixture, **goal_metrics(weight), "metrics": measured[weight]})
    return {
        "original_model_utility": utility[0.0],
        "monotone": uwc.is_utility_monotone(utility, settings.tolerance),
        "evaluations": [{"weight": weight, **goal_metrics(weight)} for weight in sorted(measured)],
        "targets": found,
    }

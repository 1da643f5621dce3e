"""The disk that the rest of a sweep takes, whether there is room for it, and which trials keep weights (`--keep`).

The weights of the others are deleted as soon as a trial's end shows it.
"""

from collections import Counter

from platform.plan.plan import Plan
from platform.state.trial_outcomes import SweepState, read_target_utilities
from trainables import benchmarks
from trainables.benchmarks import selection
from trainables.common import typed_paths
from trainables.common.wording import format_bytes
from trainables.config.trial import Trial
from trainables.storage.file_names import EVALUATED_STATUSES, WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.training import model_files
from trainables.training.task_vectors import forget_batches

KEEP_CHOICES = ("all", "pareto", "best", "none")
"""`best` is the trial that the selection rule chooses; `pareto` keeps it, too."""
RESULT_BYTES_PER_TRIAL = 2 * 2**20
"""Measured on tofu_tiny: 0.4 MB of Parquet and JSON a trial, and its part of the MLflow store."""
CHECKPOINT_BYTES_PER_PARAMETER = {"fp32": 16, "bf16": 18}
"""Of a parameter: weights, AdamW's moments and GRU's average in fp32, with bf16 weights beside the fp32 ones."""


def forecast_disk_use(state: SweepState, store: Storage, choice: str, slots: int) -> dict[str, int]:
    """Return what the rest of a plan writes at least, in bytes by kind; models count if their sizes are known."""
    plan, parts = state.plan, {"results": RESULT_BYTES_PER_TRIAL * state.number_to_run}
    if plan.shape is None or not state.number_to_run:
        return parts
    resources, size = plan.sweep.resources, plan.shape.parameter_count
    weights = size * (4 if resources.precision == "fp32" else 2)
    missing = sum(not store.exists(store.model(recipe.id())) for recipe in plan.recipes)
    vectors = sum(not store.exists(forget_batches.direction_folder(made, store)) for made in state.directions)
    left = len({trial.study() for trial in state.remaining})
    kept = {"all": state.number_to_run, "pareto": left, "best": left, "none": 0}[choice]
    kept = max(kept, *Counter(trial.benchmark.split for trial in state.remaining if trial.earlier_id).values(), 0)
    parts |= {"models made": missing * size * 4, "directions": vectors * size * 4, "weights": kept * weights}
    if plan.sweep.export:
        before = set(map(benchmarks.get_benchmark(plan.sweep.benchmark.name).split_unlearned_before, plan.benchmarks))
        source = model_files.read_precision(typed_paths.expand_home(plan.trials[0].target.path))
        width = (
            4 if "fp32" in (source, resources.precision) else 2
        )  # fp32 trials are rounded only where nothing is lost
        parts["exports"] = len(plan.benchmarks.keys() - before) * size * width
    if resources.checkpoint_every:
        parts["checkpoints"] = slots * 2 * size * CHECKPOINT_BYTES_PER_PARAMETER[resources.precision]
    return {name: part for name, part in parts.items() if part}


def describe_forecast(parts: dict[str, int]) -> str:
    each = ", ".join(f"{name} {format_bytes(part)}" for name, part in parts.items())
    return f"{format_bytes(sum(parts.values()))} ({each})"


def describe_shortage(state: SweepState, store: Storage, choice: str, slots: int) -> str | None:
    """Say what the disk lacks for the forecast, and what helps; None: there is room."""
    parts, free = forecast_disk_use(state, store, choice, slots), store.count_free_bytes()
    if sum(parts.values()) <= free:
        return None
    lacks = f"at least {describe_forecast(parts)} will come, {format_bytes(free)} are free"
    return f"disk: {lacks}; what helps: another disk, a smaller --keep, fewer trials (--only)"


class WeightPruner:
    """Reduces the weights of a sweep's trials to `choice`, of those of earlier starts at once."""

    def __init__(self, plan: Plan, store: Storage, choice: str) -> None:
        self.plan, self.store, self.choice = plan, store, choice
        self.trials = {trial.id(): trial for trial in plan.trials}
        self.utilities = read_target_utilities(plan, store)
        for study in plan.trials_by_study():
            self.prune_study(study)

    def prune_after_trial(self, trial: Trial) -> None:
        """Delete the weights that are not kept any more, of a trial's study and of the trial that it goes on from."""
        self.trials[trial.id()] = trial
        self.prune_study(trial.study())
        if trial.earlier_id:
            self.prune_study(self.trials[trial.earlier_id].study())

    def prune_study(self, study: str) -> None:
        """Delete the weights of a study's measured trials that `choice` does not keep."""
        known = [key for key, trial in self.trials.items() if trial.study() == study]
        found = {key for key in known if self.store.has_weights(key)}
        if self.choice == "all" or not found:
            return
        benchmark, rule = self.plan.sweep.benchmark.name, self.plan.sweep.selection
        results = {key: result for key in known if (result := self.store.result(key))}
        points = selection.list_goal_gains(results, benchmark)
        keep = set(selection.pareto_front_ids(points)) if self.choice == "pareto" else set()
        candidates = selection.list_candidates(results, benchmark, rule)
        best = selection.pick_candidate(candidates, self.utilities.get(study.split("/")[0]), rule)
        if best and self.choice != "none":
            keep.add(best.key)
        keep |= {  # those that did not end with a model, lost or failed ones, may run again
            trial.earlier_id
            for key, trial in self.trials.items()
            if trial.earlier_id and (self.store.result(key) or {}).get("status") not in EVALUATED_STATUSES
        }
        for key in found & {key for key, *_ in points} - keep:
            self.store.remove(self.store.trial(key) / WEIGHTS)

"""The description of a plan by a dry run, as lines or as JSON, and the disk that a plan takes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from platform.plan import costs
from platform.plan.plan import Plan
from platform.schedule.capacity import TOLERANCE
from platform.state.trial_outcomes import SweepState
from platform.sweep.hub_download import describe_start_needs
from search_spaces.schema.sweep import Range
from trainables import benchmarks
from trainables.benchmarks.own import row_files, row_scores
from trainables.common import typed_paths
from trainables.common.wording import format_bytes, format_count, format_duration
from trainables.storage.folder_storage import Storage
from trainables.training import model_files, sampling

RESULT_BYTES_PER_TRIAL = 2 * 2**20
"""Measured on tofu_tiny: 0.4 MB of Parquet and JSON a trial, and its part of the MLflow store."""
CHECKPOINT_BYTES_PER_PARAMETER = {"fp32": 16, "bf16": 18}
"""Of a parameter: weights, AdamW's moments and GRU's average in fp32, with bf16 weights beside the fp32 ones."""


def format_dry_run(state: SweepState, document: dict[str, Any], slots: int) -> Iterator[str]:
    """Yield the lines of a dry run; `document` is the plan as JSON."""
    plan, resources = state.plan, state.plan.sweep.resources
    yield f"{plan.name}: {plan.sweep.title}"
    counted, known = format_count(sum(study["trials"] for study in document["studies"]), "trial"), len(plan.trials)
    if plan.has_ranges:
        axes = dict(item for space in plan.spaces.values() for item in space.axes.items())
        ranges = ", ".join(f"{path}={axis}" for path, axis in axes.items() if isinstance(axis, Range))
        counted += f" ({known} known, Optuna chooses the others in {ranges})"
    elif plan.strategy == "optuna":
        counted += f" of {format_count(known, 'point')}"
    yield f"strategy {plan.strategy}, {counted}, {len(state.done)} done"
    for study in document["studies"]:
        noun = "trial " if study["trials"] == 1 else "trials"
        yield f"  {study['study']:28} {study['trials']:4} {noun}  {study['done']:4} done"
    if plan.left_out:
        yield f"--only leaves out {len(plan.left_out)} of the studies, such as {plan.left_out[-1]}"
    if plan.sweep.benchmark.name == "own":
        for benchmark in dict.fromkeys(trial.benchmark for trial in plan.trials):
            forget, retain = map(len, row_files.read_training_rows(benchmark))
            most, sets = benchmark.limit or row_scores.DEFAULT_ROW_LIMIT, row_files.read_evaluation_rows(benchmark)
            asked = ", ".join(f"{min(len(rows), most)} {name}" for name, rows in sets.items() if rows)
            file = Path(benchmark.places["forget"]).name
            yield f"rows of {benchmark.split} ({file}): {forget} to forget, {retain} to retain; measured: {asked}"
        yield f"prompt template: {plan.sweep.benchmark.template}"
    each = f"{resources.cpus} CPU, {resources.gpus:g} GPU"
    many = f"{resources.ranks} ranks, each {each}" if resources.ranks > 1 else f"1 rank, {each}"
    how = f"{resources.precision}, compiled" if resources.compile else resources.precision
    yield f"each trial: {many}, {how}{_describe_steps(plan)}"
    most = max(document["memory"], key=lambda one: one["total_bytes"], default=None)
    if most is None:
        yield "memory: known when the model is there (its sizes are in its config.json)"
    else:
        limit = "" if most["limit_bytes"] is None else f" of {most['limit_bytes'] / 1e9:.1f} usable"
        kind = "{method}, {rectifier}, {split}; ZeRO {zero_stage}, micro-batch {micro_batch}".format(**most)
        yield f"memory of a rank: {most['total_bytes'] / 1e9:.2f} GB{limit} ({kind})"
    if 0 < resources.gpus < 1 and most:
        whole = f" of {resources.gpu_memory:g} GB" if resources.gpu_memory else ""
        each = f"{most['total_bytes'] / 1e9:.1f} GB{whole} each"
        yield f"{format_count(int(1 / resources.gpus + TOLERANCE), 'trial')} run side by side on each GPU ({each})"
    if document["seconds"] is not None:
        hours = [f"{document[name] or 0:.4g}" for name in ("gpu_hours", "preparation_gpu_hours")]
        told = f"{hours[0]} GPU-hours of trials and {hours[1]} of preparation, " if document["gpu_hours"] else ""
        passed = f"about {format_duration(document['seconds'])} with {format_count(slots, 'trial')} at a time"
        name = resources.gpu_name or costs.find_local_gpu_name() or "A100"
        beside = "; attacks (stress.attacks) come on top" * bool(plan.sweep.stress.attacks)
        yield f"{told}{passed}, as {f'an {name} takes' if resources.gpus else 'idle cores take'}{beside}"
    made = format_count(len(plan.recipes), "model"), format_count(len(plan.references), "reference evaluation")
    yield f"made once: {' and '.join(made)}"
    parts = f"at least {describe_disk_forecast(document['disk'])}" if document["disk_bytes"] else "nothing more"
    yield f"storage {document['storage']}: {parts} to come, {format_bytes(document['disk_free_bytes'])} free"
    if aside := document["set_aside"]:
        yield f"--new sets the results of {format_count(aside, 'trial')} aside"
    if state.retried:
        yield f"{format_count(len(state.retried), 'failed trial')} to run again"
    if state.failed_outcomes:
        counts = "failed and counts" if len(state.failed_outcomes) == 1 else "failed and count"
        yield f"{format_count(len(state.failed_outcomes), 'trial')} {counts} as done; --retry-failed runs them again"
    if warning := state.warning():
        yield f"warning: {warning}"
    for path in state.damaged:
        yield f"damaged: {path}; its trial runs again"
    yield from (f"needs: {need}" for need in document["needs"])


def _describe_steps(plan: Plan) -> str:
    """Return how many steps trials take; empty if that is not known."""
    counts = set()
    trials = {(trial.benchmark, trial.training): trial for trial in plan.trials if not trial.task_vector}
    for trial in trials.values():
        points = costs.estimate_row_sizes(plan.sweep, trial)[0].points
        if points is not None:
            counts.add(sampling.count_steps(trial.training, points))
    if not counts:
        return ""
    least, most = min(counts), max(counts)
    shown = f", {format_count(most, 'step') if least == most else f'{least} to {most} steps'}"
    every = plan.sweep.training.eval_every
    return f"{shown} (without a choice among them: training.eval_every={every})" if every and every >= most else shown


def _estimate_time(state: SweepState, store: Storage, slots: int) -> dict[str, Any]:
    """Return the GPU-hours of all trials and of what comes before, and the seconds of what is left; None: not known."""
    plan, resources, shape = state.plan, state.plan.sweep.resources, state.plan.shape
    every = costs.estimate_seconds_of_all_trials(plan, shape) if shape else None
    if every is None or shape is None:
        return {"gpu_hours": None, "preparation_gpu_hours": None, "seconds": None}
    recipes = [recipe for recipe in plan.recipes if not store.exists(store.model(recipe.id()))]
    missing = sum(store.read_evaluation(reference.evaluation) is None for reference in plan.references)
    made = costs.estimate_preparation_seconds(plan, shape, recipes, missing)
    left = costs.SWEEP_START_SECONDS + made
    left += every / sum(plan.planned.values()) * max(1, state.number_to_run / slots)
    hours = [part * resources.ranks * resources.gpus / 3600 if resources.gpus else None for part in (every, made)]
    return {"gpu_hours": hours[0], "preparation_gpu_hours": hours[1], "seconds": left if state.number_to_run else None}


def make_dry_run_document(
    state: SweepState, store: Storage, kept: str, slots: int, *, aside: int = 0, lacks: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the plan and what is done of it as JSON. `aside`: trials whose results `--new` sets aside."""
    plan = state.plan
    parts = forecast_disk_use(state, store, kept, slots)
    shortage = describe_disk_shortage(state, store, kept, slots)
    return {
        "sweep": plan.sweep.name,
        "hash": plan.hash,
        "title": plan.sweep.title,
        "strategy": plan.strategy,
        "budget": plan.budget,
        "storage": store.location,
        "trials": [
            {"id": trial.id(), "label": plan.label(trial), "study": trial.study(), "done": trial.id() in state.done}
            for trial in plan.trials
        ],
        "studies": [
            {"study": name, "trials": plan.planned[name], "done": state.count_done_among(known)}
            for name, known in plan.group_trials_by_study().items()
        ],
        "axes": plan.sweep.model_dump(mode="json", include={"axes"})["axes"],
        "models": [recipe.id() for recipe in plan.recipes],
        "resources": plan.sweep.resources.model_dump(mode="json"),
        "memory": [costs.convert_memory_fit_to_json(study, fit) for study, fit in plan.needs.items()],
        **_estimate_time(state, store, slots),
        "disk_bytes": sum(parts.values()),
        "disk": parts,
        "disk_free_bytes": store.count_free_bytes(),
        "retried": list(state.retried),
        "failed": state.failed_outcomes,
        "damaged": [str(path) for path in state.damaged],
        "warning": state.warning(),
        "set_aside": aside,
        "needs": [*lacks, *describe_start_needs(plan.sweep, plan.hub, store), *filter(None, [shortage])],
    }


def forecast_disk_use(state: SweepState, store: Storage, choice: str, slots: int) -> dict[str, int]:
    """Return what the rest of a plan writes at least, in bytes by kind; models count if their sizes are known."""
    plan, parts = state.plan, {"results": RESULT_BYTES_PER_TRIAL * state.number_to_run}
    if plan.shape is None or not state.number_to_run:
        return parts
    resources, size = plan.sweep.resources, plan.shape.parameter_count
    weights = size * (4 if resources.precision == "fp32" else 2)
    missing = sum(not store.exists(store.model(recipe.id())) for recipe in plan.recipes)
    vectors = sum(not store.exists(store.direction(made.id())) for made in state.directions)
    left = len({trial.study() for trial in state.remaining})
    kept = {"all": state.number_to_run, "pareto": left, "best": left, "none": 0}[choice]
    kept = max(kept, *Counter(trial.benchmark.split for trial in state.remaining if trial.earlier_trial_id).values(), 0)
    parts |= {"models made": missing * size * 4, "directions": vectors * size * 4, "weights": kept * weights}
    if plan.sweep.export:
        before = set(map(benchmarks.get_benchmark(plan.sweep.benchmark.name).find_preceding_split, plan.benchmarks))
        source = model_files.read_stated_precision(typed_paths.expand_home(plan.trials[0].target.path))
        width = 4 if "fp32" in (source, resources.precision) else 2  # fp32 is rounded only where nothing is lost
        parts["exports"] = len(plan.benchmarks.keys() - before) * size * width
    if resources.checkpoint_every:
        parts["checkpoints"] = slots * 2 * size * CHECKPOINT_BYTES_PER_PARAMETER[resources.precision]
    return {name: part for name, part in parts.items() if part}


def describe_disk_forecast(parts: dict[str, int]) -> str:
    each = ", ".join(f"{name} {format_bytes(part)}" for name, part in parts.items())
    return f"{format_bytes(sum(parts.values()))} ({each})"


def describe_disk_shortage(state: SweepState, store: Storage, choice: str, slots: int) -> str | None:
    """Say what the disk lacks for the forecast, and what helps; None: there is room."""
    parts, free = forecast_disk_use(state, store, choice, slots), store.count_free_bytes()
    if sum(parts.values()) <= free:
        return None
    lacks = f"at least {describe_disk_forecast(parts)} will come, {format_bytes(free)} are free"
    return f"disk: {lacks}; what helps: another disk, a smaller --keep, fewer trials (--only)"

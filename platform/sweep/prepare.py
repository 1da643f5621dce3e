"""What trials share, made once as Ray tasks: data, models, reference evaluations, directions."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ray.exceptions
from ray.train import TrainingFailedError

from platform.plan.plan import Plan
from platform.state.lock import call_periodically_in_thread
from platform.state.trial_outcomes import SweepState, read_target_evaluations, read_target_utilities
from trainables.benchmarks import get_benchmark, selection
from trainables.benchmarks.own import kept_answers
from trainables.benchmarks.own.row_files import are_model_answers_ready
from trainables.common.cli import print_line
from trainables.common.errors import extract_last_error_line
from trainables.common.wording import format_duration
from trainables.config.method_tables import METHODS
from trainables.data import fictional
from trainables.storage.atomic_files import write_folder, write_recipe_file
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import RETRAINED
from trainables.trial.progress import describe_shared_progress
from trainables.workers import ray_processes, shared_artifacts

PROGRESS_PRINT_SECONDS = 20.0


def prepare_shared_artifacts(state: SweepState, store: Storage, strategy: str) -> None:
    """Make what is missing, ranks placed by Ray's `strategy`. Raises what a task raised, InputError included."""
    plan, authors = state.plan, state.plan.sweep.fictional
    source = next(iter(plan.benchmarks.values()))
    if authors is not None and source.is_fictional:
        folder = Path(source.data)
        store.fetch(folder)
        if not folder.is_dir():
            print_line(f"making {authors.authors} fictional authors")
            with write_folder(folder) as staging:
                fictional.write_fictional_authors(staging, **authors.model_dump())
                write_recipe_file(staging, {})
        if not store.exists(folder):
            store.push(folder)
    waiting = [recipe for recipe in plan.recipes if not store.exists(store.model(recipe.id()))]
    while waiting:  # models that need no other one are fine-tuned at the same time
        paths = {str(store.model(recipe.id())) for recipe in waiting}
        ready = [recipe for recipe in waiting if recipe.base is None or recipe.base.path not in paths]
        resources, made = plan.sweep.resources, {}
        gpus = min(1, resources.gpus)
        make: Any = ray.remote(shared_artifacts.ensure_recipe_model).options(num_cpus=1, num_gpus=gpus)
        for recipe in ready:
            name = f"the model for {recipe.configs[0]}"
            print_line(f"training {name} ({recipe.training.epochs:g} epochs, once)")
            task = make.remote(recipe, store.location, gpus, resources.micro_batch)
            made[task] = recipe.id(), f"{name} is trained"
        _wait_for(made, store)
        waiting = [recipe for recipe in waiting if recipe not in ready]
    _make_evaluations(plan, store)
    _warn_of_weak_targets(plan, store)
    _make_directions(state, store, strategy)
    store.download_sweeps_and_results()


def _make_evaluations(plan: Plan, store: Storage) -> None:
    """Evaluate the models first that the others are measured against; a baseline may fail."""
    resources = plan.sweep.resources.model_copy(update={"ranks": 1, "gpus": min(1, plan.sweep.resources.gpus)})
    make: Any = ray.remote(shared_artifacts.ensure_evaluation).options(num_cpus=1, num_gpus=resources.gpus)
    for role in ("retain", "original", RETRAINED, "baseline"):
        made = {}
        for ref in (ref for ref in plan.references if ref.role == role):
            benchmark = plan.benchmarks[ref.split]
            if store.read_evaluation(ref.evaluation) is not None and are_model_answers_ready(benchmark):
                continue
            print_line(f"evaluating the {role} model on {ref.split} (once)")
            task = make.remote(ref.model, benchmark, ref.against, store.location, resources)
            made[task] = ref.evaluation, f"the {role} model is evaluated on {ref.split}"
        try:
            _wait_for(made, store)
        except ray.exceptions.RayError as error:
            if role != "baseline":
                raise
            why = extract_last_error_line(error)
            print_line(f"warning: the baseline model is not evaluated, the trials run without it: {why}")


def _wait_for(tasks: Mapping[Any, tuple[str, str]], store: Storage) -> None:
    """Say when each task has ended. `tasks`: the id of what each makes, and what to say at its end."""
    begun, waiting = time.monotonic(), list(tasks)
    while waiting:
        ended, waiting = ray.wait(waiting, timeout=PROGRESS_PRINT_SECONDS)
        for task in ended:
            ray.get(task)
            print_line(f"{tasks[task][1]} (after {format_duration(time.monotonic() - begun)})")
        if not ended:
            lines = describe_shared_progress(store, [tasks[task][0] for task in waiting])
            print_line("\n".join(lines) or "waiting for free CPUs or GPUs (`ray status` tells what is free)")


def _warn_of_weak_targets(plan: Plan, store: Storage) -> None:
    """Say where the target's utility is 0, its template does not fit, or it knows nothing that is to be removed."""
    for split, utility in read_target_utilities(plan, store).items():
        if utility == 0 and (why := selection.explain_missing_utility_bar(utility, plan.sweep.selection)):
            print_line(f"warning: {split}: {why}; more or other retain rows may give a bar to go by")
    for found in read_target_evaluations(plan, store).values():
        nothing = get_benchmark(plan.sweep.benchmark.name).explain_nothing_to_remove(found.get("metrics") or {})
        for advice in filter(None, [*kept_answers.explain_unmeasured_sets(found), found.get("advice"), nothing]):
            print_line(f"warning: target: {advice}")


def _make_directions(state: SweepState, store: Storage, strategy: str) -> None:
    """Make one direction for all strengths; where one cannot be made, the trials that need it fail."""
    plan, resources = state.plan, state.plan.sweep.resources
    make: Any = ray.remote(shared_artifacts.ensure_shared_task_vector)
    make = make.options(num_cpus=resources.cpus, num_gpus=min(1, resources.gpus))
    started: list[Callable[[], object]] = []
    for direction in state.directions:
        if store.exists(store.direction(direction.id())):
            continue
        methods = [row.name for row in METHODS.values() if row.strength and row.batched == direction.rectified]
        limited = {study: fit.micro_batch for study, fit in plan.needs.items() if fit.limit is not None}
        fitting = [rows for study, rows in limited.items() if study.rsplit("/", 2)[1] in methods]
        rows = resources.micro_batch or min(fitting, default=plan.sweep.training.batch_size)
        kind, count = ("TRU", direction.vector.batches) if direction.rectified else ("TV", 1)
        print_line(f"making {kind}'s direction for {direction.benchmark.split}, {count} task vector(s) (once)")
        given = (direction, store.location, resources, rows)
        if resources.ranks > 1:
            run, name = partial(shared_artifacts.ensure_shared_task_vector, *given), f"direction-{direction.id()}"
            started.append(partial(ray_processes.run_on_ranks, name, store, run, resources, strategy))
        else:
            started.append(partial(ray.get, make.remote(*given)))
    for finish in started:
        try:
            with call_periodically_in_thread(lambda: print_line("directions are being made"), PROGRESS_PRINT_SECONDS):
                finish()
        except (ray.exceptions.RayTaskError, TrainingFailedError) as error:
            print_line(f"no direction: {extract_last_error_line(error)}")

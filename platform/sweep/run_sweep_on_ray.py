"""The part of a start that needs Ray: preparation, Tune over the trials that are left and their order, the export."""

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import ray.exceptions
from ray import tune
from ray.tune.execution import class_cache
from ray.tune.search import Searcher
from rich.console import Console

from platform.schedule import ray_session
from platform.schedule.ray_environment import resolve_ray_address
from platform.schedule.studies import OptunaStudy, orient_goals_of_result
from platform.state import manifest
from platform.state.limits import StartOptions, SweepStopper
from platform.state.lock import call_periodically_in_thread
from platform.state.trial_outcomes import SweepState, count_trial_gpus, read_target_utilities
from platform.sweep import hub_download, prepare
from platform.sweep.chosen_trials import attack_chosen_trials, print_verdicts_and_export_chosen
from platform.sweep.trial_callback import ProgressScreen, SweepCallback, SweepProgress, WeightDeleter
from platform.tracking.mirror import MlflowMirror, start_mlflow_mirror
from trainables.common.cli import print_line
from trainables.common.deadlines import ANSWER_TIMEOUT
from trainables.common.errors import InputError
from trainables.common.redaction import SECRET_NAME_PATTERN
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage
from trainables.workers.ray_processes import RANK_LAUNCHER_RESOURCES, OneRankTrialActor, run_trial_of_ranks_in_tune


def run_sweep_on_ray(
    state: SweepState, store: Storage, command: str, stopper: SweepStopper, options: StartOptions
) -> MlflowMirror | None:
    """Prepare, run what is left, attack and export the chosen trials; return MLflow's thread, None if that failed."""
    plan, resources = state.plan, state.plan.sweep.resources
    gpus, mirror = count_trial_gpus(plan.trials[0].resources), None
    watch, resume = contextlib.ExitStack(), manifest.format_resume_command(command)
    try:
        growth = ray_session.join_or_start_ray(options.address)
        ray_session.wait_for_minimum_nodes(growth)
        ray_session.check_nodes_start_processes()
        look = partial(ray_session.watch_ray_head, ray.get_runtime_context().gcs_address, resume)
        if not resolve_ray_address(options.address).startswith("ray://"):  # a proxy: its head may be out of reach
            watch.enter_context(call_periodically_in_thread(look, ray_session.RAYLET_CHECK_SECONDS))
        slots, strategy = ray_session.choose_placement(growth, resources, options.max_concurrent)
        hub_download.fetch_requirements(plan.hub, store)
        with stopper.count_gpu_time_of_preparation(gpus):
            prepare.prepare_shared_artifacts(state, store, strategy)
        mirror = start_mlflow_mirror(manifest.write_manifest(state, store, command), store)
        if state.number_to_run:
            run_trials_on_tune(state, store, mirror, stopper, slots, strategy, options.keep)
        if plan.sweep.stress.attacks and not stopper.reason:
            with stopper.count_gpu_time_of_preparation(gpus):
                attack_chosen_trials(plan, store)
        if plan.sweep.export:
            print_verdicts_and_export_chosen(plan, store)
        mirror.close()
        return mirror
    except KeyboardInterrupt:
        if mirror is not None:  # else MLflow shows runs that nobody runs
            mirror.close(ANSWER_TIMEOUT)
        raise
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError | OSError):
            raise error.cause from None
        problem = f"preparation failed:\n{error}"
    except ray.exceptions.RayError as error:
        problem = f"Ray failed: {error}"
    finally:
        watch.close()
        ray_session.shut_down_ray()
    print_line(f"{problem}\ngo on with: {resume}")
    return None


def run_trials_on_tune(
    state: SweepState, store: Storage, mirror: MlflowMirror, stopper: SweepStopper, slots: int, strategy: str, keep: str
) -> None:
    """Run the trials that are left by Ray Tune, as far as the limits let them."""
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    ray_session.make_tune_retry_memory_kills()
    names = class_cache.ENV_VARS_TO_PROPAGATE
    names.difference_update(list(filter(SECRET_NAME_PATTERN.search, names)))  # Ray's log would hold their values
    plan, resources = state.plan, state.plan.sweep.resources
    search, total = make_trial_queue(state, store, stopper, strategy, keep), state.number_to_run
    screen = ProgressScreen(Console(force_terminal=sys.stdout.isatty()))  # FORCE_COLOR would make a terminal of a file
    done, failed = len(state.done), len(state.failed_outcomes)  # of earlier starts, too
    counts = SweepProgress(plan.name, total + done, slots, done - failed, failed, label=plan.label)
    keeper = WeightDeleter(plan, store, keep)
    reporter = SweepCallback(counts, store, mirror, stopper, keeper, screen, search.take_result)
    folder, name = store.root / "ray", f"{plan.name}-{os.getpid()}"
    run_config = tune.RunConfig(
        name=name,
        storage_path=str(folder),
        callbacks=[reporter, ray_session.RayFailureCallback()],
        verbose=0,
        failure_config=tune.FailureConfig(max_failures=ray_session.MAX_RESTARTS_WITHOUT_PROGRESS),
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
    )
    tune_config = tune.TuneConfig(search_alg=search, num_samples=total, max_concurrent_trials=slots, reuse_actors=True)
    trainable = tune.with_resources(run_trial_of_ranks_in_tune, RANK_LAUNCHER_RESOURCES)
    if resources.ranks == 1:
        trainable = tune.with_resources(OneRankTrialActor, {"cpu": resources.cpus, "gpu": resources.gpus})
    try:
        tune.Tuner(trainable, tune_config=tune_config, run_config=run_config).fit()
    except Exception:
        if not stopper.reason:  # else it stopped with its cause: a full disk has cut Tune's own notes off, too
            raise
    finally:
        screen.bars.stop()
        shutil.rmtree(folder / name, ignore_errors=True)
    for trial in state.remaining:
        key = trial.earlier_trial_id
        if key and store.has_result(key) and not store.has_weights(key):
            print_line(f"{plan.label(trial)} does not run: trial {key}, which it goes on from, left no model")


class FixedOrder:
    """Every trial once, in order; one that goes on from another's model when that has ended with one."""

    def __init__(self, trials: Sequence[Trial], has_model: Callable[[str], bool] = lambda key: True) -> None:
        self.waiting, self.budget, self.has_model = list(trials), len(trials), has_model
        self.unfinished = {trial.id() for trial in trials}

    @property
    def remaining(self) -> int:
        return len(self.waiting)

    def ask(self) -> Trial | None:
        """Return the next trial, None if none is left or none may begin yet."""
        for trial in list(self.waiting):
            if trial.earlier_trial_id in self.unfinished:
                continue
            self.waiting.remove(trial)
            if trial.earlier_trial_id is None or self.has_model(trial.earlier_trial_id):
                return trial
            self.unfinished.remove(trial.id())
        return None

    def tell_result(self, key: str, result: Mapping[str, Any] | None) -> None:
        """Let trials begin that go on from this one's model."""
        self.unfinished.remove(key)


class TrialQueue(Searcher):
    """Suggests trials to Tune. All studies take turns, so that none leaves the cluster idle.

    `begin`: called before each trial.
    """

    def __init__(
        self,
        studies: Iterable[FixedOrder | OptunaStudy],
        shared: dict[str, Any],
        stop_reason: Callable[[], str | None] = lambda: None,
        begin: Callable[[Trial], None] = lambda trial: None,
    ) -> None:
        super().__init__()
        self.studies: list[Any] = list(studies)
        self.shared, self.stop_reason, self.begin = shared, stop_reason, begin
        self.owner: dict[str, tuple[FixedOrder | OptunaStudy, str]] = {}

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial, of the study with most of its budget left; None: wait.

        It is one text without defaults, because Tune keeps several copies of each value.
        """
        if self.stop_reason():
            return Searcher.FINISHED
        open_studies = [study for study in self.studies if study.remaining]
        for study in sorted(open_studies, key=lambda one: -one.remaining / one.budget):
            if (trial := study.ask()) is not None:
                self.owner[trial_id] = (study, trial.id())
                self.begin(trial)
                return {"trial": trial.model_dump_json(exclude_defaults=True), **self.shared}
        return None if any(study.remaining for study in self.studies) else Searcher.FINISHED

    def take_result(self, trial_id: str, result: Mapping[str, Any] | None) -> None:
        """Let the trial's study learn from its result; None: it was lost."""
        study, key = self.owner.pop(trial_id)
        study.tell_result(key, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing: SweepCallback, called after this, reads the result from the storage."""


def make_trial_queue(state: SweepState, store: Storage, stopper: SweepStopper, strategy: str, keep: str) -> TrialQueue:
    """Return the order of the trials that are left."""
    plan = state.plan
    followed = any(trial.earlier_trial_id for trial in plan.trials)
    shared = {"storage": store.location, "keep": keep != "none" or followed, "strategy": strategy}
    if plan.strategy != "optuna":
        return TrialQueue([FixedOrder(state.remaining, store.has_weights)], shared, lambda: stopper.reason)
    finished, search = {}, plan.sweep.search
    for trial in plan.trials:
        if (result := store.result(key := trial.id())) is not None:
            finished[key] = orient_goals_of_result(trial, result, search.goals)
    unfinished = {*state.retried, *(key for trial in state.remaining if store.has_unfinished_run(key := trial.id()))}
    utilities = read_target_utilities(plan, store)
    studies = []
    for name, known in plan.group_trials_by_study().items():
        utility = utilities.get(known[0].benchmark.split)
        share = search.floor or known[0].training.kept_utility_share
        floor = None if share is None or not utility or utility <= 0 else share * utility
        budget, space = plan.planned[name], plan.spaces[name]
        studies.append(OptunaStudy(space, known, budget, finished, unfinished, search=search, floor=floor))
    begin = partial(manifest.add_trial_to_manifest, plan, store)
    return TrialQueue(studies, shared, lambda: stopper.reason, begin)

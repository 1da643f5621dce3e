"""Runs a plan: Ray, preparation, Tune over the trials that are left, the MLflow mirror, the report."""

from __future__ import annotations

import logging
import os
import shutil
import time
from typing import Any

from platform.driver import finish
from platform.plan.value import Plan
from platform.schedule import session
from platform.schedule.session import Room
from platform.state import manifest
from platform.state.limits import Limits, Stopper, load_spent, record_spent
from platform.state.sweep_state import SweepState, count_outcomes, has_references, scan
from platform.tracking import sync_state
from trainables import benchmarks
from trainables.common import provenance
from trainables.common.cli import format_count
from trainables.common.errors import InputError
from trainables.common.redaction import VARIABLES, redact
from trainables.config.settings import Resources
from trainables.storage import results as results_
from trainables.storage.base import Storage
from trainables.storage.results import gpus

NO_LIMITS = Limits()


def run(
    state: SweepState,
    store: Storage,
    *,
    command: str,
    address: str | None,
    max_concurrent: int | None,
    keep: str = "pareto",
    limits: Limits = NO_LIMITS,
) -> int:
    """Run what is left of a plan and return the exit status."""
    session.settle(address)
    plan = state.plan
    trials = format_count(len(plan.trials), "trial")
    say(f"sweep {plan.name}: {trials}, {len(state.done)} done, {state.outstanding} to run")
    say(f"storage {store.location}, {_commit()}")
    if warning := state.history.warning():
        say(f"warning: {warning}")
    started = time.monotonic()
    stopper = Stopper(limits, load_spent(state, store))
    if state.outstanding and stopper.reason:
        return max(_stopped(plan, store, stopper), int(bool(state.failed)))
    if state.outstanding or plan.sweep.export or not has_references(plan, store):
        with record_spent(stopper, store.spent(plan.sweep.name, plan.hash), store):
            mirror = _with_ray(state, store, command, stopper, address, max_concurrent, keep)
    elif sync_state.is_in_sync(document := manifest.write_manifest(state, store, command), store):
        return finish.end(plan, store, say)
    else:
        mirror = _mirrored(document, plan, store)
        mirror.close(count_outcomes(document, store))
    if mirror is None:
        return 1
    store.sync_trials(trial.id() for trial in plan.trials)  # results that could not be sent are sent now
    say(_ran(state, store, time.monotonic() - started))
    status = finish.end(plan, store, say)
    _show(plan, store, mirror)
    return max(status, _stopped(plan, store, stopper)) if stopper.reason else status


def _show(plan: Plan, store: Storage, mirror: Any) -> None:
    """The report in MLflow, and a note that all is there; or the command that mends what is not."""
    mirror.log_report()
    if mirror.problem is None:
        sync_state.mark_in_sync(manifest.load_sweep(plan.name, store), store)
        return
    first = str(mirror.problem).partition("\n")[0]
    behind = f"MLflow is behind ({first}); mend it with"
    say(f"{behind}: .venv/bin/python -m platform.tracking sync {plan.name}{manifest.storage_option(store)}")


def _with_ray(
    state: SweepState,
    store: Storage,
    command: str,
    stopper: Stopper,
    address: str | None,
    max_concurrent: int | None,
    keep: str,
) -> Any:
    """Preparation, trials that are left and export; returns the mirror, None where one failed."""
    from platform.preparation import hub

    plan = state.plan
    hub.check_reachable(plan, store, say)
    import ray.exceptions

    try:
        joined = session.start(address)
        joined.wait_for_nodes(say)
        joined.check(plan)
        return _all(state, store, command, stopper, joined.room(plan, max_concurrent, say), keep)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError | OSError):
            raise error.cause from None
        say(f"preparation failed:\n{error}")
    except ray.exceptions.RayError as error:
        say(f"Ray failed: {error}; go on with {manifest.resume_command(command)}")
    finally:
        ray.shutdown()
    return None


def _all(state: SweepState, store: Storage, command: str, stopper: Stopper, room: Room, keep: str) -> Any:
    from platform.driver import recommend
    from platform.preparation import hub, prepare

    plan = state.plan
    hub.fetch(plan, store, say)
    with stopper.preparing(gpus(plan.trials[0].model_dump(include={"resources"}))):
        prepare.prepare(state, store, say, room.strategy)
    document = manifest.write_manifest(state, store, command)
    mirror = _mirrored(document, plan, store)
    if state.outstanding:
        _tune(state, store, mirror, stopper, room, keep)
    if plan.sweep.export:
        recommend.recommend(plan, store, say)
    mirror.close(count_outcomes(document, store))
    return mirror


def _mirrored(document: dict[str, Any], plan: Plan, store: Storage) -> Any:
    """MLflow as the sweep's view, which has been told of every result; what kills left is removed."""
    from platform.tracking import tracker
    from platform.tracking.mirror import Mirror

    mirror = Mirror(lambda: tracker.connect(document, store))
    mirror.start()
    for old in (store.root / "ray").glob(f"{plan.name}-*"):  # Tune's state, of drivers that were killed
        shutil.rmtree(old, ignore_errors=True)
    for trial_id in document["trials"]:
        if store.has(trial_id):
            results_.remove_leftovers(store.trial(trial_id))
            mirror.add_trial(trial_id)
    return mirror


def _ran(state: SweepState, store: Storage, seconds: float) -> str:
    """How many trials this start has run, of how many that the sweep means to run."""
    ended = sum(store.has(trial.id()) for trial in state.left)
    return f"{ended} of {len(state.done) + state.outstanding} trials run in {seconds / 60:.1f} min"


def _stopped(plan: Plan, store: Storage, stopper: Stopper) -> int:
    """Say why the sweep ended before its trials did, and what is left of it; 1 where that is a failure, 3 else."""
    left = scan(plan, store).outstanding
    if not left:
        return 0
    say(f"stopped: {stopper.reason}; {format_count(left, 'trial')} left; {stopper.advice}")
    return 1 if stopper.fails_alike or stopper.unwritable else 3


def say(text: str) -> None:
    print(redact(text), flush=True)


def _commit() -> str:
    made = provenance.stamp()
    head = f"commit {made['commit']}{' (with uncommitted changes)' if made['dirty'] else ''}"
    return f"{head if made['commit'] else 'no git commit'}, code {made['code']}"


def _tune(state: SweepState, store: Storage, mirror: Any, stopper: Stopper, room: Room, keep: str) -> None:
    """Run the trials that are left, as far as the stopper lets them."""
    import ray
    from ray.tune.execution import class_cache

    from platform.driver import console
    from platform.driver import reporter as driver_reporter
    from platform.schedule import node_loss, raylet, searcher
    from platform.state import disk
    from platform.state import weights as keeping
    from trainables.workers.launcher import nodes

    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    class_cache.ENV_VARS_TO_PROPAGATE.difference_update(VARIABLES)  # Ray's log would hold their values
    plan = state.plan
    search, total = _searcher(state, store, searcher, keep, room.strategy, lambda: stopper.reason)
    standing = driver_reporter.Standing.of(state, total, room.slots)
    monitor = disk.DiskMonitor(keeping.make_keeper(plan, store, keep), stopper.limits.disk_bytes)
    screen = console.screen()
    waiting = driver_reporter.Waiting(session.needed(plan), ray.available_resources, room.coming)
    reporter = driver_reporter.Reporter(standing, store, mirror, monitor, stopper, screen, waiting)
    callbacks = [reporter, raylet.RayletWatch(), node_loss.Losses(nodes, screen.say)]
    folder, name = store.root / "ray", f"{plan.name}-{os.getpid()}"
    try:
        tuner = _tuner(plan, search, total, room.slots, str(folder), name, callbacks)
        try:
            tuner.fit()
        except Exception:
            if not stopper.reason:  # else it stopped with its cause: a full disk has cut Tune's own notes off, too
                raise
    finally:
        screen.close()
        shutil.rmtree(folder / name, ignore_errors=True)


def _tuner(plan: Plan, search: Any, total: int, slots: int, folder: str, name: str, callbacks: list[Any]) -> Any:
    """Tune over `total` trials, `slots` at a time, its own notes at `folder`/`name`."""
    from ray import tune

    from platform.schedule import node_loss

    return tune.Tuner(
        _trainable(plan.sweep.resources),
        tune_config=tune.TuneConfig(
            search_alg=search,
            num_samples=total,
            max_concurrent_trials=slots,
            reuse_actors=plan.sweep.resources.ranks == 1,
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=folder,
            callbacks=callbacks,
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=node_loss.TRIES),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )


def _trainable(resources: Resources) -> Any:
    """What runs a trial, with what Tune is to keep for it."""
    from ray import tune

    from trainables.workers.launcher import LAUNCHER, train_ranks
    from trainables.workers.trial_actor import TrialActor

    if resources.ranks == 1:
        return tune.with_resources(TrialActor, {"cpu": resources.cpus, "gpu": resources.gpus})
    return tune.with_resources(train_ranks, LAUNCHER)


def _searcher(
    state: SweepState, store: Storage, searcher: Any, keep: str, strategy: str, closed: Any
) -> tuple[Any, int]:
    plan = state.plan
    shared = {"storage": store.location, "keep": keep != "none", "strategy": strategy}
    if plan.strategy != "optuna":
        return searcher.Queue(state.left, shared, closed), len(state.left)
    finished: dict[str, Any] = {}
    for trial in plan.trials:
        result = store.result(trial.id())
        if result is not None:
            finished[trial.id()] = benchmarks.gains(trial.benchmark.name, result["metrics"])
    begun = {key for trial in state.left if store.under_way(key := trial.id())}
    studies = searcher.Studies(plan.studies().values(), plan.budget, finished, shared, closed, begun)
    return studies, studies.left

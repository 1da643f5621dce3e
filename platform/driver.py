"""Runs a plan: Ray, preparation, Tune over the trials that are left, the MLflow mirror, the report."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import platform.manifest as manifest
import platform.plan as planning
from platform.gate import Gate, Limits, spent
from platform.plan import Plan
from trainables import benchmarks, provenance, storage
from trainables.errors import InputError
from trainables.redaction import VARIABLES, redact
from trainables.storage import Storage

QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "8",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
NO_LIMITS = Limits()


def run(
    plan: Plan,
    store: Storage,
    *,
    command: str,
    address: str | None,
    max_concurrent: int | None,
    keep: str = "pareto",
    limits: Limits = NO_LIMITS,
) -> int:
    """Run what is left of a plan and return the exit status."""
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    done = len(plan.trials) - len(plan.left)
    say(f"sweep {plan.name}: {len(plan.trials)} trials, {done} done, {plan.outstanding} to run")
    say(f"storage {store.root}, {_commit()}")
    if warning := plan.history.warning():
        say(f"warning: {warning}")
    started = time.monotonic()
    gate = Gate(limits, _spent(plan, store))
    if plan.outstanding and gate.closed:
        return max(_stopped(plan, store, gate), int(bool(failures(plan, store))))
    if plan.outstanding or plan.sweep.export or not plan.compared(store):
        mirror = _with_ray(plan, store, command, gate, address, max_concurrent, keep)
    else:
        mirror, document = _mirrored(plan, store, command)
        mirror.close(manifest.counts(document, store))
    if mirror is None:
        return 1
    say(f"{len(plan.trials)} trials in {(time.monotonic() - started) / 60:.1f} min")
    status = _end(plan, store, failures(plan, store))
    mirror.report()
    if mirror.problem is not None:
        first = str(mirror.problem).partition("\n")[0]
        behind = f"MLflow is behind ({first}); mend it with"
        say(f"{behind}: .venv/bin/python -m platform.tracking sync {plan.name}{_place(store)}")
    return max(status, _stopped(plan, store, gate)) if gate.closed else status


def _with_ray(
    plan: Plan, store: Storage, command: str, gate: Gate, address: str | None, max_concurrent: int | None, keep: str
) -> Any:
    """Preparation, trials that are left and export; returns the mirror, None where one failed."""
    cpus = _start_ray(address)
    import ray.exceptions

    try:
        _check_resources(plan)
        return _all(plan, store, command, gate, _slots(plan, cpus, max_concurrent), keep)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError | OSError):
            raise error.cause from None
        say(f"preparation failed:\n{error}")
    except ray.exceptions.RayError as error:
        say(f"Ray failed: {error}; go on with {manifest.go_on(command)}")
    finally:
        ray.shutdown()
    return None


def _all(plan: Plan, store: Storage, command: str, gate: Gate, slots: int, keep: str) -> Any:
    import platform.prepare as prepare
    import platform.recommend as recommend

    prepare.prepare(plan, store, say)
    mirror, document = _mirrored(plan, store, command)
    if plan.outstanding:
        _tune(plan, store, mirror, gate, slots, keep)
    if plan.sweep.export:
        recommend.recommend(plan, store, say)
    mirror.close(manifest.counts(document, store))
    return mirror


def _mirrored(plan: Plan, store: Storage, command: str) -> tuple[Any, dict[str, Any]]:
    """The sweep's file, and MLflow as its view, which has been told of every result; what kills left is removed."""
    import platform.tracking as tracking
    from platform.mirror import Mirror

    document = manifest.write(plan, store, command)
    mirror = Mirror(lambda: tracking.connect(document, store))
    mirror.start()
    for old in (store.root / "ray").glob(f"{plan.name}-*"):  # Tune's state, of drivers that were killed
        shutil.rmtree(old, ignore_errors=True)
    for trial_id in document["trials"]:
        if store.has(trial_id):
            storage.tidy(store.trial(trial_id))
            mirror.trial(trial_id)
    return mirror, document


def _spent(plan: Plan, store: Storage) -> float:
    """GPU-seconds of every trial of the sweep that has ended, those of other starts too."""
    earlier = storage.read_json(store.sweep(plan.sweep.name, plan.hash)) or {}
    keys = dict.fromkeys([*earlier.get("trials", []), *(trial.id() for trial in plan.trials)])
    return spent(result for key in keys if (result := store.result(key)))


def _stopped(plan: Plan, store: Storage, gate: Gate) -> int:
    """Say why the sweep ended before its trials did, and what is left of it; 1 where that is a failure."""
    left = planning.again(plan, store).outstanding
    if left:
        say(f"stopped: {gate.closed}; {left} trials left; {gate.advice}")
    return 1 if left and (gate.broken or gate.unwritable) else 0


def say(text: str) -> None:
    print(redact(text), flush=True)


def _commit() -> str:
    head, dirty = provenance.commit()
    return f"commit {head}{' (with uncommitted changes)' if dirty else ''}" if head else "no git commit"


def _start_ray(address: str | None) -> int:
    """Join the cluster at `address`, the running one (RAY_ADDRESS), or start one here; returns its CPUs.

    One started here listens on the loopback address alone, by the setting that Ray has for it, read at its import.
    """
    place = address or os.environ.get("RAY_ADDRESS") or "local"
    if place == "local":
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    env = {"PYTHONPATH": str(provenance.ROOT), **{name: os.environ[name] for name in QUIET}}
    try:
        ray.init(
            address=place,
            runtime_env={"env_vars": env},
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False if place == "local" else None,
        )
    except ConnectionError as error:
        raise InputError(f"--address: no Ray cluster answers at '{place}' ({error})") from error
    return int(ray.cluster_resources().get("CPU", 1))


def _check_resources(plan: Plan) -> None:
    """Refuse what Tune would wait for without end."""
    import ray

    there = ray.cluster_resources()
    for kind, needed in _needed(plan).items():
        if needed > there.get(kind, 0):
            setting = f"resources.{kind.lower()}s"
            raise InputError(f"{setting}: a trial asks for {needed:g}, the cluster has {there.get(kind, 0):g}")


def _needed(plan: Plan) -> dict[str, float]:
    """What a trial takes of a cluster, by Ray's names."""
    wanted = plan.sweep.resources
    return {"CPU": wanted.cpus * wanted.ranks, "GPU": wanted.gpus * wanted.ranks}


def _slots(plan: Plan, cpus: int, max_concurrent: int | None) -> int:
    """How many trials run at a time."""
    import ray

    resources = plan.sweep.resources
    slots = min(max_concurrent or cpus, cpus // (resources.cpus * resources.ranks))
    if resources.gpus:
        slots = min(slots, int(ray.cluster_resources().get("GPU", 0) / (resources.gpus * resources.ranks)))
    return max(1, slots)


def _tune(plan: Plan, store: Storage, mirror: Any, gate: Gate, slots: int, keep: str) -> None:
    """Run the trials that are left, as far as the gate lets them."""
    import ray
    from ray import tune
    from ray.tune.execution import class_cache

    import platform.keep as keeping
    import platform.live as live
    import platform.progress as progress
    import platform.raylet as raylet
    import platform.searcher as searcher
    from trainables.workers import LAUNCHER_CPU, TrialActor, train_ranks

    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    class_cache.ENV_VARS_TO_PROPAGATE.difference_update(VARIABLES)  # Ray's log would hold their values
    resources = plan.sweep.resources
    if resources.ranks == 1:
        trainable = tune.with_resources(TrialActor, {"cpu": resources.cpus, "gpu": resources.gpus})
    else:
        trainable = tune.with_resources(train_ranks, {"cpu": LAUNCHER_CPU})
    search, total = _searcher(plan, store, searcher, keep, lambda: gate.closed)
    standing = progress.Standing(name=plan.name, total=total, slots=slots)
    keeper = keeping.keeper(plan, store, keep)
    screen = live.screen()
    waiting = progress.Waiting(_needed(plan), ray.available_resources)
    reporter = progress.Reporter(standing, store, mirror, keeper, gate, screen, waiting)
    state = store.root / "ray"
    try:
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=search, num_samples=total, max_concurrent_trials=slots, reuse_actors=resources.ranks == 1
            ),
            run_config=tune.RunConfig(
                name=f"{plan.name}-{os.getpid()}",
                storage_path=str(state),
                callbacks=[reporter, raylet.RayletWatch()],
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=1),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        with contextlib.suppress(EOFError, pickle.UnpicklingError):  # Tune's own notes, cut off by a full disk
            tuner.fit()
    finally:
        screen.close()
        shutil.rmtree(state / f"{plan.name}-{os.getpid()}", ignore_errors=True)


def _searcher(plan: Plan, store: Storage, searcher: Any, keep: str, closed: Any) -> tuple[Any, int]:
    shared = {"storage": str(store.root), "keep": keep != "none"}
    if plan.strategy != "optuna":
        return searcher.Queue(plan.left, shared, closed), len(plan.left)
    finished: dict[str, Any] = {}
    for trial in plan.trials:
        result = store.result(trial.id())
        if result is not None:
            finished[trial.id()] = benchmarks.gains(trial.benchmark.name, result["metrics"])
    studies = searcher.Studies(plan.studies().values(), plan.budget, finished, shared, closed)
    return studies, studies.left


def failures(plan: Plan, store: Storage) -> list[str]:
    """Ids of the plan's trials that failed: an outcome such as `diverged` is a result."""
    results = {trial.id(): store.result(trial.id()) for trial in plan.trials}
    return [key for key, found in results.items() if found and found["status"] in storage.FAILURES]


def _end(plan: Plan, store: Storage, failed: list[str]) -> int:
    """The table, where everything is, what to run next."""
    shown = os.path.relpath(store.root)
    report = subprocess.run(
        [sys.executable, "-m", "analysis.report", plan.name, "--storage", str(store.root)],
        cwd=provenance.ROOT,
        capture_output=True,
        text=True,
    )
    if report.returncode == 0:
        say("\n".join(line for line in report.stdout.splitlines() if not line.startswith("report:")).rstrip())
    else:
        say(f"no report: {(report.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    say(f"report: {Path(shown) / 'reports' / plan.name / 'index.html'}")
    server = os.environ.get("MLFLOW_TRACKING_URI")
    own = f".venv/bin/mlflow ui --backend-store-uri sqlite:///{Path(shown) / 'mlflow.db'}  (http://127.0.0.1:5000)"
    say(f"MLflow: {server or own}")
    say(f"next:   {_next(plan, store)}")
    for trial_id in failed:
        result = store.result(trial_id) or {}
        say(f"failed: {trial_id} {result['error']['message']} ({store.trial(trial_id) / 'error.txt'})")
    if failed:
        say(f"{len(failed)} trials failed; --retry-failed runs them again")
    return 1 if failed else 0


def _next(plan: Plan, store: Storage) -> str:
    if plan.sweep.name == "quickstart":
        return ".venv/bin/python -m platform.sweep tofu_tiny --dry-run   (the same on TOFU's real rows)"
    return f".venv/bin/python -m analysis.report {plan.name}{_place(store)}   (or another seed: --seeds 0,1,2)"


def _place(store: Storage) -> str:
    """The option that names this storage, empty for the default one."""
    return "" if store.root == Path("runs").absolute() else f" --storage {os.path.relpath(store.root)}"

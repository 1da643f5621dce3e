"""What runs in Ray's processes: trials alone in a Tune actor or on many ranks of Ray Train, and what follows a sweep.

Ranks start again if one of them or its node is lost.
"""

import gc
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune

from trainables.common import cli, provenance
from trainables.common.errors import InputError, StoreUnreachable, is_out_of_memory
from trainables.config.settings import Resources, Selection
from trainables.config.trial import Trial
from trainables.storage.file_names import LOST
from trainables.storage.folder_storage import Storage, remove_trial_leftovers
from trainables.storage.opening import open_storage_unchecked
from trainables.workers import shared_artifacts

TUNE_REPORT_INTERVAL_SECONDS = 2.0
RANK_LAUNCHER_RESOURCES = {"cpu": 0, "node:__internal_head__": 0.001}
"""Resources of the function that launches a trial's ranks: it runs on the head, which outlives every other node."""
COLLECTIVE_TIMEOUT_SECONDS = 6 * 3600
"""How long ranks wait for rank 0, which may evaluate a large model alone."""
MAX_RANK_RESTARTS = 2
"""How often Ray Train starts a trial's ranks again after one of them died; each goes on from the last checkpoint."""


class OneRankTrialActor(tune.Trainable):
    """Runs one-rank trials, one after another; configuration: a `trial` as JSON, `storage`, `keep`."""

    def setup(self, config: dict[str, Any]) -> None:
        provenance.collect_provenance()
        cli.silence_libraries()
        self.reset_config(config)
        self.reused = False

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial, quickly: Tune gives a trial up whose actor is lost during its reset."""
        self.events: Iterator[dict[str, Any]] | None = None
        self.reused = True
        self.given = new_config
        self.trial = Trial.model_validate_json(new_config["trial"])
        self.store = open_storage_unchecked(new_config["storage"])
        return True

    def step(self) -> dict[str, Any]:
        """Go on for about two seconds, or to the end; one that another process runs waits for that one's end."""
        from trainables.trial import progress, record

        key = self.trial.id()
        try:
            if self.events is None:
                if self.reused and not gc.get_freeze_count():
                    gc.collect()  # what a trial that was stopped has left in cycles would stay for good
                    gc.freeze()  # libraries make a million objects, which each trial's four collections need not see
                if self.store.result(key) is None and progress.is_run_by_other_process_here(self.store.trial(key)):
                    time.sleep(TUNE_REPORT_INTERVAL_SECONDS)
                    return {"done": False}
                if fetch_trial_and_read_result(self.trial, self.store) is not None:
                    return {"done": True}
                from trainables.trial.runner import TrialRun

                self.events = TrialRun(self.trial, self.store, bool(self.given.get("keep"))).run_and_yield_events()
            started = time.monotonic()
            while True:
                event = next(self.events)
                if event["phase"] == "done":
                    return {"done": True}
                if event["phase"] == "evaluation" or time.monotonic() - started > TUNE_REPORT_INTERVAL_SECONDS:
                    return {"done": False, "step": event.get("step", 0)}
        except StoreUnreachable:
            raise
        except InputError as error:
            record.write_failed_trial(self.trial, self.store, str(error))
            return {"done": True}


def fetch_trial_and_read_result(trial: Trial, store: Storage) -> dict[str, Any] | None:
    """Fetch a trial and return its result; None: it is to run."""
    store.fetch_trial(trial.id())
    result = store.result(trial.id())
    if result is not None:
        remove_trial_leftovers(store.trial(trial.id()))
    return result


def run_trial_of_ranks_in_tune(config: dict[str, Any]) -> None:
    """Tune's function for a trial of many ranks; `OneRankTrialActor.step` tells of one that does not run at once."""
    from trainables.trial import progress, record

    trial = Trial.model_validate_json(config["trial"])
    store = open_storage_unchecked(config["storage"])
    while store.result(trial.id()) is None and progress.is_run_by_other_process_here(store.trial(trial.id())):
        time.sleep(TUNE_REPORT_INTERVAL_SECONDS)
    try:
        if fetch_trial_and_read_result(trial, store) is None:
            run_trial_on_ranks(trial, store, keep=config["keep"], strategy=config["strategy"])
    except StoreUnreachable:
        raise
    except Exception as failure:
        record.write_failed_trial(trial, store, str(failure), _find_outcome(failure))
    tune.report({"done": True})


def _find_outcome(failure: Exception) -> str:
    """Return the outcome of a trial whose ranks Ray Train gave up on: lost if any rank died."""
    from ray.train import ControllerError, WorkerGroupError

    if is_out_of_memory(failure):
        return "out_of_memory"
    if isinstance(failure, WorkerGroupError):
        told = [f"{type(error).__name__} {error}" for error in failure.worker_failures.values()]
        # Ray shows what a rank raised by its traceback
        outage = f"{StoreUnreachable.__module__}.{StoreUnreachable.__name__}: "
        return LOST if any(text.startswith("WorkerHealthCheck") or outage in text for text in told) else "failed"
    return LOST if isinstance(failure, ControllerError) else "failed"


def run_trial_on_ranks(trial: Trial, store: Storage, *, keep: bool = False, strategy: str = "PACK") -> dict[str, Any]:
    """Run a trial as a Ray Train TorchTrainer; return the result. Raises what Ray Train raises after its restarts."""
    from ray.train import TrainingFailedError

    run_rank = partial(run_trial_on_one_rank, trial, store.location, keep)
    seconds = COLLECTIVE_TIMEOUT_SECONDS * (1 + len(trial.calibration.targets))
    failure: Exception = RuntimeError("the ranks ended without a result")
    try:
        run_on_ranks(f"train-{trial.id()}", store, run_rank, trial.resources, strategy, seconds)
    except TrainingFailedError as error:
        failure = error
    store.try_download_trial(trial.id())
    result = store.result(trial.id())
    if result is None:
        raise failure
    return result


def run_trial_on_one_rank(trial: Trial, location: str, keep: bool) -> None:
    provenance.collect_provenance()
    cli.silence_libraries()
    store = open_storage_unchecked(location)
    shared_artifacts.fetch_once_on_each_machine(store, lambda: store.fetch_trial(trial.id()))
    if store.result(trial.id()) is not None:  # written before a rank died, or by the rank whose memory ran out
        return
    from trainables.trial.runner import TrialRun

    for _ in TrialRun(trial, store, keep).run_and_yield_events():
        pass


def run_on_ranks(
    name: str,
    store: Storage,
    function: Callable[[], None],
    resources: Resources,
    strategy: str,
    seconds: int = COLLECTIVE_TIMEOUT_SECONDS,
) -> None:
    """Run `function` on every rank, and again each time that a node was lost; else raise what Ray Train does."""
    from ray import train
    from ray.train.torch import TorchConfig, TorchTrainer

    scaling = train.ScalingConfig(
        num_workers=resources.ranks,
        use_gpu=resources.gpus > 0,
        resources_per_worker={"CPU": resources.cpus, **({"GPU": resources.gpus} if resources.gpus else {})},
        placement_strategy=strategy,
    )
    backend = TorchConfig(backend="nccl" if resources.gpus else "gloo", timeout_s=seconds)
    restarts, place, alive = train.FailureConfig(max_failures=MAX_RANK_RESTARTS), store.root / "ray", list_live_nodes()
    while True:
        run = f"{name}-{uuid.uuid4().hex[:8]}"
        run_config = train.RunConfig(name=run, storage_path=str(place), failure_config=restarts)
        try:
            TorchTrainer(function, torch_config=backend, scaling_config=scaling, run_config=run_config).fit()
            return
        except train.TrainingFailedError as failure:
            before, alive = alive, list_live_nodes()
            if before <= alive or _find_outcome(failure) != LOST:
                raise
        finally:
            shutil.rmtree(place / run, ignore_errors=True)


def list_live_nodes() -> set[str]:
    """Return the ids of the nodes whose raylets answer within 2 s, which Ray itself asks only half a minute later."""

    def ask(node: dict[str, Any]) -> set[str]:
        try:
            socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), 2.0).close()
        except OSError:
            return set()
        return {node["NodeID"]}

    with ThreadPoolExecutor(max_workers=32) as threads:
        return set[str]().union(*threads.map(ask, [node for node in ray.nodes() if node["Alive"]]))


def export_trial_model(trial_id: str, root: str, folder: str, why: str, rule: Selection) -> None:
    """Write a chosen trial's model into a folder of the storage, verified, with its card."""
    cli.silence_libraries()
    from trainables.trial.export import model_folder

    store = open_storage_unchecked(root)
    place = Path(store.fetch_local_path(folder))
    model_folder.export_trial(trial_id, store, place, why, rule)
    store.push(place)


def attack_trial(trial_id: str, names: Sequence[str], lr: float | None, root: str) -> str:
    """Attack a trial whose weights are kept; return in words which attack brought back most."""
    from trainables.robustness import attack_models

    store = open_storage_unchecked(root)
    inputs = attack_models.make_attack_inputs_from_trial(trial_id, store)
    shares, _ = attack_models.attack_and_store_recoveries(inputs, names, lr, 0, store)
    known = [row for row in shares if row["share"] is not None]
    if not known:
        return "attacked; hardly anything was removed" if shares else "no attack could be made"
    worst = max(known, key=lambda row: row["share"])
    return f"attacked; most came back by {worst['title']}: {worst['share']:.0%}"

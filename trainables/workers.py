"""The one file that knows Ray: a trial inside a Tune actor that is used again, or on many ranks by Ray Train."""

from __future__ import annotations

import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray import tune
from ray._private.state import state

from trainables import benchmarks, commands, processes, provenance, remains, storage
from trainables.config import Direction, Resources, Trial
from trainables.errors import InputError, Unreachable

REPORT_SECONDS, NOTICE_SECONDS = 2.0, 5.0
"""Between two reports to Tune, and between two looks whether this node will be taken away."""
ANSWER_SECONDS = 2.0
"""How long a node may take to answer before it counts as gone."""
LAUNCHER = {"cpu": 0, "node:__internal_head__": 0.001}
"""What the function that launches a trial's ranks asks for: a place on the head, which outlives every other node. It
only waits, beside Ray Train's controller, which follows it there; the ranks' CPUs are theirs alone.
"""
PACK = "PACK"
"""Ray's word for: on one node if they fit there just now."""
COLLECTIVE_SECONDS = 6 * 3600
"""How long ranks wait for rank 0's evaluation of a large model."""
RANK_RESTARTS = 2
"""How often Ray Train starts a trial's ranks again after one of them died; each goes on from the last checkpoint."""


class Draining:
    """Whether Ray has been told that this node will be taken away; it is asked now and then.

    What Ray Train's own watcher of preemptions looks at: no public call tells a plain actor (docs/decisions/0008).
    """

    def __init__(self) -> None:
        self.asked = -NOTICE_SECONDS
        self.given = False

    def __call__(self) -> bool:
        if not self.given and ray.is_initialized() and time.monotonic() - self.asked >= NOTICE_SECONDS:
            self.asked = time.monotonic()
            self.given = ray.get_runtime_context().get_node_id() in state.get_draining_nodes()
        return self.given


class TrialActor(tune.Trainable):
    """Runs one-rank trials, one after another; configuration: `{"trial": JSON, "storage": URI, "keep": bool}`.

    With `lost`, the reason, the trial does not run again but is recorded as lost.
    """

    def setup(self, config: dict[str, Any]) -> None:
        provenance.stamp()
        commands.quiet()
        self.draining = Draining()
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial into the same process, which keeps imported modules and what `warm` says of the last one.

        False, for Tune to make another process elsewhere, where this machine is about to be taken away.
        """
        if self.draining():
            return False
        self._take(new_config)
        return True

    def _take(self, new_config: dict[str, Any]) -> None:
        self.events: Iterator[dict[str, Any]] | None = None
        self.trial = Trial.model_validate_json(new_config["trial"])
        self.store = storage.reopen(new_config["storage"])
        self.keep = bool(new_config.get("keep"))
        self.lost: str | None = new_config.get("lost")

    def step(self) -> dict[str, Any]:
        """Go on for about two seconds, or to the end.

        A trial that has a result by now does not run: its last process, or its last driver, died after it was written.
        One that another process runs waits for that one's end: it outlives a driver that was killed by a while.
        """
        from trainables import progress, records, trial

        key = self.trial.id()
        try:
            if self.events is None:
                if self.store.result(key) is None and progress.elsewhere(self.store.trial(key)):
                    time.sleep(REPORT_SECONDS)
                    return {"id": key, "done": False, "phase": "waiting", "step": 0, "steps": 0}
                self.store.fetch_trial(key)
                found = self.store.result(key)
                if found is not None:
                    remains.tidy(self.store.trial(key))
                    _check_sent(self.trial, self.store)
                    return _final(found)
                if self.lost is not None:
                    return _final(records.refused(self.trial, self.store, self.lost, storage.LOST))
                trial_here = self.store.here(self.trial)
                self.events = trial.run(trial_here, self.store, keep_weights=self.keep, notice=self.draining)
            return self._go_on(self.events)
        except Unreachable:
            raise
        except InputError as error:
            return _final(records.refused(self.trial, self.store, str(error)))

    def _go_on(self, events: Iterator[dict[str, Any]]) -> dict[str, Any]:
        begun = time.monotonic()
        told: dict[str, Any] = {}
        for event in events:
            if event["phase"] == "done":
                _check_sent(self.trial, self.store)
                return _final(event["result"])
            told = {"phase": event["phase"], "step": event.get("step", 0), "steps": event.get("steps", 0)}
            if event["phase"] == "evaluation" or time.monotonic() - begun > REPORT_SECONDS:
                break
        return {"id": self.trial.id(), "done": False, **told}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the storage is the truth."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: see save_checkpoint."""


def train_ranks(config: dict[str, Any]) -> None:
    """Tune's function for a trial of many ranks; see TrialActor.step for a trial that does not run at once."""
    from trainables import progress, records

    trial = Trial.model_validate_json(config["trial"])
    store = storage.reopen(config["storage"])
    while store.result(trial.id()) is None and progress.elsewhere(store.trial(trial.id())):
        time.sleep(REPORT_SECONDS)
    try:
        store.fetch_trial(trial.id())
        keep, strategy = bool(config.get("keep")), config.get("strategy", PACK)
        result = store.result(trial.id())
        if result is None and (lost := config.get("lost")) is not None:
            result = records.refused(trial, store, lost, storage.LOST)
        result = result or launch(trial, store, keep=keep, strategy=strategy)
    except Unreachable:
        raise
    except Exception as failure:
        result = records.refused(trial, store, str(failure), _kind(failure))
    tune.report(_final(result))


def _kind(failure: Exception) -> str:
    """What became of a trial whose ranks Ray Train gave up on: out of memory, lost, or failed by its own error.

    Where a rank dies, the others often fail by losing touch with it.
    """
    from ray.train import ControllerError, WorkerGroupError
    from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError, WorkerHealthCheckTimeoutError

    if "OutOfMemoryError" in str(failure):
        return "out_of_memory"
    if isinstance(failure, WorkerGroupError):
        died = (WorkerHealthCheckFailedError, WorkerHealthCheckTimeoutError)
        return storage.LOST if any(isinstance(error, died) for error in failure.worker_failures.values()) else "failed"
    return storage.LOST if isinstance(failure, ControllerError) else "failed"


def launch(trial: Trial, store: storage.Storage, *, keep: bool = False, strategy: str = PACK) -> dict[str, Any]:
    """Run a trial as a Ray Train TorchTrainer, whose ranks run the same loop as one process; returns the result.

    `strategy`: Ray's, for the placement of the ranks.

    Ranks that die are started again and go on from the last checkpoint. Raises what Ray Train raises beyond that.
    """
    from ray.train import TrainingFailedError

    told = {"trial": trial.model_dump(mode="json"), "storage": store.location, "keep": keep}
    waiting = COLLECTIVE_SECONDS * (1 + len(trial.calibration.targets))
    try:
        ranks = {"function": _rank, "config": told, "resources": trial.resources}
        _fit(f"train-{trial.id()}", store, **ranks, strategy=strategy, waiting=waiting)
    except TrainingFailedError:
        store.look_at_trial(trial.id())
        if store.result(trial.id()) is None:
            raise
    store.look_at_trial(trial.id())
    result = store.result(trial.id())
    if result is None:
        raise RuntimeError("the ranks ended without a result")
    return result


def launch_direction(
    direction: Direction, store: storage.Storage, resources: Resources, micro_batch: int, strategy: str
) -> None:
    """Make a direction on many ranks that share the model; ranks that die go on after their last vector."""
    told = {"direction": direction.model_dump(mode="json"), "resources": resources.model_dump(mode="json")}
    told |= {"storage": store.location, "micro_batch": micro_batch}
    ranks = {"function": _direction_rank, "config": told, "resources": resources}
    _fit(f"direction-{direction.id()}", store, **ranks, strategy=strategy)


def _fit(name: str, store: storage.Storage, **described: Any) -> None:
    """Run what `_trainer` makes. Raises what Ray Train raises after its restarts, anew where a node was lost."""
    from ray.train import TrainingFailedError

    there = nodes()
    while True:
        run = f"{name}-{uuid.uuid4().hex[:8]}"
        try:
            _trainer(run, store, **described).fit()
            return
        except TrainingFailedError as failure:
            before, there = there, nodes()
            if before <= there or _kind(failure) != storage.LOST:
                raise
        finally:
            shutil.rmtree(store.root / "ray" / run, ignore_errors=True)


def nodes() -> set[str]:
    """The ids of the nodes that are there: their raylets answer, which Ray itself asks them for half a minute later."""
    known = [node for node in ray.nodes() if node["Alive"]]
    with ThreadPoolExecutor(max_workers=32) as threads:
        answers = list(threads.map(_answers, known))
    return {node["NodeID"] for node, there in zip(known, answers, strict=True) if there}


def _answers(node: dict[str, Any]) -> bool:
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def _trainer(
    run: str,
    store: storage.Storage,
    *,
    function: Callable[[dict[str, Any]], None],
    config: dict[str, Any],
    resources: Resources,
    strategy: str,
    waiting: int = COLLECTIVE_SECONDS,
) -> Any:
    """What runs `function` on every rank by Ray Train."""
    from ray import train
    from ray.train.torch import TorchConfig, TorchTrainer

    return TorchTrainer(
        function,
        train_loop_config=config,
        torch_config=TorchConfig(backend="nccl" if resources.gpus else "gloo", timeout_s=waiting),
        scaling_config=train.ScalingConfig(
            num_workers=resources.ranks,
            use_gpu=resources.gpus > 0,
            resources_per_worker={"CPU": resources.cpus, **({"GPU": resources.gpus} if resources.gpus else {})},
            placement_strategy=strategy,
        ),
        run_config=train.RunConfig(
            name=run,
            storage_path=str(store.root / "ray"),
            failure_config=train.FailureConfig(max_failures=RANK_RESTARTS),
        ),
    )


def _rank(config: dict[str, Any]) -> None:
    """One rank of a trial."""
    from trainables import trial

    provenance.stamp()
    commands.quiet()
    store, wanted = storage.reopen(config["storage"]), Trial.model_validate(config["trial"])
    _arrive(store, lambda: store.fetch_trial(wanted.id()))
    wanted = store.here(wanted)
    if store.result(wanted.id()) is not None:  # written before a rank died, or by the rank whose memory ran out
        return
    for event in trial.run(wanted, store, keep_weights=bool(config.get("keep")), notice=Draining()):
        if event["phase"] == "done":
            _check_sent(wanted, store)


def _direction_rank(config: dict[str, Any]) -> None:
    """One rank of a direction's making."""
    from trainables import moves, trial

    commands.quiet()
    direction = Direction.model_validate(config["direction"])
    resources = Resources.model_validate(config["resources"])
    store = storage.reopen(config["storage"])
    _arrive(store, lambda: store.here(direction))
    direction = store.here(direction)
    trial.prepare_process(resources, direction.seed)
    moves.ensure(direction, store, config["micro_batch"], resources.gradient_checkpointing)


def _arrive(store: storage.Storage, fetch: Callable[[], object]) -> None:
    """The first rank of every machine brings what all of them need there, where each machine has a copy of its own."""
    from ray.train import collective

    if store.copied:
        if processes.first_here():
            fetch()
        collective.barrier()


def _check_sent(trial: Trial, store: storage.Storage) -> None:
    """Raise Unreachable where only this machine has the result: the next attempt sends it."""
    if not store.sent(trial.id()):
        raise Unreachable(f"--storage: the result of trial {trial.id()} is in {store.trial(trial.id())} and not sent")


def _final(result: dict[str, Any]) -> dict[str, Any]:
    found, kind = result["metrics"], benchmarks.find(result["config"]["benchmark"]["name"])
    return {
        "id": result["id"],
        "done": True,
        "phase": "done",
        "status": result["status"],
        **{goal.metric: found.get(goal.metric) for goal in kind.GOALS},
    }

"""One trial: a pure function of its configuration, whose result is written to storage last.

The same code runs in one process and on each rank of many; rank 0 writes.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from trainables import benchmarks
from trainables.benchmarks import evaluation
from trainables.common import provenance
from trainables.common.errors import InputError, StartAgain, TrialStopped
from trainables.config import trial as config
from trainables.config.settings import Resources, RetainEvaluation
from trainables.config.trial import Trial
from trainables.storage import files
from trainables.storage.base import ERROR, LOST, Storage, is_outage
from trainables.storage.results import remove_leftovers
from trainables.training import checkpoints, engine, loop, models, target_weights
from trainables.training.checkpoint_schedule import Due, Notice, never
from trainables.training.task_vectors import combine
from trainables.trial import cache, calibration, progress, retry, setup, step_selection
from trainables.trial import record as trial_record
from trainables.trial.record import CHECKPOINT, WEIGHTS, Event, Place, Record

Follow = Callable[[Iterator[Event]], Iterator[Event]]


def run(trial: Trial, store: Storage, *, keep_weights: bool = False, notice: Notice = never) -> Iterator[Event]:
    """Run a trial and write its result; yields `{"phase", "step", "steps", ...}` as it goes, the result last.

    A loss that is not finite ends it as `diverged`, a retain loss or utility beyond its bar (`training.stop_above`,
    `stop_below`) as `collapsed`, with the metrics of the model as it then is. A full GPU makes it start again once
    with half the micro-batch and the same effective batch, then ends it as `out_of_memory`. Any other error ends it
    as `failed` (error.txt); on many ranks it is raised, and the launcher starts all again. InputError is the caller's.
    On the notice that its machine goes away, it writes a checkpoint.
    """
    folder = store.trial(trial.id())
    place = Place(store, folder, folder / WEIGHTS if keep_weights else None, notice)
    record = Record(provenance.now())
    if trial.resources.ranks > 1 and dist.get_rank() > 0:
        yield from _outcome(trial, record, place, iter)
        return
    store.start_trial(trial.id(), trial.model_dump(mode="json"))
    with progress.Progress(folder, store, record.attempt) as told:
        result = yield from _outcome(trial, record, place, told.follow)
    yield {"phase": "done", "result": result}


def _outcome(
    trial: Trial, record: Record, place: Place, follow: Follow
) -> Generator[Event, None, dict[str, Any] | None]:
    """The phases, and what came of them: the result on rank 0, None on the others."""
    folder, many = place.folder, trial.resources.ranks > 1
    error = None
    try:
        yield from follow(retry.follow(trial, record, place, _phases))
        error = record.collapsed
    except (InputError, StartAgain):
        raise
    except TrialStopped as stopped:
        error = {"kind": stopped.kind, "message": stopped.message, "step": stopped.step}
    except torch.OutOfMemoryError as full:
        error = {"kind": "out_of_memory", "message": str(full).splitlines()[0], "step": len(record.steps) + 1}
        if many:  # perhaps on this rank alone: it writes, and no rank starts again where there is a result
            _end(trial, record, error, place)
            raise
    except Exception as failure:
        if many:
            raise
        files.write_text(folder / ERROR, traceback.format_exc())
        kind = LOST if is_outage(failure, place.store) else "failed"
        error = {"kind": kind, "message": f"{type(failure).__name__}: {failure}", "step": len(record.steps)}
    if dist.is_initialized() and dist.get_rank() > 0:
        return None
    return _end(trial, record, error, place)


def _end(trial: Trial, record: Record, error: dict[str, Any] | None, place: Place) -> dict[str, Any]:
    """Write the result, and drop what it makes useless."""
    record.seconds.total = perf_counter() - record.begun
    result = trial_record.write(trial, record, error, place.folder)
    if error is None:
        (place.folder / ERROR).unlink(missing_ok=True)
    remove_leftovers(place.folder)
    place.store.push_trial(trial.id())
    return result


def prepare_process(resources: Resources, seed: int) -> torch.device:
    """Threads, determinism and, for one rank, the process group; keeps what code this is; returns the device.

    Nothing here reads memory it has not written, so torch need not fill new tensors with NaN (3 times slower).
    """
    provenance.stamp()
    torch.set_num_threads(resources.cpus)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.manual_seed(seed)
    on_gpu = resources.gpus > 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    engine.join(device)
    return device


def check_inputs(trial: Trial) -> None:
    """Raise InputError where data or weights are not what the configuration was made from, or a bar is no bar."""
    config.check_bar(trial)
    evaluation.check_data(trial.benchmark)
    models.check(trial.target)
    known = trial.target.fingerprint or ""
    if known.startswith("files:") and models.fingerprint(trial.target) != known:
        raise InputError(f"target: '{trial.target.path}' has changed since this trial was planned; plan it again")


def _phases(trial: Trial, record: Record, place: Place) -> Iterator[Event]:
    yield {"phase": "loading"}
    begun = perf_counter()
    check_inputs(trial)
    device = prepare_process(trial.resources, trial.seed)
    reference = _reference(trial.retain_evaluation, trial) if trial.retain_evaluation else None
    record.micro_batch = record.micro_batch or setup.micro_batch(trial, device)
    if trial.task_vector is not None:
        network, tokenizer = _moved(trial, record, place, device)
        record.seconds.loading = perf_counter() - begun
        watch = step_selection.Candidates(trial, place, tokenizer, reference)
        yield from _evaluation(trial, record, place, network, watch, together=False)
        return
    network, tokenizer = models.load(trial.target, trial.resources.precision)
    if trial.calibration.targets:
        target_weights.of(trial.target).check(network)
    task = setup.task(trial, network, tokenizer, device, record.micro_batch)
    network = setup.adapted(trial, network)
    resources = setup.resolved(trial, network, task, device, place.folder)
    record.zero_stage = resources.zero_stage
    watch, kept = step_selection.Candidates(trial, place, tokenizer, reference), place.folder / CHECKPOINT
    resuming = checkpoints.check(kept, resources) and watch.complete(checkpoints.step_of(kept))
    training = engine.create(network.to(device).train(), trial.training, resources)
    record.seconds.loading = perf_counter() - begun
    try:
        yield from _train(trial, record, training, task, place, resuming, watch)
        record.time()
        network, together = setup.whole(trial, training)
        yield from _evaluation(trial, record, place, network, watch, together=together)
    finally:
        training.close()


def _moved(trial: Trial, record: Record, place: Place, device: torch.device) -> tuple[Any, Any]:
    """Rank 0's target model, moved along its direction (made where it is not there), and the tokenizer.

    In fp32 whatever the precision: bf16 would round a small change away, another part of it at each strength.
    """
    direction, vector = config.direction(_named(trial)), trial.task_vector
    if direction is None or vector is None:
        raise AssertionError("a trial of an objective has no direction")
    record.direction = direction.id()
    rows = record.micro_batch or trial.training.batch_size
    folder = combine.ensure(direction, place.store, rows, trial.resources.gradient_checkpointing)
    if dist.get_rank() > 0:
        return None, None
    network, tokenizer = models.load(trial.target)
    combine.move(network.to(device), folder, vector.stg or vector.strength or 0.0)
    return network, tokenizer


def _named(trial: Trial) -> Trial:
    """The trial with fingerprints of its model and rows: a direction is never found by path."""
    target, benchmark = trial.target, trial.benchmark
    if target.fingerprint is None:
        target = target.model_copy(update={"fingerprint": models.fingerprint(target)})
    if benchmark.fingerprint is None:
        found = benchmarks.find(benchmark.name).fingerprint(benchmark)
        benchmark = benchmark.model_copy(update={"fingerprint": found})
    return trial.model_copy(update={"target": target, "benchmark": benchmark})


def _reference(kept: RetainEvaluation, trial: Trial) -> Any:
    """The retain model's evaluation. Raises InputError where the file is another one than was planned."""
    path = Path(kept.path)
    found = (files.read_json(path) or {}).get("id")
    if kept.fingerprint and found and found != kept.fingerprint:
        raise InputError(
            f"retain_evaluation: {path} is evaluation {found}, this trial was planned with {kept.fingerprint}"
        )
    return evaluation.reference(path, trial.benchmark, "retain_evaluation")


def _train(
    trial: Trial,
    record: Record,
    training: engine.Engine,
    task: loop.Task,
    place: Place,
    resuming: bool,
    watch: step_selection.Candidates,
) -> Iterator[Event]:
    """The steps; those that `watch` asks for are evaluated before their checkpoint, so that a resume misses none."""
    steps, folder = task.steps(), place.folder / CHECKPOINT
    if resuming:
        state, record.steps = checkpoints.restore(training, task, folder)
        record.go_on(state.step, checkpoints.seconds_of(folder))
    else:
        if training.rank == 0:
            checkpoints.drop(folder)
        state = cache.begin(trial, training, task)
    watch.forget_after(state.step)
    due = Due(trial.resources.checkpoint_every, place.notice)
    for told in loop.run(training, task, state):
        record.steps.append(told)
        if watch.due(state.step) and state.step < steps:
            yield {"phase": "evaluation", "step": state.step, "steps": steps}
            record.collapsed = _look(record, training, watch, state.step)
        record.collapsed = record.collapsed or loop.collapsed(trial.training.stop_above, told)
        if due(training, state.step) and state.step < steps and not record.collapsed:
            checkpoints.save(training, task, state, record.steps, record.time(), folder, place.store)
            watch.checkpointed(state.step)
        yield {"phase": "training", "step": told["step"], "steps": steps, "loss": told["loss"]}
        if record.collapsed:
            return


def _look(record: Record, training: engine.Engine, watch: step_selection.Candidates, step: int) -> Event | None:
    """Evaluate the model as it is now; all ranks stop with rank 0 where it diverged or collapsed."""
    begun = perf_counter()
    found: list[Any] = [None, None]
    network, together = setup.whole(watch.trial, training, final=False)
    if network is not None:
        try:
            watch.look(step, network, together=together)
            found[1] = watch.collapsed(step) if training.rank == 0 else None
        except TrialStopped as stopped:
            found[0] = stopped
    if training.world > 1:
        dist.broadcast_object_list(found, src=0, device=training.device)
    if found[0] is not None:
        raise found[0]
    training.module.train()
    record.seconds.evaluation += perf_counter() - begun
    return found[1]


def _evaluation(
    trial: Trial, record: Record, place: Place, network: Any, watch: step_selection.Candidates, *, together: bool
) -> Iterator[Event]:
    """Evaluate the whole model, keep it where asked, and calibrate it; ranks without it wait.

    `together`: every rank has it. The last two are rank 0's.
    """
    step = len(record.steps)
    yield {"phase": "evaluation", "step": step, "steps": step}
    begun = perf_counter()
    try:
        if network is not None:
            watch.look(step, network, together=together)
        if network is not None and dist.get_rank() == 0:
            record.collapsed = record.collapsed or watch.collapsed(step)
            watch.finish(record)
            if trial.calibration.targets:
                yield from _calibration(trial, record, place, network, watch)
    except TrialStopped:
        _wait()
        raise
    finally:
        record.seconds.evaluation += perf_counter() - begun
    _wait()


def _wait() -> None:
    """For all ranks. A rank that fails does not come: the launcher ends the others."""
    if dist.get_world_size() > 1:
        dist.barrier()


def _calibration(
    trial: Trial, record: Record, place: Place, network: Any, watch: step_selection.Candidates
) -> Iterator[Event]:
    origin = target_weights.of(trial.target)
    subject = calibration.Subject(trial, network, watch.tokenizer, watch.reference, origin, place.store, place.weights)
    for event in calibration.run(subject, record.metrics):
        record.calibration = event.pop("calibration", None)
        yield event

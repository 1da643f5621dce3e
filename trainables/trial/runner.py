"""One trial: a pure function of its configuration. The same code runs on each rank of many; rank 0 writes."""

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from trainables import benchmarks
from trainables.benchmarks.local_paths import localize_paths
from trainables.common import cli, errors, provenance
from trainables.common.errors import InputError, RankRestartNeeded, StoreUnreachable, TrialDiverged, is_out_of_memory
from trainables.config.shared_artifacts import make_task_vector_recipe
from trainables.config.trial import Trial
from trainables.inference.progress import ProgressCallback
from trainables.storage import atomic_files
from trainables.storage.file_names import CHECKPOINT, ERROR, LOST, RETRY, WEIGHTS
from trainables.storage.folder_storage import Storage, is_disk_error, remove_trial_leftovers
from trainables.training import checkpoints, loop, model_files
from trainables.training.engine import Engine, create_engine
from trainables.training.runtime import prepare_process, release_memory
from trainables.trial import setup, weights_on_disk
from trainables.trial.calibration import calibrate
from trainables.trial.progress import ProgressFile
from trainables.trial.record import TrialEvent, TrialRecord, write_trial_files
from trainables.trial.step_selection import StepSelection


@dataclass(eq=False)
class TrialRun:
    """One run of a trial in this process, perhaps one rank of several."""

    trial: Trial
    store: Storage
    keep_weights: bool = False

    def __post_init__(self) -> None:
        self.folder = self.store.trial(self.trial.id())
        self.weights = self.folder / WEIGHTS if self.keep_weights else None
        self.record = TrialRecord(provenance.utc_now())
        self.many = self.trial.resources.ranks > 1
        self.report: ProgressCallback | None = None

    def run_and_yield_events(self) -> Iterator[TrialEvent]:
        """Run the trial; yield `{"phase", "step", "steps", ...}` on the way, and on rank 0 the written result last.

        Its outcome may be `diverged`, `collapsed`, `out_of_memory` (after one try with half the micro-batch)
        or `failed` (error.txt); on many ranks that is raised, and the launcher starts all again. Raises InputError.
        """
        self.trial = localize_paths(self.trial, self.store)
        progress, result = None, {}
        if not self.many or dist.get_rank() == 0:
            self.store.write_trial_config(self.trial.id(), self.trial.model_dump(mode="json"))
            progress = ProgressFile(self.folder, self.store, attempt=self.record.attempt, started=self.record.started)
            self.report = progress.note_count
        with progress or contextlib.nullcontext():
            try:
                for event in self._attempts():
                    if progress:
                        progress.note_event(event)
                    yield event
                error = self.record.stopped
            except (InputError, RankRestartNeeded):
                raise
            except Exception as failure:
                error = self._explain(failure)
            release_memory()
            if progress:
                result = self._finish(error)
        if progress:
            yield {"phase": "done", "result": result}

    def _attempts(self) -> Iterator[TrialEvent]:
        """Go through the phases, once more if memory runs out and from the first step if the checkpoint is damaged."""
        while True:
            retry = atomic_files.read_json(self.folder / RETRY)
            self.record.micro_batch = retry["micro_batch"] if retry else self.trial.resources.micro_batch
            try:
                yield from self._phases()
                return
            except checkpoints.DamagedCheckpointError as damaged:
                message = f"trial {self.trial.id()}: its checkpoint cannot be read ({damaged}); the trial begins again"
                cli.print_line(f"warning: {message}", error=True)
                if not self.many or dist.get_rank() == 0:
                    checkpoints.remove_checkpoint(self.folder / CHECKPOINT)
                if self.many:
                    raise RankRestartNeeded(message) from damaged
                self.record.damaged_checkpoint = str(damaged)
            except Exception as full:
                if retry is not None or not is_out_of_memory(full):
                    raise
                self._halve_micro_batch(full)
            release_memory()  # outside the handler, whose traceback holds the tensors
            self.record.steps.clear()
            self.record.stopped = self.record.ended = None

    def _phases(self) -> Iterator[TrialEvent]:
        yield {"phase": "loading"}
        begun, trial, record = perf_counter(), self.trial, self.record
        setup.check_inputs_unchanged(trial)
        device = prepare_process(trial.resources, trial.seed)
        reference = setup.load_reference_evaluation(trial)
        record.micro_batch = record.micro_batch or setup.plan_micro_batch(trial, device)
        if trial.task_vector is not None:
            network, tokenizer = self._move_target(device)
            record.seconds["loading"] += perf_counter() - begun
            steps = StepSelection(trial, self.store, self.weights, tokenizer, reference, self.report)
            yield from self._evaluate(network, steps, together=False)
            return
        network, tokenizer = setup.load_target_model(trial.target, trial.resources.precision, trial.resources, device)
        steps = StepSelection(trial, self.store, self.weights, tokenizer, reference, self.report)
        steps.look_at_target(network)
        if trial.calibration.targets:
            weights_on_disk.check_tensor_names(weights_on_disk.map_tensors_to_files(trial.target), network)
        task = setup.make_training_task(trial, network, tokenizer, device, record.micro_batch)
        network = model_files.add_lora_adapters(network, trial.training.lora_rank, trial.training.lora_alpha)
        folder = self.folder / CHECKPOINT
        resources = setup.choose_engine_and_zero_stage(trial, network, device, folder)
        record.zero_stage = resources.zero_stage
        checkpoints.check_checkpoint_layout(folder, resources)
        resume_from = checkpoints.read_checkpoint_meta(folder)
        if resume_from and not steps.can_resume_at(resume_from["step"]):
            resume_from = {}
        engine = create_engine(network.to(device).train(), trial.training, resources, trial.target.attention)
        record.seconds["loading"] += perf_counter() - begun
        try:
            yield from self._train(engine, task, steps, resume_from)
            record.update_seconds()
            network, together = setup.gather_trained_model(trial, engine)
            yield from self._evaluate(network, steps, together=together)
        finally:
            engine.close()

    def _move_target(self, device: torch.device) -> tuple[Any, Any]:
        """Return rank 0's target model, moved along its task vector, in fp32: bf16 would round a small change away."""
        from trainables.trial.direction_files import ensure_task_vector, subtract_task_vector

        target, benchmark = self.trial.target, self.trial.benchmark
        if target.fingerprint is None:  # a direction is never found by path
            target = target.model_copy(update={"fingerprint": model_files.fingerprint_model(target)})
        if benchmark.fingerprint is None:
            found = benchmarks.get_benchmark(benchmark.name).fingerprint(benchmark)
            benchmark = benchmark.model_copy(update={"fingerprint": found})
        trial = self.trial.model_copy(update={"target": target, "benchmark": benchmark})
        direction, vector = make_task_vector_recipe(trial), trial.task_vector
        if direction is None or vector is None:
            raise AssertionError("a trial of an objective has no direction")
        self.record.direction = direction.id()
        rows = self.record.micro_batch or trial.training.batch_size
        checkpointing = trial.resources.gradient_checkpointing
        folder = ensure_task_vector(direction, self.store, rows, checkpointing)
        if dist.get_rank() > 0:
            return None, None
        release_memory()
        network, tokenizer = setup.load_target_model(target, "fp32", trial.resources, device)
        subtract_task_vector(network, folder, vector.stg or vector.strength or 0.0)
        return network, tokenizer

    def _train(
        self, engine: Engine, task: loop.TrainingTask, steps: StepSelection, resume_from: dict[str, Any]
    ) -> Iterator[TrialEvent]:
        record, last, folder = self.record, task.count_steps(), self.folder / CHECKPOINT
        evaluate_every, save_every = self.trial.training.eval_every, self.trial.resources.checkpoint_every
        if resume_from:
            state, record.steps = checkpoints.restore_checkpoint(engine, task, folder)
            record.resume_at_step(state.step, resume_from.get("seconds", {}))
        else:
            if engine.rank == 0:
                checkpoints.remove_checkpoint(folder)
            state = loop.make_initial_state(engine, task)
        steps.drop_evaluations_after(state.step)
        for entry in loop.train_steps(engine, task, state):
            record.steps.append(entry)
            # A step is evaluated before its checkpoint, so that a resume misses none.
            if evaluate_every and state.step % evaluate_every == 0 and state.step < last:
                yield {"phase": "evaluation", "step": state.step, "steps": last}
                record.stopped = self._evaluate_step(engine, steps, state.step)
            record.stopped = record.stopped or loop.find_retain_collapse(self.trial.training.stop_above, entry)
            going = not record.stopped and not record.ended
            if save_every and state.step % save_every == 0 and state.step < last and going:
                seconds = record.update_seconds()
                checkpoints.save_checkpoint(engine, task, state, record.steps, seconds, folder, self.store)
                steps.saved_step = state.step
            yield {
                "phase": "training",
                "step": entry["step"],
                "steps": last,
                "entry": entry,
                "last_look": steps.last_look,
            }
            if record.stopped or record.ended:
                return

    def _evaluate_step(self, engine: Engine, steps: StepSelection, step: int) -> dict[str, Any] | None:
        """Evaluate the model as it is now; all ranks stop with rank 0 if it diverged or collapsed."""
        begun = perf_counter()
        found: list[Any] = [None, None, None]
        network, together = setup.gather_trained_model(self.trial, engine, final=False)
        if network is not None:
            try:
                steps.evaluate(step, network, together=together)
                if engine.rank == 0:
                    found[1:] = steps.find_collapse(step), steps.find_reason_to_end_training()
            except TrialDiverged as stopped:
                found[0] = stopped
        if engine.world > 1:
            dist.broadcast_object_list(found, src=0, device=engine.device)
        if found[0] is not None:
            raise found[0]
        engine.module.train()
        self.record.ended = found[2]
        self.record.seconds["evaluation"] += perf_counter() - begun
        return found[1]

    def _evaluate(self, network: Any, steps: StepSelection, *, together: bool) -> Iterator[TrialEvent]:
        """Evaluate the whole model (every rank, if `together`); rank 0 chooses the step, and calibrates it."""
        record = self.record
        step = len(record.steps)
        yield {"phase": "evaluation", "step": step, "steps": step}
        begun, stopped = perf_counter(), None
        try:
            if network is not None and not record.ended:  # else the last step was evaluated
                steps.evaluate(step, network, together=together)
            if network is not None and dist.get_rank() == 0:
                record.stopped = record.stopped or steps.find_collapse(step)
                steps.publish_best_step(record, network)
                if self.trial.calibration.targets:
                    record.calibration = yield from calibrate(steps, network, record.metrics)
        except TrialDiverged as error:
            stopped = error
        finally:
            record.seconds["evaluation"] += perf_counter() - begun
        if dist.get_world_size() > 1:
            dist.barrier()
        if stopped is not None:
            raise stopped

    def _halve_micro_batch(self, full: Exception) -> None:
        """Note half the micro-batch for the next attempt. Raises `full` if there is no half."""
        size = self.record.micro_batch or self.trial.training.batch_size // self.trial.resources.ranks
        if size == 1:
            raise full
        atomic_files.write_json(self.folder / RETRY, {"micro_batch": size // 2})
        self.store.try_push(self.folder / RETRY)
        if self.many:
            step = len(self.record.steps) + 1
            raise RankRestartNeeded(f"out of memory at step {step}: again with micro-batch {size // 2}") from full

    def _explain(self, failure: Exception) -> dict[str, Any]:
        """Return the trial's error. On many ranks raises `failure` again, unless the trial stopped on all of them."""
        steps = len(self.record.steps)
        if isinstance(failure, TrialDiverged):
            return {"kind": "diverged", "message": failure.message, "step": failure.step}
        if is_out_of_memory(failure):
            error = {"kind": "out_of_memory", "message": errors.first_error_line(failure), "step": steps + 1}
            if self.many:  # perhaps on this rank alone: it writes, and no rank starts again if there is a result
                self._finish(error)
                raise failure
            return error
        if self.many:
            raise failure
        atomic_files.write_redacted_text(self.folder / ERROR, "".join(traceback.format_exception(failure)))
        kind = LOST if is_disk_error(failure, self.store) else "failed"
        return {"kind": kind, "message": f"{type(failure).__name__}: {failure}", "step": steps}

    def _finish(self, error: dict[str, Any] | None) -> dict[str, Any]:
        self.record.seconds["total"] = perf_counter() - self.record.begun
        result = write_trial_files(self.trial, self.record, error, self.folder)
        if error is None:
            (self.folder / ERROR).unlink(missing_ok=True)
        remove_trial_leftovers(self.folder)
        if not self.store.push_trial(self.trial.id()):
            raise StoreUnreachable(f"--storage: it did not take trial {self.trial.id()}, which has to run again")
        return result

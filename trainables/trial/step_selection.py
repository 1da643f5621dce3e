"""What a trial is measured at: its last step, or one of several that the selection rule chooses.

With `training.eval_every` rank 0 writes `trials/ID/evaluations/N.json` and `N.parquet` of step N, and where weights are
wanted those of the best step so far and of the best one up to the last checkpoint, which a trial that is started again
falls back on; the folder goes when the trial has its result, which holds all the metrics.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist

from trainables import benchmarks
from trainables.benchmarks import evaluation, selection
from trainables.common import provenance
from trainables.common.errors import InputError
from trainables.config import trial as config
from trainables.config.trial import Trial
from trainables.inference import parallel
from trainables.storage import files
from trainables.storage.base import EVALUATIONS, RESULT, Storage
from trainables.training import models, target_weights
from trainables.trial.record import Place, Record

FOLDER, WEIGHTS = EVALUATIONS, "weights-{}"
BEST = "best"
Document = dict[str, Any]
"""An evaluation: `metrics` and `halves`, of a step also whether it was the best so far."""


def original(trial: Trial, store: Storage) -> Document | None:
    """The target model's evaluation that the sweep made once, None where there is none."""
    retain = trial.retain_evaluation.fingerprint if trial.retain_evaluation else None
    key = config.evaluation_id(trial.target, trial.benchmark, retain, trial.resources.precision)
    return store.read_json(store.evaluation(key) / RESULT)


class Candidates:
    """The evaluations of one trial's steps, kept by rank 0."""

    def __init__(self, trial: Trial, place: Place, tokenizer: Any, reference: Any) -> None:
        self.trial = trial
        self.place = place
        self.tokenizer = tokenizer
        self.reference = reference
        self.folder = place.folder / FOLDER
        self.target: Document | None = None
        self.saved = 0

    def due(self, step: int) -> bool:
        """Whether `step` is evaluated although training goes on."""
        every = self.trial.training.eval_every
        return every is not None and step % every == 0

    def complete(self, step: int) -> bool:
        """Whether a trial can go on from a checkpoint at `step`: what it wants of the steps before is there."""
        if self.place.weights is None or not any(number <= step for number in self._steps()):
            return True
        best = self._best_until(step)
        return best is not None and self._weights(best).is_dir()

    def checkpointed(self, step: int) -> None:
        """A trial that is started again has the steps up to `step` behind it."""
        self.saved = step

    def forget_after(self, step: int) -> None:
        """Drop the evaluations of steps that a trial, started again at `step`, has before it once more."""
        self.saved = step
        for number in self._steps():
            if number > step:
                for name in (f"{number}.json", f"{number}.parquet"):
                    (self.folder / name).unlink(missing_ok=True)
                shutil.rmtree(self._weights(number), ignore_errors=True)

    def look(self, step: int, network: Any, *, together: bool) -> None:
        """Evaluate the whole model after `step`; its weights stay where they are wanted and it is the best so far.

        `together`: every rank has it and calls this; rank 0 alone keeps what comes of it.
        Raises TrialStopped where the model has diverged: that ends the trial, whatever earlier steps gave.
        """
        network.eval()
        with parallel.over_ranks(together):
            metrics, questions = self._evaluate(network)
        if together and dist.get_rank() > 0:
            return
        document = self._document(network, metrics, questions)
        if self.trial.selection.halves and self.trial.training.eval_every and document["halves"] is None:
            raise InputError("selection.halves: each task needs at least two evaluation rows")
        files.write_rows(self.folder / f"{step}.parquet", questions)
        files.write_json(self.folder / f"{step}.json", document)
        if self.best() != step:
            return
        files.write_json(self.folder / f"{step}.json", document | {BEST: True})
        if self.place.weights is None:
            return
        fallback = self._best_until(self.saved)
        for old in self.folder.glob(WEIGHTS.format("*")):
            if fallback is None or old != self._weights(fallback):
                shutil.rmtree(old)
        made = {"trial": self.trial.id(), **provenance.stamp(self.trial.method)}
        models.save(network, self.tokenizer, self._weights(step), made)

    def collapsed(self, step: int) -> dict[str, Any] | None:
        """Whether the utility after `step` is below the bar, as an error of kind `collapsed`."""
        bar, name = self.trial.training.stop_below, benchmarks.find(self.trial.benchmark.name).GOALS[-1].metric
        utility = self._read(step)["metrics"].get(name)
        if bar is None or utility is None or utility >= bar:
            return None
        message = f"{name} {utility:.4g} is below training.stop_below={bar:g} at step {step}"
        return {"kind": "collapsed", "message": message, "step": step}

    def best(self) -> int:
        """The step that the trial's selection rule chooses of those evaluated so far; ties go to the earlier one."""
        steps, rule, name = self._steps(), self.trial.selection, self.trial.benchmark.name
        if len(steps) == 1:
            return steps[0]
        metrics = {step: selection.choosing(self._read(step), rule) for step in steps}
        found = [selection.candidate(f"{step:09}", name, metrics[step]) for step in steps]
        utility = selection.choosing(self._target(), rule).get(benchmarks.find(name).GOALS[-1].metric)
        chosen = selection.pick([one for one in found if one], utility, rule)
        return int(chosen.key) if chosen else steps[-1]

    def finish(self, record: Record) -> None:
        """Make the chosen step the trial's result."""
        step = self.best()
        document = self._read(step)
        record.metrics, record.halves = document["metrics"], document["halves"]
        record.questions = files.read_rows(self.folder / f"{step}.parquet")
        if self.trial.training.eval_every is not None:
            record.evaluations = [{"step": number, **self._read(number)["metrics"]} for number in self._steps()]
            record.chosen_step = step
        if self.place.weights is not None:
            shutil.rmtree(self.place.weights, ignore_errors=True)  # of a process that was killed before its result
            files.publish(self._weights(step), self.place.weights)

    def _evaluate(self, network: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        budget = self.trial.resources.evaluation_tokens
        return evaluation.evaluate(network, self.tokenizer, self.trial.benchmark, self.reference, token_budget=budget)

    def _document(self, network: Any, metrics: dict[str, Any], questions: list[dict[str, Any]]) -> Document:
        metrics["relative_change"] = target_weights.relative_change(network, target_weights.of(self.trial.target))
        return {"metrics": metrics, "halves": benchmarks.halves(self.trial.benchmark, questions, self.reference)}

    def _target(self) -> Document:
        """The target model's evaluation: the sweep's, else made here once."""
        if self.target is None:
            self.target = original(self.trial, self.place.store)
        if self.target is None:
            network, _ = models.load(self.trial.target, self.trial.resources.precision)
            device = "cuda" if self.trial.resources.gpus else "cpu"
            network = network.to(device)
            self.target = self._document(network, *self._evaluate(network))
        return self.target

    def _best_until(self, step: int) -> int | None:
        """The best of the steps up to `step`: the last one of them that was the best so far."""
        return max(
            (number for number in self._steps() if number <= step and self._read(number).get(BEST)), default=None
        )

    def _steps(self) -> list[int]:
        return sorted(int(file.stem) for file in self.folder.glob("*.json"))

    def _read(self, step: int) -> Document:
        return files.read_json(self.folder / f"{step}.json") or {}

    def _weights(self, step: int) -> Path:
        return self.folder / WEIGHTS.format(step)

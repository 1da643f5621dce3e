"""The step that a trial is measured at: its last one, or one of several that the selection rule chooses.

Until there is a result, rank 0 keeps `evaluations/N.json` and `N.parquet` of every evaluated step N, and, if weights
are kept or `selection.rows` is set, `weights-N` of the best step so far and of that up to the last checkpoint.
"""

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from trainables import benchmarks
from trainables.benchmarks import evaluation, selection
from trainables.benchmarks.base import TARGET_IS_OWN_REFERENCE
from trainables.benchmarks.local_paths import localize_paths
from trainables.common import provenance
from trainables.common.errors import InputError, TrialDiverged
from trainables.config.settings import Model
from trainables.config.shared_artifacts import evaluation_id
from trainables.config.trial import Trial
from trainables.inference.passes import split_items_among_ranks
from trainables.inference.progress import ProgressCallback, report_progress_to
from trainables.storage import atomic_files
from trainables.storage.file_names import CONFIG, EVALUATIONS, RESULT
from trainables.storage.folder_storage import Storage
from trainables.training import model_files, runtime
from trainables.trial import weights_on_disk
from trainables.trial.record import TrialRecord

MAX_LOOKS_WITHOUT_GAIN = 4
"""Training ends after so many looks in a row that found no better step than one that removed half or more."""
WAS_BEST_FIELD = "best"
StepEvaluation = dict[str, Any]
"""`metrics` and `halves`; WAS_BEST_FIELD is true if the step was the best one when it was evaluated."""
Metrics = dict[str, Any]


def list_predecessor_trials(trial: Trial, store: Storage) -> list[Trial]:
    """Return the trials that a trial goes on from, the nearest first; also of another storage, where its target is."""
    found = []
    while trial.earlier_trial_id:
        config = store.read_json(store.trial(trial.earlier_trial_id) / CONFIG)
        config = config or atomic_files.read_json(Path(trial.target.path).parent / CONFIG)
        if config is None:
            raise InputError(f"target: trial {trial.earlier_trial_id}, which made it, is in no storage at hand")
        trial = localize_paths(Trial.model_validate(config), store)
        found.append(trial)
    return found


def load_target_evaluation(trial: Trial, store: Storage) -> StepEvaluation | None:
    """Return the target model's evaluation that the sweep made once, if it did: that before the first of a row."""
    retain = trial.retain_evaluation.fingerprint if trial.retain_evaluation else None
    if benchmarks.get_benchmark(trial.benchmark.name).REFERENCE == "original":
        retain = TARGET_IS_OWN_REFERENCE
    target = [trial, *list_predecessor_trials(trial, store)][-1].target
    key = evaluation_id(target, trial.benchmark, retain, trial.resources.precision)
    return store.read_json(store.evaluation(key) / RESULT)


@dataclass
class StepSelection:
    """The evaluations of one trial's steps, kept by rank 0. `weights`: where the chosen step's go, if anywhere."""

    trial: Trial
    store: Storage
    weights: Path | None
    tokenizer: Any
    reference: Any
    report: ProgressCallback | None = None
    target: StepEvaluation | None = None
    saved_step: int = 0
    tokens: int | None = None
    """Padded tokens of a pass of the last evaluation."""
    last_look: str = ""
    """The goals of the last evaluation, in words."""

    @property
    def evaluations_folder(self) -> Path:
        return self.store.trial(self.trial.id()) / EVALUATIONS

    @property
    def _looks(self) -> int | None:
        """Return how many rows of each set decide on the step, None if all do."""
        return self.trial.selection.rows if self.trial.training.eval_every else None

    @property
    def _saves(self) -> bool:
        return self.weights is not None or self._looks is not None

    def can_resume_at(self, step: int) -> bool:
        """Return whether the weights are there of the best step up to `step`; True for a trial that keeps none."""
        if not self._saves or not any(number <= step for number in self._list_steps()):
            return True
        best = self._best_until(step)
        return best is not None and self._weights_folder(best).is_dir()

    def drop_evaluations_after(self, step: int) -> None:
        """Remove the evaluations of steps that a trial, resumed at `step`, will do again."""
        self.saved_step = step
        for number in self._list_steps():
            if number > step:
                for name in (f"{number}.json", f"{number}.parquet"):
                    (self.evaluations_folder / name).unlink(missing_ok=True)
                shutil.rmtree(self._weights_folder(number), ignore_errors=True)

    def evaluate(self, step: int, network: Any, *, together: bool) -> None:
        """Evaluate the model after `step`, or look at it; save its weights if needed and it is the best so far.

        `together`: every rank has the model and calls this. Raises TrialDiverged if it diverged.
        """
        network.eval()
        with split_items_among_ranks(together):
            metrics, rows = self.measure_network(network, self._looks)
        if together and dist.get_rank() > 0:
            return
        found = self._make_evaluation(network, metrics, rows)
        self.last_look = f"step {step}: {benchmarks.format_goal_values(self.trial.benchmark.name, metrics)}"
        if self.trial.selection.halves and self.trial.training.eval_every and found["halves"] is None:
            raise InputError("selection.halves: each task needs at least two evaluation rows")
        atomic_files.write_parquet_rows(self.evaluations_folder / f"{step}.parquet", rows)
        atomic_files.write_json(self.evaluations_folder / f"{step}.json", found)
        if self.choose_best_step() != step:
            return
        atomic_files.write_json(self.evaluations_folder / f"{step}.json", found | {WAS_BEST_FIELD: True})
        if not self._saves:
            return
        fallback = self._best_until(self.saved_step)
        for old in self.evaluations_folder.glob("weights-*"):
            if fallback is None or old != self._weights_folder(fallback):
                shutil.rmtree(old)
        made = {"trial": self.trial.id(), **provenance.collect_provenance(self.trial.method, self.trial.rectifier.name)}
        model_files.save_model(network, self.tokenizer, self._weights_folder(step), made)

    def measure_network(self, network: Any, most: int | None = None) -> tuple[Metrics, benchmarks.Records]:
        self.tokens = runtime.choose_process_token_budget(self.trial.resources, network)
        asked = self.tokenizer, self.trial.benchmark, self.reference
        with report_progress_to(self.report):
            return evaluation.evaluate(network, *asked, token_budget=self.tokens, most=most)

    def find_collapse(self, step: int) -> dict[str, Any] | None:
        """Return an error of kind `collapsed` if the utility after `step` is below its bar."""
        bar, name = self.trial.training.stop_below, benchmarks.get_benchmark(self.trial.benchmark.name).GOALS[-1].metric
        utility = self._read(step)["metrics"].get(name)
        if bar is None or utility is None or utility >= bar:
            return None
        message = f"{name} {utility:.4g} is below training.stop_below={bar:g} at step {step}"
        return {"kind": "collapsed", "message": message, "step": step}

    def compute_least_kept_utility(self) -> float | None:
        """Return the utility that `training.stop_when` keeps; None without one, or where the target model has none."""
        if (share := self.trial.training.kept_utility_share) is None:
            return None
        known = selection.pick_utility(self._find_target(), self.trial.benchmark.name, self.trial.selection)
        return share * known if known else None

    def find_reason_to_end_training(self) -> str | None:
        """Return why training ends: the budget of disruption is spent; or by looks: too little is kept, or all or half
        is removed and nothing better is found.
        """
        steps, least = self._list_steps()[-2:], self.compute_least_kept_utility()
        found = selection.pick_utility(self._read(steps[-1]), self.trial.benchmark.name, self.trial.selection)
        if least is not None and found is not None and found < least:
            bar = self.trial.training.stop_when
            return f"less than training.stop_when={bar} of the utility was kept at step {steps[-1]}"
        if self._looks is None:
            return None
        rule, name = self.trial.selection, self.trial.benchmark.name
        last = [selection.pick_half_metrics(self._read(step), rule) for step in steps]
        floor = rule.share * (selection.pick_utility(self._find_target(), name, rule) or 0)
        utilities = [one.utility for one in (selection.make_candidate("", name, each) for each in last) if one]
        if rule.rule == "utility_floor" and len(utilities) == 2 and max(utilities) < floor:
            return f"less than {rule.share:.0%} of the utility was kept at steps {steps[0]} and {steps[1]}"
        removal = [goal for goal in benchmarks.get_benchmark(name).GOALS if goal.side == "removal"]
        if all(goal.best == "lowest" and last[-1].get(goal.metric) == 0 for goal in removal):
            return f"everything looked at was forgotten at step {steps[-1]}"
        best, known = self.choose_best_step(), selection.pick_half_metrics(self._find_target(), rule)
        now = selection.pick_half_metrics(self._read(best), rule)
        left = [(now.get(goal.metric), known.get(goal.metric) or 0) for goal in removal if goal.best == "lowest"]
        gone = len(left) == len(removal) and all(value is not None and 2 * value <= before for value, before in left)
        if gone and best < self._list_steps()[-MAX_LOOKS_WITHOUT_GAIN:][0]:
            return f"{MAX_LOOKS_WITHOUT_GAIN} looks found nothing better than step {best}"
        return None

    def choose_best_step(self) -> int:
        """Return the rule's choice of the steps so far, within `training.stop_when` if any is; of ties the first."""
        steps, rule, name = self._list_steps(), self.trial.selection, self.trial.benchmark.name
        if len(steps) == 1:
            return steps[0]
        metrics = {step: selection.pick_half_metrics(self._read(step), rule) for step in steps}
        candidates = [selection.make_candidate(f"{step:09}", name, metrics[step]) for step in steps]
        utility, least = selection.pick_utility(self._find_target(), name, rule), self.compute_least_kept_utility()
        known = [candidate for candidate in candidates if candidate]
        kept = [candidate for candidate in known if least is None or candidate.utility >= least]
        chosen = selection.pick_best_candidate(kept or known, utility, rule)
        return int(chosen.key) if chosen else steps[-1]

    def publish_best_step(self, record: TrialRecord, network: Any) -> None:
        """Make the best step the trial's result, evaluated whole if it was looked at, and publish its weights.

        `network`: the model after the last step; it gets the best step's weights if that is evaluated whole.
        """
        step = self.choose_best_step()
        found, rows = self._read(step), atomic_files.read_parquet_rows(self.evaluations_folder / f"{step}.parquet")
        if self._looks is not None:
            kept = Model(path=str(self._weights_folder(step)), attention=self.trial.target.attention)
            chosen, _ = model_files.load_model_and_tokenizer(kept, self.trial.resources.precision)
            network.eval().load_state_dict(chosen.state_dict())
            del chosen
            metrics, rows = self.measure_network(network)
            found = self._make_evaluation(network, metrics, rows)
        record.evaluation_rows = rows
        record.metrics, record.halves, record.evaluation_tokens = found["metrics"], found["halves"], self.tokens
        if self.trial.training.eval_every is not None:
            record.evaluations, record.chosen_step = [], step
            for number in self._list_steps():
                one = self._read(number)
                halves = {"halves": one["halves"]} if self.trial.selection.halves else {}
                record.evaluations.append({"step": number, **one["metrics"], **halves})
        if self.weights is not None:
            shutil.rmtree(self.weights, ignore_errors=True)  # of a process that was killed before its result
            atomic_files.publish_folder(self._weights_folder(step), self.weights)

    def _make_evaluation(self, network: Any, metrics: Metrics, rows: benchmarks.Records) -> StepEvaluation:
        target = weights_on_disk.map_tensors_to_files(self.trial.target)
        metrics["relative_change"] = weights_on_disk.compute_relative_change(network, target)
        halves = benchmarks.compute_metrics_of_each_half(self.trial.benchmark, rows, self.reference)
        return {"metrics": metrics, "halves": halves}

    def look_at_target(self, network: Any) -> None:
        """Take the look at the target model that those at trained ones are held against: at the same rows, once.

        Where each row is held against the target's own answer, its evaluation serves as well.
        """
        by_row = benchmarks.get_benchmark(self.trial.benchmark.name).REFERENCE == "original"
        if self._looks is not None and not by_row and dist.get_rank() == 0:
            with contextlib.suppress(TrialDiverged):  # all ranks hear of that after the first look at the trained one
                self.target = self._measure_target(network)

    def _find_target(self) -> StepEvaluation:
        """Return the look at the target model, or else its evaluation: the sweep's, or one that is made here, once."""
        self.target = self.target or load_target_evaluation(self.trial, self.store) or self._measure_target()
        return self.target

    def _measure_target(self, network: Any = None) -> StepEvaluation:
        """Measure the target model, before the first of a row; `network`: the model that the trial goes on from."""
        if network is None or self.trial.earlier_trial_id:
            first = [self.trial, *list_predecessor_trials(self.trial, self.store)][-1].target
            network, _ = model_files.load_model_and_tokenizer(first, self.trial.resources.precision)
            network = network.to("cuda" if self.trial.resources.gpus else "cpu")
        metrics, rows = self.measure_network(network.eval(), self._looks)
        halves = benchmarks.compute_metrics_of_each_half(self.trial.benchmark, rows, self.reference)
        return {"metrics": metrics, "halves": halves}

    def _best_until(self, step: int) -> int | None:
        """Return the best of the steps up to `step`: the last of them that was the best so far."""
        steps = [number for number in self._list_steps() if number <= step and self._read(number).get(WAS_BEST_FIELD)]
        return max(steps, default=None)

    def _list_steps(self) -> list[int]:
        return sorted(int(file.stem) for file in self.evaluations_folder.glob("*.json"))

    def _read(self, step: int) -> StepEvaluation:
        return atomic_files.read_json(self.evaluations_folder / f"{step}.json") or {}

    def _weights_folder(self, step: int) -> Path:
        return self.evaluations_folder / f"weights-{step}"

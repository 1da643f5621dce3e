"""What runs in Ray's processes: trials of one rank in a Tune actor, and what follows a sweep."""

import gc
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ray import tune

from trainables import benchmarks
from trainables.benchmarks.local_paths import localize_paths
from trainables.common import cli, provenance
from trainables.common.errors import InputError, StoreUnreachable
from trainables.config.settings import Benchmark, Selection
from trainables.config.trial import Trial
from trainables.storage.folder_storage import Storage, remove_trial_leftovers
from trainables.storage.opening import open_storage_unchecked

REPORT_INTERVAL_SECONDS = 2.0


class OneRankTrialActor(tune.Trainable):
    """Runs one-rank trials, one after another; configuration: a `trial` as JSON, `storage`, `keep`."""

    def setup(self, config: dict[str, Any]) -> None:
        provenance.collect_provenance()
        cli.silence_libraries()
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial, quickly: Tune gives a trial up whose actor is lost during its reset."""
        self._take(new_config)
        self.reused = True
        return True

    def _take(self, new_config: dict[str, Any]) -> None:
        self.events: Iterator[dict[str, Any]] | None = None
        self.reused = False
        self.given = new_config
        self.trial = Trial.model_validate_json(new_config["trial"])
        self.store = open_storage_unchecked(new_config["storage"])

    def step(self) -> dict[str, Any]:
        """Go on for about two seconds, or to the end; one that another process runs waits for that one's end."""
        from trainables.trial import progress, record

        key = self.trial.id()
        try:
            if self.events is None:
                if self.reused and not gc.get_freeze_count():
                    gc.collect()  # what a trial that was stopped has left in cycles would stay for good
                    gc.freeze()  # libraries make a million objects, which each trial's four collections need not see
                if self.store.result(key) is None and progress.runs_on_this_machine(self.store.trial(key)):
                    time.sleep(REPORT_INTERVAL_SECONDS)
                    return {"id": key, "done": False, "phase": "waiting", "step": 0, "steps": 0}
                if (result := fetch_stored_result(self.trial, self.store)) is not None:
                    return make_final_report(result)
                from trainables.trial.runner import TrialRun

                trial = localize_paths(self.trial, self.store)
                self.events = TrialRun(trial, self.store, bool(self.given.get("keep"))).run_events()
            started = time.monotonic()
            while True:
                event = next(self.events)
                if event["phase"] == "done":
                    return make_final_report(event["result"])
                if event["phase"] == "evaluation" or time.monotonic() - started > REPORT_INTERVAL_SECONDS:
                    report = {"phase": event["phase"], "step": event.get("step", 0), "steps": event.get("steps", 0)}
                    return {"id": key, "done": False, **report}
        except StoreUnreachable:
            raise
        except InputError as error:
            return make_final_report(record.write_failure(self.trial, self.store, str(error)))

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the storage is the truth."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: see save_checkpoint."""


def fetch_stored_result(trial: Trial, store: Storage) -> dict[str, Any] | None:
    """Fetch a trial and return its result; None: it is to run."""
    store.fetch_trial(trial.id())
    result = store.result(trial.id())
    if result is not None:
        remove_trial_leftovers(store.trial(trial.id()))
    return result


def make_final_report(result: dict[str, Any]) -> dict[str, Any]:
    """Return the last report to Tune, with what can be searched for, also on halves."""
    goals = benchmarks.list_searchable_goals(Benchmark.model_validate(result["config"]["benchmark"]))
    return {
        "id": result["id"],
        "done": True,
        "phase": "done",
        "status": result["status"],
        "halves": result.get("halves"),
        **{goal.metric: result["metrics"].get(goal.metric) for goal in goals.values()},
    }


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
    shares, _ = attack_models.run_attacks(
        attack_models.make_attack_inputs_from_trial(trial_id, store), names, lr, 0, store
    )
    known = [row for row in shares if row["share"] is not None]
    if not known:
        return "attacked; hardly anything was removed" if shares else "no attack could be made"
    worst = max(known, key=lambda row: row["share"])
    return f"attacked; most came back by {worst['title']}: {worst['share']:.0%}"

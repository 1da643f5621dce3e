"""What a trial has measured so far, and how its files are written: steps, evaluation rows and result.json."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from trainables.common import provenance
from trainables.common.errors import extract_last_line
from trainables.common.redaction import redact
from trainables.config.method_tables import RECTIFIERS
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.file_names import ERROR, LOST, PROGRESS, RESULT, RETRY, ROWS, STEPS
from trainables.storage.folder_storage import Storage

TrialEvent = dict[str, Any]
RECORD_FIELDS_IN_RESULT = ("started", "attempt", "metrics", "halves", "damaged_checkpoint", "direction", "calibration")
RECORD_FIELDS_IN_RESULT += ("evaluations", "chosen_step")
TIMED_PARTS = ("loading", "training", "evaluation", "total")


@dataclass
class TrialRecord:
    """Everything measured of a trial so far; `steps` and `evaluation_rows` become Parquet files."""

    started: str
    attempt: str | None = field(default_factory=lambda: uuid.uuid4().hex)
    """Names this run of the trial among others; None: it did not run (`write_failed_trial`)."""
    begun: float = field(default_factory=perf_counter)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TIMED_PARTS, 0.0))
    """Wall time by part, with that of earlier processes up to the checkpoint."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    evaluation_rows: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    halves: list[dict[str, Any]] | None = None
    micro_batch: int | None = None
    evaluation_tokens: int | None = None
    zero_stage: int | None = None
    resumed_at: int | None = None
    damaged_checkpoint: str | None = None
    direction: str | None = None
    """The id of the direction that a trial of TV or TRU moved along."""
    calibration: dict[str, Any] | None = None
    evaluations: list[dict[str, Any]] | None = None
    chosen_step: int | None = None
    stopped: dict[str, Any] | None = None
    """Why training stopped before its last step, as an error of kind `collapsed`."""
    ended: str | None = None
    """Why it ended before that with a step to choose (`StepSelection.find_reason_to_end_training`)."""

    def update_seconds(self) -> dict[str, float]:
        """Bring total and training up to date, and return all; training is what is neither loading nor evaluation."""
        seconds = self.seconds
        seconds["total"] = perf_counter() - self.begun
        seconds["training"] = max(0.0, seconds["total"] - seconds["loading"] - seconds["evaluation"])
        return seconds

    def resume_at_step(self, step: int, seconds: Mapping[str, float]) -> None:
        """Add the `seconds` by part that earlier processes took to reach the checkpoint at `step`; a retry has them."""
        counted, self.resumed_at = self.resumed_at is not None or self.seconds["training"] > 0, step
        if counted:
            return
        self.begun -= seconds.get("total", 0.0)
        for part in ("loading", "evaluation"):
            self.seconds[part] += seconds.get(part, 0.0)


def write_trial_files(trial: Trial, record: TrialRecord, error: dict[str, Any] | None, folder: Path) -> dict[str, Any]:
    """Write the files of a trial, result.json last, remove those of its progress, and return the result."""
    from trainables.training.runtime import read_device_name  # imports torch, which the driver does without

    written = {name: rows for name, rows in ((STEPS, record.steps), (ROWS, record.evaluation_rows)) if rows}
    for name in {STEPS, ROWS} - written.keys() if record.attempt else ():  # of an earlier attempt
        (folder / name).unlink(missing_ok=True)
    for name, rows in written.items():
        atomic_files.write_parquet_rows(folder / name, rows)
    if error:
        error = error | {"message": redact(error["message"])}
    result = {
        "id": trial.id(),
        "status": error["kind"] if error else "finished",
        "config": trial.model_dump(mode="json"),
        "adds_retain": RECTIFIERS[trial.rectifier.name].adds_retain,
        **{name: getattr(record, name) for name in RECORD_FIELDS_IN_RESULT},
        "training": {
            "steps": len(record.steps),
            "skipped": sum(step["skipped"] for step in record.steps),
            "resumed_at": record.resumed_at,
            **({} if record.ended is None else {"ended": record.ended}),
        },
        "seconds": {name: round(value, 3) for name, value in record.seconds.items()},
        "topology": {  # changes the numbers by no more than rounding
            "ranks": trial.resources.ranks,
            "zero_stage": record.zero_stage,
            "device": read_device_name(trial.resources.gpus),
            "threads": trial.resources.cpus,
            "micro_batch": record.micro_batch or trial.training.batch_size // trial.resources.ranks,
            "evaluation_tokens": record.evaluation_tokens,
        },
        "error": error,
        **provenance.collect_provenance(trial.method, trial.rectifier.name),
    }
    atomic_files.write_json(folder / RESULT, result)
    for name in (PROGRESS, *(() if result["status"] == LOST else (RETRY,))):
        (folder / name).unlink(missing_ok=True)
    return atomic_files.read_json(folder / RESULT) or result


def write_failed_trial(
    trial: Trial, store: Storage, message: str, kind: str = "failed", seconds: float = 0.0
) -> dict[str, Any]:
    """Write the result of a trial that cannot be run, or that was lost after `seconds`, with the reason."""
    folder = store.trial(trial.id())
    atomic_files.write_redacted_text(folder / ERROR, message + "\n")
    last = extract_last_line(message, "no reason given")
    record = TrialRecord(provenance.utc_now(), attempt=None)
    record.seconds["total"] = seconds
    result = write_trial_files(trial, record, {"kind": kind, "message": last, "step": None}, folder)
    store.push_trial(trial.id())
    return result

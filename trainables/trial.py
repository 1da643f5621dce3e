"""One trial: a pure function of its configuration, whose result is written to storage last."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from trainables import engine, evaluation, loop, models, objectives, provenance, rectification, rows, storage, templates
from trainables.benchmarks import tofu
from trainables.config import Resources, Trial
from trainables.errors import InputError, TrialStopped

Event = dict[str, Any]


@dataclass
class Seconds:
    """Wall time of a trial's parts."""

    loading: float = 0.0
    training: float = 0.0
    evaluation: float = 0.0
    total: float = 0.0


@dataclass
class Record:
    """What a trial has found so far; `steps` and `questions` become Parquet files."""

    started: str
    seconds: Seconds = field(default_factory=Seconds)
    steps: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)


def run(trial: Trial, store: storage.Storage) -> Iterator[Event]:
    """Run a trial and write its result; yields `{"phase", "step", "steps", ...}` as it goes, the result last.

    A loss that is not finite, or a GPU that is full, ends it with status `diverged` or `out_of_memory`; any other
    error with `failed` and its traceback in error.txt. InputError is the caller's to report.
    """
    folder = store.trial(trial.id())
    storage.write_json(folder / storage.CONFIG, trial.model_dump(mode="json"))
    record, error, begun = Record(provenance.now()), None, perf_counter()
    try:
        yield from _phases(trial, record)
    except InputError:
        raise
    except TrialStopped as stopped:
        error = {"kind": stopped.kind, "message": stopped.message, "step": stopped.step}
    except torch.OutOfMemoryError as full:
        error = {"kind": "out_of_memory", "message": str(full).splitlines()[0], "step": len(record.steps) + 1}
    except Exception as failure:
        storage.write_text(folder / storage.ERROR, traceback.format_exc())
        error = {"kind": "failed", "message": f"{type(failure).__name__}: {failure}", "step": len(record.steps)}
    record.seconds.total = perf_counter() - begun
    yield {"phase": "done", "result": _write(trial, record, error, folder)}


def refused(trial: Trial, store: storage.Storage, message: str) -> dict[str, Any]:
    """The result of a trial that cannot be run or whose process died: failed, with the reason."""
    folder = store.trial(trial.id())
    storage.write_text(folder / storage.ERROR, message + "\n")
    last = message.strip().splitlines()[-1] if message.strip() else "no reason given"
    return _write(trial, Record(provenance.now()), {"kind": "failed", "message": last, "step": None}, folder)


def prepare_process(resources: Resources, seed: int) -> torch.device:
    """Threads, determinism and the process group of a one-rank trial; returns its device.

    Nothing here reads memory it has not written, so torch need not fill new tensors with NaN (3 times slower).
    """
    torch.set_num_threads(resources.cpus)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.manual_seed(seed)
    device = torch.device("cuda", 0) if resources.gpus > 0 else torch.device("cpu")
    engine.join(device)
    return device


def encode_rows(tokenizer: Any, trial_rows: list[rows.Row], template: str, dialect: str, max_length: int) -> list[Any]:
    """Training rows as examples, in the dialect's sense of what is prompt."""
    found, rules = templates.find(template), tofu.RULES[dialect]
    return [
        templates.encode(
            tokenizer, found, row["question"], row["answer"], max_length=max_length, tag_is_answer=rules.tag_is_answer
        )
        for row in trial_rows
    ]


def check_inputs(trial: Trial) -> None:
    """Raise InputError where data or weights are not what the configuration was made from."""
    benchmark = trial.benchmark
    if (benchmark.fingerprint or "").startswith("files:"):
        found = rows.fingerprint(benchmark.data, tofu.configs(benchmark.split), benchmark.revision)
        if found != benchmark.fingerprint:
            raise InputError(
                f"benchmark.data: '{benchmark.data}' has changed since this trial was planned; plan it again"
            )
    models.check(trial.target)
    known = trial.target.fingerprint or ""
    if known.startswith("files:") and models.fingerprint(trial.target) != known:
        raise InputError(f"target: '{trial.target.path}' has changed since this trial was planned; plan it again")


def _phases(trial: Trial, record: Record) -> Iterator[Event]:
    yield {"phase": "loading"}
    begun = perf_counter()
    check_inputs(trial)
    device = prepare_process(trial.resources, trial.seed)
    retain = None
    if trial.retain_evaluation:
        retain = evaluation.retain_ratios(Path(trial.retain_evaluation.path), trial.benchmark, "retain_evaluation")
    network, tokenizer = models.load(trial.target, trial.resources.precision)
    task = _task(trial, tokenizer)
    training = engine.create(network.to(device).train(), trial.training, trial.resources)
    record.seconds.loading = perf_counter() - begun
    try:
        steps = task.steps()
        for told in loop.run(training, task):
            record.steps.append(told)
            yield {"phase": "training", "step": told["step"], "steps": steps, "loss": told["loss"]}
        record.seconds.training = perf_counter() - begun - record.seconds.loading
        yield {"phase": "evaluation", "step": steps, "steps": steps}
        begun = perf_counter()
        record.metrics, record.questions = evaluation.evaluate(
            training.module.eval(),
            tokenizer,
            trial.benchmark,
            retain,
            token_budget=trial.resources.evaluation_tokens,
        )
        record.seconds.evaluation = perf_counter() - begun
    finally:
        training.close()


def _task(trial: Trial, tokenizer: Any) -> loop.Task:
    forget, retain = tofu.training_rows(trial.benchmark)
    encoded = [
        encode_rows(tokenizer, side, trial.benchmark.template, trial.benchmark.dialect, trial.training.max_length)
        for side in (forget, retain)
    ]
    return loop.Task(
        forget=encoded[0],
        retain=encoded[1],
        objective=objectives.make(trial.method, trial.objective),
        rectifier=rectification.make(trial.rectifier.name, trial.rectifier.gamma, trial.rectifier.tau),
        training=trial.training,
        seed=trial.seed,
        pad=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
        micro_batch=trial.resources.micro_batch,
    )


def _write(trial: Trial, record: Record, error: dict[str, Any] | None, folder: Path) -> dict[str, Any]:
    """Write the files of a trial, result.json last."""
    if record.steps:
        storage.write_rows(folder / storage.STEPS, record.steps)
    if record.questions:
        storage.write_rows(folder / storage.ROWS, record.questions)
    resources = trial.resources
    result = {
        "id": trial.id(),
        "status": error["kind"] if error else "finished",
        "config": trial.model_dump(mode="json"),
        "metrics": record.metrics,
        "training": {"steps": len(record.steps), "skipped": sum(step["skipped"] for step in record.steps)},
        "seconds": {name: round(value, 3) for name, value in asdict(record.seconds).items()},
        "started": record.started,
        "topology": {
            "ranks": resources.ranks,
            "zero_stage": resources.zero_stage,
            "device": torch.cuda.get_device_name(0) if resources.gpus > 0 else "cpu",
            "threads": resources.cpus,
        },
        "error": error,
        **provenance.stamp(),
    }
    storage.write_json(folder / storage.RESULT, result)
    return result

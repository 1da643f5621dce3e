"""What a report of thousands of finished trials costs: `analysis.runs.load`, and the whole `analysis.report`.

`python bench/report_many_trials.py [--trials 2000] [--json FILE]` from the root; bench/README.md says what is measured.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script
from trainables.benchmarks import tofu
from trainables.config.ids import digest
from trainables.config.settings import Benchmark, Model, Rectifier, Training
from trainables.config.trial import Trial
from trainables.storage import names
from trainables.storage.atomic_files import write_json, write_rows
from trainables.storage.folder_storage import Storage
from trainables.storage.names import RESULT
from trainables.trial.record import Record, write_result

NAME, DIGEST = "many", "0a1b2c3d"
SPLITS = ("forget05", "forget10")
METHODS = ("ga", "gd", "wga", "npo", "simnpo")
RECTIFIERS = (Rectifier(), *(Rectifier(name="gru", gamma=g, tau=t) for g in (0.05, 0.8) for t in (None, 1.0)))
RATES = (3e-6, 1e-5, 3e-5, 1e-4)
STEPS, ROWS = 32, {"forget": 200, "retain": 300, "real_authors": 100, "world_facts": 117}
"""Optimizer steps of a trial, and rows of its evaluation in the dialect `paper`."""
FILES = 40
"""Different Parquet files of each kind; trials share them by hard links."""


def make(store: Storage, count: int) -> None:
    """Write a sweep of `count` finished trials with all their files, and its reference models' evaluations."""
    files = [_files(store.root / "files" / str(number), random.Random(number)) for number in range(FILES)]
    references = [_reference(store, files[0][2], split, role) for split in SPLITS for role in ("original", "retain")]
    ids = []
    for number, trial in enumerate(itertools.islice(_trials(), count)):
        folder, (steps, rows, metrics) = store.trial(trial.id()), files[(number + trial.seed) % FILES]
        dice = random.Random(number)
        record = Record("2026-11-20T10:00:00+00:00", metrics=_with_quality(metrics, dice))
        record.halves = [_with_quality(metrics, dice), _with_quality(metrics, dice)]
        record.seconds |= {"loading": 1.0, "training": 30.0, "evaluation": 10.0, "total": 41.0}
        write_result(trial, record, None, folder)
        os.link(steps, folder / names.STEPS)
        os.link(rows, folder / names.ROWS)
        ids.append(trial.id())
    document = {"name": NAME, "hash": DIGEST, "title": "Many trials", "created": "2026-11-20T09:00:00Z"}
    document |= {"command": f"python -m platform.sweep {NAME}", "strategy": "grid", "trials": ids}
    write_json(store.sweep(NAME, DIGEST), document | {"references": references})


def _trials() -> Iterator[Trial]:
    """Every setting at one seed after the other, so that any count has about as many seeds of each."""
    for seed in itertools.count():
        for split, method, rectifier, rate in itertools.product(SPLITS, METHODS, RECTIFIERS, RATES):
            yield Trial(
                method=method,
                rectifier=rectifier,
                benchmark=Benchmark(data="data", split=split, fingerprint="files:0123456789abcdef"),
                target=Model(path="models/full", fingerprint="files:fedcba9876543210"),
                training=Training(lr=rate),
                seed=seed,
            )


def _files(folder: Path, dice: random.Random) -> tuple[Path, Path, dict[str, Any]]:
    steps = [_step(number, dice) for number in range(1, STEPS + 1)]
    scale = dice.uniform(0.1, 3.0)
    records = [_row(task, index, scale, dice) for task, count in ROWS.items() for index in range(count)]
    write_rows(folder / names.STEPS, steps)
    write_rows(folder / names.ROWS, records)
    return folder / names.STEPS, folder / names.ROWS, dict(tofu.aggregates.aggregate(records, "paper"))


def _step(number: int, dice: random.Random) -> dict[str, Any]:
    numbers = (
        "retain_loss loss cos_before cos_after grad_norm rectified_norm average_norm dot coefficient clip_scale lr"
    )
    told = {name: dice.random() for name in (*numbers.split(), "tokens_per_second")}
    return {"step": number, **told, "rectified": True, "skipped": False, "attempts": 1, "peak_memory_bytes": 10**9}


def _row(task: str, index: int, scale: float, dice: random.Random) -> dict[str, Any]:
    """As the benchmark writes it; `scale`: the loss of a token of right answers."""
    tokens = dice.randint(20, 60)
    return {
        "task": task,
        "index": index,
        "question": "".join(dice.choices("abcdefgh ", k=90)),
        "answer": "".join(dice.choices("abcdefgh ", k=240)),
        "generation": "".join(dice.choices("abcdefgh ", k=240)),
        "answer_loss": tokens * scale * dice.uniform(0.2, 1.0),
        "answer_tokens": tokens,
        "paraphrase_loss": tokens * scale * dice.uniform(0.2, 1.0),
        "paraphrase_tokens": tokens,
        "perturbed_loss": [tokens * dice.uniform(1.0, 3.0) for _ in range(5)],
        "perturbed_tokens": [tokens] * 5,
        "rouge1_recall": dice.random(),
        "rougeL_recall": dice.random(),
    }


def _with_quality(metrics: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """Return the metrics with a forget quality that nothing was tested for."""
    return {**metrics, "forget_quality": -25 * dice.random(), "forget_quality_pvalue": 0.01, "forget_quality_ks": 0.2}


def _reference(store: Storage, metrics: dict[str, Any], split: str, role: str) -> dict[str, str]:
    key = digest([split, role])[:12]
    found = _with_quality(metrics, random.Random(key)) | {"forget_quality": None if role == "retain" else -24.0}
    model = {"path": f"models/{role}", "fingerprint": "files:fedcba9876543210"}
    write_json(store.evaluation(key) / RESULT, {"id": key, "model": model, "metrics": found})
    return {"role": role, "split": split, "evaluation": key}


def measure(trials: int, place: Path) -> dict[str, Any]:
    """Seconds of `load` in this process, and of the command from its start to its end; what the page weighs."""
    make(Storage(place), trials)
    from analysis import runs

    begun, worked = time.perf_counter(), time.process_time()
    found = len(runs.load(NAME, place))
    load, load_cpu = time.perf_counter() - begun, time.process_time() - worked
    report, _ = _script.run("-m", "analysis.report", NAME, "--storage", place)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    folder = place / "reports" / f"{NAME}-{DIGEST}"
    return {
        "trials": found,
        "load_seconds": round(load, 2),
        "load_cpu_seconds": round(load_cpu, 2),
        "report_seconds": round(report, 2),
        "report_cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "report_peak_bytes": used.ru_maxrss * 1024,
        "page_bytes": (folder / "index.html").stat().st_size,
        "folder_bytes": sum(path.stat().st_size for path in folder.rglob("*.*")),
    }


def main(arguments: list[str] | None = None) -> None:
    _script.measure_trials(__doc__, 2000, measure, arguments)


if __name__ == "__main__":
    main()

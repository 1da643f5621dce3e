"""Which forget rows can still be got out of the trial to ship, and what models answer that are not all there."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from analysis.page import trial_to_ship
from tests.support import tiny
from trainables.benchmarks.own.row_files import Row
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Trial
from trainables.storage.atomic_files import write_rows
from trainables.storage.folder_storage import Storage
from trainables.storage.names import ROWS, WEIGHTS
from trainables.trial.record import Record, write_result


def record(row: int, block: int, rouge: float) -> dict[str, Any]:
    number = {"rougeL_recall": rouge, "extraction_strength": rouge / 2, "prob": rouge / 4}
    return {"task": "forget", "row": row, "digest": f"row {row}", "block": block, **number}


def test_numbers_before_are_those_of_the_block_that_is_given_away_now(store: Storage) -> None:
    """A text of two blocks: the first was given away before, and the second is now; and a question."""
    now = [record(0, 0, 0.1), record(0, 1, 0.6), record(1, 0, 0.2), record(0, 0, 0.9) | {"task": "retain"}]
    write_rows(store.trial("abc") / ROWS, now)
    write_rows(store.evaluation("e") / ROWS, [record(0, 0, 0.9), record(0, 1, 0.4), record(1, 0, 0.8)])
    models = pd.DataFrame([{"role": "original", "evaluation": "e", "split": "own"}])
    trial = {"id": "abc", "benchmark.split": "own"}
    report: Any = SimpleNamespace(store=store, results=SimpleNamespace(models=models))
    found = trial_to_ship.list_recoverable(report, trial)
    shown = found[["row", "block", "rouge", "rouge_before", "highest_rouge_before", "prob_before"]].to_numpy().tolist()
    assert shown == [[1, 1, 0.6, 0.4, 0.9, 0.1], [2, 0, 0.2, 0.8, 0.8, 0.2]]
    assert "Still to be got out: 1 of 2 measured forget rows (2 before): " in trial_to_ship._count_recoverable(found)
    shutil.rmtree(store.evaluation("e"))
    assert trial_to_ship.list_recoverable(report, trial)["rouge_before"].dropna().empty
    shutil.rmtree(store.trial("abc"))
    assert trial_to_ship.list_recoverable(report, trial).empty


def test_a_model_that_is_gone_leaves_its_answers_out_and_is_named(tmp_path: Path) -> None:
    """First a file of the target model is lost, then the trial's weights."""
    store = Storage(tmp_path / "store")
    target = tiny.write_model(tmp_path / "target", layers=1)
    benchmark = Benchmark(name="own", split="own", data="own", fingerprint="files:0", template="plain")
    model = Model(path=str(target), fingerprint="hub:org/name@main")
    trial = Trial(method="ga", benchmark=benchmark, target=model)
    shutil.copytree(target, store.trial(trial.id()) / WEIGHTS)
    write_result(trial, Record("2026-01-01T00:00:00+00:00"), None, store.trial(trial.id()))

    def ask() -> tuple[list[str], str]:
        answers, left_out = trial_to_ship._generate_answers({"id": trial.id()}, [(Row("Who?", "Me."), 0)], store)
        return list(answers), left_out

    assert ask() == (["Answer before", "Answer now"], "")
    (target / "config.json").unlink()
    columns, left_out = ask()
    assert columns == ["Answer now"]
    assert left_out.startswith(" Answer before is left out (model: ")
    shutil.rmtree(store.trial(trial.id()) / WEIGHTS)
    assert ask() == ([], " The answers are left out: the trial's weights are neither kept nor exported.")

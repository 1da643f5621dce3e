"""The judge of the fault matrix: it tells the attempts of a trial apart, and sees one that forgot its checkpoint."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.checks import restarted, twice
from tests.faults.sweep import Round, Watch, saved
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Trial
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CHECKPOINT, META, PROGRESS, RESULT
from trainables.trial import record
from trainables.trial.record import Record

CONFIG = Trial(
    method="ga",
    benchmark=Benchmark(data="data", fingerprint="files:0"),
    target=Model(path="models/full", fingerprint="files:1"),
)
SECOND = "2026-11-21T12:00:00Z"


def test_two_attempts_in_one_second_are_two(store: Storage) -> None:
    watch, folder = Watch(store), store.trial(CONFIG.id())
    record.write_result(CONFIG, Record(SECOND), None, folder)
    watch.look()
    assert twice(watch, ()) == []
    record.write_result(CONFIG, Record(SECOND), None, folder)
    assert [line.partition(":")[0] for line in twice(watch, ())] == [CONFIG.id()]
    assert twice(watch, [CONFIG.id()]) == []


@pytest.mark.parametrize(
    ("resumed_at", "same", "aside", "expected"),
    [
        (4, False, None, []),
        (6, False, None, []),
        (2, False, None, ["a checkpoint of step 4, resumed at 2"]),
        (None, False, None, ["a checkpoint of step 4, resumed at None"]),
        (None, True, None, []),
        (None, False, "failed", []),
        (None, False, "lost", ["a checkpoint of step 4, resumed at None"]),
    ],
    ids=["from it", "from a later one", "from an earlier one", "from nothing", "not hit", "failed", "lost"],
)
def test_a_trial_that_forgot_its_checkpoint_is_seen(
    store: Storage, tmp_path: Path, resumed_at: int | None, same: bool, aside: str | None, expected: list[str]
) -> None:
    folder, hit = store.trial(CONFIG.id()), Record(SECOND)
    atomic_files.write_json(folder / PROGRESS, {"attempt": hit.attempt})
    atomic_files.write_json(folder / CHECKPOINT / META, {"step": 4})
    one = Round(0, tmp_path, [], {}, random.Random(0), Watch(store), saved=saved(store))
    assert one.saved == {CONFIG.id(): (hit.attempt, 4)}
    if aside:
        atomic_files.write_json(store.root / "set_aside" / "then" / CONFIG.id() / RESULT, {"status": aside})
    last = hit if same else Record(SECOND, resumed_at=resumed_at)
    record.write_result(CONFIG, last, None, folder)
    assert saved(store) == {}
    assert restarted(one) == [f"{CONFIG.id()}: {words}" for words in expected]

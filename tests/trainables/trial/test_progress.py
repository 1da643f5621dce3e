"""A trial's progress file: what it holds while the trial runs, and that it goes when the result is there."""

import math
import time
from typing import Any

import pytest

from platform.state import lock
from platform.state.manifest import find_ready_sweeps
from tests.support.interrupted import configuration
from trainables.common import process_identity
from trainables.common.errors import InputError
from trainables.storage import atomic_files
from trainables.storage.file_names import LIVE_CURVE_COLUMNS, PROGRESS, STEPS
from trainables.storage.folder_storage import Storage
from trainables.trial import progress
from trainables.trial.runner import TrialRun


def test_progress_of_a_trial_until_its_result_is_there(
    trial_inputs: Any, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its evaluation scores every answer, then answers every question; each count rises to its total. Its curves are
    those of its result."""
    counts: dict[str, list[tuple[int, int]]] = {}
    monkeypatch.setattr(
        progress.ProgressFile,
        "note_count",
        lambda _, what, done, total: counts.setdefault(what, []).append((done, total)),
    )
    note = progress.ProgressFile.note_event
    monkeypatch.setattr(progress.ProgressFile, "note_event", lambda self, event: (note(self, event), self.write()))
    config = configuration(trial_inputs, every=None)
    path, states, points = store.trial(config.id()) / PROGRESS, [], []
    for event in TrialRun(config, store).run_and_yield_events():
        if event["phase"] != "done":
            now = atomic_files.read_json(path) or {}
            assert process_identity.is_process_alive(now)
            states.append((now["phase"], now["step"], now["steps"], now["training_left"] is not None))
            points = now["points"]
    training = [("training", step, 7, step > 1) for step in range(1, 8)]
    assert states == [("loading", 0, None, False), *training, ("evaluation", 7, 7, False)]
    assert not path.exists()
    rows = [
        {name: row[name] for name in ("step", *LIVE_CURVE_COLUMNS)}
        for row in atomic_files.read_parquet_rows(path.with_name(STEPS))
    ]
    assert points == [{name: value for name, value in row.items() if math.isfinite(value)} for row in rows]
    assert list(counts) == ["answers", "generations"]
    for found in counts.values():
        assert found == sorted(found)
        assert (found[0][0], found[-1][0]) == (0, found[-1][1])


def test_points_become_rarer_outlast_an_evaluation_and_are_of_one_attempt(store: Storage) -> None:
    running = progress.ProgressFile(store.trial("abc"), store)
    entry = {"loss": 2.0, "retain_loss": math.nan, "cos_before": math.inf, "lr": 0.1}
    for step in range(1, 201):
        running.note_event({"phase": "evaluation", "step": step, "steps": 200})
        running.note_event({"phase": "training", "step": step, "steps": 200, "entry": entry})
    assert (len(running.points), running.points[0]) == (37, {"step": 1, "loss": 2.0})
    running.note_event({"phase": "loading"})
    running.note_event({"phase": "training", "step": 1, "steps": 9, "entry": entry})
    assert [point["step"] for point in running.points] == [1]


def test_what_trials_share_is_told_of_while_it_is_made(store: Storage) -> None:
    """To every command that is asked for the sweep meanwhile, unless a process of another machine fell silent."""
    atomic_files.write_json(store.lock("tiny", "0a1b2c3d"), lock.make_lock_owner("python -m platform.sweep tiny"))
    with progress.make_shared_progress_file("the model for full", "77b1", store) as making:
        for step in (1, 2):
            making.note_event({"phase": "training", "step": step, "steps": 8})
        making.write()
        far = {"label": "ended", "place": "another machine", "beat": time.time() - 601}
        ended = store.root / progress.SHARED_PROGRESS_FOLDER / "ended" / PROGRESS
        atomic_files.write_json(ended, (atomic_files.read_json(making.path) or {}) | far)
        made = r"\(being made in this storage: the model for full: training, step 2/8, for \d+ s, about \d+ s left\)"
        with pytest.raises(InputError, match=rf"^sweep tiny-0a1b2c3d is still being prepared {made}$"):
            find_ready_sweeps("tiny", store)[0]
    assert progress.describe_shared_progress(store) == []

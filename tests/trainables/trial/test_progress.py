"""A trial's progress file: what it tells while the trial runs, and that it goes when the result is there."""

from __future__ import annotations

from typing import Any

import pytest

from platform.state.status import format_progress, read_progress
from tests.support.interrupted import configuration
from trainables.common import processes
from trainables.storage import files
from trainables.storage.base import CONFIG, PROGRESS, RESULT, ROWS, Storage
from trainables.trial import progress
from trainables.trial.runner import TrialRun


def test_trial_tells_where_it_is_until_its_result_is_there(
    trial_inputs: Any, store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer of every question is scored, then every question answered; each count ends at its total."""
    counts: dict[str, list[tuple[int, int]]] = {}
    monkeypatch.setattr(
        progress.Progress, "count", lambda _, what, done, total: counts.setdefault(what, []).append((done, total))
    )
    note = progress.Progress.note
    monkeypatch.setattr(progress.Progress, "note", lambda self, event: (note(self, event), self._write()))
    config = configuration(trial_inputs, every=None)
    path = store.trial(config.id()) / PROGRESS
    seen, started = [], set()
    for event in TrialRun(config, store).events():
        if event["phase"] == "done":
            break
        now = files.read_json(path) or {}
        assert processes.is_alive(now)
        started.add(now["started"])
        seen.append((now["phase"], now["step"], now["steps"], now["training_left"] is not None))
    training = [("training", step, 7, step > 1) for step in range(1, 8)]
    assert seen == [("loading", 0, None, False), *training, ("evaluation", 7, 7, False)]
    assert len(started) == 1
    assert {item.name for item in path.parent.iterdir()} >= {RESULT, CONFIG}
    assert not path.exists()
    questions = files.read_rows(store.trial(config.id()) / ROWS)
    answers = sum(2 + len(row["perturbed_loss"]) for row in questions)
    assert list(counts) == ["answers", "generations"]
    scored, answered = (found[-1][1] for found in counts.values())
    assert 0 < answered <= len(questions), "what the model says of an answer is known from scoring it"
    assert len(questions) < scored <= answers, "a question's paraphrase may be its answer, which is scored once"
    for found in counts.values():
        assert (found[0][0], found[-1][0]) == (0, found[-1][1])
        assert found == sorted(found)


def test_an_evaluation_tells_how_many_rows_it_has_behind_it(store: Storage) -> None:
    """Until another phase begins, and without the training's number of them."""
    store.trial("abc").mkdir(parents=True)
    with progress.Progress(store.trial("abc"), store, None) as running:

        def shown() -> str:
            running._write()
            return format_progress(read_progress("abc", store, {"evaluation": None}) or {})[0]

        assert shown() == "loading"
        running.note({"phase": "evaluation", "step": 7, "steps": 7})
        assert shown() == "evaluation"
        running.count("answers", 310, 717)
        assert shown() == "evaluation, 310 of 717 answers"
        running.note({"phase": "calibration", "step": 7, "steps": 7})
        assert shown() == "calibration"

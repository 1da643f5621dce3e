"""A trial's progress file: what it tells while the trial runs, and that it goes when the result is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from platform.state.status import describe_phase, read_progress
from tests.support.interrupted import configuration
from trainables.common import processes
from trainables.storage import files
from trainables.storage.base import CONFIG, PROGRESS, RESULT, ROWS
from trainables.storage.location import open_storage
from trainables.trial import progress
from trainables.trial.runner import TrialRun


def test_trial_tells_where_it_is_until_its_result_is_there(
    trial_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.05)
    config, store = configuration(trial_inputs, every=None), open_storage(str(tmp_path))
    path = store.trial(config.id()) / PROGRESS
    events = TrialRun(config, store).events()
    assert next(events)["phase"] == "loading"
    first = files.read_json(path)
    assert first is not None
    assert (first["phase"], first["steps"]) == ("loading", None)
    assert processes.is_alive(first)
    seen = []
    for event in events:
        if event["phase"] == "done":
            break
        time.sleep(0.15)
        now = files.read_json(path) or {}
        assert (now["phase"], now["step"]) == (event["phase"], event["step"])
        assert now["started"] == first["started"]
        seen.append((now["phase"], now["step"], now["steps"], now["training_left"] is not None))
    assert seen == [("training", step, 7, step > 1) for step in range(1, 8)] + [("evaluation", 7, 7, False)]
    assert {item.name for item in path.parent.iterdir()} >= {RESULT, CONFIG}
    assert not path.exists()


def test_an_evaluation_tells_how_many_rows_it_has_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until another phase begins, and without the training's number of them."""
    monkeypatch.setattr(progress, "EVERY", 0.02)
    store, path = open_storage(str(tmp_path)), tmp_path / "trials" / "abc" / PROGRESS
    path.parent.mkdir(parents=True)

    def shown() -> str:
        time.sleep(0.2)
        return describe_phase(read_progress("abc", store, {"evaluation": None}) or {})

    with progress.Progress(path.parent, store, None) as told:
        assert shown() == "loading"
        told.note({"phase": "evaluation", "step": 7, "steps": 7})
        assert shown() == "evaluation"
        told.count("answers", 310, 717)
        assert shown() == "evaluation, 310 of 717 answers"
        told.note({"phase": "calibration", "step": 7, "steps": 7})
        assert shown() == "calibration"


def test_all_that_is_evaluated_is_counted(trial_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer of every question is scored, then every question answered; each count ends at its total."""
    counts: dict[str, list[tuple[int, int]]] = {}
    monkeypatch.setattr(
        progress.Progress, "count", lambda _, what, done, total: counts.setdefault(what, []).append((done, total))
    )
    config, store = configuration(trial_inputs, every=None), open_storage(str(tmp_path))
    result = next(event for event in TrialRun(config, store).events() if event["phase"] == "done")["result"]
    assert result["status"] == "finished"
    questions = files.read_rows(store.trial(config.id()) / ROWS)
    answers = sum(2 + len(row["perturbed_loss"]) for row in questions)
    assert list(counts) == ["answers", "generations"]
    scored, answered = (found[-1][1] for found in counts.values())
    assert 0 < answered <= len(questions), "what the model says of an answer is known from scoring it"
    assert len(questions) < scored <= answers, "a question's paraphrase may be its answer, which is scored once"
    for found in counts.values():
        assert (found[0][0], found[-1][0]) == (0, found[-1][1])
        assert found == sorted(found)

"""A trial's progress file: what it tells while the trial runs, and that it goes when the result is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from interrupted import configuration

from trainables import processes, progress, storage, trial


def test_trial_tells_where_it_is_until_its_result_is_there(
    house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.05)
    config, store = configuration(house, every=None), storage.open_storage(str(tmp_path))
    path = store.trial(config.id()) / storage.PROGRESS
    events = trial.run(config, store)
    assert next(events)["phase"] == "loading"
    first = storage.read_json(path)
    assert first is not None
    assert (first["phase"], first["steps"]) == ("loading", None)
    assert processes.alive(first)
    seen = []
    for event in events:
        if event["phase"] == "done":
            break
        time.sleep(0.15)
        now = storage.read_json(path) or {}
        assert (now["phase"], now["step"]) == (event["phase"], event["step"])
        assert now["started"] == first["started"]
        seen.append((now["phase"], now["step"], now["steps"], now["training_left"] is not None))
    assert seen == [("training", step, 7, step > 1) for step in range(1, 8)] + [("evaluation", 7, 7, False)]
    assert {item.name for item in path.parent.iterdir()} >= {storage.RESULT, storage.CONFIG}
    assert not path.exists()

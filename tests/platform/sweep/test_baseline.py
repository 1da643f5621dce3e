"""A model that is named for comparison alone: where it cannot be evaluated, the trials run without it."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn
from unittest.mock import MagicMock

import pytest
from ray.exceptions import RayTaskError

from platform.sweep import prepare
from tests.support import own_rows, small_sweep
from tests.support.starts import write_evaluation
from trainables.common.errors import InputError
from trainables.storage.folder_storage import Storage

files = own_rows.files


def test_a_baseline_without_evaluation_is_warned_of_and_any_other_model_ends_the_start(
    files: dict[str, Path], store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(task: object) -> NoReturn:
        raise RayTaskError("make_evaluation", "Traceback", InputError("model: it has no tokenizer"))

    target, baseline = (small_sweep.write_model(tmp_path / name, name) for name in ("mine", "unseen"))
    chosen = [*own_rows.settings(target, files), f"baseline={baseline}"]
    plan = small_sweep.plan_named("own", store, *chosen, strategy="paper")
    monkeypatch.setattr(prepare.ray, "remote", MagicMock())
    monkeypatch.setattr(prepare.ray, "wait", lambda tasks, timeout: (tasks, []))
    monkeypatch.setattr(prepare.ray, "get", fail)
    printed: list[str] = []
    with pytest.raises(RayTaskError):
        prepare._make_evaluations(plan, store, printed.append)
    write_evaluation(store, plan.references[0].evaluation, {"utility": 0.9})
    prepare._make_evaluations(plan, store, printed.append)
    assert printed[-1] == (
        "warning: the baseline model is not evaluated, the trials run without it: model: it has no tokenizer"
    )

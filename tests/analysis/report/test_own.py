"""Which trial a report on own rows recommends, and which forget rows can still be got out of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis import report
from analysis.report import own
from tests.support import benchmark_store
from trainables.storage.atomic_files import write_rows
from trainables.storage.folder_storage import Storage
from trainables.storage.names import ROWS


def record(row: int, block: int, rouge: float) -> dict[str, Any]:
    number = {"rougeL_recall": rouge, "extraction_strength": rouge / 2, "prob": rouge / 4}
    return {"task": "forget", "row": row, "digest": f"row {row}", "block": block, **number}


def test_numbers_before_are_those_of_the_block_that_is_given_away_now(store: Storage) -> None:
    """A text of two blocks: the first was given away before, and the second is now; and a question."""
    now = [record(0, 0, 0.1), record(0, 1, 0.6), record(1, 0, 0.2), record(0, 0, 0.9) | {"task": "retain"}]
    write_rows(store.trial("abc") / ROWS, now)
    write_rows(store.evaluation("e") / ROWS, [record(0, 0, 0.9), record(0, 1, 0.4), record(1, 0, 0.8)])
    made: Any = SimpleNamespace(results=SimpleNamespace(store=store))
    found = own.list_recoverable(made, "abc", "e")
    shown = found[["row", "block", "rouge", "rouge_before", "highest_rouge_before", "prob_before"]].to_numpy().tolist()
    assert shown == [[1, 1, 0.6, 0.4, 0.9, 0.1], [2, 0, 0.2, 0.8, 0.8, 0.2]]
    assert own.count_recoverable(found) == ["2 of 2", "1 of 2"]
    shutil.rmtree(store.evaluation("e"))
    assert own.list_recoverable(made, "abc", "e")["rouge_before"].dropna().empty
    shutil.rmtree(store.trial("abc"))
    assert own.count_recoverable(own.list_recoverable(made, "abc", None)) == ["not known", "not known"]


@pytest.mark.parametrize(
    ("before", "start"),
    [
        ((0.60, 0.70), "Ship trial 000000000008 (NPO with GRU, seed 0): 94% of the utility is kept."),
        ((0.09, 0.70), "Nothing was there to remove, so no trial is recommended: extraction strength of the forget"),
        ((0.60, 0.90), "Ship none yet: no trial keeps 90% of the utility; the nearest is "),
        ((0.10, 0.70), "Ship none yet: no trial forgets more than the model before; the nearest is "),
    ],
)
def test_a_trial_is_recommended_where_there_was_something_to_remove(
    tmp_path: Path, before: tuple[float, float], start: str
) -> None:
    store = benchmark_store.write_store(tmp_path, "own")
    path = store / "shared/evaluations/original-own/result.json"
    document = json.loads(path.read_text())
    document["metrics"] |= benchmark_store.metrics("own", before)
    path.write_text(json.dumps(document))
    folder = report.build("own", store)
    lead = (folder / "tables/verdict.md").read_text().splitlines()
    assert lead[0].startswith(start)
    assert lead[1].startswith("To write its model: ") == start.startswith("Ship")

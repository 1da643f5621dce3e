"""Which trial a report on own rows recommends, and which forget rows it still says."""

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
    number = {"said_any": rouge / 2, "rougeL_recall": rouge, "extraction_strength": rouge / 2, "prob": rouge / 4}
    return {"task": "forget", "row": row, "digest": f"row {row}", "block": block, **number}


def test_of_a_text_the_block_is_listed_that_is_given_away_most(store: Storage) -> None:
    now = [record(0, 0, 0.1), record(0, 1, 0.6), record(1, 0, 0.2), record(0, 0, 0.9) | {"task": "retain"}]
    write_rows(store.trial("abc") / ROWS, now)
    made: Any = SimpleNamespace(results=SimpleNamespace(store=store))
    found = own.list_forget_rows(made, "abc")
    assert found.to_numpy().tolist() == [[1, 0.3, 0.6, 0.3, 0.15], [2, 0.1, 0.2, 0.1, 0.05]]
    shutil.rmtree(store.trial("abc"))
    assert own.list_forget_rows(made, "abc").empty


@pytest.mark.parametrize(
    ("before", "start"),
    [
        ((0.60, 0.70), "Ship trial 000000000008 (NPO with GRU, seed 0): said 0.100, utility 0.660."),
        (
            (0.09, 0.70),
            "Ship none: nothing was there to remove, the target model says 9% of the rows to forget",
        ),
        ((0.60, 0.90), "Ship none: less than 90% of the target model's utility is kept. The nearest is trial 0"),
        ((0.10, 0.70), "Ship none: nothing was removed. The nearest is trial 0"),
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
    assert lead[1].startswith("To write its model: ")

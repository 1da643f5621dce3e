"""Which forget rows a report on own rows lists. test_chosen_trials has the trial that it recommends."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

from analysis.report import own
from trainables.storage.atomic_files import write_rows
from trainables.storage.file_names import ROWS
from trainables.storage.folder_storage import Storage


def record(row: int, block: int, rouge: float) -> dict[str, Any]:
    number = {"said_any": rouge / 2, "rougeL_recall": rouge, "extraction_strength": rouge / 2, "prob": rouge / 4}
    return {"task": "forget", "row": row, "digest": f"row {row}", "block": block, **number}


def test_of_a_text_the_block_is_listed_that_is_given_away_most(store: Storage) -> None:
    now = [record(0, 0, 0.1), record(0, 1, 0.6), record(1, 0, 0.2), record(0, 0, 0.9) | {"task": "retain"}]
    write_rows(store.trial("abc") / ROWS, now)
    made: Any = SimpleNamespace(results=SimpleNamespace(store=store))
    found = own.list_forget_rows(made, "abc")
    assert found.to_numpy().tolist() == [[1, 0.3, 0.6, 0.3, 0.15], [2, 0.1, 0.2, 0.1, 0.05]]
    write_rows(store.trial("abc") / ROWS, [one | {"row": "x", "prob": [1.0]} for one in now])
    assert own.list_forget_rows(made, "abc").empty
    shutil.rmtree(store.trial("abc"))
    assert own.list_forget_rows(made, "abc").empty

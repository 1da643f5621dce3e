"""Whether what a trial left is whole, what its result says in short, and when a result is read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.starts import RESULT_FIELDS
from trainables.storage.base import RESULT, ROWS, Storage
from trainables.storage.files import write_json, write_rows
from trainables.storage.results import read_result, summarise


def test_every_cut_of_a_table_is_damage(tmp_path: Path) -> None:
    write_json(tmp_path / RESULT, {**RESULT_FIELDS, "id": tmp_path.name})
    path = tmp_path / ROWS
    write_rows(path, [{"task": "forget", "index": number, "rouge": number / 7} for number in range(50)])
    whole = path.read_bytes()
    assert read_result(tmp_path)[1] == []
    for content in (*(whole[:length] for length in range(len(whole))), bytes(len(whole))):
        path.write_bytes(content)
        assert read_result(tmp_path)[1] == [path], len(content)


@pytest.mark.parametrize(
    "change",
    [{"id": "another"}, {"config": None}, {"metrics": None}, *({name: ...} for name in (*RESULT_FIELDS, "id"))],
    ids=str,
)
def test_a_result_of_something_else_is_damage(tmp_path: Path, change: dict[str, Any]) -> None:
    result = {**RESULT_FIELDS, "id": tmp_path.name}
    write_json(tmp_path / RESULT, result)
    assert read_result(tmp_path) == (result, [])
    write_json(tmp_path / RESULT, {name: value for name, value in (result | change).items() if value is not ...})
    assert read_result(tmp_path) == (None, [tmp_path / RESULT])


def test_a_summary_is_that_of_the_result_as_it_is_now(store: Storage) -> None:
    path, then = store.trial("a1") / RESULT, "2026-01-02T03:04:05+00:00"
    write_json(path, {"status": "finished", "started": then, "error": None})
    assert summarise(store, "a1") == ("finished", then, None)
    write_json(path, {"status": "failed", "started": then, "error": {"message": "no"}})
    assert summarise(store, "a1") == ("failed", then, "no")
    path.unlink()
    assert summarise(store, "a1") is None

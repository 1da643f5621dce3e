"""Whether what a trial left is whole: every cut of a table is seen, and a result of something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.starts import TOLD
from trainables.storage import files
from trainables.storage.base import RESULT, ROWS
from trainables.storage.results import read_result


def test_every_cut_of_a_table_is_damage(tmp_path: Path) -> None:
    files.write_json(tmp_path / RESULT, {**TOLD, "id": tmp_path.name})
    path = tmp_path / ROWS
    files.write_rows(path, [{"task": "forget", "index": number, "rouge": number / 7} for number in range(50)])
    whole = path.read_bytes()
    assert read_result(tmp_path)[1] == []
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert read_result(tmp_path)[1] == [path], length
    path.write_bytes(bytes(len(whole)))
    assert read_result(tmp_path)[1] == [path]


@pytest.mark.parametrize(
    "change",
    [{"id": "another"}, {"config": None}, {"metrics": None}, *({name: ...} for name in (*TOLD, "id"))],
    ids=str,
)
def test_a_result_of_something_else_is_damage(tmp_path: Path, change: dict[str, Any]) -> None:
    told = {**TOLD, "id": tmp_path.name}
    files.write_json(tmp_path / RESULT, told)
    assert read_result(tmp_path) == (told, [])
    changed = {name: value for name, value in (told | change).items() if value is not ...}
    files.write_json(tmp_path / RESULT, changed)
    assert read_result(tmp_path) == (None, [tmp_path / RESULT])

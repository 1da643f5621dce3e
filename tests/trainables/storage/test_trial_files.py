"""What is taken for a trial's result."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.starts import RESULT_FIELDS
from trainables.storage.atomic_files import write_json
from trainables.storage.folder_storage import Storage
from trainables.storage.names import RESULT


@pytest.mark.parametrize(
    "change",
    [
        *({"id": "another"}, {"config": None}, {"metrics": None}, {"status": "done"}, {"metrics": {"mu": "high"}}),
        *({"metrics": {"mu": "inf"}}, {"error": "no"}, {"seconds": {"total": "1"}}, {"config": {"method": 1}}),
        *({name: ...} for name in (*RESULT_FIELDS, "id")),
    ],
    ids=str,
)
def test_a_result_of_something_else_is_none(store: Storage, change: dict[str, Any]) -> None:
    result, path = {**RESULT_FIELDS, "id": "a1"}, store.trial("a1") / RESULT
    write_json(path, result)
    assert store.result("a1") == result
    write_json(path, {name: value for name, value in (result | change).items() if value is not ...})
    assert store.result("a1") is None
    path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    assert store.result("a1") is None

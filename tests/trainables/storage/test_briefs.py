"""What is remembered of results, and when it is read again."""

from __future__ import annotations

from typing import Any

import pytest

from trainables.storage import files, results
from trainables.storage.base import RESULT, Storage
from trainables.storage.results import summarise


def write(store: Storage, **more: Any) -> None:
    found = {"status": "finished", "started": "2026-01-02T03:04:05+00:00", "error": None}
    files.write_json(store.trial("a1") / RESULT, found | more)


def test_a_brief_is_that_of_the_result_as_it_is_now(store: Storage) -> None:
    assert summarise(store, "a1") is None
    write(store)
    assert summarise(store, "a1") == ("finished", "2026-01-02T03:04:05+00:00", None)
    write(store, status="failed", error={"message": "no"})
    assert summarise(store, "a1") == ("failed", "2026-01-02T03:04:05+00:00", "no")
    (store.trial("a1") / RESULT).unlink()
    assert summarise(store, "a1") is None


def test_a_file_that_has_not_changed_is_read_once(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store)
    first = summarise(store, "a1")
    monkeypatch.setattr(results, "read_json", lambda path: pytest.fail(f"{path} is read again"))
    assert summarise(store, "a1") == first


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"status": "finished"}'])
def test_what_is_no_result_has_no_brief(store: Storage, text: str) -> None:
    path = store.trial("a1") / RESULT
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert summarise(store, "a1") is None

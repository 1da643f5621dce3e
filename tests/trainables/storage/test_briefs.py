"""What is remembered of results, and when it is read again."""

from __future__ import annotations

from typing import Any

import pytest

from trainables.storage import files, summary
from trainables.storage.base import RESULT, Storage


def write(store: Storage, **more: Any) -> None:
    found = {"status": "finished", "started": "2026-01-02T03:04:05+00:00", "error": None}
    files.write_json(store.trial("a1") / RESULT, found | more)


def test_a_brief_is_that_of_the_result_as_it_is_now(store: Storage) -> None:
    assert summary.of(store, "a1") is None
    write(store)
    assert summary.of(store, "a1") == ("finished", "2026-01-02T03:04:05+00:00", None)
    write(store, status="failed", error={"message": "no"})
    assert summary.of(store, "a1") == ("failed", "2026-01-02T03:04:05+00:00", "no")
    (store.trial("a1") / RESULT).unlink()
    assert summary.of(store, "a1") is None


def test_a_file_that_has_not_changed_is_read_once(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store)
    first = summary.of(store, "a1")
    monkeypatch.setattr(files, "read_json", lambda path: pytest.fail(f"{path} is read again"))
    assert summary.of(store, "a1") == first


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"status": "finished"}'])
def test_what_is_no_result_has_no_brief(store: Storage, text: str) -> None:
    path = store.trial("a1") / RESULT
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert summary.of(store, "a1") is None

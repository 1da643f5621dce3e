"""Whether what a trial left is whole, what its result says in short, and when a result is read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.starts import RESULT_FIELDS, write_result
from trainables.config.settings import Model
from trainables.config.trial import Trial
from trainables.storage import trial_files
from trainables.storage.atomic_files import read_json, sha256, write_json, write_rows
from trainables.storage.folder_storage import Storage
from trainables.storage.names import RESULT, ROWS
from trainables.storage.trial_files import read_result


@pytest.mark.parametrize("listed", [True, False], ids=["listed with its sum", "of an earlier version"])
def test_a_table_that_was_cut_is_damage(store: Storage, listed: bool) -> None:
    path = store.trial("a1") / ROWS
    write_rows(path, [{"task": "forget", "index": number, "rouge": number / 7} for number in range(50)])
    write_result(store, "a1", files={ROWS: sha256(path)} if listed else None)
    whole = path.read_bytes()
    assert read_result(store, "a1")[1] == []
    for content in (*(whole[:length] for length in (*range(0, len(whole), 7), len(whole) - 1)), bytes(len(whole))):
        path.write_bytes(content)
        assert read_result(store, "a1")[1] == [path], len(content)


def test_a_listed_table_that_is_gone_or_has_a_flipped_byte_is_damage(store: Storage) -> None:
    path = store.trial("a1") / ROWS
    write_rows(path, [{"task": "forget", "rouge": 0.5}])
    write_result(store, "a1", files={ROWS: sha256(path)})
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read_result(store, "a1") == (None, [path])
    path.unlink()
    assert read_result(store, "a1") == (None, [path])
    path.mkdir()
    assert read_result(store, "a1") == (None, [path])


def test_every_flipped_byte_and_cut_of_a_checked_object_is_noticed(tmp_path: Path) -> None:
    """A digit that became another one, too; an object without a checksum is as whole as its JSON."""
    path, value = tmp_path / "result.json", {"metrics": {"model_utility": 0.53, "odd": [1e-7, "\u00e9", None]}}
    write_json(path, value, checked=True)
    whole = path.read_bytes()
    assert (read_json(path) or {}).items() >= value.items()
    for place in range(len(whole)):
        for content in (whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :], whole[:place]):
            path.write_bytes(content)
            found = read_json(path)
            assert found is None or found.items() >= value.items(), (place, content)
    path.write_text('{"a": 1}')
    assert read_json(path) == {"a": 1}
    path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    assert read_json(path) is None


@pytest.mark.parametrize(
    "change",
    [
        *({"id": "another"}, {"config": None}, {"metrics": None}, {"status": "done"}, {"metrics": {"mu": "high"}}),
        *({"metrics": {"mu": "inf"}}, {"error": "no"}, {"seconds": {"total": -1}}, {"config": {"method": 1}}),
        *({name: ...} for name in (*RESULT_FIELDS, "id")),
    ],
    ids=str,
)
def test_a_result_of_something_else_is_damage(store: Storage, change: dict[str, Any]) -> None:
    result, path = {**RESULT_FIELDS, "id": "a1"}, store.trial("a1") / RESULT
    write_json(path, result)
    assert read_result(store, "a1") == (result, [])
    write_json(path, {name: value for name, value in (result | change).items() if value is not ...})
    assert read_result(store, "a1") == (None, [path])


def test_an_earlier_versions_result_under_another_id_is_damage(store: Storage) -> None:
    """One trial's result, its id edited, would fill another one's row."""
    one, other = (Trial(method="ga", target=Model(path="models/full"), seed=seed) for seed in (0, 1))
    for trial, config in ((one, one), (other, one)):
        write_result(store, trial.id(), config=config.model_dump(mode="json"))
    assert store.result(one.id()) is not None
    assert read_result(store, other.id()) == (None, [store.trial(other.id()) / RESULT])


def test_a_null_checksum_and_what_no_measure_can_be_are_damage(store: Storage) -> None:
    """Without a checksum: texts in the place of numbers, shares above 1, ln p above 0."""
    wrong = [
        {"model_utility": 5.0},
        {"forget_rouge": -0.1},
        {"wmdp_bio": 1e308},
        {"forget_quality": 0.5},
        {"mu": "0.5"},
    ]
    shapes: list[dict[str, Any]] = [{"metrics": metrics} for metrics in [*wrong, {"forget_quality": -1e308}]]
    for given in (*shapes, {"halves": [{}, {"mmlu": 2.0}]}, {"checksum": None}, {"seconds": {"total": "1"}}):
        write_result(store, "a1", **given)
        assert read_result(store, "a1") == (None, [store.trial("a1") / RESULT]), given
    right = {"model_utility": 1.0, "forget_prob": None, "forget_quality": -600.0, "privleak": -99.0, "my_task": 40.0}
    write_result(store, "a1", metrics=right)
    assert read_result(store, "a1")[1] == []


def test_a_result_that_is_set_aside_while_it_is_read_is_no_damage(
    store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.trial("a1") / ROWS
    write_rows(path, [{"task": "forget"}])
    write_result(store, "a1", files={ROWS: sha256(path)})

    def set_aside_meanwhile(file: Path) -> str:
        (store.trial("a1") / RESULT).unlink()
        file.unlink()
        raise FileNotFoundError

    monkeypatch.setattr(trial_files, "sha256", set_aside_meanwhile)
    assert read_result(store, "a1") == (None, [])

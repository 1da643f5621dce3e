"""What trials share and a crash, a cut or a person has damaged: seen, named, set aside, and made again."""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from platform.plan.build import make_plan
from platform.state.trial_outcomes import SweepState, has_references
from platform.sweep import prepare
from search_spaces.schema import sweep as spaces
from tests.support import small_sweep
from tests.support.small_sweep import MakePlan
from tests.support.starts import write_evaluation
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.names import RESULT
from trainables.storage.object_storage import ObjectStorage
from trainables.storage.opening import open_storage
from trainables.training import model_files

make = small_sweep.plan_objectives
FILES = {"config.json": "{}", "parts/model.safetensors": "weights"}


def write(folder: Path, sealed: bool = True) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    if sealed:
        atomic_files.mark_complete(folder)
    return folder


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-2])


def test_what_is_not_as_it_was_written_is_seen(tmp_path: Path) -> None:
    assert atomic_files.is_complete(write(tmp_path / "whole"))
    assert atomic_files.is_complete(write(tmp_path / "of an earlier version", sealed=False))
    for number, name in enumerate((*FILES, atomic_files.WHOLE)):
        folder = write(tmp_path / str(number))
        cut(folder / name)
        assert not atomic_files.is_complete(folder), name
    gone = write(tmp_path / "gone")
    (gone / "config.json").unlink()
    assert not atomic_files.is_complete(gone)
    (gone / "config.json").write_text(FILES["config.json"])
    (gone / "another").touch()
    assert atomic_files.is_complete(gone)


def test_a_shared_model_lists_its_files(tmp_path: Path) -> None:
    saved: Any = SimpleNamespace(save_pretrained=lambda place, **options: write(place, sealed=False))
    for shared, sizes in ((True, {"config.json": 2, "parts/model.safetensors": 7, "recipe.json": 3}), (False, None)):
        model_files.save_model(saved, saved, tmp_path / str(shared), {}, shared=shared)
        assert atomic_files.read_json(tmp_path / str(shared) / atomic_files.WHOLE) == sizes


def test_a_reference_evaluation_that_cannot_be_used_is_made_again(make: MakePlan, store: Storage) -> None:
    plan = make()
    for ref in plan.references:
        write_evaluation(store, ref.evaluation, {})
    folder = store.evaluation(plan.references[0].evaluation)
    for content in ('{"id": "cut sh', '{"id": "of another one"}'):
        folder.mkdir(exist_ok=True)
        (folder / RESULT).write_text(content)
        assert not has_references(plan, store)
        printed: list[str] = []
        prepare._set_damaged_aside(SweepState(plan, {}), store, printed.append)
        aside = max((store.root / "set_aside").iterdir())
        assert printed == [f"damaged: {folder}; set aside in {aside}, it is made again"]
        assert (aside / folder.name / RESULT).read_text() == content
        assert not folder.exists()
    write_evaluation(store, folder.name, {})
    assert has_references(plan, store)
    prepare._set_damaged_aside(SweepState(plan, {}), store, printed.append)
    assert len(printed) == 1


def test_shared_models_and_rows_that_are_damaged_are_made_again(store: Storage) -> None:
    sweep = spaces.load_sweep("quickstart")
    plan = make_plan(sweep, store)
    folders = [store.model(recipe.id()) for recipe in plan.recipes]
    folders.append(Path(next(iter(plan.benchmarks.values())).data))
    for folder in folders:
        write(folder)
    printed: list[str] = []
    prepare._set_damaged_aside(SweepState(plan, {}), store, printed.append)
    assert printed == []
    for folder in (folders[0], folders[-1]):
        cut(folder / "config.json")
    prepare._set_damaged_aside(SweepState(plan, {}), store, printed.append)
    assert [line.partition(";")[0] for line in printed] == [f"damaged: {folders[0]}", f"damaged: {folders[-1]}"]
    assert [folder.exists() for folder in folders] == [False, *(True for _ in folders[1:-1]), False]


def test_a_damaged_copy_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, copies = f"memory://runs/{uuid.uuid4().hex}", []
    for name in ("here", "there"):
        monkeypatch.setenv("UNLEARN_CACHE", str(tmp_path / name))
        copies.append(open_storage(uri))
    here, there = copies
    assert isinstance(there, ObjectStorage)
    here.push(write(here.model("m")))
    there.fetch(there.model("m"))
    file = there.model("m") / "parts" / "model.safetensors"
    cut(file)
    there.fetch(there.model("m"))
    assert file.read_text() == FILES["parts/model.safetensors"]

"""What a plan says to bring of the hub is enough for a start on the folders that it names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_sweep import Small

import platform.plan as planning
from platform.overrides import apply
from search_spaces import base as spaces
from trainables.errors import InputError
from trainables.storage import Storage
from trainables.wanted import Wanted


def plan(name: str, store: Storage, *settings: str) -> planning.Plan:
    sweep = spaces.find(name)
    assert sweep is not None
    return planning.make(apply(sweep, [*settings, "task_vector.batches=2"]), store, strategy="paper")


def asked(found: planning.Plan, kind: str) -> list[Wanted]:
    return [thing for thing in found.hub if thing.kind == kind]


@pytest.mark.parametrize("name", ["tofu_llama", "tofu_phi", "tofu_tiny"])
def test_the_files_of_all_splits_and_recipes_are_enough(
    name: str, small: Small, store: Storage, tmp_path: Path
) -> None:
    (data,) = asked(plan(name, store), "datasets")
    place = tmp_path / "brought"
    place.mkdir()
    for file in data.holds:
        shutil.copyfile(small.data / file, place / file)
    found = plan(name, store, f"benchmark.data={place}")
    assert asked(found, "datasets") == []
    for file in sorted(data.holds):
        (place / file).rename(tmp_path / file)
        with pytest.raises(InputError, match=f"has no {file}"):
            plan(name, store, f"benchmark.data={place}")
        (tmp_path / file).rename(place / file)

"""How a direction is made and moved along: in pieces, on many ranks, after interruptions, and by a trial."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.multiprocessing.spawn import spawn

from tests.support.naive_vectors import make, recipe
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, Resources, TaskVector, Training
from trainables.config.trial import Direction, Trial
from trainables.methods import task_vectors
from trainables.storage import files
from trainables.storage.base import RESULT, Storage
from trainables.storage.location import open_storage
from trainables.training import models
from trainables.training.task_vectors import combine, spec, train
from trainables.trial.runner import TrialRun
from trainables.workers import shared_artifacts


def test_micro_batches_and_interruptions_change_nothing(house: Any, tmp_path: Path, monkeypatch: Any) -> None:
    direction = recipe(house)
    whole = make(direction, tmp_path / "whole", micro_batch=3)
    real = files.write_json

    def stop(path: Path, value: Any) -> None:
        real(path, value)
        if path.name == "vectors-0.json":
            raise KeyboardInterrupt

    monkeypatch.setattr(files, "write_json", stop)
    with pytest.raises(KeyboardInterrupt):
        make(direction, tmp_path / "broken", micro_batch=3)
    monkeypatch.setattr(files, "write_json", real)
    counted = count_vectors(monkeypatch)
    resumed = make(direction, tmp_path / "broken", micro_batch=3)
    assert len(counted) == 4
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert not spec.making_of(direction, Storage(tmp_path / "broken")).exists()
    again = make(direction, tmp_path / "broken", micro_batch=3)
    assert len(counted) == 4
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_what_another_number_of_ranks_left_is_not_mixed_in(house: Any, tmp_path: Path) -> None:
    """A group that two ranks began is begun again by one; parts that are missing are said to be."""
    direction, store = recipe(house, rectified=False, batches=1), open_storage(str(tmp_path / "left"))
    expected = make(direction, tmp_path / "clean")
    making = spec.making_of(direction, store)
    making.mkdir(parents=True)
    files.write_json(making / spec.NOTE.format(0), {"done": 0, "world": 2, "records": []})
    for rank in (0, 1):
        half = {name: torch.ones_like(part)[: -(-len(part) // 2)] for name, part in expected.items()}
        save_file(half, making / f"vectors-0-1-{rank}of2.safetensors")
    with pytest.raises(RuntimeError, match="are not all there; start again"):
        combine.combine(direction, store)
    found = make(direction, tmp_path / "left")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert {path.name for path in making.parent.iterdir()} == {direction.id()}


def test_a_direction_that_is_there_is_left_alone(house: Any, tmp_path: Path) -> None:
    """A task that is started again after the direction was published does nothing."""
    direction, store = recipe(house, steps=1), open_storage(str(tmp_path))
    make(direction, tmp_path)
    stamp = (spec.folder_of(direction, store) / RESULT).stat().st_mtime_ns
    shared_artifacts.make_vectors(direction, 0, str(tmp_path), Resources(), 4)
    assert shared_artifacts.make_direction(direction, str(tmp_path)) == str(spec.folder_of(direction, store))
    assert (spec.folder_of(direction, store) / RESULT).stat().st_mtime_ns == stamp


def count_vectors(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches that a vector is made for, as they are made."""
    made: list[int] = []
    real = train._one_vector

    def one(shop: Any, pieces: Any, number: int, *rest: Any) -> Any:
        made.append(number)
        return real(shop, pieces, number, *rest)

    monkeypatch.setattr(train, "_one_vector", one)
    return made


def test_no_more_than_three_vectors_beside_weights_and_gradient(
    house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of all tensors alive where most are: while a vector is added to the mean."""
    held: list[float] = []
    real = task_vectors.rectify

    def rectify(found: torch.Tensor, normalise: Any) -> Any:
        gc.collect()
        alive = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors()}
        held.append(sum(alive.values()))
        return real(found, normalise)

    monkeypatch.setattr(task_vectors, "rectify", rectify)
    before = sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors()}.values())
    found = make(recipe(house), tmp_path, micro_batch=2)
    size = sum(part.nbytes for part in found.values())
    assert max(held) - before < 5.5 * size


def tensors() -> list[torch.Tensor]:
    return [item for item in gc.get_objects() if isinstance(item, torch.Tensor)]


def test_moving_goes_as_far_as_it_says(house: Any, tmp_path: Path) -> None:
    direction = recipe(house)
    found = make(direction, tmp_path)
    network, _ = models.load(direction.target)
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    combine.move(network, spec.folder_of(direction, Storage(tmp_path)), 2.5)
    for name, parameter in network.named_parameters():
        assert torch.allclose(parameter, before[name] - 2.5 * found[name], atol=1e-7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batches": 99}, "task_vector.batches=99: forget25 has 15 forget points"),
        ({"lr": 1e-44}, "every vector is zero after 3 step"),
    ],
)
def test_what_has_no_direction_is_refused(house: Any, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make(recipe(house, **changes), tmp_path)


def test_groups_in_tasks_give_what_one_process_gives(house: Any, tmp_path: Path) -> None:
    direction, store = recipe(house), open_storage(str(tmp_path / "tasks"))
    expected = make(direction, tmp_path / "one", micro_batch=4)
    for kind in (shared_artifacts.make_gradients, shared_artifacts.make_vectors):
        for group in range(spec.groups(direction)):
            kind(direction, group, str(store.root), Resources(), 4)
    shared_artifacts.make_direction(direction, str(store.root))
    found = load_file(spec.folder_of(direction, store) / "direction-00000.safetensors")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def _one_of_two(rank: int, folder: Path, told: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    combine.ensure(Direction.model_validate_json(told), open_storage(str(folder)), micro_batch=1)
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({}, 1e-4),
        pytest.param(
            {"normalise": "per_tensor", "optimizer": "adamw", "lr": 1e-3, "precision": "bf16"},
            0.1,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_two_ranks_share_the_vectors_and_make_the_same_direction(
    house: Any, tmp_path: Path, settings: dict[str, Any], tolerance: float
) -> None:
    """Batches of three points on two ranks: one of them has nothing to do in a micro-batch."""
    settings = dict(settings)
    precision = settings.pop("precision", "fp32")
    direction = recipe(house, steps=2, **settings).model_copy(update={"precision": precision})
    (tmp_path / "two").mkdir()
    expected = make(direction, tmp_path / "one")
    spawn(_one_of_two, (tmp_path / "two", direction.model_dump_json()), nprocs=2)
    folder = spec.folder_of(direction, Storage(tmp_path / "two"))
    found = load_file(folder / "direction-00000.safetensors")
    assert found.keys() == expected.keys()
    whole = torch.cat([expected[name].reshape(-1) for name in expected])
    difference = torch.cat([(found[name] - expected[name]).reshape(-1) for name in expected])
    assert float(difference.norm() / whole.norm()) < tolerance
    one, two = (
        files.read_rows(spec.folder_of(direction, Storage(tmp_path / name)) / spec.BATCHES) for name in ("one", "two")
    )
    for first, second in zip(one, two, strict=True):
        for name in ("batch", "rows", "tokens"):
            assert second[name] == first[name]
        assert second["norm"] == pytest.approx(first["norm"], rel=10 * tolerance)


def test_bf16_follows_fp32_as_far_as_its_rounding_lets_it(house: Any, tmp_path: Path) -> None:
    direction = recipe(house)
    plain = make(direction, tmp_path)
    half = make(direction.model_copy(update={"precision": "bf16"}), tmp_path)
    whole, other = (torch.cat([part.reshape(-1) for part in found.values()]) for found in (plain, half))
    assert half.keys() == plain.keys()
    assert float(torch.dot(whole, other) / whole.norm() / other.norm()) > 0.99


@pytest.mark.parametrize("method", ["tv", "tru"])
def test_a_trial_moves_the_target_model_and_says_how_far(house: Any, tmp_path: Path, method: str) -> None:
    """Alone, without a sweep, a trial makes the direction it needs; the next strength finds it."""
    store = open_storage(str(tmp_path))
    found = []
    for strength in (1.0, 3.0):
        field = {"stg" if method == "tru" else "strength": strength}
        config = Trial(
            method=method,  # type: ignore[arg-type]
            benchmark=Benchmark(data=str(house.data), split=house.split, fingerprint="of-the-tests"),
            target=Model(path=str(house.target), fingerprint="of-the-tests"),
            training=Training(max_length=192),
            task_vector=TaskVector(steps=2, lr=0.05, batches=3, **field),  # type: ignore[arg-type]
        )
        *_, last = TrialRun(config, store).events()
        found.append(last["result"])
    assert [result["status"] for result in found] == ["finished", "finished"], found[0]["error"]
    (folder,) = (store.root / "shared" / "directions").iterdir()
    assert {result["direction"] for result in found} == {folder.name}
    changes = [result["metrics"]["relative_change"] for result in found]
    assert changes[1] == pytest.approx(3 * changes[0], rel=1e-4)
    note = files.read_json(folder / RESULT) or {}
    norm = torch.nn.utils.parameters_to_vector(models.load(config.target)[0].parameters()).detach().norm()
    assert changes[0] == pytest.approx(note["norm"] / float(norm), rel=1e-4)
    assert found[0]["metrics"]["forget_prob"] != found[1]["metrics"]["forget_prob"]

"""Task vectors: the rectification against its constraint, TRU against a naive float64 re-statement, what is refused."""

from __future__ import annotations

import gc
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch.multiprocessing.spawn import spawn

from trainables import directions, models, moves, recipes, storage, task_vectors, templates, trial, vectors
from trainables.benchmarks import tofu
from trainables.config import Benchmark, Direction, Model, Resources, TaskVector, Training, Trial
from trainables.errors import InputError

SIZES = (3, 4)
VECTOR = arrays.arrays(np.float64, sum(SIZES), elements=st.floats(-10, 10, width=16))


def parts(vector: np.ndarray) -> list[torch.Tensor]:
    return list(torch.from_numpy(vector).float().split(SIZES))


def rectified(vector: np.ndarray, gradient: np.ndarray, normalise: Any = "whole") -> tuple[Any, torch.Tensor]:
    """The outcome, and the unit vector it stands for."""
    outcome = task_vectors.rectify(task_vectors.products(parts(vector), parts(gradient)), normalise)
    made = [
        (t + outcome.coefficient * g) * scale
        for t, g, scale in zip(parts(vector), parts(gradient), outcome.scales, strict=True)
    ]
    return outcome, torch.cat(made).double()


@given(VECTOR, VECTOR)
def test_rectified_vector_has_length_one_and_no_negative_component_along_the_gradient(
    vector: np.ndarray, gradient: np.ndarray
) -> None:
    outcome, unit = rectified(vector, gradient)
    length = float(np.linalg.norm(gradient))
    if outcome.rectified_norm > 1e-2 * outcome.norm > 0:
        assert float(unit.norm()) == pytest.approx(1, rel=1e-3)
    assert float(unit @ torch.from_numpy(gradient)) >= -1e-3 * length
    if vector @ gradient >= 0:
        assert outcome.coefficient == 0
        assert not outcome.rectified


@given(VECTOR, VECTOR)
def test_rectification_is_the_nearest_vector_that_the_constraint_allows(
    vector: np.ndarray, gradient: np.ndarray
) -> None:
    """min ||T~ - T|| with <T~, G> >= 0: allowed itself, and no other allowed point is nearer."""
    outcome, _ = rectified(vector, gradient)
    found = vector + outcome.coefficient * gradient
    assert found @ gradient >= -1e-3 * (1 + float(np.linalg.norm(gradient)))
    distance = float(np.linalg.norm(found - vector))
    for other in np.random.default_rng(0).normal(size=(20, sum(SIZES))) * 10:
        allowed = other if other @ gradient >= 0 else -other
        assert distance <= float(np.linalg.norm(allowed - vector)) + 1e-3


def test_each_tensor_has_length_one_per_tensor_and_a_zero_one_stays_zero() -> None:
    vector = np.array([3, 4, 0, 0, 0, 0, 0], dtype=float)
    outcome, unit = rectified(vector, np.zeros(7), "per_tensor")
    assert unit.tolist() == pytest.approx([0.6, 0.8, 0, 0, 0, 0, 0])
    assert math.isnan(outcome.cos)
    assert outcome.scales[1] == 0


def test_a_vector_opposite_to_the_gradient_has_nothing_left() -> None:
    outcome, unit = rectified(np.arange(7.0), -2 * np.arange(7.0))
    assert outcome.rectified_norm == 0
    assert not unit.any()


def test_batches_divide_the_points_by_seed() -> None:
    made = directions.divide(10, 4, seed=1)
    assert sorted(row for batch in made for row in batch) == list(range(10))
    assert {len(batch) for batch in made} == {2, 3}
    assert made == directions.divide(10, 4, seed=1)
    assert made != directions.divide(10, 4, seed=2)


def recipe(house: Any, **changes: Any) -> Direction:
    settings = {"steps": 3, "lr": 0.05, "batches": 5, **changes}
    return Direction(
        rectified=settings.pop("rectified", True),
        target=Model(path=str(house.target), fingerprint="of-the-tests"),
        benchmark=Benchmark(data=str(house.data), split=house.split, fingerprint="of-the-tests"),
        vector=TaskVector(**settings),
        max_length=192,
        seed=2,
    )


def make(direction: Direction, place: Path, micro_batch: int | None = None) -> dict[str, torch.Tensor]:
    """The direction's tensors, made in this process."""
    trial.prepare_process(Resources(), 0)
    folder = moves.ensure(direction, storage.open_storage(str(place)), micro_batch)
    return load_file(folder / "direction-00000.safetensors")


class Naive:
    """The equations in float64 with every vector in memory, on flat parameters."""

    def __init__(self, house: Any, direction: Direction) -> None:
        self.network, tokenizer = models.load(direction.target)
        self.network.double()
        benchmark = direction.benchmark
        self.examples = [
            tofu._encode(tokenizer, templates.find("llama2"), row["question"], row["answer"], RULES)
            for row in tofu.training_rows(benchmark)[0]
        ]
        self.direction = direction
        self.start = self.flat()

    def flat(self) -> torch.Tensor:
        return torch.nn.utils.parameters_to_vector(self.network.parameters()).detach().clone()

    def load(self, weights: torch.Tensor) -> None:
        torch.nn.utils.vector_to_parameters(weights.clone(), self.network.parameters())

    def loss(self, numbers: list[int]) -> torch.Tensor:
        """Mean NLL of a label token, one row at a time."""
        total, tokens = torch.zeros((), dtype=torch.float64), 0
        for number in numbers:
            example = self.examples[number]
            ids = torch.tensor([example.input_ids])
            logs = torch.log_softmax(self.network(input_ids=ids, use_cache=False).logits[0], -1)
            for position in range(example.answer_start, len(example.input_ids)):
                total = total - logs[position - 1, ids[0, position]]
                tokens += 1
        return total / tokens

    def gradient(self, numbers: list[int]) -> torch.Tensor:
        self.network.zero_grad()
        self.loss(numbers).backward()
        return torch.cat([parameter.grad.reshape(-1) for parameter in self.network.parameters()])

    def vector(self, numbers: list[int]) -> torch.Tensor:
        weights, settings = self.start.clone(), self.direction.vector
        first = second = torch.zeros_like(weights)
        for step in range(1, settings.steps + 1):
            self.load(weights)
            gradient = self.gradient(numbers)
            if settings.optimizer == "sgd":
                weights -= settings.lr * gradient
                continue
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            unbiased = first / (1 - 0.9**step), second / (1 - 0.999**step)
            weights -= settings.lr * unbiased[0] / (unbiased[1].sqrt() + 1e-8)
        self.load(self.start)
        return weights - self.start

    @staticmethod
    def others(batches: list[list[int]], batch: list[int]) -> list[int]:
        return [row for other in batches if other is not batch for row in other]

    def unit_vectors(self, batches: list[list[int]]) -> list[torch.Tensor]:
        units = []
        for batch in batches:
            vector, gradient = self.vector(batch), self.gradient(self.others(batches, batch))
            vector = vector + max(-float(vector @ gradient), 0) / float(gradient @ gradient) * gradient
            sizes = [parameter.numel() for parameter in self.network.parameters()]
            pieces = vector.split(sizes) if self.direction.vector.normalise == "per_tensor" else [vector]
            units.append(torch.cat([piece / piece.norm() for piece in pieces]))
        return units


RULES = tofu.Rules(None, True, 200, True, False, 192, 0.0)


@pytest.fixture(scope="module")
def naive(house: Any) -> Naive:
    return Naive(house, recipe(house))


SETTINGS = [
    ({}, 1e-4),
    ({"normalise": "per_tensor"}, 1e-3),
    ({"optimizer": "adamw", "lr": 1e-3, "normalise": "per_tensor", "steps": 2}, 2e-2),
]
"""And how far fp32 may be off: short tensors of length 1 bring out the rounding of large weights' small changes, and
Adam turns the rounding of near-zero gradients into whole steps."""


@pytest.mark.parametrize(("settings", "tolerance"), SETTINGS)
def test_tru_is_the_naive_mean_of_rectified_unit_vectors(
    house: Any, tmp_path: Path, settings: dict[str, Any], tolerance: float
) -> None:
    direction = recipe(house, **settings)
    naive = Naive(house, direction)
    found = make(direction, tmp_path, micro_batch=2)
    batches = directions.divide(len(naive.examples), direction.vector.batches, direction.seed)
    expected = torch.stack(naive.unit_vectors(batches)).mean(0)
    flat = torch.cat([found[name].double().reshape(-1) for name, _ in naive.network.named_parameters()])
    assert float((flat - expected).norm() / expected.norm()) < tolerance
    records = storage.read_rows(directions.folder_of(direction, storage.Storage(tmp_path)) / directions.BATCHES)
    assert [record["batch"] for record in records] == list(range(5))
    for record, batch in zip(records, batches, strict=True):
        vector, gradient = naive.vector(batch), naive.gradient(naive.others(batches, batch))
        assert record["norm"] == pytest.approx(float(vector.norm()), rel=10 * tolerance)
        bound = 1e-2 * float(vector.norm() * gradient.norm()) * tolerance / 1e-4
        assert record["dot"] == pytest.approx(float(vector @ gradient), abs=bound)
        assert record["unmoved"] < 0.5


def test_tv_is_the_plain_vector_of_the_whole_set(house: Any, naive: Naive, tmp_path: Path) -> None:
    direction = recipe(house, rectified=False, batches=1)
    found = make(direction, tmp_path)
    expected = naive.vector(list(range(len(naive.examples))))
    flat = torch.cat([found[name].double().reshape(-1) for name, _ in naive.network.named_parameters()])
    assert float((flat - expected).norm() / expected.norm()) < 1e-4


def test_the_loss_on_the_other_points_does_not_rise_to_first_order(house: Any, naive: Naive) -> None:
    """Per vector: along -T~ as this project rectifies it, also where along -T it rises; by central differences."""
    batches = directions.divide(len(naive.examples), 5, 2)
    small, conflicts = 1e-4, 0
    for batch in batches:
        others = naive.others(batches, batch)
        plain, gradient = naive.vector(batch), naive.gradient(others)
        outcome = task_vectors.rectify(task_vectors.products([plain], [gradient]), "whole")
        mended = outcome.scales[0] * (plain + outcome.coefficient * gradient)
        slopes = []
        for vector in (mended, plain):
            step = small * vector / vector.norm()
            values = []
            for sign in (1, -1):
                naive.load(naive.start - sign * step)
                values.append(float(naive.loss(others).detach()))
            slopes.append((values[0] - values[1]) / (2 * small))
        naive.load(naive.start)
        scale = float(gradient.norm())
        assert slopes[0] <= 1e-4 * scale
        conflicts += slopes[1] > 1e-4 * scale
    assert conflicts, "no batch is in conflict, so the test shows nothing"


def test_micro_batches_and_interruptions_change_nothing(house: Any, tmp_path: Path, monkeypatch: Any) -> None:
    direction = recipe(house)
    whole = make(direction, tmp_path / "whole", micro_batch=3)
    real = storage.write_json

    def stop(path: Path, value: Any) -> None:
        real(path, value)
        if path.name == "vectors-0.json":
            raise KeyboardInterrupt

    monkeypatch.setattr(storage, "write_json", stop)
    with pytest.raises(KeyboardInterrupt):
        make(direction, tmp_path / "broken", micro_batch=3)
    monkeypatch.setattr(storage, "write_json", real)
    counted = count_vectors(monkeypatch)
    resumed = make(direction, tmp_path / "broken", micro_batch=3)
    assert len(counted) == 4
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert not directions.making_of(direction, storage.Storage(tmp_path / "broken")).exists()
    again = make(direction, tmp_path / "broken", micro_batch=3)
    assert len(counted) == 4
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_what_another_number_of_ranks_left_is_not_mixed_in(house: Any, tmp_path: Path) -> None:
    """A group that two ranks began is begun again by one; parts that are missing are said to be."""
    direction, store = recipe(house, rectified=False, batches=1), storage.open_storage(str(tmp_path / "left"))
    expected = make(direction, tmp_path / "clean")
    making = directions.making_of(direction, store)
    making.mkdir(parents=True)
    storage.write_json(making / directions.NOTE.format(0), {"done": 0, "world": 2, "records": []})
    for rank in (0, 1):
        half = {name: torch.ones_like(part)[: -(-len(part) // 2)] for name, part in expected.items()}
        save_file(half, making / f"vectors-0-1-{rank}of2.safetensors")
    with pytest.raises(RuntimeError, match="are not all there; start again"):
        moves.combine(direction, store)
    found = make(direction, tmp_path / "left")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert {path.name for path in making.parent.iterdir()} == {direction.id()}


def test_a_direction_that_is_there_is_left_alone(house: Any, tmp_path: Path) -> None:
    """A task that is started again after the direction was published does nothing."""
    direction, store = recipe(house, steps=1), storage.open_storage(str(tmp_path))
    make(direction, tmp_path)
    stamp = (directions.folder_of(direction, store) / storage.RESULT).stat().st_mtime_ns
    recipes.make_vectors(direction, 0, str(tmp_path), Resources(), 4)
    assert recipes.make_direction(direction, str(tmp_path)) == str(directions.folder_of(direction, store))
    assert (directions.folder_of(direction, store) / storage.RESULT).stat().st_mtime_ns == stamp


def count_vectors(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches that a vector is made for, as they are made."""
    made: list[int] = []
    real = vectors._one_vector

    def one(shop: Any, pieces: Any, number: int, *rest: Any) -> Any:
        made.append(number)
        return real(shop, pieces, number, *rest)

    monkeypatch.setattr(vectors, "_one_vector", one)
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
    moves.move(network, directions.folder_of(direction, storage.Storage(tmp_path)), 2.5)
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


def test_a_single_forget_point_is_refused() -> None:
    with pytest.raises(InputError, match="one forget point; tru rectifies each with the other ones, so use tv"):
        directions.check_sizes(1, 2, "forget01")


def test_groups_in_tasks_give_what_one_process_gives(house: Any, tmp_path: Path) -> None:
    direction, store = recipe(house), storage.open_storage(str(tmp_path / "tasks"))
    expected = make(direction, tmp_path / "one", micro_batch=4)
    for kind in (recipes.make_gradients, recipes.make_vectors):
        for group in range(directions.groups(direction)):
            kind(direction, group, str(store.root), Resources(), 4)
    recipes.make_direction(direction, str(store.root))
    found = load_file(directions.folder_of(direction, store) / "direction-00000.safetensors")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def _one_of_two(rank: int, folder: Path, told: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    moves.ensure(Direction.model_validate_json(told), storage.open_storage(str(folder)), micro_batch=1)
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [({}, 1e-4), ({"normalise": "per_tensor", "optimizer": "adamw", "lr": 1e-3, "precision": "bf16"}, 0.1)],
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
    folder = directions.folder_of(direction, storage.Storage(tmp_path / "two"))
    found = load_file(folder / "direction-00000.safetensors")
    assert found.keys() == expected.keys()
    whole = torch.cat([expected[name].reshape(-1) for name in expected])
    difference = torch.cat([(found[name] - expected[name]).reshape(-1) for name in expected])
    assert float(difference.norm() / whole.norm()) < tolerance
    one, two = (
        storage.read_rows(directions.folder_of(direction, storage.Storage(tmp_path / name)) / directions.BATCHES)
        for name in ("one", "two")
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
    store = storage.open_storage(str(tmp_path))
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
        *_, last = trial.run(config, store)
        found.append(last["result"])
    assert [result["status"] for result in found] == ["finished", "finished"], found[0]["error"]
    (folder,) = (store.root / "shared" / "directions").iterdir()
    assert {result["direction"] for result in found} == {folder.name}
    changes = [result["metrics"]["relative_change"] for result in found]
    assert changes[1] == pytest.approx(3 * changes[0], rel=1e-4)
    note = storage.read_json(folder / storage.RESULT) or {}
    norm = torch.nn.utils.parameters_to_vector(models.load(config.target)[0].parameters()).detach().norm()
    assert changes[0] == pytest.approx(note["norm"] / float(norm), rel=1e-4)
    assert found[0]["metrics"]["forget_prob"] != found[1]["metrics"]["forget_prob"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task_vector": None}, "method 'tru' takes stg and no strength"),
        ({"task_vector": TaskVector(strength=1)}, "method 'tru' takes stg and no strength"),
        ({"method": "tv"}, "method 'tv' takes strength and no stg"),
        ({"method": "ga"}, "method 'ga' trains an objective and has no task vector"),
        ({"rectifier": {"name": "gru"}}, "method 'tru' has no gradient steps to rectify"),
        ({"task_vector": TaskVector(stg=1, batches=1)}, "so it needs at least 2"),
        ({"observe": 2}, "has no steps to observe"),
    ],
)
def test_what_is_no_task_vector_is_refused(changes: dict[str, Any], words: str) -> None:
    fields = {"method": "tru", "target": Model(path="a/b"), "task_vector": TaskVector(stg=1.0), **changes}
    with pytest.raises(ValidationError, match=words):
        Trial(**fields)

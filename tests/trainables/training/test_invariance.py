"""Equivalent configurations give one trajectory: ranks, ZeRO stages and micro-batches change nothing but rounding."""

from collections.abc import Callable
from itertools import combinations, islice
from typing import Any

import pytest
import torch

from tests.support import ranks
from trainables.config.settings import Model
from trainables.training import model_files

SERIES = ("loss", "retain_loss", "cos_before", "grad_norm", "rectified_norm", "average_norm", "dot")
PLAIN: dict[str, Any] = {"stage": None}
"""The plain engine, which one rank takes where no ZeRO stage is asked for; its rows are packed, or `padded`."""
ONE = [
    {"stage": 1},
    PLAIN,
    PLAIN | {"micro_batch": 3},
    PLAIN | {"padded": True},
    {"stage": 0},
    {"stage": 2, "micro_batch": 1},
    {"stage": 3, "micro_batch": 8},
]
TWO = [{"stage": 0, "micro_batch": 1}, {"stage": 1}, {"stage": 2, "micro_batch": 1}, {"stage": 3, "micro_batch": 2}]
OFFLOADED = [{"stage": stage, "micro_batch": size, "offload": True} for stage, size in ((1, 2), (2, 8), (3, 2))]
WRITES = [
    *({"stage": stage, "write": True} for stage in (0, 3)),
    *(
        {"stage": stage, "precision": "bf16", "offload": offload, "write": True}
        for stage in (1, 2, 3)
        for offload in (False, True)
    ),
]
"""Other writes in fp32 are seen in the updates of TWO and OFFLOADED."""

ADAM = {"gu": {"optimizer": "adamw", "lr": 1e-3}}
"""In whose metric it works."""
RULES: list[dict[str, Any]] = [
    {"rule": rule, **ADAM.get(rule["name"], {})}
    for rule in (
        {"name": "blur", "gamma": 0.5, "scope": "tensor"},
        {"name": "hamu_q", "gamma": None},
        {"name": "cagrad", "gamma": None},
        {"name": "sago", "gamma": None},
        {"name": "gem", "gamma": None, "parts": 3},
        {"name": "gu", "gamma": None},
    )
]
RULE_JOBS = [TWO[2] | RULES[0], *(TWO[2 + number % 2] | rule for number, rule in enumerate(RULES, 1))]
"""By tensor on both stages whose shards cut tensors; other rules, each of another kind, on one of them."""

ADAPTERS = {"lora": 2}
BALANCED: dict[str, Any] = {"method": "gd", "constants": {"retain_coefficient": "balanced"}}
JOBS = {
    "one": ONE,
    "two": TWO,
    "offloaded": OFFLOADED,
    "writes": WRITES,
    "adapters on one": [{"stage": 1, **ADAPTERS}, PLAIN | ADAPTERS],
    "adapters": [{"stage": stage, "micro_batch": stage, **ADAPTERS} for stage in (1, 2)],  # 3: test_resume
    "balanced on one": [PLAIN | BALANCED, PLAIN | BALANCED | {"micro_batch": 3}],
    "balanced": [job | BALANCED for job in TWO[::3]],
    "rules on one": [PLAIN | rule for rule in RULES],
    "rules": RULE_JOBS,
    "bf16": [{"stage": stage, "precision": "bf16"} for stage in (1, 2, 3)],
    "bf16 on the plain engine": [PLAIN | {"precision": "bf16", "micro_batch": size} for size in (None, 3)],
}
TOGETHER = {
    1: ("one", "adapters on one", "balanced on one", "rules on one", "bf16 on the plain engine"),
    2: ("two", "offloaded", "writes", "adapters", "balanced", "rules", "bf16"),
}
"""Of these jobs each world is started once, because that takes longer than they do."""
Found = Callable[[int, str], list[dict[str, Any]]]


def start(trial_inputs: Any, lora: int | None = None) -> torch.Tensor:
    network, _ = model_files.load_model_and_tokenizer(Model(path=str(trial_inputs.target)))
    if lora:
        torch.manual_seed(ranks.SEED)
        network = model_files.add_lora_adapters(network, lora, 16)
    parts = network.named_parameters(remove_duplicate=False)
    return torch.cat([part.detach().double().reshape(-1) for _, part in parts])


def agree(found: dict[str, Any], pinned: dict[str, Any], origin: torch.Tensor, tolerance: float = 1e-4) -> None:
    """The same series and the same update, relative."""
    for name in SERIES:
        series = [record[name] for record in found["records"]]
        assert series == pytest.approx([record[name] for record in pinned["records"]], rel=tolerance), name
    update = pinned["weights"] - origin
    assert float((found["weights"] - pinned["weights"]).norm() / update.norm()) <= tolerance


@pytest.fixture(scope="module")
def found(trial_inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """`found(world, name)`: what the jobs of that name left on so many ranks."""
    left: dict[tuple[int, str], list[dict[str, Any]]] = {}

    def find(world: int, name: str) -> list[dict[str, Any]]:
        if (world, name) not in left:
            names = TOGETHER[world] if name in TOGETHER[world] else (name,)
            jobs = [job for each in names for job in JOBS[each]]
            results = iter(ranks.run(world, jobs, trial_inputs, tmp_path_factory.mktemp(name)))
            left.update({(world, each): list(islice(results, len(JOBS[each]))) for each in names})
        return left[world, name]

    return find


@pytest.fixture(scope="module")
def pinned(found: Found) -> dict[str, Any]:
    return found(1, "one")[0]


@pytest.mark.parametrize(
    ("world", "name", "tolerance"),
    [
        (1, "one", 1e-4),
        (2, "two", 1e-4),
        pytest.param(1, "offloaded", 1e-4, marks=pytest.mark.slow),
        (2, "offloaded", 1e-4),
        (1, "bf16 on the plain engine", 0.08),
        (2, "bf16", 0.08),  # as far as its rounding lets it
        pytest.param(1, "bf16", 0.08, marks=pytest.mark.slow),
    ],
)
def test_stages_micro_batches_ranks_and_an_optimizer_on_the_cpu_change_nothing(
    trial_inputs: Any, found: Found, pinned: dict[str, Any], world: int, name: str, tolerance: float
) -> None:
    """Two steps' gradients must not meet: with offload, DeepSpeed sums in buffers of its own until it steps."""
    assert all(record["rectified"] for record in pinned["records"])
    for other in found(world, name):
        agree(other, pinned, start(trial_inputs), tolerance)


def test_stages_agree_in_bf16_on_two_ranks(trial_inputs: Any, found: Found) -> None:
    """Each pair of them: the rounding of the forward and backward pass is the same in all."""
    origin = start(trial_inputs)
    for one, other in combinations(found(2, "bf16"), 2):
        agree(other, one, origin, 0.03)


def test_two_ranks_are_one_with_adapters(trial_inputs: Any, found: Found, pinned: dict[str, Any]) -> None:
    """Only adapters have a gradient."""
    one, plain = found(1, "adapters on one")
    differ(one, pinned)
    for other in [plain, *found(2, "adapters")]:
        agree(other, one, start(trial_inputs, **ADAPTERS))


def test_a_balanced_coefficient_is_the_same_on_every_stage(trial_inputs: Any, found: Found) -> None:
    """Its two norms are over all parameters, of which ranks hold parts, and over the whole effective batch."""
    one, *others = found(1, "balanced on one")
    weights = [record["retain_multiplier"] for record in one["records"]]
    assert len({round(weight, 3) for weight in weights}) == len(weights)
    for other in [*others, *found(2, "balanced")]:
        agree(other, one, start(trial_inputs), 5e-4)  # of two gradients that nearly cancel
        assert [record["retain_multiplier"] for record in other["records"]] == pytest.approx(weights, rel=1e-4)


def test_rules_of_two_gradients_decide_alike_on_every_stage(trial_inputs: Any, found: Found) -> None:
    """By tensor, of which ranks hold other parts on each stage, on the moving average, by element, on parts of rows."""
    ones = found(1, "rules on one")
    for one, other in combinations(ones, 2):
        differ(one, other, "rectified_norm")
    for other, job in zip(found(2, "rules"), RULE_JOBS, strict=True):
        number = next(number for number, rule in enumerate(RULES) if rule.items() <= job.items())
        agree(other, ones[number], start(trial_inputs), 2e-3 if number == 3 else 1e-4)  # SAGO's signs near zero


def differ(one: dict[str, Any], pinned: dict[str, Any], series: str = "grad_norm") -> None:
    """Not the plain model's gradient."""
    assert one["records"][0][series] != pytest.approx(pinned["records"][0][series], rel=1e-3)


@pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_constant_written_over_the_gradient_reaches_the_step(found: Found, world: int) -> None:
    """Plain SGD, because Adam hides a wrong scale; and a cleared gradient leaves nothing behind."""
    for job, left in zip(WRITES, found(world, "writes"), strict=True):
        assert torch.allclose(left["moved"], torch.full_like(left["moved"], 0.25), atol=1e-6), job
        assert left["norms"][0] > 0, job
        assert left["norms"][1] == pytest.approx(left["norms"][0], rel=1e-6), job
        assert left["exact"] < 0.9, (job, "the sum over micro-batches and ranks is rounded to bf16")
    whole = found(world, "writes")[0]["squares"]
    assert len(set(whole.tolist())) == len(whole) > 9, "each of its own length"
    for job, left in zip(WRITES, found(world, "writes"), strict=True):
        tolerance = 0.2 if job.get("precision") == "bf16" else 1e-5
        assert left["squares"].tolist() == pytest.approx(whole.tolist(), rel=tolerance), (job, "tensors of its shards")
        assert float(left["squares"].sum()) == pytest.approx(left["norms"][0], rel=1e-5), job

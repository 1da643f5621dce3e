"""What the forward pass leaves out changes nothing: against whole logits under a mask, rows in the order drawn."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support import families, tiny
from trainables.common.tokenized_row import Example
from trainables.inference.padded_batch import pad_examples
from trainables.methods import method_constants, objectives
from trainables.methods.objectives import ForwardOutput, Term
from trainables.training import forward_backward, packed_rows

LENGTHS = ((5, 2), (17, 4), (9, 8), (12, 1), (3, 2), (17, 9))
FAMILIES = ("Llama", "Mistral", "Phi", "Qwen2", "Gemma2", "OPT", "GPTNeoX")
SETTINGS: dict[str, dict[str, Any]] = {
    "Mistral": {"sliding_window": 6},
    "OPT": {"dropout": 0.0},
    "Qwen3": {"num_key_value_heads": 2, "head_dim": 8},
}
PADDED = [(family, size, False) for family in FAMILIES for size in (None, 2)]
PACKED = [(family, None, True) for family in ("Llama", "Phi", "Qwen2", "Qwen3", "OPT", "GPTNeoX")]
REDUCTIONS = ("labels", "attended", "all_positions", "all_positions_fixed_pad")
TOLERANCE = 1e-6
"""Relative. Weights are fp64, so that what is left is the rounding of losses, which are taken in fp32."""


def network(family: str = "Llama") -> Any:
    return families.network(family, **SETTINGS.get(family, {})).double().train()


def rows() -> list[Example]:
    generator = torch.Generator().manual_seed(1)
    return [
        Example(tuple(torch.randint(1, 40, (length,), generator=generator).tolist()), start)
        for length, start in LENGTHS
    ]


def ours(model: Any, terms: tuple[Term, ...], frozen: Any, size: int | None, known: Any, packs: bool = False) -> float:
    task = SimpleNamespace(pad=0, micro_batch=size, frozen=frozen)
    plan: list[forward_backward.TermRows] = [(term, rows(), list(range(len(LENGTHS)))) for term in terms]
    engine: Any = tiny.PlainEngine(model, packs=packs)
    return forward_backward.accumulate_gradient(engine, plan, task, known)[0].item()


def whole(model: Any, terms: tuple[Term, ...], frozen: Any, known: dict[int, float]) -> float:
    """Every term over the whole batch at once: mask and logits everywhere, of which a term's positions are taken."""
    totals, total = forward_backward.count_batch_totals(rows()), 0.0
    for term in terms:
        width = totals.longest if term.width is None or term.width == "batch" else term.width
        batch = pad_examples(rows(), 0, width)
        inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "use_cache": False}
        said, kept = (net(**inputs, output_hidden_states=True) for net in (model, frozen))
        where = objectives.base.make_position_mask(term.logits, batch["labels"], batch["attention_mask"])
        layer = 0 if term.layer is None else term.layer + 1
        seen = ForwardOutput(
            labels=batch["labels"],
            places=where.flatten().nonzero()[:, 0],
            logits=said.logits[where],
            reference=torch.tensor([known[row] for row in range(len(LENGTHS))]),
            hidden=said.hidden_states[layer],
            frozen_logits=kept.logits[where].detach(),
            frozen_hidden=kept.hidden_states[layer].detach(),
        )
        loss = term.loss(seen, totals)
        loss.backward()
        total += loss.item()
    return total


def agree(one: Any, other: Any, losses: tuple[float, float]) -> None:
    assert losses[0] == pytest.approx(losses[1], rel=TOLERANCE)
    pairs = list(zip(gradient(one), gradient(other), strict=True))
    assert sum(float(theirs.square().sum()) for _, theirs in pairs) > 0
    apart = sum(float((a - b).square().sum()) for a, b in pairs) ** 0.5
    assert apart <= TOLERANCE * sum(float(b.square().sum()) for _, b in pairs) ** 0.5


def gradient(model: Any) -> list[torch.Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]


@pytest.mark.parametrize(("family", "size", "packs"), [*PADDED, *PACKED, ("Llama", 2, True)])
def test_loss_and_gradient_are_those_that_transformers_takes(family: str, size: int | None, packs: bool) -> None:
    """Its own loss over labels, with whole logits, a mask and rows in the order drawn."""
    model, theirs = network(family), network(family)
    assert not packs or packed_rows.enable_packed_rows_if_exact(model)
    loss = ours(model, (objectives.base.NLL_TERM,), None, size, None, packs)
    wanted = theirs(**pad_examples(rows(), 0), use_cache=False).loss
    wanted.backward()
    agree(model, theirs, (loss, wanted.item()))


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize(
    ("method", "constants"),
    [
        *(("npo_kl", {"beta": 0.5, "kl_reduction": reduction}) for reduction in REDUCTIONS),
        *(("rmu", {"layer": 1, "rmu_reduction": reduction}) for reduction in ("labels", "all_positions")),
    ],
)
def test_divergences_reference_sums_and_steering(
    method: str, constants: dict[str, Any], size: int | None, packs: bool
) -> None:
    """Terms that read padding or a frozen model get padded rows from a model that packs, too."""
    terms = objectives.make_objective(method, method_constants.ObjectiveConstants(**constants)).terms
    model, theirs, frozen = network(), network(), network().eval().requires_grad_(False)
    with torch.no_grad():
        for each in (model, theirs):
            each.model.layers[0].mlp.up_proj.weight.mul_(1.1)
    engine: Any = tiny.PlainEngine(copy.deepcopy(frozen))
    known = forward_backward.compute_row_loss_sums(engine, rows(), range(len(LENGTHS)), SimpleNamespace(pad=0), 2)
    assert not packs or packed_rows.enable_packed_rows_if_exact(model)
    agree(model, theirs, (ours(model, terms, frozen, size, known, packs), whole(theirs, terms, frozen, known)))

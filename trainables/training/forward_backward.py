"""Forward and backward over a whole effective batch, which ranks and micro-batches split without changing the result.

Rank r of n takes rows r, r + n, r + 2n, ... of the batch, longest first, so that the rows of a micro-batch need little
padding and ranks have about the same to do; which rows are in a batch does not depend on it (docs/decisions/0010).
Every rank runs as many micro-batches as the others (the collectives of sharded weights need that): a rank without rows
for one runs the batch's shortest row there with weight 0. Losses are divided by the totals of the whole batch.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from trainables.common.tokenized_row import Example
from trainables.inference.padded_batch import pad_examples, select_logits
from trainables.methods.objectives.base import NLL_TERM, ForwardOutput, Term, Totals, make_position_mask
from trainables.training import packed_rows

if TYPE_CHECKING:
    from trainables.training.engine import Engine
    from trainables.training.sharded_model import ShardedModel

PassEngine: TypeAlias = "Engine | ShardedModel"
TermRows = tuple[Term, Sequence[Example], list[int]]
"""A term of an objective, all rows of its side, and the numbers of those that are in the effective batch."""


def accumulate_gradient(
    engine: PassEngine, terms: list[TermRows], task: Any, reference: dict[int, float] | None = None
) -> tuple[torch.Tensor, int]:
    """Leave the gradient of the summed terms in the engine; return loss and label tokens of the effective batch.

    The loss, () in fp64, is on the engine's device: reading it there waits for the passes. `task` has pad, micro_batch
    and frozen. `reference`: the summed loss before training of each forget row, by number; KeyError without one.
    """
    micro_batches: list[tuple[Term, Totals, list[int], list[Example], bool]] = []
    labels = 0
    for term, side, numbers in terms:
        examples = {number: side[number] for number in numbers}
        totals = count_batch_totals(term.select_examples([examples[number] for number in numbers]))
        labels += totals.tokens
        # this rank's part in micro-batches of about equal size, up to `task.micro_batch` rows
        share = -(-len(numbers) // engine.world)
        ordered = sorted(numbers, key=lambda number: -len(examples[number].input_ids))
        mine = ordered[engine.rank :: engine.world]
        passes = -(-share // (task.micro_batch or share))
        size = -(-share // passes)
        for start in range(0, share, size):
            own = mine[start : start + size]
            chosen = own or ordered[-1:]  # without own rows it only keeps this rank in step with others
            micro_batches.append((term, totals, chosen, [examples[number] for number in chosen], bool(own)))
    total = torch.zeros((), dtype=torch.float64, device=engine.device)
    for number, (term, totals, chosen, rows, counts) in enumerate(micro_batches, 1):
        sums = None
        if reference is not None and term.side == "forget":
            known = torch.tensor([reference[row] for row in chosen])
            sums = packed_rows.move_to_device({"sums": known}, engine.device)["sums"]
        eager = engine.compiled_losses is None or term.frozen  # as the frozen model: rounding counts
        with nullcontext() if eager else torch.compiler.set_stance("default"):
            # the output as an argument alone: its logits would lie beside their gradient
            loss = term.loss(forward_micro_batch(engine, term, rows, task, totals, sums), totals)
        loss = loss if counts else 0 * loss
        engine.backward(loss, last=number == len(micro_batches))
        total += loss.detach()
        del loss
    return engine.sum_over_ranks(total), labels


def count_batch_totals(rows: Sequence[Example]) -> Totals:
    lengths = [len(row.input_ids) for row in rows]
    return Totals(sum(row.answer_token_count for row in rows), len(rows), sum(lengths), max(lengths))


def forward_micro_batch(
    engine: PassEngine, term: Term, rows: Sequence[Example], task: Any, totals: Totals, reference: Any = None
) -> ForwardOutput:
    """Run one micro-batch through the model, and through the frozen one where the term needs it.

    The head sees only the positions whose logits are read, found on the host, for a GPU would be waited for. Where rows
    are not packed, padding is on the right, so that no real token of a causal model sees it: without a mask only the
    outputs at padding differ, and attention needs no matrix of who sees whom.
    """
    width = totals.longest if term.width == "batch" else term.width and max(term.width, totals.longest)
    batch = pad_examples(term.select_examples(rows), task.pad, width)
    where = make_position_mask(term.logits, batch["labels"], batch["attention_mask"])
    inputs: dict[str, Any] = {"input_ids": batch["input_ids"], "logits_to_keep": where}
    if engine.packs and term.width is None and term.layer is None and not term.frozen:
        inputs = packed_rows.pack_batch(batch, where, task.pad, engine.device)
    elif term.width is not None:
        inputs["attention_mask"] = batch["attention_mask"]
    inputs |= {"use_cache": False, "labels": batch["labels"], "places": where.flatten().nonzero()[:, 0]}
    inputs = packed_rows.move_to_device(inputs, engine.device)
    labels, places = inputs.pop("labels"), inputs.pop("places")
    if term.layer is not None:
        inputs["output_hidden_states"] = True
    output = engine.inner(**inputs)
    frozen = None
    if term.frozen:
        with torch.no_grad():
            frozen = task.frozen(**inputs)
    return ForwardOutput(
        labels=labels,
        places=places,
        logits=select_logits(output, inputs["logits_to_keep"]),
        compiled_losses=engine.compiled_losses,
        reference=reference,
        hidden=None if term.layer is None else output.hidden_states[term.layer + 1],
        frozen_logits=None if frozen is None else select_logits(frozen, inputs["logits_to_keep"]),
        frozen_hidden=None if frozen is None or term.layer is None else frozen.hidden_states[term.layer + 1],
    )


@torch.no_grad()
def compute_row_loss_sums(
    engine: PassEngine, rows: Sequence[Example], numbers: Sequence[int], task: Any, size: int, term: Term = NLL_TERM
) -> dict[int, float]:
    """Return S_i, the summed loss over the labels that `term` reads, of the rows `numbers`, by row number.

    Each rank scores its share of them in passes of `size` rows; all ranks run as many passes, also where rows run out.
    """
    sums = torch.zeros(len(numbers), dtype=torch.float64, device=engine.device)
    share = -(-len(numbers) // engine.world)
    mine = [engine.rank + k * engine.world for k in range(share)]
    for start in range(0, share, size):
        places = mine[start : start + size]
        batch = [rows[numbers[min(place, len(numbers) - 1)]] for place in places]
        output = forward_micro_batch(engine, term, batch, task, count_batch_totals(batch))
        own = [place for place in places if place < len(numbers)]
        sums[own] = output.losses.double().sum(1)[: len(own)]
    return dict(zip(numbers, engine.sum_over_ranks(sums).tolist(), strict=True))

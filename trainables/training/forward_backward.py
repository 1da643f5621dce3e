"""Forward and backward over a whole effective batch, which ranks and micro-batches split without changing the result.

Rank r of n takes rows r, r + n, r + 2n, ... of the batch, longest first, so that the rows of a micro-batch need little
padding and ranks have about the same to do; which rows are in a batch does not depend on it (docs/decisions/0010).
Every rank runs as many micro-batches as the others (the collectives of sharded weights need that): a rank without rows
for one runs the batch's shortest row there with weight 0. Losses are divided by the totals of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch

from trainables.common.tokenized_row import Example
from trainables.inference import kv_cache, packed_rows, threads_and_ranks
from trainables.inference.padded_batch import collate
from trainables.methods import objectives
from trainables.methods.objectives import ForwardOutput, Term, Totals

LEAST_TOKENS = 512
"""Of a rank's rows for each thread: halves of 300 tokens gain nothing, of 750 a tenth (docs/LOG.md)."""
GRADIENTS = 200_000_000
"""Numbers in the gradients of all threads at most. Each thread keeps two: a sum, and what is added to it."""
TermRows = tuple[Term, Sequence[Example], list[int]]
"""A term of an objective, all rows of its side, and the numbers of those that are in the effective batch."""
TermBatch = tuple[Term, dict[int, Example], list[int], Totals]
"""A term, the rows of its effective batch by number, their numbers as drawn, and their totals."""


class PassEngine(Protocol):
    """What the passes here need of an engine.

    `inner`: the model. `packable`: the module in it whose attention may see packed rows, None where rows are padded.
    `threads`: how many packed micro-batches may be computed side by side, whose gradients `add` takes. `backward` adds
    a micro-batch's gradient, averaged over ranks; `total` sums over ranks.
    """

    inner: Any
    packable: Any
    threads: int
    rank: int
    world: int
    device: torch.device

    def backward(self, loss: torch.Tensor, *, last: bool) -> None: ...

    def add(self, gradient: Sequence[torch.Tensor]) -> None: ...

    def total(self, value: torch.Tensor) -> torch.Tensor: ...


def accumulate_gradient(
    engine: PassEngine, terms: list[TermRows], task: Any, reference: dict[int, float] | None
) -> tuple[float, int]:
    """Leave the gradient of the summed terms in the engine; return loss and label tokens of the effective batch.

    `task` has pad, micro_batch and frozen. `reference`: a forget row's summed loss before training, by row number.
    Raises KeyError where it lacks a row.
    """
    batches: list[TermBatch] = []
    for term, side, numbers in terms:
        rows = {number: side[number] for number in numbers}
        batches.append((term, rows, numbers, count_totals(term.select([rows[number] for number in numbers]))))
    every = [totals for *_, totals in batches]
    labels = sum(totals.tokens for totals in every)
    compute_loss = partial(_compute_loss, engine, task, reference)
    with _packing(engine, [term for term, *_ in terms], max((totals.longest for totals in every), default=0)) as packed:
        threads = 1
        if packed:
            tokens = sum(totals.attended for totals in every) // engine.world
            threads = max(1, min(engine.threads, tokens // LEAST_TOKENS))
        micro_batches = [part for batch in batches for part in _cut(engine, batch, task.micro_batch, threads)]
        threads = min(threads, len(micro_batches))
        if threads > 1:
            return _differentiate_side_by_side(engine, compute_loss, micro_batches, threads), labels
        total = torch.zeros((), dtype=torch.float64)
        for number, micro_batch in enumerate(micro_batches, 1):
            loss = compute_loss(micro_batch, engine.inner if packed else None)
            engine.backward(loss, last=number == len(micro_batches))
            total += loss.detach().double().cpu()
            del loss
    return float(engine.total(total.to(engine.device))), labels


class MicroBatch(NamedTuple):
    """Rows of a term and their numbers; `counts`: whether they are this rank's, or only keep it in step with others."""

    term: Term
    totals: Totals
    numbers: list[int]
    rows: list[Example]
    counts: bool


def _cut(engine: PassEngine, batch: TermBatch, most: int | None, threads: int) -> Iterator[MicroBatch]:
    """Yield a rank's part of a batch in micro-batches of about equal size, up to `most` rows, for all threads."""
    term, rows, numbers, totals = batch
    share = -(-len(numbers) // engine.world)
    ordered = sorted(numbers, key=lambda number: -len(rows[number].input_ids))
    mine = ordered[engine.rank :: engine.world]
    passes = threads * -(-share // ((most or share) * threads))
    size = -(-share // passes)
    for start in range(0, share, size):
        own = mine[start : start + size]
        chosen = own or ordered[-1:]
        yield MicroBatch(term, totals, chosen, [rows[number] for number in chosen], bool(own))


def _compute_loss(
    engine: PassEngine, task: Any, reference: dict[int, float] | None, micro_batch: MicroBatch, packing_model: Any
) -> torch.Tensor:
    term, sums = micro_batch.term, None
    if reference is not None and term.side == "forget":
        sums = torch.tensor([reference[number] for number in micro_batch.numbers], device=engine.device)
    # as an argument alone: its logits would lie beside their gradient
    return micro_batch.counts * term.loss(
        forward(engine, term, micro_batch.rows, task, micro_batch.totals, sums, packing_model), micro_batch.totals
    )


def _differentiate_side_by_side(
    engine: PassEngine, compute_loss: Callable[..., torch.Tensor], micro_batches: list[MicroBatch], threads: int
) -> float:
    """Add the gradient of all micro-batches, which threads share out; return their loss."""

    def differentiate(share: Sequence[MicroBatch], model: Any) -> tuple[float, list[torch.Tensor]]:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        total, gradient = 0.0, [torch.zeros_like(parameter) for parameter in trained]
        for micro_batch in share:
            loss = compute_loss(micro_batch, model)
            _add(gradient, torch.autograd.grad(loss, trained, materialize_grads=True))
            total += float(loss.detach())
        return total, gradient

    jobs = [partial(differentiate, micro_batches[k::threads]) for k in range(threads)]
    results = threads_and_ranks.run_all(engine.packable, jobs, threads)
    gradient, *others = (found for _, found in results)
    for other in others:
        _add(gradient, other)
    engine.add(gradient)
    return sum(loss for loss, _ in results)


def _add(gradient: Sequence[torch.Tensor], more: Sequence[torch.Tensor]) -> None:
    for whole, part in zip(gradient, more, strict=True):
        whole += part


def count_threads(network: Any) -> int:
    """Return how many micro-batches may be computed side by side: of a small model that takes no random numbers."""
    if any(value for name, value in network.config.to_dict().items() if "drop" in name or "noise" in name):
        return 1
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return max(1, min(torch.get_num_threads(), GRADIENTS // (2 * parameters)))


@contextmanager
def _packing(engine: PassEngine, terms: Sequence[Term], longest: int) -> Iterator[bool]:
    """Yield whether rows of up to `longest` tokens are packed meanwhile: if labels are all that terms read of them."""
    labels = all(term.logits == "labels" and term.width is None and not term.frozen for term in terms)
    if engine.packable is None or not labels:
        yield False
        return
    with packed_rows.packing(engine.packable, longest) as packed:
        yield packed


def count_totals(rows: Sequence[Example]) -> Totals:
    """Return the totals of an effective batch."""
    lengths = [len(row.input_ids) for row in rows]
    return Totals(sum(row.answer_tokens for row in rows), len(rows), sum(lengths), max(lengths))


def forward(
    engine: PassEngine,
    term: Term,
    rows: Sequence[Example],
    task: Any,
    totals: Totals,
    reference: Any = None,
    packing_model: Any = None,
) -> ForwardOutput:
    """Run one micro-batch through the model, and through the frozen one where the term needs it.

    Its rows are packed for `packing_model`; padded for the engine's where that is None.

    The head sees only the positions whose logits are read. Padding is on the right, so that no real token of a causal
    model sees it: without a mask only the outputs at padding differ, and attention needs no matrix of who sees whom.
    """
    width = totals.longest if term.width == "batch" else term.width and max(term.width, totals.longest)
    batch = {name: tensor.to(engine.device) for name, tensor in collate(term.select(rows), task.pad, width).items()}
    if packing_model is not None:
        one_row = packed_rows.pack(term.select(rows), engine.device)
        one_row = one_row._replace(read=one_row.read[one_row.labels_read])  # logits in the order of the labels
        logits = packed_rows.read_logits(packing_model, one_row)
        return ForwardOutput(batch["labels"], batch["attention_mask"], logits, reference)
    where = objectives.positions(term.logits, batch["labels"], batch["attention_mask"])
    inputs = {
        "input_ids": batch["input_ids"],
        "attention_mask": None if term.width is None else batch["attention_mask"],
        "use_cache": False,
        "logits_to_keep": where,
        **({} if term.layer is None else {"output_hidden_states": True}),
    }
    output = engine.inner(**inputs)
    frozen = None
    if term.frozen:
        with torch.no_grad():
            frozen = task.frozen(**inputs)
    return ForwardOutput(
        labels=batch["labels"],
        mask=batch["attention_mask"],
        logits=kv_cache.select_logits(output, where),
        reference=reference,
        hidden=None if term.layer is None else output.hidden_states[term.layer + 1],
        frozen_logits=None if frozen is None else kv_cache.select_logits(frozen, where),
        frozen_hidden=None if frozen is None or term.layer is None else frozen.hidden_states[term.layer + 1],
    )


@torch.no_grad()
def row_sums(
    engine: PassEngine,
    rows: Sequence[Example],
    numbers: Sequence[int],
    task: Any,
    size: int,
    term: Term = objectives.NLL,
) -> dict[int, float]:
    """Return S_i, the summed loss over the labels that `term` reads, of the rows `numbers`, by row number.

    Each rank scores its share of them in passes of `size` rows; all ranks run as many passes, also where rows run out.
    """
    sums = torch.zeros(len(numbers), dtype=torch.float64, device=engine.device)
    share = -(-len(numbers) // engine.world)
    mine = [engine.rank + k * engine.world for k in range(share)]
    longest = max(len(row.input_ids) for number in numbers for row in term.select([rows[number]]))
    with _packing(engine, [term], longest) as packed:
        for start in range(0, share, size):
            places = mine[start : start + size]
            batch = [rows[numbers[min(place, len(numbers) - 1)]] for place in places]
            output = forward(engine, term, batch, task, count_totals(batch), None, engine.inner if packed else None)
            found = output.losses.double().sum(1)
            for place, value in zip(places, found, strict=True):
                if place < len(numbers):
                    sums[place] = value
    return dict(zip(numbers, engine.total(sums).tolist(), strict=True))

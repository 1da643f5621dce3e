"""The passes of an evaluation: within memory, counted, and shared out among ranks that all hold the whole model."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, TypeVar

import torch.distributed as dist

from trainables.common import cli
from trainables.common.errors import is_out_of_memory
from trainables.inference.progress import ProgressCounter

Value = TypeVar("Value")
RunGroup = Callable[[list[Any]], dict[Any, Any]]
"""Returns the results of some items, by item."""
_RANKS: ContextVar[int] = ContextVar("_RANKS", default=1)


@contextmanager
def split_items_among_ranks(together: bool) -> Iterator[None]:
    """Share evaluations out among all ranks if `together`: all of them ask `run_items_in_passes` for the same items."""
    token = _RANKS.set(dist.get_world_size() if together else 1)
    try:
        yield
    finally:
        _RANKS.reset(token)


def run_items_in_passes(what: str, run: RunGroup, lengths: Mapping[Any, int], token_budget: int) -> dict[Any, Any]:
    """Return what `run` returns of all items, whose tokens are `lengths`; of n ranks each runs every n-th item.

    It is given groups, the longest items first, each within `token_budget` padded tokens or of one item. A group for
    which memory does not suffice is run again as two, and the others with half the budget.
    """
    ranks = _RANKS.get()
    if ranks == 1:
        return _run_share(what, run, lengths, token_budget)
    mine = dict(islice(lengths.items(), dist.get_rank(), None, ranks))
    parts = _gather_results(lambda: _run_share(what, run, mine, token_budget))
    return {key: result for part in parts for key, result in part.items()}


def _run_share(what: str, run: RunGroup, lengths: Mapping[Any, int], token_budget: int) -> dict[Any, Any]:
    counter, found, start = ProgressCounter(what, len(lengths)), {}, 0
    order = sorted(lengths, key=lambda item: -lengths[item])
    while start < len(order):
        longest = max(1, lengths[order[start]])
        group = order[start : start + max(1, token_budget // longest)]
        try:
            found |= run(group)
        except Exception as full:
            if len(group) == 1 or not is_out_of_memory(full):
                raise
            token_budget = longest * (len(group) // 2)
            cli.print_line(f"evaluation: out of memory, again with {token_budget} tokens a pass", error=True)
        else:
            start += len(group)
            counter.add(len(group))
    return found


def run_once_for_all_ranks(job: Callable[[], Value]) -> Value:
    if _RANKS.get() == 1:
        return job()
    return _gather_results(lambda: job() if dist.get_rank() == 0 else None)[0]


def _gather_results(run: Callable[[], Any]) -> list[Any]:
    """Return the results of all ranks. Raises on every rank if one fails: the others would wait until a time-out."""
    result, failure = None, None
    try:
        result = run()
    except Exception as error:
        failure = error
    results: list[Any] = [None] * _RANKS.get()
    dist.all_gather_object(results, (result, f"{type(failure).__name__}: {failure}" if failure else None))
    if failure:
        raise failure
    for rank, (_, message) in enumerate(results):
        if message:
            raise RuntimeError(f"rank {rank} failed in an evaluation: {message}")
    return [result for result, _ in results]

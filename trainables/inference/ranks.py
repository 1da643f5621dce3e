"""An evaluation shared out among ranks that all hold the whole model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch.distributed as dist

Result = TypeVar("Result")
Item = TypeVar("Item")
Key = TypeVar("Key")
_RANKS: ContextVar[int] = ContextVar("_RANKS", default=1)


@contextmanager
def share_among_ranks(together: bool) -> Iterator[None]:
    """Share evaluations out among all ranks if `together`: all of them call `run_shared_items` with the same items."""
    token = _RANKS.set(dist.get_world_size() if together else 1)
    try:
        yield
    finally:
        _RANKS.reset(token)


def run_shared_items(run: Callable[[Sequence[Item]], dict[Key, Result]], items: Sequence[Item]) -> dict[Key, Result]:
    """Run `run` on this rank's share of the items, every n-th of them, and return the results of all ranks."""
    ranks = _RANKS.get()
    if ranks == 1:
        return run(items)
    parts = _gather_results(lambda: run(items[dist.get_rank() :: ranks]))
    return {key: result for part in parts for key, result in part.items()}


def run_on_first_rank(job: Callable[[], Result]) -> Result:
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

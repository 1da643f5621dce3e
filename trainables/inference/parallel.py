"""Passes of a model side by side: on a CPU one thread each, and shared out among ranks that hold the whole model.

torch's own threads share out every operation and wait for each other at its end, thousands of times a pass where layers
are small; whole passes beside each other wait once (docs/LOG.md has what that gains).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from queue import SimpleQueue
from threading import Event
from typing import Any, TypeVar

import torch
import torch.distributed as dist

Result = TypeVar("Result")
Item = TypeVar("Item")
LEAST = 1024
"""Tokens of a pass below which what every pass costs counts for more."""
WORKS = 4
"""Of a share at the least, where there is enough to do."""
_RANKS: ContextVar[int] = ContextVar("_RANKS", default=1)


@contextmanager
def over_ranks(together: bool) -> Iterator[None]:
    """Within it, where `together`, every rank does a part of `each`, which all of them call with the same works."""
    token = _RANKS.set(dist.get_world_size() if together else 1)
    try:
        yield
    finally:
        _RANKS.reset(token)


def here(network: Any, token_budget: int) -> int:
    """How many passes of a rank run beside each other so that all of them together keep to `token_budget` tokens."""
    if network.device.type != "cpu":
        return 1
    return max(1, min(torch.get_num_threads(), token_budget // LEAST))


def everywhere(network: Any, token_budget: int) -> int:
    """The same of all ranks."""
    return here(network, token_budget) * _RANKS.get()


def mine(items: Sequence[Item]) -> Sequence[Item]:
    """Every so many-th: what this rank has to do with of things that are shared out."""
    ranks = _RANKS.get()
    return items if ranks == 1 else items[dist.get_rank() :: ranks]


def portion(tokens: int, most: int, shares: int) -> int:
    """Tokens of a work, at most `most`: several shares have some works each, so that all end together."""
    return most if shares == 1 else min(most, max(LEAST, tokens // (WORKS * shares)))


def each(network: Any, works: Sequence[Callable[[Any], Result]], lanes: int) -> list[Result]:
    """What each work finds with the network, in their order, on every rank; without gradients.

    `lanes`: how many a rank does beside each other.
    """
    ranks = _RANKS.get()
    if ranks == 1:
        return _beside(network, works, lanes)
    parts = _of_ranks(lambda: _beside(network, mine(works), lanes))
    return [parts[number % ranks][number // ranks] for number in range(len(works))]


def once(work: Callable[[], Result]) -> Result:
    """What rank 0 finds, on every rank."""
    if _RANKS.get() == 1:
        return work()
    return _of_ranks(lambda: work() if dist.get_rank() == 0 else None)[0]


def _of_ranks(part: Callable[[], Any]) -> list[Any]:
    """What every rank's part finds. Raises on all of them where one fails: none waits for it until a time-out."""
    found, failure = None, None
    try:
        found = part()
    except Exception as error:
        failure = error
    told: list[Any] = [None] * _RANKS.get()
    dist.all_gather_object(told, (found, f"{type(failure).__name__}: {failure}" if failure else None))
    if failure:
        raise failure
    for rank, (_, text) in enumerate(told):
        if text:
            raise RuntimeError(f"rank {rank} failed in an evaluation: {text}")
    return [found for found, _ in told]


def _beside(network: Any, works: Sequence[Callable[[Any], Result]], lanes: int) -> list[Result]:
    if lanes < 2 or len(works) < 2:
        with torch.no_grad():
            return [work(network) for work in works]
    threads, free, ended = torch.get_num_threads(), SimpleQueue[Any](), Event()
    failures: list[Exception] = []
    twins = _twins(network, lanes)
    hooks = [twin.register_forward_pre_hook(lambda *_: _go_on(ended)) for twin in twins]
    for twin in twins:
        free.put(twin)

    def run(work: Callable[[Any], Result]) -> Any:
        twin = free.get()
        try:
            _go_on(ended)
            with torch.no_grad():
                return work(twin)
        except Exception as error:
            failures.append(error)
            ended.set()  # the other lanes stop at their next pass, not at the end of their work
        finally:
            free.put(twin)

    try:
        with ThreadPoolExecutor(lanes, initializer=torch.set_num_threads, initargs=(threads // lanes,)) as pool:
            try:
                found = list(pool.map(run, works))
            except BaseException:
                ended.set()
                raise
        if failures:
            raise failures[0]
        return found
    finally:
        hooks[0].remove()
        torch.set_num_threads(threads)  # what a thread sets for itself, MKL takes for all


def _go_on(ended: Event) -> None:
    if ended.is_set():
        raise RuntimeError("another lane failed, or the process was interrupted")


def _twins(network: Any, number: int) -> list[Any]:
    """The network and copies of it that hold the very same tensors: what a pass hangs on one, the others do not see."""
    tensors = {id(tensor): tensor for tensor in chain(network.parameters(), network.buffers())}
    return [network] + [copy.deepcopy(network, dict(tensors)) for _ in range(number - 1)]

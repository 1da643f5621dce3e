"""Passes of a model side by side: on a CPU one thread each, and shared out among ranks that hold the whole model.

torch's own threads share out every operation and wait for each other at its end, thousands of times a pass where layers
are small; whole passes beside each other wait once (docs/LOG.md has what that gains).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist

Result = TypeVar("Result")
Item = TypeVar("Item")
Job = Callable[[Any], Result]
"""A function that takes the model and runs some forward passes."""
MIN_PASS_TOKENS = 1024
"""Below so many tokens what every pass costs counts for more than what running side by side saves."""
JOBS_PER_WORKER = 4
"""At least, if there is enough to do."""
_RANKS: ContextVar[int] = ContextVar("_RANKS", default=1)


@contextmanager
def over_ranks(together: bool) -> Iterator[None]:
    """Share jobs out among all ranks if `together`: all of them call `run_all` with the same jobs."""
    token = _RANKS.set(dist.get_world_size() if together else 1)
    try:
        yield
    finally:
        _RANKS.reset(token)


def threads_for(network: Any, token_budget: int) -> int:
    """Return how many passes a rank runs side by side so that all together keep to `token_budget` tokens."""
    if network.device.type != "cpu":
        return 1
    return max(1, min(torch.get_num_threads(), token_budget // MIN_PASS_TOKENS))


def workers_for(network: Any, token_budget: int) -> int:
    """Return how many passes all ranks run side by side."""
    return threads_for(network, token_budget) * _RANKS.get()


def share_of_rank(items: Sequence[Item]) -> Sequence[Item]:
    """Return every n-th item, n being the number of ranks: what this rank has to do."""
    ranks = _RANKS.get()
    return items if ranks == 1 else items[dist.get_rank() :: ranks]


def job_tokens(tokens: int, most: int, workers: int) -> int:
    """Return the tokens of a job, at most `most`; fewer for several workers, so that none is left with a long one."""
    return most if workers == 1 else min(most, max(MIN_PASS_TOKENS, tokens // (JOBS_PER_WORKER * workers)))


def group_by_length(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Yield row numbers in groups, the longest rows first, each group within `token_budget` padded tokens."""
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    start = 0
    while start < len(order):
        size = max(1, token_budget // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def run_all(network: Any, jobs: Sequence[Job[Result]], threads: int) -> list[Result]:
    """Return the jobs' results in their order, on every rank. Each rank runs `threads` at once."""
    ranks = _RANKS.get()
    if ranks == 1:
        return _run_on_threads(network, jobs, threads)
    parts = _gather_results(lambda: _run_on_threads(network, share_of_rank(jobs), threads))
    return [parts[number % ranks][number // ranks] for number in range(len(jobs))]


def run_once(job: Callable[[], Result]) -> Result:
    """Run a job on rank 0, and return its result on every rank."""
    if _RANKS.get() == 1:
        return job()
    return _gather_results(lambda: job() if dist.get_rank() == 0 else None)[0]


def _gather_results(run_share: Callable[[], Any]) -> list[Any]:
    """Return the results of all ranks. Raises on every rank if one fails: the others would wait until a time-out."""
    result, failure = None, None
    try:
        result = run_share()
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


@cache
def _start_threads(threads: int, torch_threads: int) -> ThreadPoolExecutor:
    """Return threads that stay: a new one sets up anew what torch's operations run on, which takes milliseconds."""
    return ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(torch_threads,))


def _run_on_threads(network: Any, jobs: Sequence[Job[Result]], threads: int) -> list[Result]:
    torch_threads, with_gradients = torch.get_num_threads(), torch.is_grad_enabled()
    failures: list[BaseException] = []
    results: list[Future[Result]] = []

    def check_failures(*_: Any) -> None:
        if failures:
            raise failures[0]

    def run(job: Job[Result]) -> Result:
        try:
            with torch.set_grad_enabled(with_gradients):
                return job(network)
        except Exception as error:
            failures.append(error)
            raise

    if threads < 2 or len(jobs) < 2:
        return list(map(run, jobs))
    hook = network.register_forward_pre_hook(check_failures)  # the other threads end at their next pass
    each = max(1, torch_threads // threads)
    pool = _start_threads(threads, each)
    torch.set_num_threads(each)  # what a thread sets for itself, MKL takes for all
    try:
        for job in jobs:
            results.append(pool.submit(run, job))
        while wait(results, timeout=1).not_done:  # Python sees an interrupt late that comes just before a longer wait
            pass
        return [result.result() for result in results]
    except BaseException as error:  # an interrupt too
        failures.append(error)
        raise failures[0] from None
    finally:
        for result in results:
            result.cancel()
        wait(results)
        hook.remove()
        failures.clear()  # their tracebacks hold tensors of the pass, and this list
        torch.set_num_threads(torch_threads)

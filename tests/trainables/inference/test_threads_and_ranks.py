"""Passes side by side give what one after the other gives: on threads of a CPU, and on ranks."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import families, ranks, tiny
from tests.support.families import END, NEVER, PAD
from trainables.common.errors import InputError
from trainables.inference import scoring, threads_and_ranks


@contextmanager
def two_threads() -> Iterator[None]:
    """Let torch have two threads; everything else here computes on one, which does not wait on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["Llama", "Mistral", "OPT", "Gemma2"])
def test_losses_and_texts_of_two_threads_are_those_of_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In passes of the same tokens each: losses are the same to the last bit where no beginning is shared."""
    family, groups = families.network(name), families.answer_groups(3, groups=16)
    alone = [[example] for group in groups for example in group]
    prompts, limits = families.ragged_prompts(24, seed=7)
    end = families.frequent_token(family, prompts)
    shares: list[tuple[int, int]] = []
    run = threads_and_ranks._run_on_threads
    monkeypatch.setattr(
        threads_and_ranks, "_run_on_threads", lambda *given: (shares.append((len(given[1]), given[2])), run(*given))[1]
    )

    def results(budget: int) -> tuple[Any, Any, Any]:
        monkeypatch.setattr(threads_and_ranks, "MIN_PASS_TOKENS", 50)
        sharing, single = (scoring.score_labels(family, some, pad=PAD, token_budget=budget) for some in (groups, alone))
        monkeypatch.setattr(threads_and_ranks, "MIN_PASS_TOKENS", 10)
        return sharing, single, families.generate(family, prompts, limits, budget=400, end=end)

    sharing, single, texts = results(50)
    shares.clear()
    with two_threads():
        beside = results(100)
    assert all(jobs > 4 and threads == 2 for jobs, threads in shares[:2])
    assert shares[2] == (2, 2)
    assert (single, texts) == beside[1:]
    for one, other in zip(chain(*sharing), chain(*beside[0]), strict=True):
        assert one.hits == other.hits
        assert one.losses == pytest.approx(other.losses, rel=1e-4, abs=1e-5)


def test_two_threads_work_at_the_same_time() -> None:
    """Each job waits for the other one."""
    both = threading.Barrier(2)

    def meet(_: Any) -> int:
        both.wait(timeout=600)
        return threading.get_ident()

    with two_threads():
        assert len({*threads_and_ranks.run_all(tiny.network(), [meet, meet], 2), threading.get_ident()}) == 3


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_an_error_or_an_interrupt_ends_the_other_jobs(first: bool, kind: type[BaseException]) -> None:
    """Those under way at their next pass, and no further one begins; Ctrl-C comes to the thread of the caller."""
    ended: list[None] = []
    under_way = threading.Event()
    caller = threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    gc.disable()  # Hypothesis is called at every collection, and Python drops an interrupt that comes in such a call

    def long(model: Any) -> None:
        for _ in range(20_000):
            model(input_ids=torch.tensor([[3, 4]]))
            under_way.set()
        ended.append(None)

    def wrong(_: Any) -> None:
        under_way.wait()
        if kind is RuntimeError:
            raise RuntimeError("row 1")
        signal.pthread_kill(caller, signal.SIGINT)

    model = tiny.network()
    jobs = [wrong, long] if first else [long, wrong]
    try:
        with two_threads(), pytest.raises(kind, match="row 1" if kind is RuntimeError else None):
            threads_and_ranks.run_all(model, [*jobs, *[long] * 20], 2)
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, before)
    assert ended == []
    model(input_ids=torch.tensor([[3, 4]]))


def score_and_generate(model: Any, groups: Any, prompts: Any, limits: Any) -> Any:
    scores = list(chain(*scoring.score_labels(model, groups, pad=PAD, token_budget=100)))
    return scores, families.generate(model, prompts, limits, budget=400, end=END)


def check_shared_passes(model: Any) -> None:
    """On one of two ranks: the losses and texts of the model alone, for about half the tokens."""
    groups, (prompts, limits) = families.answer_groups(5, groups=60), families.ragged_prompts(15, seed=8)
    expected = score_and_generate(model, groups, prompts, limits)
    tokens: list[int] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, __, out: tokens.append(out[..., 0].numel()))
    with threads_and_ranks.over_ranks(together=True):
        found = score_and_generate(model, groups, prompts, limits)
        few = families.generate(model, prompts[:1], [3], budget=400, end=NEVER)
    shared = sum(tokens)
    with threads_and_ranks.over_ranks(together=False):
        score_and_generate(model, groups, prompts, limits)
    hook.remove()
    for one, other in zip(found[0], expected[0], strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-4, abs=1e-5)
        assert one.hits == other.hits
    assert found[1] == expected[1]
    assert few == families.generate(model, prompts[:1], [3], budget=400, end=NEVER)
    assert 0 < shared < 0.6 * (sum(tokens) - shared)


def check_shared_errors(model: Any, rank: int) -> None:
    """Rank 1 runs out of memory in its part; then both are told what rank 0 finds, and that it finds nothing."""

    def full(_: Any) -> None:
        if rank == 1:
            raise torch.OutOfMemoryError("no room")

    def nothing() -> None:
        raise InputError("no such task")

    kind, words = (RuntimeError, "rank 1 failed in an evaluation: OutOfMemoryError: no room")
    if rank == 1:
        kind, words = (torch.OutOfMemoryError, "no room")
    with threads_and_ranks.over_ranks(together=True):
        with pytest.raises(kind, match=words):
            threads_and_ranks.run_all(model, [full, full], 1)
        assert threads_and_ranks.run_once(lambda: rank) == 0
        with pytest.raises(InputError if rank == 0 else RuntimeError, match="no such task"):
            threads_and_ranks.run_once(nothing)


def run_rank(rank: int, file: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    model = families.network("Llama")
    check_shared_passes(model)
    check_shared_errors(model, rank)
    dist.destroy_process_group()


def test_ranks_share_the_passes_and_know_all_results_and_errors(tmp_path: Path) -> None:
    """An error on one rank is every rank's at once: they wait for each other for hours in a large evaluation."""
    ranks.start(run_rank, (str(tmp_path / "group"),), 2)

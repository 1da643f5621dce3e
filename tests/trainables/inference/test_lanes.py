"""Passes beside each other give what one after the other gives: on threads of a CPU, and on ranks."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from tests.support import tiny
from tests.trainables.inference.test_generation import END, FAMILIES, NEVER, PAD, alone, frequent, network, ragged
from tests.trainables.inference.test_prefixes import drawn
from trainables.common.errors import InputError
from trainables.inference import generation, parallel, scoring


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[*FAMILIES, "Gemma2"])
def family(request: Any) -> Any:
    more = {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 100} if request.param == "Gemma2" else {}
    return network(request.param, **more)


def works_with(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Threads that computed something of a pass; where there are to be two, the first one waits for the other."""
    seen: list[int] = []
    read, both = parallel._beside, threading.Barrier(2)

    def watched(model: Any, works: Any, beside: int) -> Any:
        def noted(work: Any) -> Any:
            def run(twin: Any) -> Any:
                new = threading.get_ident() not in seen
                seen.append(threading.get_ident())
                if new and beside == 2:
                    both.wait(timeout=60)
                return work(twin)

            return run

        return read(model, [noted(work) for work in works], beside)

    monkeypatch.setattr(parallel, "_beside", watched)
    return seen


def test_losses_of_two_threads_are_those_of_one(family: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without trunks in passes of the same tokens by one thread each: the same to the last bit."""
    groups, threads = drawn(3, groups=40), works_with(monkeypatch)
    monkeypatch.setattr(parallel, "LEAST", 50)
    beside = scoring.score_answers(family, groups, pad=PAD, token_budget=100)
    assert len(set(threads)) == 2
    examples = [example for group in groups for example in group]
    labels = scoring.label_scores(family, examples, pad=PAD, token_budget=100)
    assert threading.get_ident() not in threads
    torch.set_num_threads(1)
    alike = scoring.score_answers(family, groups, pad=PAD, token_budget=50)
    assert [answers.said for answers in alike] == [answers.said for answers in beside]
    for one, other in zip(alike, beside, strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-5)
    assert scoring.label_scores(family, examples, pad=PAD, token_budget=50) == labels
    torch.set_num_threads(2)


def test_texts_of_two_threads_are_those_of_each_row_alone(family: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, limits = ragged(24, seed=7)
    end, threads = frequent(family, prompts), works_with(monkeypatch)
    monkeypatch.setattr(parallel, "LEAST", 10)
    found = generation.continuations(family, prompts, limits, end=end, pad=PAD, token_budget=400)
    assert found == [alone(family, ids, limit, end) for ids, limit in zip(prompts, limits, strict=True)]
    assert len(set(threads)) == 2


def test_lanes_hold_the_same_weights_and_share_no_hook() -> None:
    model = tiny.network()
    twins = parallel._twins(model, 3)
    assert twins[0] is model
    for twin in twins[1:]:
        pairs = zip(model.state_dict(keep_vars=True).items(), twin.state_dict(keep_vars=True).items(), strict=True)
        assert all(name == other and one is two for (name, one), (other, two) in pairs)
        twin.get_output_embeddings().register_forward_pre_hook(lambda *_: pytest.fail("another lane's hook"))
    model(input_ids=torch.tensor([[3, 4]]))


def test_how_many_lanes_the_budget_and_the_threads_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.network()
    assert [parallel.here(model, budget) for budget in (1, 2047, 2048, 10**6)] == [1, 1, 2, 2]
    torch.set_num_threads(1)
    assert parallel.here(model, 10**6) == 1
    torch.set_num_threads(2)
    with torch.device("meta"):
        assert parallel.here(tiny.network(), 10**6) == 1


def test_an_error_in_a_lane_is_the_callers_and_ends_the_others() -> None:
    done: list[int] = []

    def work(number: int) -> Any:
        def run(_: Any) -> None:
            if number == 1:
                raise RuntimeError("row 1")
            done.append(number)

        return run

    with pytest.raises(RuntimeError, match="row 1"):
        parallel.each(tiny.network(), [work(number) for number in range(1000)], 2)
    assert len(done) < 999


def evaluated(rank: int, file: str) -> None:
    """On one of two ranks: losses and texts, and how many tokens it read itself."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    model, groups, (prompts, limits) = network("Llama"), drawn(5, groups=60), ragged(15, seed=8)
    with parallel.over_ranks(together=False):
        expected = everything(model, groups, prompts, limits)
    read: list[int] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, __, found: read.append(found[..., 0].numel()))
    with parallel.over_ranks(together=True):
        found = everything(model, groups, prompts, limits)
    shared = sum(read)
    everything(model, groups, prompts, limits)
    hook.remove()
    for one, other in zip(found[0], expected[0], strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-5)
        assert one.said == other.said
    assert found[1] == expected[1]
    assert 0 < shared < 0.6 * (sum(read) - shared)
    with parallel.over_ranks(together=True):
        few = generation.continuations(model, prompts[:1], [3], end=NEVER, pad=PAD, token_budget=400)
    assert few == generation.continuations(model, prompts[:1], [3], end=NEVER, pad=PAD, token_budget=400)
    dist.destroy_process_group()


def everything(model: Any, groups: Any, prompts: Any, limits: Any) -> Any:
    scores = scoring.score_answers(model, groups, pad=PAD, token_budget=100)
    return scores, generation.continuations(model, prompts, limits, end=END, pad=PAD, token_budget=400)


def test_ranks_share_the_passes_and_know_all_results(tmp_path: Path) -> None:
    """Both ranks compute about half and have everything, the same as each has alone."""
    spawn(evaluated, (str(tmp_path / "group"),), nprocs=2)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_an_error_or_an_interrupt_ends_a_long_work(first: bool, kind: type[BaseException]) -> None:
    """At its next pass, whichever began first; Ctrl-C comes to the caller's thread, which waits."""
    passes: list[int] = []
    caller = threading.get_ident()
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

    def long(model: Any) -> None:
        for number in range(10_000):
            model(input_ids=torch.tensor([[3, 4]]))
            passes.append(number)

    def wrong(_: Any) -> None:
        while len(passes) < 3:
            time.sleep(0.01)
        if kind is RuntimeError:
            raise RuntimeError("row 1")
        signal.pthread_kill(caller, signal.SIGINT)

    model = tiny.network()
    try:
        with pytest.raises(kind, match="row 1" if kind is RuntimeError else None):
            parallel.each(model, [wrong, long] if first else [long, wrong], 2)
    finally:
        signal.signal(signal.SIGINT, kept)
    assert 3 <= len(passes) < 5_000
    model(input_ids=torch.tensor([[3, 4]]))


def failing(rank: int, file: str) -> None:
    """Rank 1 runs out of memory in its part; then both are told what rank 0 finds, and that it finds nothing."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    model = network("Llama")

    def full(_: Any) -> None:
        if rank == 1:
            raise torch.OutOfMemoryError("no room")

    def nothing() -> None:
        raise InputError("no such task")

    kind, words = (RuntimeError, "rank 1 failed in an evaluation: OutOfMemoryError: no room")
    if rank == 1:
        kind, words = (torch.OutOfMemoryError, "no room")
    with parallel.over_ranks(together=True):
        with pytest.raises(kind, match=words):
            parallel.each(model, [full, full], 1)
        assert parallel.once(lambda: rank) == 0
        with pytest.raises(InputError if rank == 0 else RuntimeError, match="no such task"):
            parallel.once(nothing)
    dist.destroy_process_group()


def test_an_error_on_one_rank_is_every_ranks(tmp_path: Path) -> None:
    """At once: the ranks of a large evaluation wait for each other for hours."""
    spawn(failing, (str(tmp_path / "group"),), nprocs=2)


def test_shares_have_several_works_each_unless_there_is_one() -> None:
    assert parallel.portion(17_000, 4096, 1) == 4096
    assert parallel.portion(17_000, 2048, 2) == 2048
    assert [parallel.portion(17_000, 4096, ranks) for ranks in (2, 8, 10_000)] == [2125, 1024, 1024]
    assert parallel.portion(17_000, 512, 8) == 512

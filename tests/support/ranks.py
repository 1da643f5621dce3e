"""Runs jobs on N ranks, one process each, on gloo or nccl: what the tests of invariance compare. No Ray."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

Job = dict[str, Any]
STEPS, BATCH, SEED = 2, 8, 1
LIBRARIES = ["trainables.trial.runner", "trainables.training.deepspeed_engine", "transformers.models.llama"]
"""Imported once, by the process that ranks are forked from: that takes longer than most jobs."""


def start(function: Callable[..., Any], arguments: tuple[Any, ...], world: int, backend: str = "gloo") -> None:
    """Run `function(rank, *arguments)` in a group of `world` processes; raise what one of them raises."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(LIBRARIES)
    with tempfile.TemporaryDirectory() as folder:  # no port, which another process might take meanwhile
        begun = (dict(os.environ), world, backend, f"file://{folder}/group", function, arguments)
        start_processes(_begin, begun, nprocs=world, start_method="forkserver" if backend == "gloo" else "spawn")


def _begin(
    rank: int, environment: dict[str, str], world: int, backend: str, meet: str, function: Any, arguments: Any
) -> None:
    os.environ.update(environment)  # of now: the server of forks has that of its own start
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=meet, rank=rank, world_size=world)
    function(rank, *arguments)
    dist.destroy_process_group()


def run(world: int, jobs: list[Job], trial_inputs: Any, folder: Path, backend: str = "gloo") -> list[dict[str, Any]]:
    """Run every job in one group of `world` processes; what each left, in order."""
    place = (str(trial_inputs.target), str(trial_inputs.data), trial_inputs.split)
    start(_rank, (world, jobs, place, folder), world, backend)
    return [torch.load(folder / f"{world}-{number}.pt") for number in range(len(jobs))]


def _rank(rank: int, world: int, jobs: list[Job], place: tuple[str, str, str], folder: Path) -> None:
    for number, job in enumerate(jobs):
        work = _trial if "trial" in job else _write if job.get("write") else _train
        found = work(world, job, *place)
        if rank == 0:
            torch.save(found, folder / f"{world}-{number}.pt")
        dist.barrier()


def _engine(world: int, job: Job, target: str) -> Any:
    from trainables.config.settings import Model, Resources, Training
    from trainables.training import engine, model_files

    network, tokenizer = model_files.load_model_and_tokenizer(Model(path=target), job.get("precision", "fp32"))
    if job.get("lora"):
        torch.manual_seed(SEED)
        network = model_files.add_lora_adapters(network, job["lora"], 16)
    training = Training(
        lr=1.0 if job.get("write") else job.get("lr", 0.05),
        max_steps=STEPS,
        epochs=100,
        batch_size=BATCH,
        optimizer=job.get("optimizer", "sgd"),
        weight_decay=0.0 if job.get("write") else 0.01,
    )
    resources = Resources(
        ranks=world,
        zero_stage=job["stage"],
        precision=job.get("precision", "fp32"),
        offload_optimizer=job.get("offload", False),
    )
    runner = engine.create_engine(network.train(), training, resources)
    assert runner.device.type == "cuda" or runner.packs == (job["stage"] is None)
    if job.get("padded"):
        runner.packs = False
    return runner, training, tokenizer


def _train(world: int, job: Job, target: str, data: str, split: str) -> dict[str, Any]:
    """GRU, or another `rule`, on NPO for a few steps: the series and the final weights."""
    from trainables.benchmarks import tofu
    from trainables.config.settings import Benchmark
    from trainables.methods import method_constants, objectives, rectifiers
    from trainables.training import loop

    runner, training, tokenizer = _engine(world, job, target)
    from tests.support.tiny import encode_rows

    sides = tofu.TofuBenchmark().training_rows(Benchmark(data=data, split=split))
    encoded = [encode_rows(tokenizer, side, "llama2", "paper", 192) for side in sides]
    constants = method_constants.ObjectiveConstants(**job.get("constants", {}))
    rule = {"name": "gru", "gamma": 0.8} | job.get("rule", {})
    task = loop.TrainingTask(
        forget=encoded[0],
        retain=encoded[1],
        objective=objectives.make_objective(job.get("method", "npo"), constants),
        rectifier=rectifiers.find_rectifier_class(rule.pop("name"))(**rule),
        training=training,
        seed=SEED,
        pad=tokenizer.pad_token_id,
        micro_batch=job.get("micro_batch"),
    )
    records = list(loop.train_steps(runner, task))
    weights = torch.cat([part.double().reshape(-1) for part in runner.gather().values()] or [torch.zeros(1)])
    runner.close()
    return {"records": records, "weights": weights}


def _write(world: int, job: Job, target: str, data: str, split: str) -> dict[str, Any]:
    """Two micro-batches, cleared; two again; then a constant written over the gradient, and one SGD step of lr 1.

    `exact`: the share of the gradient's elements that bf16 could hold. `squares`: of each tensor, its squared norm.
    """
    from trainables.methods.rectifiers.base import shard_inner_product

    runner, _, _ = _engine(world, job, target)
    before = _masters(runner)
    norms, exact, squares = [], 0.0, torch.zeros(0)
    for _ in range(2):
        for last in (False, True):
            ids = torch.arange(5, 25, device=runner.device).view(2, 10) + last
            output = runner.inner(input_ids=ids, labels=ids)
            runner.backward(output.loss / 2 / world, last=last)
        norms.append(float(runner.sum_over_shards(shard_inner_product(runner.grad_shard(), runner.grad_shard()))))
        if len(norms) == 1:
            whole = torch.cat([part.detach().reshape(-1) for part in runner.grad_shard()])
            whole = whole[whole != 0]
            exact = float((whole == whole.bfloat16()).float().mean())
            squares = _squares(runner)
            runner.clear_gradients()
    for part in runner.grad_shard():
        part.fill_(0.25)
    runner.step(1.0)
    after = _masters(runner)
    runner.close()
    return {"norms": norms, "moved": before - after, "exact": exact, "squares": squares}


def _squares(runner: Any) -> torch.Tensor:
    """The squared norm of each tensor's gradient, from the stretches of it that ranks have."""
    squares = torch.zeros(runner.segments.tensors, dtype=torch.float64)
    for part, cuts in zip(runner.grad_shard(), runner.segments.cuts, strict=True):
        for number, start, end in cuts:
            squares[number] += part.reshape(-1)[start:end].double().square().sum().cpu()
    return runner.sum_over_shards(squares).cpu()


def _trial(world: int, job: Job, target: str, data: str, split: str) -> dict[str, Any]:
    """A whole trial with its weights kept, or its first `stop_after` steps."""
    from trainables.config.trial import Trial
    from trainables.storage.opening import open_storage_unchecked
    from trainables.trial.runner import TrialRun

    wanted = Trial.model_validate(job["trial"])
    store = open_storage_unchecked(job["storage"])
    store.fetch_trial(wanted.id())
    dist.barrier()
    events = TrialRun(wanted, store, keep_weights=True).run_and_yield_events()
    for event in events:
        if event["phase"] == "training" and event["step"] == job.get("stop_after"):
            del events
            break
    return {}


def _masters(runner: Any) -> torch.Tensor:
    """The optimizer's fp32 weights, whole, on every rank."""
    from deepspeed.utils import safe_get_full_fp32_param

    whole = runner.resources.zero_stage == 0
    parts = [p.detach() if whole else safe_get_full_fp32_param(p) for p in runner.module.parameters()]
    return torch.cat([part.double().reshape(-1) for part in parts if part is not None])

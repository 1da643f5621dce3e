"""What rectification costs: seconds of a rectified step over those of the same passes and optimizer step without it.

`python bench/rectify.py [--json FILE]` from the root; bench/README.md says what is compared with what.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script
from trainables.common import cli
from trainables.common.tokenized_row import Example
from trainables.config.settings import Resources, Training
from trainables.methods import method_constants, objectives, rectifiers
from trainables.training import engine, forward_backward, loop, sampling
from trainables.training.runtime import prepare_process

ROWS, LENGTHS, PROMPT = 32, (60, 71), 24
"""Rows of a pass; tokens of a row, from and below; of these the prompt's, which are no labels: as in TOFU."""
GAMMA, TAU = 0.8, 0.01
"""The paper's gamma, and a tau so small that every step is clipped too."""
SEED, WARM_UP_PAIRS = 0, 1
TRAINING_SETTINGS = Training(lr=1e-6, epochs=10**6, batch_size=ROWS)
SHAPES: dict[str, Any] = {"vocab_size": 32000, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8}
SHAPES |= {"num_attention_heads": 6, "max_position_embeddings": 128}
"""38.7M parameters."""


def read_synchronized_time(device: torch.device) -> float:
    """Return the time when every rank is here and the GPU idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.barrier()
    return time.perf_counter()


def time_each_call(function: Callable[..., Any], seconds: list[float], device: torch.device) -> Callable[..., Any]:
    """Return `function`, which adds what each call took to `seconds`."""

    def call(*arguments: Any) -> Any:
        started = read_synchronized_time(device)
        result = function(*arguments)
        seconds.append(read_synchronized_time(device) - started)
        return result

    return call


def take_plain_step(runner: Any, task: loop.TrainingTask, step: int) -> None:
    """Take the passes of `step`, with the reset between them, and the optimizer step."""
    size = task.training.batch_size
    retain = sampling.draw_retain_row_numbers(task.seed, step, 0, len(task.retain), size)
    forget = sampling.draw_forget_row_numbers(task.seed, step, 0, len(task.forget), size)
    forward_backward.accumulate_gradient(runner, [(objectives.base.NLL_TERM, task.retain, retain)], task, None)
    runner.clear_gradients()
    plan = [(term, task.forget, forget) for term in task.objective.terms]
    forward_backward.accumulate_gradient(runner, plan, task, None)
    runner.step(task.training.lr)


def time_plain_and_rectified_steps(
    network: Any, task: loop.TrainingTask, resources: Resources, repeats: int
) -> dict[str, Any]:
    """Time plain and rectified steps in turn, each pair on the same rows, every other pair the other way round."""
    runner = engine.create_engine(network.train(), task.training, resources)
    inside: list[float] = []
    # where the optimizer reads what is rectified, that has no time of its own
    combined = isinstance(runner, engine.PlainEngine) and task.rectifier.combines
    if not combined:
        task.rectifier.take_retain_gradient = time_each_call(task.rectifier.take_retain_gradient, inside, runner.device)
        task.rectifier.apply = time_each_call(task.rectifier.apply, inside, runner.device)
    records: list[dict[str, Any]] = []
    seconds: dict[str, list[float]] = {"plain": [], "rectified": []}
    steps = loop.train_steps(runner, task, loop.TrainingState(None))
    for step in range(WARM_UP_PAIRS + repeats):
        for name in ("plain", "rectified") if step % 2 == 0 else ("rectified", "plain"):
            started = read_synchronized_time(runner.device)
            if name == "plain":
                take_plain_step(runner, task, step)
            else:
                records.append(next(steps))
            seconds[name].append(read_synchronized_time(runner.device) - started)
    runner.close()
    plain, rectified = seconds["plain"][WARM_UP_PAIRS:], seconds["rectified"][WARM_UP_PAIRS:]
    pairs = [b / a for a, b in zip(plain, rectified, strict=True)]
    rectifying = [sum(inside[at : at + 2]) for at in range(2 * WARM_UP_PAIRS, len(inside), 2)]
    return {
        "ratio": median(rectified) / median(plain),
        "ratio_range": [min(pairs), max(pairs)],
        "ratio_inside": None if combined else 1 + median(rectifying) / median(plain),
        "plain_seconds": median(plain),
        "rectified_seconds": median(rectified),
        "projected_steps": sum(record["rectified"] and not record["skipped"] for record in records[WARM_UP_PAIRS:]),
        "clipped_steps": sum(record["clip_scale"] < 1 for record in records[WARM_UP_PAIRS:]),
    }


def rows(vocabulary: int, count: int = ROWS, lengths: tuple[int, int] = LENGTHS, prompt: int = PROMPT) -> list[Example]:
    """Return random tokens, in rows of TOFU's lengths where nothing else is said; 0 is the padding."""
    generator = np.random.default_rng(SEED)
    drawn = generator.integers(*lengths, size=count)
    return [Example(tuple(generator.integers(1, vocabulary, size=length).tolist()), prompt) for length in drawn]


def make_task_in_conflict(
    both: list[Example], training: Training, rectifier: rectifiers.Rectifier, micro_batch: int | None = None
) -> loop.TrainingTask:
    """Return gradient ascent on the rows that the retain pass draws from too: every step is in conflict."""
    objective = objectives.make_objective("ga", method_constants.ObjectiveConstants())
    return loop.TrainingTask(both, both, objective, rectifier, training, SEED, pad=0, micro_batch=micro_batch)


def time_steps_of_new_model(
    options: argparse.Namespace, device: torch.device, resources: Resources, rectifier: rectifiers.Rectifier
) -> dict[str, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    model: Any = LlamaForCausalLM(LlamaConfig(**SHAPES))
    task = make_task_in_conflict(rows(SHAPES["vocab_size"]), TRAINING_SETTINGS, rectifier)
    return time_plain_and_rectified_steps(model.to(device), task, resources, options.repeats)


def _rank(rank: int, world: int, options: argparse.Namespace, threads: int, folder: str) -> None:
    """Measure every stage in one group of `world` processes; rank 0 leaves the rows in `folder`."""
    cli.silence_libraries()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    on_gpu = options.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    backend, method = "nccl" if on_gpu else "gloo", f"file://{folder}/group"
    dist.init_process_group(backend, init_method=method, rank=rank, world_size=world)
    device = prepare_process(Resources(cpus=threads, gpus=float(on_gpu)), SEED)
    resources = [Resources(ranks=world, zero_stage=stage) for stage in options.stages]
    found = []
    for stage in resources:
        gc.collect()
        made = time_steps_of_new_model(options, device, stage, rectifiers.GRU(GAMMA, TAU))
        found.append({"stage": stage.zero_stage, "ranks": world, **made})
    if rank == 0:
        (Path(folder) / "rows.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def main(arguments: list[str] | None = None) -> None:
    parser = _script.make_parser(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="world sizes (default 1 2)")
    parser.add_argument("--stages", type=int, nargs="+", default=[0, 1, 2, 3], help="ZeRO stages (default all)")
    parser.add_argument("--repeats", type=int, default=5, help="measured pairs of steps (default 5)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and max(options.ranks) > torch.cuda.device_count():
        parser.error(f"--ranks {max(options.ranks)} needs as many GPUs; here are {torch.cuda.device_count()}")
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    found: list[dict[str, Any]] = []
    for world in options.ranks:
        threads = max(1, (os.cpu_count() or 1) // world)
        os.environ["OMP_NUM_THREADS"] = str(threads)
        with tempfile.TemporaryDirectory() as folder:
            spawn(_rank, (world, options, threads, folder), nprocs=world)
            found += json.loads((Path(folder) / "rows.json").read_text())
    device = _script.describe_hardware(options.device)
    _script.report(options.json, found, repeats=options.repeats, device=device)


if __name__ == "__main__":
    main()

"""What rectification costs: seconds of a rectified step over those of the same passes and optimizer step without it.

`python bench/rectify.py [--json FILE]` from the root; bench/README.md says what is compared with what.
"""

from __future__ import annotations

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
from trainables.config.method_tables import RECTIFIERS, RETAIN_PASS
from trainables.config.settings import Resources, Training
from trainables.methods import method_constants, objectives, rectifiers
from trainables.training import engine, forward_backward, loop, sampling
from trainables.training.runtime import prepare_process

ROWS, LENGTHS, PROMPT = 32, (60, 71), 24
"""Rows of a pass; tokens of a row, from and below; of these the prompt's, which are no labels: as in TOFU."""
GAMMA, TAU = 0.8, 0.01
"""The paper's gamma, and a tau so small that every step is clipped too: of GRU, the others have neither."""
SEED, WARM_UP = 0, 1
TRAINING = Training(lr=1e-6, epochs=10**6, batch_size=ROWS)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class HostGRU(rectifiers.GRU):
    """GRU as its published code does it: each gradient whole, flat and in float64 in host memory, and copied back.

    That code also reads gradients layer by layer and keeps two further copies of them on the device; only what the
    scheme itself asks for is here, so its time is a lower bound.
    """

    def update_average(self, retain: rectifiers.Shard) -> None:
        flat = _host(retain)
        mean = self.average[0] if self.average else torch.zeros_like(flat)
        self.average = [(1 - self.gamma) * mean + self.gamma * flat]

    def apply(self, gradient: rectifiers.Shard, reduce: rectifiers.Reduce) -> rectifiers.Outcome:
        flat, (mean,) = _host(gradient), self.average
        dot, norm, average_norm = float(flat @ mean), float(flat.norm()), float(mean.norm())
        if dot < 0:
            flat = flat - dot / average_norm**2 * mean
        for part, piece in zip(gradient, flat.split([part.numel() for part in gradient]), strict=True):
            part.copy_(piece.view_as(part))
        return rectifiers.Outcome(norm, norm, average_norm, dot, rectified=dot < 0)


def _host(parts: rectifiers.Shard) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in parts]).cpu().double()


def timed(function: Callable[..., Any], seconds: list[float], device: torch.device) -> Callable[..., Any]:
    """Return `function`, which adds what each call took to `seconds`; a GPU's work goes on after a call returns."""

    def call(*arguments: Any) -> Any:
        started = time.perf_counter()
        result = function(*arguments)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
        return result

    return call


def now(device: torch.device) -> float:
    """Return the time when every rank is here and the GPU idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.barrier()
    return time.perf_counter()


def plain_step(runner: Any, task: loop.TrainingTask, step: int) -> None:
    """Take the passes of `step`, with the reset between them, and the optimizer step."""
    size = task.training.batch_size
    retain = sampling.retain_batch(task.seed, step, 0, len(task.retain), size)
    forget = sampling.forget_batch(task.seed, step, 0, len(task.forget), size)
    parts = task.rectifier.parts
    for part in range(parts):
        forward_backward.accumulate_gradient(runner, [(objectives.NLL, task.retain, retain[part::parts])], task, None)
        runner.clear()
    plan = [(term, task.forget, forget) for term in task.objective.terms]
    forward_backward.accumulate_gradient(runner, plan, task, None)
    runner.step(task.training.lr)


def make_rule(name: str) -> rectifiers.Rectifier:
    """Return a rectifier as it was published; GRU with the paper's gamma, and clipping."""
    if name == "gru":
        return rectifiers.make_rectifier(name, GAMMA, TAU)
    row = RECTIFIERS[name]
    return rectifiers.make_rectifier(name, scope=row.scope if "scope" in row.takes else None)


def measure(runner: Any, task: loop.TrainingTask, repeats: int) -> dict[str, Any]:
    """Time plain and rectified steps in turn, each pair on the same rows, every other pair the other way round."""
    inside: list[float] = []
    task.rectifier.update_average = timed(task.rectifier.update_average, inside, runner.device)
    task.rectifier.apply = timed(task.rectifier.apply, inside, runner.device)
    records: list[dict[str, Any]] = []
    seconds: dict[str, list[float]] = {"plain": [], "rectified": []}
    steps = loop.train(runner, task, loop.TrainingState(None))
    for step in range(WARM_UP + repeats):
        for name in ("plain", "rectified") if step % 2 == 0 else ("rectified", "plain"):
            started = now(runner.device)
            if name == "plain":
                plain_step(runner, task, step)
            else:
                records.append(next(steps))
            seconds[name].append(now(runner.device) - started)
    plain, rectified, records = seconds["plain"][WARM_UP:], seconds["rectified"][WARM_UP:], records[WARM_UP:]
    pairs = [b / a for a, b in zip(plain, rectified, strict=True)]
    combined = (
        isinstance(runner, engine.PlainEngine) and task.rectifier.combines
    )  # the optimizer reads what is rectified: no time of its own
    calls = task.rectifier.parts + 1
    rectifying = [sum(inside[at : at + calls]) for at in range(calls * WARM_UP, len(inside), calls)]
    return {
        "ratio": median(rectified) / median(plain),
        "ratio_range": [min(pairs), max(pairs)],
        "ratio_of_least": min(rectified) / min(plain),
        "ratio_inside": None if combined else 1 + median(rectifying) / median(plain),
        "plain_seconds": median(plain),
        "rectified_seconds": median(rectified),
        "projected_steps": sum(record["rectified"] and not record["skipped"] for record in records),
        "clipped_steps": sum(record["clip_scale"] < 1 for record in records),
    }


def rows(vocabulary: int, count: int = ROWS, lengths: tuple[int, int] = LENGTHS, prompt: int = PROMPT) -> list[Example]:
    """Return random tokens, in rows of TOFU's lengths where nothing else is said; 0 is the padding."""
    generator = np.random.default_rng(SEED)
    drawn = generator.integers(*lengths, size=count)
    return [Example(tuple(generator.integers(1, vocabulary, size=length).tolist()), prompt) for length in drawn]


def make_network(options: argparse.Namespace, device: torch.device) -> Any:
    """Return a Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=options.hidden * 8 // 3,
        num_hidden_layers=options.layers,
        num_attention_heads=max(1, options.hidden // 64),
        max_position_embeddings=128,
    )
    model: Any = LlamaForCausalLM(config)
    return model.to(device, DTYPES[options.precision]).train()


def make_task(
    both: list[Example], training: Training, rectifier: rectifiers.Rectifier, micro_batch: int | None = None
) -> loop.TrainingTask:
    """Return gradient ascent on the rows that the retain pass draws from too: every step is in conflict."""
    objective = objectives.make_objective("ga", method_constants.Constants())
    return loop.TrainingTask(both, both, objective, rectifier, training, SEED, pad=0, micro_batch=micro_batch)


def measure_scheme(
    options: argparse.Namespace, device: torch.device, resources: Resources, rectifier: rectifiers.Rectifier
) -> dict[str, Any]:
    """Measure our loop on an engine."""
    task, model = make_task(rows(options.vocabulary), TRAINING, rectifier), make_network(options, device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    runner = engine.create_engine(model, task.training, resources)
    found = measure(runner, task, options.repeats)
    runner.close()
    return {**found, "parameters": parameters, "rows": ROWS, "tokens": sum(len(row.input_ids) for row in task.forget)}


def _rank(rank: int, world: int, options: argparse.Namespace, threads: int, folder: str) -> None:
    """Measure every stage in one group of `world` processes; rank 0 prints the rows and leaves them in `folder`."""
    cli.silence_libraries()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    on_gpu = options.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    method = f"file://{folder}/group"
    dist.init_process_group("nccl" if on_gpu else "gloo", init_method=method, rank=rank, world_size=world)
    device = prepare_process(Resources(cpus=threads, gpus=float(on_gpu)), SEED)
    theirs: dict[str, Any] = {"authors_ratio": None}
    resources = [Resources(ranks=world, zero_stage=stage, precision=options.precision) for stage in options.stages]
    if world == 1 and "gru" in options.rectifiers:
        authors = measure_scheme(options, device, resources[0], HostGRU(GAMMA))
        names = ("ratio", "ratio_range", "ratio_of_least", "ratio_inside", "plain_seconds", "rectified_seconds")
        theirs = {f"authors_{name}": authors[name] for name in names}
    found = []
    for stage, name in [(stage, name) for stage in resources for name in options.rectifiers]:
        gc.collect()
        made = measure_scheme(options, device, stage, make_rule(name))
        found.append({"rectifier": name, "stage": stage.zero_stage, "ranks": world, **made, **theirs})
    if rank == 0:
        (Path(folder) / "rows.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = _script.make_parser(__doc__)
    parser.add_argument("--ranks", type=_script.numbers, default=[1, 2], help="world sizes (default 1,2)")
    parser.add_argument("--stages", type=_script.numbers, help="ZeRO stages (default 0,1,2,3; with bf16 1,2,3)")
    parser.add_argument("--rectifiers", default="gru", help="names with commas, or all (default gru)")
    parser.add_argument("--repeats", type=int, default=5, help="measured pairs of steps (default 5)")
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--precision", choices=sorted(DTYPES), default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, help="of each rank (default cores // ranks)")
    options = parser.parse_args(arguments)
    every = [name for name, row in RECTIFIERS.items() if RETAIN_PASS in row.needs and not row.custom]
    options.rectifiers = every if options.rectifiers == "all" else options.rectifiers.split(",")
    if unknown := sorted(set(options.rectifiers) - set(every)):
        parser.error(f"--rectifiers: {', '.join(unknown)}: not one of {', '.join(every)}")
    options.stages = options.stages or ([1, 2, 3] if options.precision == "bf16" else [0, 1, 2, 3])
    for stage in options.stages:
        Resources(zero_stage=stage, precision=options.precision)
    if options.device == "cuda" and max(options.ranks) > torch.cuda.device_count():
        parser.error(f"--ranks {max(options.ranks)} needs as many GPUs; here are {torch.cuda.device_count()}")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    cores = os.cpu_count() or 1
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    found: list[dict[str, Any]] = []
    for world in options.ranks:
        threads = options.threads or max(1, cores // world)
        os.environ["OMP_NUM_THREADS"] = str(threads)
        with tempfile.TemporaryDirectory() as folder:
            spawn(_rank, (world, options, threads, folder), nprocs=world)
            made = json.loads((Path(folder) / "rows.json").read_text())
        found += [{**row, "threads": threads} for row in made]
    device = _script.hardware(options.device)
    _script.report(options.json, found, repeats=options.repeats, precision=options.precision, device=device)
    weak = [row for row in found if row["projected_steps"] < options.repeats]
    weak += [row for row in found if row["rectifier"] == "gru" and row["clipped_steps"] < options.repeats]
    if weak:
        print(f"{len(weak)} row(s) have steps that were not projected or not clipped: see projected_steps in the rows")


if __name__ == "__main__":
    main()

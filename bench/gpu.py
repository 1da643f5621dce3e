"""A 1B Llama of random weights in bf16 on one GPU: rectification, utilisation, memory against the plan, evaluation.

`python bench/gpu.py [--json FILE]` from the root; `--device cpu --size tiny` rehearses it where there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script, rectify
from trainables.benchmarks import evaluation
from trainables.common import cli
from trainables.config.settings import Benchmark, Model, Rectifier, Resources, Shape, Training
from trainables.config.shared_artifacts import Recipe
from trainables.config.trial import Trial
from trainables.methods import rectifiers
from trainables.training import engine, memory, model_files
from trainables.training.runtime import device_memory, evaluation_tokens, prepare_process, release_memory
from trainables.workers import shared_artifacts

FIELDS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
FIELDS += ("num_attention_heads", "num_key_value_heads", "tie_word_embeddings")
SIZES: dict[str, dict[str, Any]] = {
    "1b": dict(zip(FIELDS, (128256, 2048, 8192, 16, 32, 8, True), strict=True)),
    "tiny": dict(zip(FIELDS, (600, 64, 128, 2, 4, 2, True), strict=True)),
}
"""`1b`: the sizes of Llama-3.2-1B."""
RATIO_BAR = 1.08
NO_GPU = "error: no CUDA device here; rehearse on the CPU with: python bench/gpu.py --device cpu --size tiny"


def configuration(options: argparse.Namespace) -> Trial:
    """Return what the plan is asked about: GA with GRU on one rank, all weights trained."""
    return Trial(
        method="ga",
        rectifier=Rectifier(name="gru", gamma=rectify.GAMMA, tau=rectify.TAU),
        target=Model(path="random"),
        training=Training(lr=1e-6, epochs=10**6, batch_size=options.rows),
        resources=Resources(gpus=float(options.device == "cuda"), precision="bf16", engine=options.engine),
    )


def steps(
    options: argparse.Namespace, network: Any, shape: Shape, device: torch.device, operations: int
) -> dict[str, Any]:
    """Time plain and rectified steps (bench/rectify.py), and set the peak of their memory beside the plan's."""
    asked = configuration(options)
    plan = memory.fit(asked, shape, options.length, device_memory(device))
    both = rectify.rows(shape.vocabulary, options.rows, (options.length, options.length + 1), prompt=1)
    ours = rectifiers.make_rectifier("gru", rectify.GAMMA, rectify.TAU)
    task = rectify.make_task(both, asked.training, ours, plan.micro_batch)
    runner = engine.create_engine(network.train(), asked.training, asked.resources)
    found = rectify.measure(runner, task, options.repeats)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    runner.close()
    tokens, seconds = 2 * options.rows * options.length, found["plain_seconds"]
    top = options.peak and options.peak * 1e12
    return {
        **found,
        "ratio_bar": RATIO_BAR,
        "micro_batch": plan.micro_batch,
        "tokens_per_step": tokens,
        "tokens_per_second": tokens / seconds,
        "flops_per_step": operations,
        "peak_flops": top,
        "utilisation": None if top is None else operations / seconds / top,
        "planned_bytes": plan.peak.training,
        "peak_bytes": peak,
        "planned_over_peak": None if peak is None else plan.peak.training / peak,
    }


def count_operations(network: Any, length: int) -> int:
    """Return the operations of both passes over a row of `length` tokens: matrix products, attention uncut.

    A forward pass has two for each weight of a matrix and token, and four for each layer, pair of tokens and column of
    the heads; a backward pass has twice as many. PyTorch's counter refuses grouped heads on CUDA.
    """
    config = network.config
    matrices = [part for part in network.modules() if isinstance(part, torch.nn.Linear)]
    weights = sum(part.weight.numel() for part in matrices)
    attention = 4 * config.num_hidden_layers * length**2 * config.hidden_size
    return 3 * (2 * length * weights + attention)


def evaluate(options: argparse.Namespace, network: Any, device: torch.device) -> dict[str, Any]:
    """Time all metrics of a split. A random model seldom ends an answer: generations run to their limit."""
    if options.data is None:
        return {"evaluation_seconds": None}
    benchmark = Benchmark(data=options.data, split=options.split, limit=options.limit)
    recipe = Recipe(
        vocabulary=min(32000, network.config.vocab_size),
        data=options.data,
        data_fingerprint="bench",
        configs=("full",),
        template="llama2",
        training=Training(max_length=512),
    )
    tokenizer = shared_artifacts.learn_tokenizer(recipe)
    started = time.perf_counter()
    budget = evaluation_tokens(configuration(options).resources, network)
    _, records = evaluation.evaluate(network.eval(), tokenizer, benchmark, None, token_budget=budget)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return {
        "evaluation_seconds": time.perf_counter() - started,
        "evaluation_rows": len(records),
        "evaluation_tokens": budget,
        "evaluation_split": options.split,
        "evaluation_limit": options.limit,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM

    device = prepare_process(configuration(options).resources, rectify.SEED)
    sizes = {**SIZES[options.size], "max_position_embeddings": 1024}
    config = LlamaConfig(**sizes, bos_token_id=0, eos_token_id=1, pad_token_id=2)  # type: ignore[arg-type]
    shape = memory.shape_of(config.to_dict())
    if shape is None:
        raise AssertionError("a Llama's configuration has all sizes")
    with torch.device(device):
        network: Any = LlamaForCausalLM(config)
    network.to(getattr(torch, model_files.DTYPES["bf16"]))
    found = {"size": options.size, "parameters": sum(parameter.numel() for parameter in network.parameters())}
    operations = 2 * options.rows * count_operations(network, options.length)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    found |= steps(options, network, shape, device, operations) | evaluate(options, network, device)
    del network
    release_memory()
    return found | {"left_bytes": torch.cuda.memory_allocated(device) if device.type == "cuda" else None}


def _options(arguments: list[str] | None) -> argparse.Namespace:
    data = _script.shared("data", "tofu")
    parser = _script.make_parser(__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", choices=sorted(SIZES), default="1b")
    parser.add_argument("--engine", choices=["plain", "deepspeed"], default="plain", help="default plain")
    parser.add_argument("--repeats", type=int, default=10, help="measured pairs of steps (default 10)")
    parser.add_argument("--rows", type=int, default=32, help="of a pass (default 32)")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row (default 128)")
    parser.add_argument("--peak", type=float, metavar="TFLOPS", help="dense bf16 peak, such as 989 of an H100")
    parser.add_argument("--data", default=str(data) if data.is_dir() else None, help="folder of TOFU's rows")
    parser.add_argument("--split", default="forget05", help="of the evaluation (default forget05)")
    parser.add_argument("--limit", type=int, help="rows of each task of the evaluation (default: all)")
    options = parser.parse_args(arguments)
    if options.data is not None and not Path(options.data).is_dir():
        parser.error(f"--data: no folder {options.data}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.exit(2, NO_GPU + "\n")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    cli.silence_libraries()
    hardware = _script.hardware(options.device)
    _script.report(options.json, [measure(options)], repeats=options.repeats, precision="bf16", device=hardware)


if __name__ == "__main__":
    main()

"""What sharing a direction saves, and the memory its making takes.

`python bench/strengths.py [--json FILE]` from the root; bench/README.md says what is measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script
from bench._memory import Peak
from trainables.config.settings import Benchmark, Model, Resources, TaskVector
from trainables.config.trial import Direction
from trainables.storage import files
from trainables.storage.location import open_storage

STGS = "4,8,10,12,16,20,24"
SHAPE = (("hidden_size", 384), ("intermediate_size", 1024), ("num_hidden_layers", 8), ("num_attention_heads", 6))
VOCABULARY = 32000


def sweep(options: argparse.Namespace, place: str, stgs: str) -> tuple[float, list[float], int]:
    """Run TRU over `stgs` by the command that people type.

    Return its wall seconds, the seconds of each trial's evaluation, and how many directions it says that it made.
    """
    chosen = {"benchmark.data": options.data, "models": options.models, "benchmark.split": options.split}
    command = ["-m", "platform.sweep", "tofu_tiny", "--storage", place, "--max-concurrent", "1", "--keep", "none"]
    command += ["--only", "method=tru", *_script.settings({**chosen, "task_vector.stg": stgs})]
    seconds, printed = _script.run(*command)
    found = [files.read_json(file) or {} for file in sorted(Path(place).glob("trials/*/result.json"))]
    return seconds, [result["seconds"]["evaluation"] for result in found], printed.count("direction for")


def cost(options: argparse.Namespace) -> dict[str, Any]:
    """Time seven points, then one; seven may take as long as one point and six further evaluations."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as seven:
        whole, evaluations, makings = sweep(options, seven, STGS)
        first, _, _ = sweep(options, one, "12")
    allowed = first + 6 * sum(evaluations) / len(evaluations)
    return {"one": first, "seven": whole, "allowed": allowed, "ratio": whole / allowed, "directions": makings}


def tensor_bytes() -> int:
    """Return the bytes of all tensors alive in this process, each storage once."""
    gc.collect()
    found = [item for item in gc.get_objects() if type(item) in (torch.Tensor, torch.nn.Parameter)]
    return sum({part.untyped_storage().data_ptr(): part.untyped_storage().nbytes() for part in found}.values())


def watched(held: list[int]) -> Callable[..., Any]:
    """Return `task_vectors.rectify`, at whose call most vectors are alive, noting how many bytes that is."""
    from trainables.methods import task_vectors

    real = task_vectors.rectify

    def rectify(*arguments: Any) -> Any:
        held.append(tensor_bytes())
        return real(*arguments)

    return rectify


def _rank(rank: int, world: int, folder: str, model: str, data: str) -> None:
    from trainables.common import cli
    from trainables.methods import task_vectors
    from trainables.training.runtime import prepare_process
    from trainables.training.task_vectors.combine import ensure_direction
    from trainables.trial.setup import load_forget_rows

    cli.silence_libraries()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", init_method=f"file://{folder}/group-{world}", rank=rank, world_size=world)
    prepare_process(Resources(), 0)
    direction = Direction(
        rectified=True,
        target=Model(path=model, fingerprint="bench"),
        benchmark=Benchmark(data=data, split="forget50", fingerprint="bench"),
        vector=TaskVector(batches=4, steps=2),
        max_length=128,
    )
    held: list[int] = []
    task_vectors.rectify = watched(held)
    with Peak() as peak:
        ensure_direction(direction, open_storage(f"{folder}/{world}"), load_forget_rows, micro_batch=1)
    (Path(folder) / f"{world}-{rank}.json").write_text(json.dumps([peak.growth, max(held)]))
    dist.destroy_process_group()


def memory(world: int, folder: str, model: str, data: str, parameters: int) -> dict[str, Any]:
    """Return what the fullest rank holds, in tensors and as a process, over its part of the weights."""
    spawn(_rank, (world, folder, model, data), nprocs=world)
    ranks = [json.loads((Path(folder) / f"{world}-{rank}.json").read_text()) for rank in range(world)]
    process, tensors = (max(column) for column in zip(*ranks, strict=True))
    part = 4 * parameters / world
    sizes = {
        "process_bytes": process,
        "tensor_bytes": tensors,
        "parts": tensors / part,
        "process_parts": process / part,
    }
    return {"ranks": world, "parameters": parameters, **sizes}


def memories(worlds: list[int]) -> list[dict[str, Any]]:
    """Measure a Llama of random weights on a few fictional rows."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from trainables.config.settings import Training
    from trainables.config.trial import Recipe
    from trainables.data import fictional
    from trainables.training import models
    from trainables.workers import shared_artifacts

    with tempfile.TemporaryDirectory() as folder:
        data, model = Path(folder) / "data", Path(folder) / "model"
        fictional.write(data, authors=4, questions=4, forget_percent=(50,), seed=0)
        recipe = Recipe(
            architecture=SHAPE, vocabulary=400, data=str(data), data_fingerprint="bench", configs=("full",),
            template="llama2", training=Training(max_length=128),
        )  # fmt: skip
        tokenizer = shared_artifacts._start(recipe)[1]
        network: Any = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **dict(SHAPE)))  # type: ignore[arg-type]
        parameters = sum(parameter.numel() for parameter in network.parameters())
        models.save(network, tokenizer, model, {})
        del network
        return [memory(world, folder, str(model), str(data), parameters) for world in worlds]


def main(arguments: list[str] | None = None) -> None:
    parser = _script.make_parser(__doc__)
    _script.add_tofu(parser)
    parser.add_argument("--split", default="forget05")
    parser.add_argument("--only", choices=["cost", "memory"])
    options = _script.parse(parser, arguments, "models", "data")
    rows: list[dict[str, Any]] = []
    if options.only != "memory":
        found = cost(options)
        rows.append({"measure": "cost", **found})
        print(
            f"seven strengths {found['seven']:.1f} s; one {found['one']:.1f} s and six evaluations: "
            f"{found['allowed']:.1f} s; ratio {found['ratio']:.2f}; directions made: {found['directions']}"
        )
    if options.only != "cost":
        for found in memories([1, 2]):
            rows.append({"measure": "memory", **found})
            print(
                f"{found['ranks']} ranks: {found['tensor_bytes'] / 1e6:.0f} MB in tensors, {found['parts']:.2f} times "
                f"its part of {found['parameters']:,} fp32 weights (weights, gradients, three vectors: 5); "
                f"the process {found['process_bytes'] / 1e6:.0f} MB above its start"
            )
    _script.save(options.json, rows)


if __name__ == "__main__":
    main()

"""What an evaluation on TOFU takes (dialect `paper`), over a plain padded one of the same rows and model.

`python bench/evaluate.py --models DIR --data DIR [--json FILE]` from the root; bench/README.md says what is compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _plain_evaluation, _script
from trainables.benchmarks import Records, tofu
from trainables.common import cli
from trainables.config.settings import Benchmark, Model
from trainables.inference.padded_batch import collate, pad_of
from trainables.training import model_files

TOFU = tofu.TofuBenchmark()

ASCENT_STEPS, ASCENT_ROWS, ASCENT_RATE = 12, 16, 1e-3
"""Gradient ascent after which tofu_tiny/full ends no answer any more."""
CLOSE, LOSSES = 1e-5, ("answer_loss", "paraphrase_loss", "perturbed_loss")


def collapsed(network: Any, tokenizer: Any, benchmark: Benchmark) -> Any:
    """Return the network after gradient ascent on the forget rows."""
    rows, _ = TOFU.training_examples(benchmark, tokenizer, max_length=256)
    optimizer = torch.optim.AdamW(network.parameters(), lr=ASCENT_RATE)
    for step in range(ASCENT_STEPS):
        chosen = [rows[(step * ASCENT_ROWS + k) % len(rows)] for k in range(ASCENT_ROWS)]
        (-network(**collate(chosen, pad_of(tokenizer))).loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    return network.eval()


def seconds(work: Callable[[], Records]) -> tuple[float, float, Records]:
    """Return wall-clock and processor time of some work, and its records."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def differences(ours: Records, plain: Records) -> dict[str, Any]:
    """Return how many generations differ, and the losses' largest difference over their size."""
    worst = 0.0
    for one, other in zip(ours, plain, strict=True):
        pairs = [(one[name], other[name]) for name in LOSSES[:2]]
        pairs += list(zip(one[LOSSES[2]], other[LOSSES[2]], strict=True))
        worst = max(worst, *(abs(a - b) / max(1.0, abs(b)) for a, b in pairs))
    differing = sum(one["generation"] != other["generation"] for one, other in zip(ours, plain, strict=True))
    return {"loss_difference": worst, "generations_differing": differing}


def measure(network: Any, tokenizer: Any, benchmark: Benchmark, *, repeats: int, token_budget: int) -> dict[str, Any]:
    """Time both in turn, every other pair the other way round; return medians of seconds and their ratios."""
    work: dict[str, Callable[[], Records]] = {
        "plain": lambda: _plain_evaluation.evaluate(network, tokenizer, tofu.evaluation_rows(benchmark)),
        "ours": lambda: tofu.evaluate(network, tokenizer, benchmark, token_budget=token_budget),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    found: dict[str, Records] = {}
    for number in range(repeats):
        for name in ("plain", "ours") if number % 2 == 0 else ("ours", "plain"):
            wall, cpu, found[name] = seconds(work[name])
            taken[name].append((wall, cpu))
    walls = {name: [wall for wall, _ in pairs] for name, pairs in taken.items()}
    cpus = {name: [cpu for _, cpu in pairs] for name, pairs in taken.items()}
    ratios = [a / b for a, b in zip(walls["plain"], walls["ours"], strict=True)]
    return {
        "ratio": median(walls["plain"]) / median(walls["ours"]),
        "ratio_range": [min(ratios), max(ratios)],
        "cpu_ratio": median(cpus["plain"]) / median(cpus["ours"]),
        **{f"{name}_seconds": median(values) for name, values in walls.items()},
        **{f"{name}_cpu_seconds": median(values) for name, values in cpus.items()},
        "rows": len(found["ours"]),
        "generated_characters": sum(len(record["generation"]) for record in found["ours"]),
        **differences(found["ours"], found["plain"]),
    }


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = _script.make_parser(__doc__)
    parser.add_argument("--data", default=str(_script.shared("data", "tofu")), help="folder of TOFU's rows")
    parser.add_argument("--models", default=str(_script.shared("models", "tofu_tiny")), help="folder that holds `full`")
    parser.add_argument("--split", default="forget05")
    parser.add_argument("--limit", type=int, help="so many rows of each task")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of evaluations (default 3)")
    parser.add_argument("--subjects", default="full,collapsed", help="models (default full,collapsed)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of torch (default all cores)")
    parser.add_argument("--token-budget", type=int, default=4096)
    return _script.parse(parser, arguments, "models", "data")


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    cli.silence_libraries()
    torch.set_num_threads(options.threads)
    benchmark = Benchmark(data=options.data, split=options.split, limit=options.limit)
    found = []
    for subject in options.subjects.split(","):
        network, tokenizer = model_files.load_model(Model(path=str(Path(options.models, "full"))))
        network = collapsed(network, tokenizer, benchmark) if subject == "collapsed" else network
        row = measure(network, tokenizer, benchmark, repeats=options.repeats, token_budget=options.token_budget)
        found.append({"model": subject, **row})
    common = {name: getattr(options, name) for name in ("threads", "repeats", "split")}
    _script.report(options.json, found, **common, device=_script.hardware())


if __name__ == "__main__":
    main()

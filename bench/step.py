"""Answer tokens a second of the training loop, beside transformers' Trainer.

`python bench/step.py [--json FILE]` from the root; bench/README.md says what is compared with what.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn.utils import parameters_to_vector

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script
from bench._trainer import Spent, Transformers, between, moment
from trainables.benchmarks import Examples, tofu
from trainables.common import cli
from trainables.common.tokens import Example
from trainables.config.settings import Benchmark, Model, Resources, Training
from trainables.inference import scoring
from trainables.methods import objectives, presets, rectifiers
from trainables.training import engine, loop, models, sampling
from trainables.training.runtime import prepare_process

TOFU = tofu.TofuBenchmark()

SEED, GAMMA, LR = 0, 0.8, 1e-5
BAR = 1.0
"""The least that our plain loop's answer tokens a second may be, as a multiple of the Trainer's."""


class Ours:
    """The loop on a DeepSpeed engine of one rank, as a trial takes its steps."""

    def __init__(self, network: Any, task: loop.TrainingTask) -> None:
        self.runner = engine.create_engine(network.train(), task.training, Resources())
        self.network = self.runner.module
        self.steps = loop.train(self.runner, task)

    def run(self, first: int, steps: int) -> Spent:
        ended = []
        for step in range(first, first + steps):
            if next(self.steps)["step"] != step + 1:
                raise AssertionError(f"a step beside step {step + 1}")
            ended.append(moment())
        return between(ended)


def measure(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Time blocks of the same steps by each contender in turn, every other round the other way round."""
    network, tokenizer = models.load_model(Model(path=options.model))
    benchmark = Benchmark(data=options.data, split=options.split)
    forget, retain = (
        tofu.encode_rows(tokenizer, side, "llama2", "paper", 500) for side in TOFU.training_rows(benchmark)
    )
    block = options.steps + 1
    batches = [
        [forget[row] for row in sampling.forget_batch(SEED, step, 0, len(forget), options.batch_size)]
        for step in range(block * (options.repeats + 1))
    ]
    prepare_process(Resources(cpus=options.threads), SEED)
    contenders = _contenders(network, tokenizer, (forget, retain), batches, folder)
    seconds: dict[str, list[Spent]] = {name: [] for name in contenders}
    for repeat in range(options.repeats + 1):
        for name in list(contenders)[:: 1 if repeat % 2 else -1]:
            seconds[name].append(contenders[name].run(repeat * block, block))
    start = parameters_to_vector(network.parameters()).detach().double()
    moved = {
        name: parameters_to_vector(contender.network.parameters()).detach().double() - start
        for name, contender in contenders.items()
    }
    contenders["plain"].runner.close()
    contenders["gru"].runner.close()
    answers = [sum(row.answer_tokens for row in batch) for batch in batches]
    return _figures(options, {name: values[-options.repeats :] for name, values in seconds.items()}, answers) | {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "row_tokens": [pick([len(row.input_ids) for row in forget]) for pick in (min, median, max)],
        "update_difference": float((moved["trainer"] - moved["plain"]).norm() / moved["plain"].norm()),
    }


def _contenders(
    network: Any, tokenizer: Any, sides: tuple[Examples, Examples], batches: Sequence[list[Example]], folder: str
) -> dict[str, Any]:
    """Return three ways to train on the batches, each with a copy of the model of its own."""
    training, pad = Training(lr=LR, batch_size=len(batches[0]), epochs=10**6), scoring.pad_of(tokenizer)

    def ours(rectifier: rectifiers.Rectifier) -> Ours:
        objective = objectives.make_objective("nll", presets.Constants())
        return Ours(copy.deepcopy(network), loop.TrainingTask(*sides, objective, rectifier, training, SEED, pad))

    return {
        "plain": ours(rectifiers.make_rectifier("none", None, None)),
        "gru": ours(rectifiers.make_rectifier("gru", GAMMA, None)),
        "trainer": Transformers(copy.deepcopy(network), tokenizer, batches, training, folder),
    }


def _figures(options: argparse.Namespace, seconds: dict[str, list[Spent]], answers: list[int]) -> dict[str, Any]:
    """Return rates and ratios of the measured blocks, whose first steps are not timed."""
    block = options.steps + 1
    tokens = [sum(answers[repeat * block + 1 : (repeat + 1) * block]) for repeat in range(1, options.repeats + 1)]
    found: dict[str, Any] = {
        "answer_tokens_per_second": {
            name: median(count / spent.wall for count, spent in zip(tokens, values, strict=True))
            for name, values in seconds.items()
        },
        "seconds_per_step": {
            name: median(spent.wall for spent in values) / options.steps for name, values in seconds.items()
        },
        "cpu_seconds_per_step": {
            name: median(spent.cpu for spent in values) / options.steps for name, values in seconds.items()
        },
    }
    pairs = list(zip(seconds["trainer"], seconds["plain"], strict=True))
    ratios = [theirs.wall / ours.wall for theirs, ours in pairs]
    found |= {"over_trainer": median(ratios), "over_trainer_range": [min(ratios), max(ratios)], "over_trainer_bar": BAR}
    found["over_trainer_cpu"] = median(theirs.cpu / ours.cpu for theirs, ours in pairs)
    found["gru_step_over_plain"] = median(
        rectified.wall / plain.wall for rectified, plain in zip(seconds["gru"], seconds["plain"], strict=True)
    )
    return found


def _options(arguments: list[str] | None) -> argparse.Namespace:
    model = _script.shared("models", "tofu_tiny", "full")
    parser = _script.make_parser(__doc__)
    parser.add_argument("--model", default=str(model), help="folder of the model")
    parser.add_argument("--data", default=str(_script.shared("data", "tofu")), help="folder of TOFU's rows")
    parser.add_argument("--split", default="forget10")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7, help="measured blocks of each (default 7)")
    parser.add_argument("--steps", type=int, default=4, help="timed steps of a block (default 4)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    return _script.parse(parser, arguments, "model", "data")


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    cli.silence_libraries()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, folder)
    common = {name: getattr(options, name) for name in ("batch_size", "repeats", "steps", "threads", "split")}
    _script.report(options.json, [found], **common, precision="fp32", device=_script.hardware())


if __name__ == "__main__":
    main()

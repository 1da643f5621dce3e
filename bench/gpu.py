"""What a GPU does here, in at most eight minutes: steps, evaluations, a trial of a real model, the GPU's tests.

`python bench/gpu.py [--json FILE] [--model DIR]` from the root; `--quick` rehearses it, small, on the CPU.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script, rectify
from trainables.benchmarks import evaluation
from trainables.common import cli
from trainables.config.settings import Benchmark, Model, Resources, Training
from trainables.config.shared_artifacts import ModelRecipe
from trainables.config.trial import Rectifier, Trial
from trainables.methods import rectifiers
from trainables.training import memory, model_files
from trainables.training.runtime import choose_process_token_budget, prepare_process, read_device_memory, release_memory
from trainables.workers import shared_artifacts

Row = dict[str, Any]
LLAMA_CONFIG_FIELDS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
LLAMA_CONFIG_FIELDS += ("num_attention_heads", "num_key_value_heads", "tie_word_embeddings", "max_position_embeddings")
LLAMA_1B_SIZES, TINY_LLAMA_SIZES = (128256, 2048, 8192, 16, 32, 8, True, 1024), (600, 64, 128, 2, 4, 2, True, 1024)
SPLIT = "forget05"


def make_random_llama(options: argparse.Namespace) -> tuple[Any, torch.device]:
    """Return a Llama of random weights in bf16, and its device."""
    from transformers import LlamaConfig, LlamaForCausalLM

    device = prepare_process(options.resources, rectify.SEED)
    sizes: Any = dict(zip(LLAMA_CONFIG_FIELDS, TINY_LLAMA_SIZES if options.quick else LLAMA_1B_SIZES, strict=True))
    with torch.device(device):
        network: Any = LlamaForCausalLM(LlamaConfig(**sizes, bos_token_id=0, eos_token_id=1, pad_token_id=2))
    return network.to(getattr(torch, model_files.DTYPES["bf16"])), device


def measure_steps_and_memory(options: argparse.Namespace) -> Iterator[Row]:
    """Time steps (bench/rectify.py), set their peak of memory beside the plan's; the plain engine's compiled, too."""
    for compiled in (False, True)[: 1 + (options.engine == "plain")]:
        resources = options.resources.model_copy(update={"compile": compiled})
        network, device = make_random_llama(options)
        shape, on_gpu = memory.parse_model_shape(network.config.to_dict()), device.type == "cuda"
        assert shape is not None, "a Llama's configuration has all sizes"
        training = rectify.TRAINING_SETTINGS.model_copy(update={"batch_size": options.rows})
        rule = Rectifier(name="gru", gamma=rectify.GAMMA, tau=rectify.TAU)
        trial = Trial(method="ga", rectifier=rule, target=Model(path="random"), training=training, resources=resources)
        plan = memory.fit_trial_to_memory(trial, shape, options.length, read_device_memory(device))
        both = rectify.rows(shape.vocabulary, options.rows, (options.length, options.length + 1), prompt=1)
        gru = rectifiers.GRU(rectify.GAMMA, rectify.TAU)
        task = rectify.make_task_in_conflict(both, training, gru, plan.micro_batch)
        # Matrix products, attention uncut: a forward pass has two for each weight of a matrix and token, and four for
        # each layer, pair of tokens and column of the heads; a backward pass has twice as many. PyTorch's counter of
        # operations refuses grouped heads on CUDA.
        weights = sum(part.weight.numel() for part in network.modules() if isinstance(part, torch.nn.Linear))
        attention = network.config.num_hidden_layers * options.length**2 * network.config.hidden_size
        operations = 2 * options.rows * 3 * (2 * options.length * weights + 4 * attention)
        found = rectify.time_plain_and_rectified_steps(network, task, resources, options.repeats)
        peak = torch.cuda.max_memory_allocated(device) if on_gpu else None
        del network, task
        release_memory()
        yield {
            "how": ", compiled" if compiled else "",
            **found,
            "parameters": shape.parameter_count,
            "tokens_per_step": 2 * options.rows * options.length,
            "flops_per_step": operations,
            "utilisation": options.peak and operations / found["plain_seconds"] / options.peak / 1e12,
            "rectification_bytes": 20 * shape.parameter_count,  # in bf16: average 10, products 6, the optimizer 4
            "planned_bytes": plan.peak.training_bytes,
            "peak_bytes": peak,
            "planned_over_peak": plan.peak.training_bytes / peak if peak else None,
            "left_bytes": torch.cuda.memory_allocated(device) if on_gpu else None,
        }


def measure_evaluation(options: argparse.Namespace) -> Iterator[Row]:
    """Time all metrics of some rows. A random model seldom ends an answer: generations run to their limit."""
    network, device = make_random_llama(options)
    source = {"data": options.data, "data_fingerprint": "bench", "configs": ("full",), "template": "llama2"}
    vocabulary, training = min(32000, network.config.vocab_size), Training(max_length=512)
    recipe = ModelRecipe(**source, vocabulary=vocabulary, training=training)
    tokenizer = shared_artifacts.train_tokenizer(recipe)
    budget = choose_process_token_budget(options.resources, network)
    for limit in options.limits:
        benchmark = Benchmark(data=options.data, split=SPLIT, limit=limit)
        started = time.perf_counter()
        _, records = evaluation.evaluate(network.eval(), tokenizer, benchmark, None, token_budget=budget)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        yield {"evaluation_rows": len(records), "evaluation_seconds": time.perf_counter() - started}


def measure_trial_and_sweep(options: argparse.Namespace) -> Iterator[Row]:
    """Time a trial of a real model in a process of its own, then two of a sweep, one after the other in a worker."""
    if options.model is None:
        return
    device = {} if options.quick else {"gpus": 1, "precision": "bf16"}
    steps, limit = (2, 2) if options.quick else (35, 300)
    trial = {"method": "npo", "rectifier": {"name": "gru", "gamma": 0.8}, "target": str(options.model)}
    trial |= {"benchmark": {"data": options.data, "split": SPLIT, "template": options.template, "limit": limit}}
    trial |= {"training": {"lr": 1e-5, "batch_size": 32, "max_steps": steps}, "resources": device}
    settings: Row = {side: f"{options.data}/{name}.json" for side, name in (("forget", SPLIT), ("retain", "retain95"))}
    settings |= {"target": options.model, "training.max_steps": steps, "training.eval_every": "none", "seed": "0,1"}
    settings |= {"benchmark.limit": limit, "benchmark.template": options.template}
    settings |= {f"resources.{name}": value for name, value in device.items()}
    typed = [word for path, value in settings.items() for word in ("--set", f"{path}={value}")]
    typed += ["--only", "method=npo", "--only", "rectifier.name=gru", "--strategy", "paper", "--keep", "none"]
    with tempfile.TemporaryDirectory() as folder:
        place, first = Path(folder), None
        (place / "trial.json").write_text(json.dumps(trial))
        seconds, _ = _script.run_python("-m", "trainables.run", place / "trial.json", "--storage", place / "alone")
        yield {"model": options.model.name, "process_seconds": seconds}
        command = [sys.executable, "-m", "platform.sweep", "own", *typed, "--max-concurrent", "1", "--storage", folder]
        started = time.perf_counter()
        with subprocess.Popen(command, cwd=_script.CODE_ROOT, stdout=subprocess.DEVNULL) as sweep:
            try:
                while sweep.poll() is None:
                    if first is None and any(place.glob("shared/making/*")):  # a loaded model begins to be evaluated
                        first = time.perf_counter() - started
                    time.sleep(0.05)
            finally:
                sweep.terminate()
        files = sorted(place.glob("trials/*/result.json"), key=lambda file: file.stat().st_mtime)
        cold, warm = (json.loads(file.read_text())["seconds"]["total"] for file in files)
        yield {"model": options.model.name, "first_work_seconds": first, "cold_seconds": cold, "warm_seconds": warm}


def run_tests(options: argparse.Namespace) -> Iterator[Row]:
    """Run the tests that need a GPU, or only list them."""
    _, said = _script.run_python("-m", "pytest", "-q", "-m", "gpu", *(["--collect-only"] if options.quick else []))
    yield {"tests": said.strip().splitlines()[-1]}


MEASUREMENTS = {"step": measure_steps_and_memory, "trial": measure_trial_and_sweep, "evaluation": measure_evaluation}
MEASUREMENTS |= {"tests": run_tests}


def main(arguments: list[str] | None = None) -> None:
    parser = _script.make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a rehearsal on the CPU, with a tiny model")
    parser.add_argument("--minutes", type=float, default=8, help="in all (default 8)")
    parser.add_argument("--parts", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS), help="these alone")
    parser.add_argument("--engine", choices=["plain", "deepspeed"], default="plain", help="default plain")
    parser.add_argument("--peak", type=float, metavar="TFLOPS", help="dense bf16 peak, such as 989 of an H100")
    parser.add_argument("--data", default=str(_script.find_shared_path("data/tofu")), help="folder of TOFU's rows")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a real model, which a trial unlearns")
    parser.add_argument("--template", default="chat", help="its prompt template (default chat)")
    options = parser.parse_args(arguments)
    if not options.quick and not torch.cuda.is_available():
        parser.exit(2, "error: no CUDA device here; rehearse on the CPU with: python bench/gpu.py --quick\n")
    if options.quick:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    options.rows, options.length, options.repeats = (4, 24, 2) if options.quick else (32, 128, 10)
    options.limits = (1, 2) if options.quick else (10, 40, None)  # of each task; none: all, 717 in forget05
    options.resources = Resources(gpus=float(not options.quick), precision="bf16", engine=options.engine)
    cli.silence_libraries()
    device, end = _script.describe_hardware("cpu" if options.quick else "cuda"), time.monotonic() + 60 * options.minutes
    found: list[Row] = []

    def tell(row: Row) -> None:
        found.append(row)
        _script.report(options.json, found, start=len(found) - 1, device=device)

    def stop(*_: object) -> None:
        raise TimeoutError("the time is up")

    signal.signal(signal.SIGALRM, stop)
    for name in options.parts:  # where one fails, or the time is up, the message is told, and the next goes on
        started, failed = time.monotonic(), {}
        try:
            signal.alarm(max(1, int(end - started)))
            for row in MEASUREMENTS[name](options):
                tell({"part": name, **row})
        except (Exception, SystemExit) as error:
            failed = {"error": f"{type(error).__name__}: {error}"[-2000:]}
        signal.alarm(0)
        release_memory()
        tell({"part": name, "part_seconds": time.monotonic() - started, **failed})


if __name__ == "__main__":
    main()

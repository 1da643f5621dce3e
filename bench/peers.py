"""TOFU's evaluation and an unlearning trial beside open-unlearning's, as whole processes in turn.

`python bench/peers.py --open-unlearning DIR --python PY [--what evaluation ga gd npo_gd] [--repeats 3] [--threads N]
[--json FILE]` from the root; bench/README.md says what is needed and measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script
from trainables import benchmarks
from trainables.benchmarks.tofu.open_unlearning_files import EVALUATION, PREFIXES, TRUTH_RATIOS
from trainables.config.settings import Benchmark, Model, Resources, Training
from trainables.config.trial import Trial
from trainables.training.model_files import fingerprint_model

NEEDS = "torch, transformers 4.45.1, datasets 3, hydra-core, hydra_colorlog, rouge-score, lm-eval 0.4.8, deepspeed"
SPLIT, RETAIN = "forget05", "retain95"
TRAINERS = {"ga": "GradAscent", "gd": "GradDiff", "npo_gd": "NPO"}
"""Our objectives and its trainers of the same formula; both retain terms are the NLL with coefficient 1."""
BATCH, EPOCHS, RATE = 32, 5, 1e-4
NAMES = {"model_utility": "model_utility"}
for _task, _prefix in PREFIXES.items():
    _prob = "Prob" if _task in ("forget", "retain") else "Prob_normalised"
    NAMES |= {f"{_task}_prob": f"{_prefix}_Q_A_{_prob}", f"{_task}_rouge": f"{_prefix}_Q_A_ROUGE"}
    NAMES[f"{_task}_truth_ratio"] = TRUTH_RATIOS[_task]
"""Our metrics, and its names of them."""


def peer_command(options: argparse.Namespace, what: str, place: Path) -> list[str]:
    """Return open-unlearning's command for an evaluation or a trial, with the measures of TOFU's two goals."""
    source = options.open_unlearning.resolve() / "src"
    settings = [
        "model=Llama-2-7b-chat-hf",  # its template; the paths say which model
        f"model.model_args.pretrained_model_name_or_path={options.model}",
        f"model.tokenizer_args.pretrained_model_name_or_path={options.model}",
        "model.model_args.attn_implementation=sdpa",
        "model.model_args.torch_dtype=float32",
        f"forget_split={SPLIT}",
        "~eval.tofu.metrics.privleak",
        "~eval.tofu.metrics.extraction_strength",
        "task_name=bench",
        f"paths.output_dir={place}",
    ]
    if what == "evaluation":
        return [str(source / "eval.py"), "experiment=eval/tofu/default", "model.model_args.device_map=cpu", *settings]
    arguments = f"per_device_train_batch_size={BATCH // 4} gradient_accumulation_steps=4 num_train_epochs={EPOCHS} "
    arguments += f"learning_rate={RATE} bf16=False bf16_full_eval=False optim=adamw_torch report_to=none "
    arguments += "eval_on_start=False eval_strategy=no warmup_epochs=null"  # warm-up divides by the number of GPUs
    typed = [f"trainer.args.{argument}" for argument in arguments.split()]
    command = ["--config-name=unlearn.yaml", "experiment=unlearn/tofu/default", f"trainer={TRAINERS[what]}"]
    return [str(source / "train.py"), *command, f"retain_split={RETAIN}", *typed, *settings]


def our_command(options: argparse.Namespace, what: str, place: Path) -> list[str]:
    """Return our command for the same."""
    benchmark = Benchmark(data=str(options.data), split=SPLIT, dialect="open-unlearning", template="llama2")
    if what == "evaluation":
        asked = ["--split", SPLIT, "--dialect", benchmark.dialect, "--template", benchmark.template]
        places = ["--model", str(options.model), "--data", str(options.data), "--output", str(place / "metrics.json")]
        return ["-m", "trainables.evaluate", *asked, *places]
    found, target = benchmarks.find("tofu").fingerprint(benchmark), Model(path=str(options.model))
    trial = Trial(
        method=what,
        benchmark=benchmark.model_copy(update={"fingerprint": found}),
        target=target.model_copy(update={"fingerprint": fingerprint_model(target)}),
        resources=Resources(cpus=options.threads or os.cpu_count() or 1),
        training=Training(lr=RATE, batch_size=BATCH, epochs=EPOCHS, schedule="linear", weight_decay=0.01),
    )
    (place / "config.json").write_text(trial.model_dump_json())
    return ["-m", "trainables.run", str(place / "config.json"), "--storage", str(place / "runs")]


def read_differences(what: str, ours: Path, theirs: Path) -> list[float]:
    """Return how far each metric of both is apart."""
    if what == "evaluation":
        found = json.loads((ours / "metrics.json").read_text())
    else:
        found = json.loads(next((ours / "runs").glob("trials/*/result.json")).read_text())["metrics"]
    log = next(theirs.rglob(EVALUATION), None)
    if log is None:
        raise SystemExit(f"open-unlearning ended well, but wrote no {EVALUATION}")
    peers = json.loads(log.read_text())
    return [abs(found[mine] - peers[name]["agg_value"]) for mine, name in NAMES.items()]


def measure(options: argparse.Namespace, what: str, place: Path) -> dict[str, Any]:
    """Run both in turn, every other pair the other way round; return seconds, ratios and how far numbers differ."""
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    differences: list[float] = []
    variables = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    if options.threads:
        variables |= {"OMP_NUM_THREADS": str(options.threads), "RAYON_NUM_THREADS": str(options.threads)}
    # theirs: rows are looked for in the folder it runs in, and our package `platform` is not for others
    apart = {"python": options.python.absolute(), "folder": place, "PYTHONPATH": "", **variables}
    for repeat in range(options.repeats):
        ours, theirs = (place / f"{what}-{repeat}-{side}" for side in seconds)
        ours.mkdir()
        runs = {
            "ours": partial(_script.run, *our_command(options, what, ours), **variables),
            "theirs": partial(_script.run, *peer_command(options, what, theirs), **apart),
        }
        for side in list(runs)[:: 1 if repeat % 2 == 0 else -1]:
            seconds[side].append(runs[side]()[0])
        differences += read_differences(what, ours, theirs)
        print(f"{what}: ours {seconds['ours'][-1]:.1f} s, theirs {seconds['theirs'][-1]:.1f} s", file=sys.stderr)
    ratios = [theirs / ours for ours, theirs in zip(*seconds.values(), strict=True)]
    return {
        "what": what,
        "threads": options.threads or "default",
        "our_seconds": statistics.median(seconds["ours"]),
        "their_seconds": statistics.median(seconds["theirs"]),
        "ratio": statistics.median(ratios),
        "ratio_range": f"{min(ratios):.2f} to {max(ratios):.2f}",
        "largest_difference": max(differences),
    }


def main(arguments: list[str] | None = None) -> None:
    known = ["evaluation", *TRAINERS]
    parser = _script.make_parser(__doc__)
    parser.add_argument("--open-unlearning", type=Path, metavar="DIR", required=True, help="a checkout of it")
    parser.add_argument("--python", type=Path, metavar="PY", required=True, help=f"of an environment with {NEEDS}")
    parser.add_argument("--what", nargs="+", choices=known, default=known, help="default: all")
    parser.add_argument("--repeats", type=int, default=3, help="pairs (default 3)")
    parser.add_argument("--threads", type=int, help="threads of both (OMP, Rayon); none: as each of them chooses")
    parser.add_argument("--model", type=Path, default=_script.shared("models/tofu_tiny/full"))
    parser.add_argument("--data", type=Path, default=_script.shared("data/tofu"))
    options = parser.parse_args(arguments)
    for name, file in {"open_unlearning": "src/eval.py", "model": "config.json", "data": f"{SPLIT}.json"}.items():
        if not (getattr(options, name) / file).is_file():
            parser.error(f"--{name.replace('_', '-')}: {getattr(options, name)} has no {file}")
    versions = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    _, said = _script.run("-c", versions, python=options.python.absolute())
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "locuslab").mkdir()
        (Path(place) / "locuslab" / "TOFU").symlink_to(options.data.absolute())
        rows = [measure(options, what, Path(place)) for what in options.what]
    _script.report(options.json, rows, peer_versions=said.strip(), hardware=_script.hardware())


if __name__ == "__main__":
    main()

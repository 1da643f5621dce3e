"""TOFU's evaluation beside open-unlearning's, as whole processes in turn, on the CPU or a GPU.

`python bench/peers.py --open-unlearning DIR --python PY [--repeats 3] [--json FILE]` from the root;
bench/README.md says what is needed and measured.
"""

import argparse
import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import _script

SPLIT = "forget05"


def make_open_unlearning_command(options: argparse.Namespace, place: Path) -> list[str]:
    """Return open-unlearning's command, with the measures of TOFU's two goals."""
    return [
        str(options.open_unlearning.resolve() / "src" / "eval.py"),
        "experiment=eval/tofu/default",
        "model=Llama-2-7b-chat-hf",  # its template; the paths say which model
        f"model.model_args.pretrained_model_name_or_path={options.model}",
        f"model.tokenizer_args.pretrained_model_name_or_path={options.model}",
        "model.model_args.attn_implementation=sdpa",
        "model.model_args.torch_dtype=float32",
        f"model.model_args.device_map={options.device}",
        f"forget_split={SPLIT}",
        "~eval.tofu.metrics.privleak",
        "~eval.tofu.metrics.extraction_strength",
        "task_name=bench",
        f"paths.output_dir={place}",
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = _script.make_parser(__doc__)
    parser.add_argument("--open-unlearning", type=Path, metavar="DIR", required=True, help="a checkout of it")
    parser.add_argument("--python", type=Path, metavar="PY", required=True, help="of its environment (README.md)")
    parser.add_argument("--repeats", type=int, default=3, help="pairs (default 3)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of both (default cpu)")
    parser.add_argument("--model", type=Path, default=_script.find_shared_path("models/tofu_tiny/full"))
    parser.add_argument("--data", type=Path, default=_script.find_shared_path("data/tofu"))
    options = parser.parse_args(arguments)
    for name, file in {"open_unlearning": "src/eval.py", "model": "config.json", "data": f"{SPLIT}.json"}.items():
        if not (getattr(options, name) / file).is_file():
            parser.error(f"--{name.replace('_', '-')}: {getattr(options, name)} has no {file}")
    versions = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    _, said = _script.run_python("-c", versions, python=options.python.absolute())
    command = ["-m", "trainables.evaluate", "--split", SPLIT, "--dialect", "open-unlearning", "--template", "llama2"]
    command += ["--precision", "fp32", "--model", str(options.model), "--data", str(options.data), "--output"]
    names = {"model_utility": "model_utility", "forget_truth_ratio": "forget_truth_ratio"}  # of 13 metrics, ours first
    for task, prefix in {"forget": "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}.items():
        normalised = "" if prefix == task else "_normalised"
        names |= {f"{task}_prob": f"{prefix}_Q_A_Prob{normalised}", f"{task}_rouge": f"{prefix}_Q_A_ROUGE"}
        names |= {f"{task}_truth_ratio": f"{prefix}_Truth_Ratio"} if task != "forget" else {}
    differences: list[float] = []
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    variables = {"HF_HUB_OFFLINE": "1", **({"CUDA_VISIBLE_DEVICES": ""} if options.device == "cpu" else {})}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "locuslab").mkdir()
        (place / "locuslab" / "TOFU").symlink_to(options.data.absolute())
        # theirs: rows are looked for in the folder it runs in, and our package `platform` is not for others
        apart = {"python": options.python.absolute(), "folder": place, "PYTHONPATH": "", **variables}
        for repeat in range(options.repeats):
            ours, theirs = place / f"ours-{repeat}.json", place / f"theirs-{repeat}"
            runs = {
                "ours": partial(_script.run_python, *command, str(ours), **variables),
                "theirs": partial(_script.run_python, *make_open_unlearning_command(options, theirs), **apart),
            }
            for side in list(runs)[:: 1 if repeat % 2 == 0 else -1]:
                seconds[side].append(runs[side]()[0])
            found, peers = (json.loads(file.read_text()) for file in (ours, next(theirs.rglob("TOFU_EVAL.json"))))
            differences.append(max(abs(found[mine] - peers[name]["agg_value"]) for mine, name in names.items()))
    ratios = [theirs / ours for ours, theirs in zip(*seconds.values(), strict=True)]
    row = {
        "our_seconds": statistics.median(seconds["ours"]),
        "their_seconds": statistics.median(seconds["theirs"]),
        "ratio": statistics.median(ratios),
        "largest_difference": max(differences),
        "ratio_range": f"{min(ratios):.2f} to {max(ratios):.2f}",
    }
    _script.report(options.json, [row], peer_versions=said.strip(), hardware=_script.describe_hardware(options.device))


if __name__ == "__main__":
    main()

"""`python -m analysis.community NAME`: the folders that open-unlearning's `community/methods/` asks for."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from analysis.labels import describe_method, takes
from analysis.load.opening import find_sweep, open_storage
from analysis.stats.chosen_settings import rule_text
from analysis.stats.sweep_results import Results, read_results
from trainables.common import cli
from trainables.common.errors import InputError
from trainables.storage import atomic_files
from trainables.storage.sweep_file import SweepFile

DIALECT = "open-unlearning"
METRICS = {
    "tofu": {"forget_quality": "forget_quality_pvalue", "model_utility": "model_utility"},
    "muse": {
        "forget_knowmem_ROUGE": "knowmem_f",
        "forget_verbmem_ROUGE": "verbmem_f",
        "privleak": "privleak",
        "retain_knowmem_ROUGE": "knowmem_r",
    },
}
"""The columns of its leaderboard (community/leaderboard.md, commit d3d7cf9), and what we call them."""
COLUMNS = ("topology.ranks", "topology.device", "topology.zero_stage", "resources.precision", "commit")
COLUMNS += ("versions.torch", "versions.transformers")
"""What README says of the trials: columns of `analysis.runs.load`, which old results do not all have."""
README = """# {title}

- FILL IN: paper title, authors, links, and a summary of the method.

# Setup

- **Hyperparameters & Search Space:** settings that were run: {settings}, of {axes}. {rule} run.sh has them.
- **Computational Setup:** {known[0]} x {known[1]}.
- **DeepSpeed Configuration:** ZeRO stage {known[2]}, {known[3]}.
- **Other Details:** trials of the GRU unlearning platform (commit {known[4]}; torch {known[5]}, transformers
  {known[6]}), evaluated in the dialect `open-unlearning`.

# Results

{table}

`run.sh` replicates them. FILL IN: links to the uploaded models (`python -m trainables.export ID --format
open-unlearning --push ORG/NAME`).

# Citation

FILL IN: BibTeX of the method, and open-unlearning's own:

```bibtex
@misc{{openunlearning2025, title={{OpenUnlearning: A Unified Framework for LLM Unlearning Benchmarks}}, year={{2025}},
  author={{Dorna, Vineeth and Mekala, Anmol and Zhao, Wenlong and McCallum, Andrew and Kolter, J Zico
    and Maini, Pratyush}},
  howpublished={{\\url{{https://github.com/locuslab/open-unlearning}}}}}}
```
"""
SCRIPT = """#!/bin/bash
# In a checkout of the GRU unlearning platform at commit {commit}, after `make setup`. Models and rows are fetched from
# the hub; for folders add --set models=DIR --set benchmark.data=DIR.
set -e
{commands}
"""


def build(name: str, storage: str, output: Path) -> list[Path]:
    """Write a folder with README.md and run.sh for each method and rectifier of a sweep; return the folders.

    Raises InputError for a benchmark that open-unlearning has not, numbers of another dialect, and no results.
    """
    store = open_storage(storage)
    sweep = find_sweep(name, store)
    results = read_results(sweep, store)
    trials = results.chosen_trials
    if (benchmark := results.goals.benchmark) not in METRICS:
        raise InputError(f"{sweep.label}: is of {benchmark}; open-unlearning's tables are of {' and '.join(METRICS)}")
    if trials.empty:
        raise InputError(f"{sweep.label}: no trial has a result; `python -m platform.status {sweep.label}` says more")
    if set(trials["benchmark.dialect"]) != {DIALECT}:
        raise InputError(
            f"{sweep.label}: its numbers are in another dialect than open-unlearning's tables; run the sweep with "
            f"--set benchmark.dialect={DIALECT}"
        )
    folders = []
    groups: Any = trials.groupby(["method", "rectifier.name"], sort=False)
    for (method, rectifier), own in groups:
        title = describe_method(method, rectifier)
        folders.append(output / re.sub(r"[^\w+-]+", "_", title.replace("w/ ", "")))
        atomic_files.write_text(folders[-1] / "README.md", _write_readme(title, own, results, sweep))
        values = {"commit": _list_values(own["commit"]), "commands": "\n".join(_list_commands(own, sweep))}
        atomic_files.write_text(folders[-1] / "run.sh", SCRIPT.format(**values))
    return folders


def _write_readme(title: str, trials: pd.DataFrame, results: Results, sweep: SweepFile) -> str:
    names = {"Method": "title", "split": "benchmark.split", "seed": "seed", **METRICS[results.goals.benchmark]}
    table = trials.assign(title=title)[list(names.values())].set_axis(list(names), axis=1)
    studies = results.chosen.loc[results.chosen["configuration"].isin(trials["configuration"])]
    return README.format(
        title=title,
        settings=f"{studies['settings'].sum():g}",
        rule=rule_text(results.goals, results.rule),
        axes="; ".join(f"{path}: {json.dumps(axis)}" for path, axis in sweep.axes.items()),
        table=table.to_markdown(index=False, floatfmt=".3g"),
        known=[_list_values(trials.get(column, pd.Series())) for column in COLUMNS],
    )


def _list_commands(trials: pd.DataFrame, sweep: SweepFile) -> Iterator[str]:
    """Yield for each split the command that runs the chosen setting of a method, with all its seeds."""
    for _, own in trials.groupby("benchmark.split", sort=False):
        rectifier = str(own["rectifier.name"].iloc[0])
        config = pd.json_normalize(json.loads(own["configuration"].iloc[0])).to_dict("records")[0]
        chosen = dict(one.split("=", 1) for one in sweep.settings)
        for path in (path for path in sweep.axes if path in config):
            if config[path] is not None or takes(rectifier, path.rpartition(".")[2]):
                chosen[path] = "none" if config[path] is None else str(config[path])
        chosen["seed"] = ",".join(f"{seed:g}" for seed in sorted(own["seed"]))
        settings = " ".join(f"--set {shlex.quote(f'{path}={value}')}" for path, value in chosen.items())
        yield f"python -m platform.sweep {sweep.name} {settings}"


def _list_values(column: Any) -> str:
    return ", ".join(dict.fromkeys(map(str, column.dropna()))) or "not known"


@cli.command
def main(
    name: cli.SweepArgument,
    storage: cli.StorageOption = cli.DEFAULT_STORAGE,
    output: Annotated[Path, typer.Option(help="Folder in which each method gets one.")] = Path("community/methods"),
) -> int:
    """Write what open-unlearning's folder community/methods/ wants of each method: README.md and run.sh.

    Example: python -m analysis.community tofu_llama32_1b
    """
    for folder in build(name, storage, output):
        typer.echo(f"{folder}: complete what says FILL IN")
    return 0


if __name__ == "__main__":
    cli.make_app(main)()

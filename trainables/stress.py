"""`python -m trainables.stress ID|DIR`: attacks on an unlearned model, and what share of the removed comes back."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from trainables import benchmarks
from trainables.benchmarks.local_paths import localize
from trainables.common import cli, typed_paths
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, Resources
from trainables.config.trial import Trial
from trainables.robustness import attacks
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.storage.names import CAME_BACK, WEIGHTS
from trainables.storage.opening import open_storage
from trainables.training import model_files

folder = partial(typer.Option, rich_help_panel="With DIR, a model of no trial")
SHOWN = "extraction_strength"
NOT_TOFU = "ID: attacks are made on models of TOFU, not of {}"
COLUMNS = ("before", "after", "target", "retain")


def main(
    model: Annotated[str, typer.Argument(metavar="ID|DIR", help="A trial whose weights were kept, or a model folder.")],
    chosen: Annotated[str, typer.Option("--attacks", help=f"all, or some of {', '.join(attacks.ATTACKS)}.")] = "all",
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of relearning: that which trained the target model.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of relearning.", min=0)] = 0,
    target: Annotated[str | None, folder(help="The model before unlearning.")] = None,
    retain: Annotated[str | None, folder(help="The retain model: what it gains did not come back.")] = None,
    split: Annotated[str, folder(help="Forget split of TOFU.")] = "forget05",
    data: Annotated[str, folder(help="Data folder or hub id.")] = "locuslab/TOFU",
    template: Annotated[str, folder(help="Prompt template.")] = "llama2",
    dialect: Annotated[str, folder(help="paper or open-unlearning.")] = "paper",
    limit: Annotated[int | None, folder(help="So many forget rows.", min=1)] = None,
    output: Annotated[Path | None, typer.Option(help="Where all numbers go (JSON).")] = None,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
) -> None:
    """Attack a model, its target model and its retain model alike; keep the results in the storage.

    Example: python -m trainables.stress ID --attacks nf4,relearn --lr 2e-5
    """
    fields = {"split": split, "data": data, "template": template, "dialect": dialect, "limit": limit}

    def run() -> int:
        names = attacks.choose(chosen)
        if lr is None and any(map(attacks.is_relearning, names)):
            raise InputError("--lr: relearning needs a learning rate: that which trained the target model (1B: 2e-5)")
        if lr is not None and not lr > 0:
            raise InputError(f"--lr: {lr:g} is no learning rate; give a number above 0")
        if output:
            atomic_files.check_writable(output, "--output")
        store = open_storage(location)
        if typed_paths.is_folder(model):
            inputs = _read_folders(model, target, retain, Benchmark.model_validate(fields))
        else:
            inputs = _read_trial(model, store)
        return _attack(inputs, list(names), lr, seed, store, output)

    raise typer.Exit(cli.guarded(run))


Models = dict[str, tuple[Model, str | None]]
"""The models by their roles, with the trial's id where it is one's."""


class Inputs(NamedTuple):
    """What is attacked, and what it is measured on and by. `reference`: the retain model's evaluation, for FQ."""

    models: Models
    benchmark: Benchmark
    resources: Resources
    reference: Any = None


def _read_folders(model: str, target: str | None, retain: str | None, benchmark: Benchmark) -> Inputs:
    if target is None:
        raise InputError("--target: name the model before unlearning, which the shares are of")
    models: Models = {}
    for role, place in (("model", model), ("target", target), ("retain", retain)):
        if place:
            field = "ID|DIR" if role == "model" else f"--{role}"
            model_files.check_model(Model(path=place), field=field)
            models[role] = _with_fingerprint(Model(path=place)), None
    return Inputs(models, benchmark, Resources())


def _read_trial(trial_id: str, store: Storage) -> Inputs:
    from trainables.trial import setup
    from trainables.trial.export import model_folder

    result = model_folder.load_result(trial_id, store)
    trial: Trial = model_folder.read_trial(result, store)
    if not model_folder.is_kept(trial_id, store):
        raise InputError(
            f"ID: the weights of trial {trial_id} were not kept; export it (python -m trainables.export {trial_id} "
            "--output DIR) and attack DIR, or run its sweep again with --new --keep all"
        )
    if trial.benchmark.name != "tofu":
        raise InputError(NOT_TOFU.format(trial.benchmark.name))
    setup.check_inputs(trial)
    weights = store.trial(trial_id) / WEIGHTS
    store.fetch(weights)
    models: Models = {"model": (_with_fingerprint(Model(path=str(weights))), trial_id), "target": (trial.target, None)}
    kept = atomic_files.read_json(Path(trial.retain_evaluation.path)) if trial.retain_evaluation else None
    if kept and "model" in kept:
        models["retain"] = localize(Model.model_validate(kept["model"]), store), None
    precision = "fp32" if trial.task_vector else trial.resources.precision  # as the trial was evaluated
    resources = trial.resources.model_copy(update={"precision": precision})
    return Inputs(models, trial.benchmark, resources, setup.load_retain_evaluation(trial))


def _with_fingerprint(model: Model) -> Model:
    return model.model_copy(update={"fingerprint": model_files.fingerprint_model(model)})


def _attack(inputs: Inputs, names: list[str], lr: float | None, seed: int, store: Storage, output: Path | None) -> int:
    models, benchmark, resources, reference = inputs
    chosen = benchmarks.find(benchmark.name)
    chosen.check_settings(benchmark)
    chosen.check_rows(benchmark)
    if not benchmark.fingerprint:
        benchmark = benchmark.model_copy(update={"fingerprint": chosen.fingerprint(benchmark)})
    cli.silence_libraries()
    import torch

    from trainables.robustness.came_back import list_attacks
    from trainables.robustness.study import Study
    from trainables.training.runtime import prepare_process

    gpus = min(1.0, resources.gpus or 1.0) if torch.cuda.is_available() else 0.0
    alone = resources.model_copy(update={"ranks": 1, "gpus": gpus})
    device = prepare_process(alone, seed)
    study = Study(benchmark, reference, alone, lr, seed, store, device)
    if "paraphrase" in names and not all(row.get("paraphrased_question") for row in study.forget_rows):
        raise InputError("--attacks: paraphrase needs a column paraphrased_question, which these rows have not")
    for role, (model, trial_id) in models.items():
        for name in (attacks.NONE, *names):
            if role != "target" or not attacks.is_relearning(name):
                made = study.attack(model, trial_id or study.key(model), name)
                print(f"{role}: {name} ({made['seconds']:.0f} s)", flush=True)
                if made["diverged"]:
                    print(f"warning: {role}: {name}: {made['diverged']}", file=sys.stderr)
    results = {
        role: {
            name: kept
            for name in (attacks.NONE, *attacks.ATTACKS)
            if (kept := study.kept(model, trial_id or study.key(model), name))
        }
        for role, (model, trial_id) in models.items()
    }
    shares = list_attacks(results["model"], results["target"], results.get("retain"), SHOWN)
    known = {"measure": SHOWN, "shares": shares}
    study.write(study.store.stress(models["model"][1] or study.key(models["model"][0])) / CAME_BACK, known)
    if output:
        atomic_files.write_json(output, known | {"results": results})
    _print_shares(shares)
    return 0


def _print_shares(shares: list[dict[str, Any]]) -> None:
    """Print a line for each attack and step."""
    print("\nextraction strength of the forget rows")
    print(f"{'attack':62} {'before':>7} {'after':>7} {'target':>7} {'retain':>7} {'came back':>10}")
    for row in shares:
        values = [f"{row[name]:7.3f}" if row[name] is not None else f"{'–':>7}" for name in COLUMNS]
        share = "–" if row["share"] is None else f"{round(100 * row['share'])} %"
        print(f"{row['title']:62} {' '.join(values)} {share:>10}")
    print("came back: the gain by the attack, less the retain model's, over what was removed from the target model")


if __name__ == "__main__":
    cli.make_app(main)()

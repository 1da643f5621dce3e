"""`python -m trainables.stress ID|DIR`: attacks on an unlearned model, and what share of the removed comes back."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from trainables.common import cli, typed_paths
from trainables.common.errors import InputError
from trainables.common.regular_files import read_bytes
from trainables.config.settings import Benchmark
from trainables.robustness import attack_models, attacks
from trainables.storage import atomic_files
from trainables.storage.opening import open_storage
from trainables.storage.sweep_file import resolve_trial_id

folder_option = partial(typer.Option, rich_help_panel="With DIR, a model of no trial")


def main(
    model: Annotated[
        str, typer.Argument(metavar="ID|DIR", help="A trial with kept weights (id or name), or a folder.")
    ],
    chosen: Annotated[
        str | None, typer.Option("--attacks", help=f"{attacks.ATTACK_CHOICES_TEXT}; none: all, or the sweep alone.")
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of relearning: that which trained the target model.")
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Relearn with several rows, rates around --lr and steps; report the worst.")
    ] = False,
    attack: Annotated[
        Path | None, typer.Option(help=f"The relearnings of a sweep in a file ({attacks.WORST_FILE}); no --lr needed.")
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Sample so many answers to each forget question (128); report leak@k.", min=0)
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of relearning.", min=0)] = 0,
    target: Annotated[str | None, folder_option(help="The model before unlearning.")] = None,
    retain: Annotated[str | None, folder_option(help="The retain model: what it gains did not come back.")] = None,
    split: Annotated[str | None, folder_option(help="Forget split of TOFU; none: forget05.")] = None,
    data: Annotated[str | None, folder_option(help="Data folder or hub id; none: the published rows.")] = None,
    template: Annotated[str | None, folder_option(help="Prompt template; none: llama2.")] = None,
    dialect: Annotated[str | None, folder_option(help="paper (the default) or open-unlearning.")] = None,
    limit: Annotated[int | None, folder_option(help="So many forget rows.", min=1)] = None,
    output: Annotated[Path | None, typer.Option(help="Where all numbers go (JSON).")] = None,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
) -> int:
    """Attack a model, its target model and its retain model alike; keep the results in the storage.

    Example: python -m trainables.stress ID --attacks nf4,relearn --lr 2e-5
    """
    fields = {"split": split, "data": data, "template": template, "dialect": dialect, "limit": limit}
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        attackers = attacks.RelearningAttackSet.model_validate_json(read_bytes(attack)) if attack else None
    except (OSError, ValidationError) as error:
        wrong = cli.describe_invalid_settings(error)
        raise InputError(f"--attack: {attack}: {wrong}; a sweep writes {attacks.WORST_FILE}") from error
    wanted = [attacks.SWEEP_ATTACK] if sweep or attackers else []
    wanted += (chosen or ("" if wanted or samples else "all")).split(",")
    names = attacks.resolve_attack_names(wanted, "--attacks") if any(wanted) or not samples else []
    names += [attacks.SAMPLE_ATTACK] if samples else []
    others = [name for name in names if name != attacks.SWEEP_ATTACK] if attackers else names
    if attackers and (sweep or ((lr or seed) and attacks.ROWS_BY_RELEARNING.keys().isdisjoint(others))):
        raise InputError("--attack: the file says the relearnings, rates and seed; leave --sweep, --lr and --seed out")
    attacks.check_relearning_rate(others, lr, "--lr")
    relearns = not {*attacks.ROWS_BY_RELEARNING, attacks.SWEEP_ATTACK}.isdisjoint(names)
    for option, value, is_read in (("--lr", lr, relearns), ("--seed", seed, relearns or samples)):
        if value and not is_read:
            raise InputError(f"{option}: none of these attacks reads it; leave it out")
    if output:
        atomic_files.check_file_writable(output, "--output")
    store = open_storage(location)
    if typed_paths.is_folder(model):
        inputs = attack_models.make_attack_inputs_from_folders(model, target, retain, Benchmark.model_validate(given))
    else:
        if unused := [name for name, value in {"target": target, "retain": retain, **given}.items() if value]:
            raise InputError(f"--{unused[0]}: of a model folder; {model} is none, and a trial has its own")
        inputs = attack_models.make_attack_inputs_from_trial(resolve_trial_id(model, store), store)
    shares, results = attack_models.attack_and_store_recoveries(inputs, names, lr, seed, store, attackers, samples)
    if output:
        atomic_files.write_json(output, {"measure": attacks.RECOVERY_MEASURE, "shares": shares, "results": results})
    if shares:
        cli.print_line("\nextraction strength of the forget rows")
        cli.print_line(f"{'attack':62} {'before':>7} {'after':>7} {'target':>7} {'retain':>7} {'came back':>10}")
        for row in shares:
            found = (row[name] for name in ("before", "after", "target", "retain"))
            values = [f"{value:7.3f}" if value is not None else f"{'–':>7}" for value in found]
            share = "–" if row["share"] is None else f"{round(100 * row['share'])} %"
            cli.print_line(f"{row['title']:62} {' '.join(values)} {share:>10}")
        meaning = "the gain by the attack, less the retain model's, over what was removed from the target"
        cli.print_line(f"came back: {meaning}")
    if samples:
        curves = {role: found.get(attacks.SAMPLE_ATTACK, {}).get("points", {}) for role, found in results.items()}
        meaning = "the best of k sampled answers, by the recall of ROUGE-L, the mean over the forget rows"
        cli.print_line(f"\nleak@k: {meaning}")
        cli.print_line(f"{'k':>4} {' '.join(f'{role:>7}' for role in curves)} {'above the retain model':>23}")
        for k in curves["model"]:
            leaks = {role: curve[k]["leak"] for role, curve in curves.items() if k in curve}
            above = f"{leaks['model'] - leaks['retain']:23.3f}" if "retain" in leaks else f"{'–':>23}"
            cli.print_line(f"{k:>4} {' '.join(f'{leak:7.3f}' for leak in leaks.values())} {above}")
    return 0


if __name__ == "__main__":
    cli.make_typer_app(main)()

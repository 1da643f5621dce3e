"""A trial or a model folder, its target model and its retain model, all attacked alike; what came back is kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainables import benchmarks
from trainables.benchmarks.local_paths import localize_paths
from trainables.common import cli
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model, Resources
from trainables.robustness import attacks
from trainables.storage import atomic_files
from trainables.storage.file_names import ATTACK_RESULTS_FILE
from trainables.storage.folder_storage import Storage
from trainables.training import model_files


class AttackInputs(NamedTuple):
    """Models by their roles, and what they are measured on. `started`: when the trial was, if it is one's model."""

    models: dict[str, Model]
    benchmark: Benchmark
    resources: Resources
    trial: str | None = None
    started: str | None = None


def make_attack_inputs_from_folders(
    model: str, target: str | None, retain: str | None, benchmark: Benchmark
) -> AttackInputs:
    """Return model folders or hub ids as what is attacked. Raises InputError."""
    if target is None:
        raise InputError("--target: name the model before unlearning, which the shares are of")
    given = {"model": (model, "ID|DIR"), "target": (target, "--target"), "retain": (retain, "--retain")}
    models = {role: _with_fingerprint(Model(path=place), field) for role, (place, field) in given.items() if place}
    return AttackInputs(models, benchmark, Resources())


def make_attack_inputs_from_trial(trial_id: str, store: Storage) -> AttackInputs:
    """Return a trial whose weights are kept as what is attacked. Raises InputError."""
    from trainables.trial import setup
    from trainables.trial.export import model_folder

    trial, result = model_folder.load_evaluated_trial(trial_id, store)
    weights = model_folder.fetch_kept_weights(trial_id, store)
    attacks.check_benchmark_can_be_attacked(trial.benchmark, "ID")
    setup.check_inputs_unchanged(trial)
    made = Model(path=str(weights), attention=trial.target.attention)
    models = {"model": _with_fingerprint(made, "ID"), "target": trial.target}
    kept = trial.retain_evaluation and atomic_files.read_json(Path(trial.retain_evaluation.path))
    if kept and "model" in kept:
        models["retain"] = localize_paths(Model.model_validate(kept["model"]), store)
    precision = "fp32" if trial.task_vector else trial.resources.precision  # as the trial was evaluated
    resources = trial.resources.model_copy(update={"precision": precision})
    return AttackInputs(models, trial.benchmark, resources, trial_id, result["started"])


def _with_fingerprint(model: Model, field: str) -> Model:
    return model.model_copy(update={"fingerprint": model_files.fingerprint_model(model, field)})


def attack_and_store_recoveries(
    inputs: AttackInputs,
    names: Sequence[str],
    lr: float | None,
    seed: int,
    store: Storage,
    attackers: attacks.RelearningAttackSet | None = None,
    samples: int = 0,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Make the attacks that are not kept; return what came back by all so far (`list_recoveries`), and results.

    An attack that cannot be made is left out, with a warning. `lr`, `seed`: of relearning; `attackers`: of a
    sweep, in the place of its grid; `samples`: of SAMPLE_ATTACK. The worst of a sweep are kept as a file of them.
    """
    models, benchmark, resources, trial_id, started = inputs
    chosen = benchmarks.get_benchmark(benchmark.name)
    chosen.check_settings(benchmark)
    chosen.check_rows(benchmark)
    if not benchmark.fingerprint:
        benchmark = benchmark.model_copy(update={"fingerprint": chosen.fingerprint(benchmark)})
    cli.silence_libraries()
    import torch

    from trainables.robustness.attack_runner import AttackRunner
    from trainables.training.runtime import prepare_process

    gpus = min(1.0, resources.gpus or 1.0) if torch.cuda.is_available() else 0.0
    alone = resources.model_copy(update={"ranks": 1, "gpus": gpus, "compile": False})
    runner = AttackRunner(benchmark, alone, lr, seed, store, prepare_process(alone, seed), attackers, samples)
    left_out: dict[str, str] = {}
    if "paraphrase" in names and not all(row.get("paraphrased_question") for row in runner.evaluation_rows["forget"]):
        left_out["paraphrase"] = "the rows have no column paraphrased_question"
    results: dict[str, dict[str, Any]] = {role: {} for role in models}
    key = trial_id or runner.key(models["model"])
    for role, model in models.items():
        for name in (attacks.NO_ATTACK, *names):
            if name in left_out or (role == "target" and name in attacks.ROWS_BY_RELEARNING):
                continue
            made = results[role][name] = runner.attack(model, key if role == "model" else runner.key(model), name)
            cli.print_line(f"{role}: {name} ({made['seconds']:.0f} s)")
            if made["failure"] and name == attacks.NO_ATTACK:
                raise InputError(f"nothing can be compared: the {role} model could not be measured: {made['failure']}")
            if made["failure"]:
                left_out[name] = f"{role}: {made['failure']}"
    for name, why in left_out.items():
        cli.print_line(f"warning: {name} is left out: {why}", error=True)
    settings = {name: runner.collect_attack_settings(name) | {"left_out": left_out.get(name)} for name in names}
    sweeps = [found[attacks.SWEEP_ATTACK] for found in results.values() if attacks.SWEEP_ATTACK in found]
    worst = [one for sweep in sweeps for one in sweep["points"].values()]
    if worst and attackers is None:
        _keep_attackers(key, worst, seed, store)
    made, given = attacks.list_recoveries(results["model"], results["target"], results.get("retain")), []
    if attackers is not None:  # by relearnings that were given, not this model's worst, which stays kept
        settings.pop(attacks.SWEEP_ATTACK)
        given = [row for row in made if row["attack"] == attacks.SWEEP_ATTACK]
    shares = _keep_shares(key, started, settings, [row for row in made if row not in given], store)
    return [row for row in shares if attackers is None or row["attack"] != attacks.SWEEP_ATTACK] + given, results


def _keep_attackers(key: str, worst: list[dict[str, Any]], seed: int, store: Storage) -> None:
    """Write the relearnings that brought back most, of the model and of the retain model."""
    chosen = dict.fromkeys(attacks.RelearningAttack(learns=one["learns"], lr=one["lr"]) for one in worst)
    document = attacks.RelearningAttackSet(attackers=tuple(chosen), seed=seed).model_dump(mode="json")
    path = store.attack_results_folder(key) / attacks.WORST_FILE
    atomic_files.write_json(path, document)
    store.push(path)
    cli.print_line(f"worst: {path} (--attack runs it on another model)")


def _keep_shares(
    key: str, started: str | None, settings: dict[str, Any], made: list[dict[str, Any]], store: Storage
) -> list[dict[str, Any]]:
    """Write what these attacks brought back beside what is kept of others; return all, in the order of ATTACKS."""
    known, shares = attacks.read_kept_recoveries(key, started, store)
    shares = [row for row in shares if row["attack"] not in settings] + made
    shares.sort(key=lambda row: list(attacks.ATTACKS).index(row["attack"]))
    document = {"measure": attacks.RECOVERY_MEASURE, "started": started, "attacks": known | settings, "shares": shares}
    path = store.attack_results_folder(key) / ATTACK_RESULTS_FILE
    atomic_files.write_json(path, document)
    store.push(path)
    cli.print_line(f"kept: {path}")
    return shares

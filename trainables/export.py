"""`python -m trainables.export ID --storage URI --output DIR`: a trial's kept weights as a model that others can load.

The folder holds safetensors, the tokenizer, a model card (README.md) and `unlearning.json`, its facts for programs.
Both tell what was forgotten by counts and hashes, never its text. The written weights are loaded and evaluated again
before the folder gets its name: a folder that is there has been verified.
"""

from __future__ import annotations

import math
import shutil
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from trainables import benchmarks, candidates, card, commands, config, evaluation, models, places, provenance, storage
from trainables.config import Model, Trial
from trainables.errors import InputError, closest
from trainables.records import WEIGHTS

FACTS, CARD = "unlearning.json", "README.md"
TOLERANCE = 1e-3
"""Of a metric, absolute and relative: other hardware than the trial's rounds otherwise."""


def export(trial_id: str, store: storage.Storage, output: Path, why: str | None = None) -> dict[str, Any]:
    """Write and verify the model folder of a trial; returns its facts. `why`: how the trial was chosen, for the card.

    Raises InputError where the trial has no weights or `output` is taken, or where the written weights do not give
    the trial's metrics again.
    """
    result = _result(trial_id, store)
    trial = Trial.model_validate(result["config"])
    weights = store.trial(trial_id) / WEIGHTS
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"--output: '{output}' is there already; give a new folder")
    if not output.is_dir():
        storage.check_writable(output, "--output")
    staging = output.with_name(f".{output.name}.{uuid.uuid4().hex[:8]}")
    try:
        shutil.copytree(weights, staging, ignore=shutil.ignore_patterns("recipe.json"))
        again = _evaluate(trial, staging, store)
        facts = _facts(trial, result, again, store, why)
        storage.write_json(staging / FACTS, facts)
        storage.write_text(staging / CARD, card.write(facts))
        if output.is_dir():  # empty, as was checked
            output.rmdir()
        storage.publish(staging, output)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return facts


def differences(first: dict[str, Any], again: dict[str, Any]) -> list[str]:
    """The metrics of `again` that are not those of `first`: `forget_rouge 0.41 is 0.52`."""
    found = []
    for name, value in again.items():
        known = first.get(name)
        same = known == value
        if isinstance(known, float) and isinstance(value, float):
            same = math.isclose(known, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        if not same:
            found.append(f"{name} {known} is {value}")
    return found


def _result(trial_id: str, store: storage.Storage) -> dict[str, Any]:
    result = store.result(trial_id)
    if result is None:
        known = [path.parent.name for path in (store.root / "trials").glob(f"*/{storage.RESULT}")]
        there = closest(trial_id, known) if known else "it holds no finished trial"
        raise InputError(f"ID: no result of a trial '{trial_id}' in {store.root}; {there}")
    if result["status"] != "finished":
        raise InputError(f"ID: trial {trial_id} ended as {result['status']}: it has no model")
    if not (store.trial(trial_id) / WEIGHTS).is_dir():
        raise InputError(
            f"ID: the weights of trial {trial_id} were not kept; run its sweep again with --new --keep all "
            "(or --keep best, pareto)"
        )
    return result


def _evaluate(trial: Trial, folder: Path, store: storage.Storage) -> dict[str, Any]:
    """The metrics of the written weights, in the trial's precision. Raises InputError where they are others."""
    import torch

    precision = "fp32" if trial.task_vector else trial.resources.precision
    network, tokenizer = models.load(Model(path=str(folder)), precision, field="--output")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    reference = None
    if trial.retain_evaluation:
        reference = evaluation.reference(Path(trial.retain_evaluation.path), trial.benchmark, "retain_evaluation")
    again, _ = evaluation.evaluate(
        network.to(device),
        tokenizer,
        trial.benchmark,
        reference,
        token_budget=trial.resources.evaluation_tokens,
    )
    known = (store.result(trial.id()) or {})["metrics"]
    wrong = differences(known, again)
    if wrong:
        raise InputError(f"--output: the written weights do not give the trial's metrics again: {'; '.join(wrong)}")
    return again


def _facts(
    trial: Trial, result: dict[str, Any], again: dict[str, Any], store: storage.Storage, why: str | None
) -> dict[str, Any]:
    """What card and programs are told."""
    forget, retain = benchmarks.find(trial.benchmark.name).training_rows(trial.benchmark)
    target = candidates.original(trial, store)
    return {
        "trial": trial.id(),
        "label": trial.label(),
        "base_model": trial.target.path if not Path(trial.target.path).is_dir() else None,
        "target_fingerprint": trial.target.fingerprint,
        "configuration": config.identity(trial),
        "forget": _side(forget),
        "retain": _side(retain),
        "metrics": result["metrics"],
        "target_metrics": target["metrics"] if target else None,
        "verified_metrics": again,
        "steps": result["training"]["steps"],
        "chosen_step": result["chosen_step"],
        "why": why,
        "made_with": {name: result[name] for name in ("versions", "commit", "dirty", "started")},
        "exported_with": {**provenance.stamp(), "at": provenance.now()},
    }


def _side(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many rows, and a SHA-256 of them that does not depend on the file's format."""
    return {"rows": len(rows), "sha256": config.digest(rows)}


def main(
    trial_id: Annotated[str, typer.Argument(metavar="ID", help="A trial's id.")],
    output: Annotated[Path, typer.Option(help="Folder to write.")],
    location: Annotated[str, typer.Option("--storage", help="Folder of the results.")] = "runs",
) -> None:
    """Export a trial's kept weights with a model card, and verify them by evaluating them again."""

    def run() -> int:
        store = storage.open_storage(location, writable=False)
        _result(trial_id, store)
        commands.quiet()
        facts = export(trial_id, store, places.expand(str(output)).absolute())
        name = facts["configuration"].get("benchmark", {}).get("name", "tofu")
        print(f"{facts['label']}: {benchmarks.outcome(name, facts['verified_metrics'])}, evaluated again: {output}")
        return 0

    raise typer.Exit(commands.guarded(run))


if __name__ == "__main__":
    typer.run(main)

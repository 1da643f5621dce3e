"""A trial's settings as a small YAML file, which `--set @FILE` gives every trial of a sweep."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables import benchmarks
from trainables.config.method_tables import METHODS, RECTIFIERS
from trainables.config.settings import Training
from trainables.config.trial import Trial
from trainables.methods.method_constants import resolve_constants
from trainables.storage import atomic_files

OPEN_UNLEARNING_TRAINERS = {"ga": "GradAscent", "gd": "GradDiff", "npo_gd": "NPO", "simnpo_gd": "SimNPO"}
"""open-unlearning's trainers (@ d3d7cf9) of the same objectives."""
METHOD_ARGUMENTS = {"beta": "beta", "margin": "delta", "forget_coefficient": "gamma", "retain_coefficient": "alpha"}
"""Their arguments (trainer.method_args) by our settings."""
TRANSLATED_SETTINGS = {"lr", "epochs", "batch_size", "weight_decay", "warmup_epochs", "schedule", "max_length"}
"""Settings of training that its command line has, and the length of rows, which its models have."""


def write_reusable_settings(result: Mapping[str, Any], trial: Trial, file: Path) -> None:
    """Write what a trial was trained by, where it comes from, and the same for open-unlearning's command line."""
    import yaml

    document = {
        "trial": result["id"],
        "model": trial.target.path.rpartition("/")[2],
        "split": trial.benchmark.split,
        "measured": benchmarks.format_goal_values(trial.benchmark.name, result["metrics"]),
        "commit": result["commit"],
        "settings": list_training_settings(trial),
        "open_unlearning": format_open_unlearning_overrides(trial),
    }
    atomic_files.write_redacted_text(file, yaml.safe_dump(document, sort_keys=False, width=120))


def list_training_settings(trial: Trial) -> dict[str, Any]:
    """Return by path what a trial was trained by: the method, all of training, the precision, and what else it states.

    Other settings of one machine (resources), of the rows and of how a trial is measured are not among them.
    """
    found: dict[str, Any] = {"method": trial.method, "resources.precision": trial.resources.precision}
    always = {f"training.{name}" for name in type(trial.training).model_fields} | {"selection.rows"}
    always |= {"rectifier.tau"} if "tau" in RECTIFIERS[trial.rectifier.name].takes else set()
    chosen = ("selection",) if trial.training.eval_every else ()  # the rule that chooses the step
    for section in ("rectifier", "objective", "task_vector", "training", *chosen):
        value = getattr(trial, section)
        fields = value.model_dump(mode="json", exclude={"idk_fingerprint", "seeds"}) if value else {}
        for name, field in fields.items():
            path = f"{section}.{name}"
            if path in always or field is not None:
                found[path] = field
    return found


def format_open_unlearning_overrides(trial: Trial) -> str | None:
    """Return a trial's settings as overrides of open-unlearning's src/train.py; None: it has none of these."""
    training, name = trial.training, OPEN_UNLEARNING_TRAINERS.get(trial.method)
    constants = resolve_constants(trial.method, trial.objective, trial.benchmark.split)
    other = training.model_dump(exclude=TRANSLATED_SETTINGS) != Training().model_dump(exclude=TRANSLATED_SETTINGS)
    other = other or trial.rectifier.name != "none" or trial.benchmark.name != "tofu"
    if name is None or other or constants.retain_coefficient == "balanced":
        return None
    rows = math.gcd(8, training.batch_size)  # of a pass of one GPU: times the accumulation steps, those of a step
    arguments = {
        "learning_rate": training.lr,
        "num_train_epochs": training.epochs,
        "weight_decay": training.weight_decay,
        "warmup_epochs": training.warmup_epochs,
        "lr_scheduler_type": training.schedule,
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": training.batch_size // rows,
    }
    words = [f"trainer={name}", *(f"trainer.args.{key}={value}" for key, value in arguments.items())]
    read = [name for name in METHOD_ARGUMENTS if name in METHODS[trial.method].reads] if trial.method != "ga" else []
    words += [f"trainer.method_args.{METHOD_ARGUMENTS[setting]}={getattr(constants, setting)}" for setting in read]
    return " ".join(words)

"""A trial's settings as a small YAML file, which `--set @FILE` gives every trial of a sweep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables import benchmarks
from trainables.config.method_tables import RECTIFIERS
from trainables.config.trial import Trial
from trainables.storage import atomic_files


def write_reusable_settings(result: Mapping[str, Any], trial: Trial, file: Path) -> None:
    """Write what a trial was trained by, and where it comes from."""
    import yaml

    document = {
        "trial": result["id"],
        "model": trial.target.path.rpartition("/")[2],
        "split": trial.benchmark.split,
        "measured": benchmarks.format_goal_values(trial.benchmark.name, result["metrics"]),
        "commit": result["commit"],
        "settings": list_training_settings(trial),
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

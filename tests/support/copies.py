"""Copies of the tests' models that differ in one respect."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from trainables.common.fingerprints import RECIPE_FILE


def tied(trial_inputs: Any, folder: Path) -> Any:
    """The same store with one embedding for input and output in the target."""
    copied = copy_target(trial_inputs, folder, tie_word_embeddings=True)
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return copied


def copy_target(trial_inputs: Any, folder: Path, **settings: Any) -> Any:
    """The same store with other settings of the target."""
    shutil.copytree(
        trial_inputs.target, folder, ignore=shutil.ignore_patterns(RECIPE_FILE)
    )  # it is no model of ours then
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return replace(trial_inputs, target=folder)

"""The folders that a plan asks for in the place of the hub's models are enough for it, and no other folder is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.small_sweep import plan_named, write_model
from trainables.common.errors import InputError
from trainables.data.hub_folders import HubRequirement
from trainables.storage.folder_storage import Storage


def required_models(name: str, store: Storage, *settings: str) -> list[HubRequirement]:
    found = plan_named(name, store, *settings, "task_vector.batches=2", strategy="paper")
    return [requirement for requirement in found.hub if requirement.kind == "models"]


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("tofu_llama", ["full", "retain95", "retain90"]),
        ("tofu_phi", ["base"]),
        ("muse_books", ["target", "retain"]),
        ("wmdp_zephyr", ["target"]),
    ],
)
def test_the_folders_of_all_models_are_enough(name: str, folders: list[str], store: Storage, tmp_path: Path) -> None:
    models = required_models(name, store)
    assert {model.directory for model in models} == {f"DIR/{folder}" for folder in folders}
    if name != "tofu_phi":  # what nobody published is made from a flat folder
        lacking = ", ".join(f"{folder}/" for folder in folders)
        flat = write_model(tmp_path / "flat")
        words = (
            f"^models: {flat} has no {lacking}; put each model into its own folder there; it has config.json, model.s"
        )
        with pytest.raises(InputError, match=words):
            required_models(name, store, f"models={flat}")
    for model in models:
        write_model(tmp_path / "DIR" / model.folder, model.id)
    assert required_models(name, store, f"models={tmp_path / 'DIR'}") == []

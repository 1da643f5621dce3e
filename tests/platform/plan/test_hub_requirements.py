"""What a plan says to bring from the hub is enough for a start on the folders that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform.plan.plan import Plan
from tests.support.small_sweep import plan_named, write_model
from trainables.common.errors import InputError
from trainables.data.hub_folders import HubRequirement
from trainables.storage.folder_storage import Storage


def plan(name: str, store: Storage, *settings: str) -> Plan:
    return plan_named(name, store, *settings, "task_vector.batches=2", strategy="paper")


def required(found: Plan, kind: str) -> list[HubRequirement]:
    return [requirement for requirement in found.hub if requirement.kind == kind]


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("tofu_llama", {"full", "retain95", "retain90"}),
        ("tofu_phi", {"base"}),
        ("muse_books", {"target", "retain"}),
        ("wmdp_zephyr", {"target"}),
    ],
)
def test_the_folders_of_all_models_are_enough(name: str, folders: set[str], store: Storage, tmp_path: Path) -> None:
    models = required(plan(name, store), "models")
    assert {model.directory for model in models} == {f"DIR/{folder}" for folder in folders}
    for model in models:
        write_model(tmp_path / "DIR" / model.folder, model.id)
    assert required(plan(name, store, f"models={tmp_path / 'DIR'}"), "models") == []


@pytest.mark.parametrize(
    ("name", "lacking"), [("tofu_llama", "full/, retain95/, retain90/"), ("wmdp_zephyr", "target/")]
)
def test_published_models_are_not_made_from_a_flat_folder(
    name: str, lacking: str, store: Storage, tmp_path: Path
) -> None:
    words = f"has no {lacking}; put each model into its own folder there; it has "
    with pytest.raises(InputError, match=f"^models: {tmp_path} {words}nothing$"):
        plan(name, store, f"models={tmp_path}")
    flat = write_model(tmp_path / "flat")
    with pytest.raises(
        InputError,
        match=f"^models: {flat} {words}config.json, model.safetensors, tokenizer.json, tokenizer_config.json$",
    ):
        plan(name, store, f"models={flat}")

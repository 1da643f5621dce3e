"""A configuration with this machine's paths: hub ids become folders of the storage, others' copies ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from trainables import benchmarks
from trainables.common import typed_paths
from trainables.config.settings import Benchmark, Model
from trainables.config.shared_artifacts import Recipe
from trainables.data.hub_folders import DATA, HubRequirement, find_folder, hub_id_of
from trainables.storage.folder_storage import Storage

V = TypeVar("V")


def localize(value: V, store: Storage) -> V:
    """Return a configuration with this machine's paths; its identity stays.

    A hub id becomes the storage's folder of its files, unless it has no fingerprint (a person wrote the
    configuration) or was not fetched. A path into another machine's copy of the storage becomes one into ours.
    """
    found: Any = value
    if isinstance(value, str):
        found = store.local_path(value)
    elif isinstance(value, tuple):
        found = tuple(localize(part, store) for part in value)
    elif isinstance(value, BaseModel):
        folders = _find_hub_folders(value, store)
        parts = {name: localize(folders.get(name, part), store) for name, part in value}
        changed = {name: part for name, part in parts.items() if part != getattr(value, name)}
        found = value.model_copy(update=changed) if changed else value
    return found


def _find_hub_folders(value: BaseModel, store: Storage) -> dict[str, Any]:
    """Return the fields of a configuration whose hub ids have folders in the storage, with these."""
    if isinstance(value, Model):
        return _localize_model(value, store)
    if isinstance(value, Benchmark):
        return _localize_benchmark(value, store)
    if isinstance(value, Recipe) and typed_paths.is_hub_id(value.data):
        return {"data": _find_place(HubRequirement("datasets", value.data, value.revision), store)}
    return {}


def _localize_model(model: Model, store: Storage) -> dict[str, Any]:
    """A folder that is not here belonged to a storage that was moved."""
    mark, changed = model.fingerprint or "", {}
    if mark.startswith("hub:") and not typed_paths.is_folder(model.path):
        changed["path"] = _find_place(HubRequirement("models", model.path, model.revision), store)
    if mark and model.tokenizer and not typed_paths.is_folder(model.tokenizer):
        changed["tokenizer"] = _find_place(HubRequirement("tokenizers", model.tokenizer), store)
    return changed


def _localize_benchmark(benchmark: Benchmark, store: Storage) -> dict[str, Any]:
    if not benchmark.fingerprint or benchmark.is_fictional:
        return {}
    changed: dict[str, Any] = {}
    sources = benchmark.places
    for requirement in benchmarks.find(benchmark.name).hub_requirements(benchmark):
        place = _find_place(requirement, store)
        if typed_paths.is_folder(place) and requirement.part == DATA:
            changed["data"] = place
        elif typed_paths.is_folder(place):
            sources[requirement.part] = place
            changed["sources"] = tuple(f"{part}={at}" for part, at in sorted(sources.items()))
    return changed


def _find_place(requirement: HubRequirement, store: Storage) -> str:
    """Return the folder of the storage; where it has none, the hub id."""
    requirement = replace(requirement, id=hub_id_of(requirement.id))
    return str(find_folder(requirement, store) or requirement.id)

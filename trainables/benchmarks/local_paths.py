"""A configuration with this machine's paths: hub ids become folders of the storage, others' copies ours."""

from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from trainables import benchmarks
from trainables.common import typed_paths
from trainables.config.settings import Benchmark, Model
from trainables.config.shared_artifacts import ModelRecipe
from trainables.data.hub_folders import HubRequirement, fetch_pinned_folder, find_hub_id_of_folder
from trainables.storage.folder_storage import Storage

V = TypeVar("V")


def localize_paths(value: V, store: Storage) -> V:
    """Return a configuration with this machine's paths; its identity stays."""
    found: Any = value
    if isinstance(value, str):
        found = store.fetch_local_path(value)
    elif isinstance(value, tuple):
        found = tuple(localize_paths(part, store) for part in value)
    elif isinstance(value, BaseModel):
        folders = _find_hub_folders(value, store)
        parts = {name: localize_paths(folders.get(name, part), store) for name, part in value}
        found = value.model_copy(update={name: part for name, part in parts.items() if part != getattr(value, name)})
    return found


def _find_hub_folders(value: BaseModel, store: Storage) -> dict[str, Any]:
    """Return the fields of a configuration whose hub ids have folders in the storage, with these."""
    if isinstance(value, ModelRecipe) and typed_paths.is_hub_id(value.data):
        return {"data": _find_place(HubRequirement("datasets", value.data, value.revision), store)}
    found: dict[str, Any] = {}
    if isinstance(value, Model):
        if (value.fingerprint or "").startswith("hub:") and not typed_paths.is_folder(value.path):
            found["path"] = _find_place(HubRequirement("models", value.path, value.revision), store)
        if value.fingerprint and value.tokenizer and not typed_paths.is_folder(value.tokenizer):
            found["tokenizer"] = _find_place(HubRequirement("tokenizers", value.tokenizer), store)
    if isinstance(value, Benchmark) and value.fingerprint and not value.is_fictional:
        sources = {part: store.fetch_local_path(place) for part, place in value.places.items()}
        for requirement in benchmarks.get_benchmark(value.name).hub_requirements(value):
            place = _find_place(requirement, store)
            if typed_paths.is_folder(place) and requirement.field == "benchmark.data":
                found["data"] = place
            elif typed_paths.is_folder(place):
                sources[requirement.setting.split("=")[1]] = place
        if sources != value.places:
            found["sources"] = tuple(f"{part}={at}" for part, at in sorted(sources.items()))
    return found


def _find_place(requirement: HubRequirement, store: Storage) -> str:
    """Return the folder of the storage; where it has none, the hub id."""
    requirement = replace(requirement, id=find_hub_id_of_folder(requirement.id))
    return str(fetch_pinned_folder(requirement, store) or requirement.id)

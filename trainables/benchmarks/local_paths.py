"""A configuration with this machine's paths: hub ids become folders of the storage, others' copies ours."""

from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from trainables import benchmarks
from trainables.common import typed_paths
from trainables.common.errors import InputError, first_error_line
from trainables.config.settings import Benchmark, Model
from trainables.config.shared_artifacts import ModelRecipe
from trainables.data.hub_folders import HubRequirement, download_commit, find_hub_id_of_folder, read_pinned_commit
from trainables.storage.folder_storage import Storage

V = TypeVar("V")


def localize_paths(value: V, store: Storage) -> V:
    """Return a configuration with this machine's paths; its identity stays."""
    found: Any = value
    if isinstance(value, str):
        found = store.fetch_local_path(value)
    elif isinstance(value, tuple):
        found = tuple(localize_paths(part, store) for part in value)
    if not isinstance(value, BaseModel):
        return found
    folders: dict[str, Any] = {}  # by field, in the place of hub ids
    if isinstance(value, ModelRecipe) and typed_paths.is_hub_id(value.data):
        folders["data"] = _find_place(HubRequirement("datasets", value.data, value.revision), store)
    if isinstance(value, Model):
        if (value.fingerprint or "").startswith("hub:") and not typed_paths.is_folder(value.path):
            folders["path"] = _find_place(HubRequirement("models", value.path, value.revision), store)
        if value.fingerprint and value.tokenizer and not typed_paths.is_folder(value.tokenizer):
            folders["tokenizer"] = _find_place(HubRequirement("tokenizers", value.tokenizer), store)
    if isinstance(value, Benchmark) and value.fingerprint and not value.is_fictional:
        sources = {part: store.fetch_local_path(place) for part, place in value.places.items()}
        for requirement in benchmarks.get_benchmark(value.name).hub_requirements(value):
            place = _find_place(requirement, store)
            if typed_paths.is_folder(place) and requirement.field == "benchmark.data":
                folders["data"] = place
            elif typed_paths.is_folder(place):
                sources[requirement.setting.split("=")[1]] = place
        if sources != value.places:
            folders["sources"] = tuple(f"{part}={at}" for part, at in sorted(sources.items()))
    parts = {name: localize_paths(folders.get(name, part), store) for name, part in value}
    return value.model_copy(update={name: part for name, part in parts.items() if part != getattr(value, name)})


def _find_place(requirement: HubRequirement, store: Storage) -> str:
    """Return the folder here, fetched at the storage's commit; without one, the hub id. Raises InputError."""
    requirement = replace(requirement, id=find_hub_id_of_folder(requirement.id))
    commit = read_pinned_commit(requirement, store)
    try:
        return requirement.id if commit is None else str(download_commit(requirement, commit))
    except Exception as error:  # of the connection, or of what the hub answers
        problem = f"{requirement.label} cannot be fetched: {first_error_line(error)}"
        raise InputError(f"{requirement.field}: {problem}") from error

"""A configuration with the folders of a storage in the place of hub ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from trainables import benchmarks
from trainables.common import paths
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Recipe
from trainables.data.hub import DATA, HubRequirement, find_folder, hub_id_of
from trainables.storage.sync_interface import Sharing

V = TypeVar("V")


def localize(value: V, store: Sharing) -> V:
    """Return a planned configuration with folders of the storage in the place of hub ids; its identity stays.

    What has no fingerprint (a configuration that a person wrote) or was not fetched stays as it is.
    """
    changed: dict[str, Any] = {}
    if isinstance(value, Model):
        changed = _localize_model(value, store)
    elif isinstance(value, Benchmark):
        changed = _localize_benchmark(value, store)
    elif isinstance(value, BaseModel):
        changed = {name: localize(part, store) for name, part in value}
        if isinstance(value, Recipe) and paths.is_hub_id(value.data):
            changed["data"] = _find_place(HubRequirement("datasets", value.data, value.revision), store)
    changed = {name: part for name, part in changed.items() if part != getattr(value, name)}
    return value.model_copy(update=changed) if changed and isinstance(value, BaseModel) else value


def _localize_model(model: Model, store: Sharing) -> dict[str, Any]:
    """A folder that is not here belonged to a storage that was moved."""
    mark, changed = model.fingerprint or "", {}
    if mark.startswith("hub:") and not paths.is_folder(model.path):
        changed["path"] = _find_place(HubRequirement("models", model.path, model.revision), store)
    if mark and model.tokenizer and not paths.is_folder(model.tokenizer):
        changed["tokenizer"] = _find_place(HubRequirement("tokenizers", model.tokenizer), store)
    return changed


def _localize_benchmark(benchmark: Benchmark, store: Sharing) -> dict[str, Any]:
    if not benchmark.fingerprint or benchmark.is_fictional:
        return {}
    changed: dict[str, Any] = {}
    sources = dict(source.split("=", 1) for source in benchmark.sources)
    for requirement in benchmarks.find(benchmark.name).hub_requirements(benchmark):
        place = _find_place(requirement, store)
        if paths.is_folder(place) and requirement.part == DATA:
            changed["data"] = place
        elif paths.is_folder(place):
            sources[requirement.part] = place
            changed["sources"] = tuple(f"{part}={at}" for part, at in sorted(sources.items()))
    return changed


def _find_place(requirement: HubRequirement, store: Sharing) -> str:
    """Return the folder of the storage; where it has none, the hub id."""
    requirement = replace(requirement, id=hub_id_of(requirement.id))
    return str(find_folder(requirement, store) or requirement.id)

"""A configuration with the folders of a storage in the place of hub ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from trainables import benchmarks
from trainables.common import paths
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Recipe
from trainables.data.hub import V, find
from trainables.data.hub_requirements import DATA, Wanted
from trainables.storage.sync_interface import Sharing


def located(value: V, store: Sharing) -> V:
    """A configuration of a plan with folders of the storage in the place of hub ids; its identity stays.

    What has no fingerprint (a configuration that a person wrote) or was not fetched stays as it is.
    """
    found: Any = value
    if isinstance(value, Model):
        found = _model(value, store)
    elif isinstance(value, Benchmark):
        found = _benchmark(value, store)
    elif isinstance(value, BaseModel):
        before = {name: getattr(value, name) for name in type(value).model_fields}
        after = {name: located(part, store) for name, part in before.items()}
        if isinstance(value, Recipe) and paths.is_hub_id(value.data):
            after["data"] = _place(Wanted("datasets", value.data, value.revision), store)
        changed = {name: part for name, part in after.items() if part is not before[name]}
        found = value.model_copy(update=changed) if changed else value
    return found


def _model(model: Model, store: Sharing) -> Model:
    mark, changed = model.fingerprint or "", {}
    if mark.startswith("hub:") and not paths.is_folder(model.path):
        changed["path"] = _place(Wanted("models", _hub_id(model.path), model.revision), store)
    if mark and model.tokenizer and not paths.is_folder(model.tokenizer):
        changed["tokenizer"] = _place(Wanted("tokenizers", _hub_id(model.tokenizer)), store)
    changed = {name: place for name, place in changed.items() if place != getattr(model, name)}
    return model.model_copy(update=changed) if changed else model


def _benchmark(benchmark: Benchmark, store: Sharing) -> Benchmark:
    if not benchmark.fingerprint or benchmark.is_fictional:
        return benchmark
    changed: dict[str, Any] = {}
    at = dict(source.split("=", 1) for source in benchmark.sources)
    for wanted in benchmarks.find(benchmark.name).wanted(benchmark):
        folder = find(replace(wanted, id=_hub_id(wanted.id)), store)
        if folder is not None and wanted.part == DATA:
            changed["data"] = str(folder)
        elif folder is not None:
            at[wanted.part] = str(folder)
            changed["sources"] = tuple(f"{part}={place}" for part, place in sorted(at.items()))
    return benchmark.model_copy(update=changed) if changed else benchmark


def _hub_id(place: str) -> str:
    """What a place stands for: also a folder of a storage that was moved, in a configuration from there."""
    return paths.hub_id_of(place) or place


def _place(wanted: Wanted, store: Sharing) -> str:
    folder = find(wanted, store)
    return wanted.id if folder is None else str(folder)

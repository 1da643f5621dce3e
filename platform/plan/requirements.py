"""What a real start has to find and a plan cannot see: the hub's models and rows, GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from platform.plan import models as plan_models
from platform.plan.models import Reference
from platform.preparation.repo_files import Listing
from search_spaces.schema import backbones
from search_spaces.schema.sweep import Sweep
from trainables import benchmarks as kinds
from trainables.common import cli
from trainables.config.settings import Benchmark, Model
from trainables.config.trial import Recipe
from trainables.data import rows
from trainables.data.hub import HubRequirement, hub_root, pin_file
from trainables.storage.base import Storage
from trainables.training import models

MODEL = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors (or model.safetensors.index.json with all its shards)",
)
BYTES = 2
"""Of a weight as models are published: bf16."""
OFFLINE = "without a network, on the machine that runs the sweep (with --cluster: its head)"


def wanted(
    sweep: Sweep, benchmarks: dict[str, Benchmark], references: tuple[Reference, ...], recipes: tuple[Recipe, ...]
) -> tuple[HubRequirement, ...]:
    """What a sweep takes from the hub, each thing once."""
    found: list[HubRequirement] = []
    if sweep.fictional is None or not all(benchmark.is_fictional for benchmark in benchmarks.values()):
        kind = kinds.find(sweep.benchmark.name)
        found += [thing for benchmark in benchmarks.values() for thing in kind.hub_requirements(benchmark)]
        for recipe in recipes:
            found += rows.hub_requirements(recipe.data, plan_models.read(recipe.configs, recipe.base), recipe.revision)
    loaded = [(plan_models.role_of(sweep, ref), ref.model) for ref in references]
    loaded += [(plan_models.BASE, recipe.base) for recipe in recipes if recipe.base is not None]
    for role, model in loaded:
        if (model.fingerprint or "").startswith("hub:"):
            found.append(_model(sweep, role, model))
        if model.tokenizer and not models.check_tokenizer(model.tokenizer):
            files = ("tokenizer.json", "tokenizer_config.json", "config.json")
            found.append(HubRequirement("tokenizers", model.tokenizer, None, "", "tokenizer=DIR", files))
    return _united(found)


def _model(sweep: Sweep, role: str, model: Model) -> HubRequirement:
    if model.path == sweep.target:
        return HubRequirement("models", model.path, model.revision, "", "target=DIR", MODEL)
    size = BYTES * sweep.backbone.shape.parameters if sweep.backbone else None
    return HubRequirement("models", model.path, model.revision, "", "models=DIR", MODEL, bytes=size, folder=role)


def _united(found: Iterable[HubRequirement]) -> tuple[HubRequirement, ...]:
    """Each thing once, with what all that asks for it reads: a split or a recipe names its own files alone."""
    things: dict[str, HubRequirement] = {}
    for thing in found:
        known = things.get(thing.key, thing)
        things[thing.key] = replace(known, files=tuple(dict.fromkeys((*known.files, *thing.files))))
    return tuple(things.values())


def of(sweep: Sweep, things: Iterable[HubRequirement], store: Storage) -> tuple[str, ...]:
    """What a real start has to find and a dry run cannot see; what the storage has of the hub is none of it."""
    needs = [told(thing, store) for thing in things if not store.exists(pin_file(thing, store))]
    gpus = sweep.resources.gpus * sweep.resources.ranks
    if gpus:
        needs.append(f"{gpus:g} GPU{'s' if gpus > 1 else ''} for each trial (a start counts the cluster's)")
    return tuple(needs)


def told(thing: HubRequirement, store: Storage, listing: Listing | None = None) -> str:
    """What to have or set for something on the hub, in lines: without a network, what to bring; what to accept."""
    holds = ", ".join(thing.files) + (f" (or {', '.join(thing.suffixes)})" if thing.suffixes else "")
    size = "" if thing.bytes is None else f", about {cli.format_size(thing.bytes)} in bf16"
    if listing is not None:
        holds = ", ".join(f"{file.name}{_size(file.size)}" for file in listing.files)
        size = f", {cli.format_size(listing.bytes)}"
    bring = f"bring {holds} to {thing.directory} and --set {thing.setting}"
    if thing.kind == "tasks":
        ways = [bring]
    else:
        what = "--repo-type dataset " if thing.kind == "datasets" else ""
        revision = f"--revision {thing.revision} " if thing.revision else ""
        command = f"hf download {thing.id} {what}{revision}--local-dir {hub_root(store) / thing.key}"
        ways = [f"either: {command} (typed where there is a network, then copied there)", f"or: {bring}"]
    gated = [text] if (text := thing.gated or _gated(thing)) else []
    return "\n  ".join([f"{thing.label} from the hub{size}; {OFFLINE}:", *ways, *gated])


def _gated(thing: HubRequirement) -> str:
    if thing.kind not in ("models", "tokenizers") or not backbones.gated(thing.id):
        return ""
    page = f"https://huggingface.co/{thing.id}"
    return f"it is gated: accept its licence at {page} and set HF_TOKEN (or log in with 'hf auth login')"


def _size(size: int | None) -> str:
    return "" if size is None else f" ({cli.format_size(size)})"

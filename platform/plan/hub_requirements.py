"""What a start needs from outside, in words: models and rows of the hub, and GPUs. Nothing is checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from platform.plan import models
from platform.plan.models import Reference
from search_spaces.schema import backbones
from search_spaces.schema.sweep import Sweep
from trainables import benchmarks as kinds
from trainables.common.wording import format_size
from trainables.config.settings import Benchmark, Model
from trainables.config.shared_artifacts import Recipe
from trainables.data import raw_rows
from trainables.data.hub_folders import HubRequirement, is_here
from trainables.storage.folder_storage import Storage
from trainables.training.model_files import check_tokenizer

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "config.json")
MODEL_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
MODEL_FILES += ("model.safetensors (or model.safetensors.index.json with all its shards)",)
BYTES_PER_WEIGHT = 2
"""As models are published: bf16."""
OFFLINE = "without a network, on the machine that runs the sweep (with --cluster: its head)"


def list_hub_requirements(
    sweep: Sweep, benchmarks: dict[str, Benchmark], references: tuple[Reference, ...], recipes: tuple[Recipe, ...]
) -> tuple[HubRequirement, ...]:
    """Return what a sweep takes from the hub, each once, with the files that its splits and recipes read."""
    found: list[HubRequirement] = []
    kind = kinds.find(sweep.benchmark.name)
    if sweep.fictional is None or not all(benchmark.is_fictional for benchmark in benchmarks.values()):
        found += [requirement for benchmark in benchmarks.values() for requirement in kind.hub_requirements(benchmark)]
        for recipe in recipes:
            configs = models.list_configs_read(recipe.configs, recipe.base)
            found += raw_rows.hub_requirements(recipe.data, configs, recipe.revision)
    loaded = [((ref.role == "retain" and kind.retain_role(ref.split)) or kind.TARGET, ref.model) for ref in references]
    loaded += [(models.BASE, recipe.base) for recipe in recipes if recipe.base is not None]
    for role, model in loaded:
        if (model.fingerprint or "").startswith("hub:"):
            found.append(_require_model(sweep, role, model))
        if model.tokenizer and not check_tokenizer(model.tokenizer):
            found.append(HubRequirement("tokenizers", model.tokenizer, None, "", "tokenizer=DIR", TOKENIZER_FILES))
    united: dict[str, HubRequirement] = {}
    for requirement in found:
        known = united.get(requirement.key, requirement)
        united[requirement.key] = replace(known, files=tuple(dict.fromkeys((*known.files, *requirement.files))))
    return tuple(united.values())


def _require_model(sweep: Sweep, role: str, model: Model) -> HubRequirement:
    if model.path in (sweep.target, sweep.baseline):
        setting = "target=DIR" if model.path == sweep.target else "baseline=DIR"
        return HubRequirement("models", model.path, model.revision, "", setting, MODEL_FILES)
    size = BYTES_PER_WEIGHT * sweep.backbone.shape.parameters if sweep.backbone else None
    return HubRequirement("models", model.path, model.revision, "", "models=DIR", MODEL_FILES, bytes=size, folder=role)


def describe_needs(sweep: Sweep, required: Iterable[HubRequirement], store: Storage) -> tuple[str, ...]:
    """Return what a start needs beyond its plan, as texts: GPUs, and what the storage lacks of the hub."""
    gpus = sweep.resources.gpus * sweep.resources.ranks
    needs = [f"{gpus:g} GPU{'s' if gpus > 1 else ''} for each trial (a start counts the cluster's)"] if gpus else []
    needs += [describe_requirement(each) for each in required if not is_here(each, store)]
    return tuple(needs)


def describe_requirement(requirement: HubRequirement) -> str:
    """Return where a requirement comes from, how to bring it without a network, and which licence to accept."""
    others = f" (or {', '.join(requirement.suffixes)})" if requirement.suffixes else ""
    files = ", ".join(requirement.files) + others
    size = "" if requirement.bytes is None else f", about {format_size(requirement.bytes)} in bf16"
    lines = [f"{requirement.label} from the hub{size}; {OFFLINE}:"]
    bring = f"bring {files} to {requirement.directory} and --set {requirement.setting}"
    if requirement.kind != "tasks":
        options = " --repo-type dataset" if requirement.repo_type == "dataset" else ""
        options += f" --revision {requirement.revision}" if requirement.revision else ""
        lines.append(f"either: hf download {requirement.id}{options} (where there is a network; then copy HF_HOME)")
        bring = f"or: {bring}"
    lines.append(bring)
    if requirement.gated:
        lines.append(requirement.gated)
    elif requirement.kind in ("models", "tokenizers") and requirement.id.startswith(backbones.GATED):
        page = f"https://huggingface.co/{requirement.id}"
        lines.append(f"it is gated: accept its licence at {page} and set HF_TOKEN (or log in with 'hf auth login')")
    return "\n  ".join(lines)

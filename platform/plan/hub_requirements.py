"""What a start needs from outside, in words: models and rows of the hub, and GPUs. Nothing is checked."""

from __future__ import annotations

from collections.abc import Iterable

from platform.plan.models import BASE_ROLE, ReferenceModel
from search_spaces.schema import backbones
from search_spaces.schema.sweep import Sweep
from trainables import benchmarks as kinds
from trainables.config.settings import Benchmark
from trainables.config.shared_artifacts import Recipe
from trainables.data import raw_rows
from trainables.data.hub_folders import HubRequirement, is_downloaded
from trainables.storage.folder_storage import Storage
from trainables.training.model_files import check_tokenizer_folder


def list_hub_requirements(
    sweep: Sweep, benchmarks: dict[str, Benchmark], references: tuple[ReferenceModel, ...], recipes: tuple[Recipe, ...]
) -> tuple[HubRequirement, ...]:
    """Return what a sweep takes from the hub, each once."""
    found: list[HubRequirement] = []
    kind = kinds.get_benchmark(sweep.benchmark.name)
    if sweep.fictional is None or not all(benchmark.is_fictional for benchmark in benchmarks.values()):
        found += [requirement for benchmark in benchmarks.values() for requirement in kind.hub_requirements(benchmark)]
        found += [each for recipe in recipes for each in raw_rows.hub_requirements(recipe.data, recipe.revision)]
    loaded = [((ref.role == "retain" and kind.retain_role(ref.split)) or kind.TARGET, ref.model) for ref in references]
    loaded += [(BASE_ROLE, recipe.base) for recipe in recipes if recipe.base is not None]
    for role, model in loaded:
        if (model.fingerprint or "").startswith("hub:"):
            given = [name for name in ("target", "baseline") if model.path == getattr(sweep, name)]
            option, folder = (f"{given[0]}=DIR", "") if given else ("models=DIR", role)
            found.append(HubRequirement("models", model.path, model.revision, "", option, folder=folder))
        if model.tokenizer and not check_tokenizer_folder(model.tokenizer):
            found.append(HubRequirement("tokenizers", model.tokenizer, None, "", "tokenizer=DIR"))
    return tuple({one.key: one for one in (*found, *reversed(found))}.values())  # of several of one key the first


def describe_missing(sweep: Sweep, required: Iterable[HubRequirement], store: Storage) -> tuple[str, ...]:
    """Return what a start needs beyond its plan, as texts: GPUs, and what the storage lacks of the hub."""
    gpus = sweep.resources.gpus * sweep.resources.ranks
    needs = [f"{gpus:g} GPU{'s' if gpus > 1 else ''} for each trial (a start counts the cluster's)"] if gpus else []
    missing = (describe_requirement(each) for each in required if not is_downloaded(each, store))
    return (*needs, *(f"{each}\n  not checked: needs the hub" for each in missing))


def describe_requirement(requirement: HubRequirement) -> str:
    """Return where a requirement comes from, how to get it without a network, and which licence to accept."""
    options = " --repo-type dataset" if requirement.repo_type == "dataset" else ""
    options += f" --revision {requirement.revision}" if requirement.revision else ""
    download = f"hf download {requirement.id}{options} (where there is a network; then copy HF_HOME)"
    place = "without a network, on the machine that runs the sweep (with --cluster: its head)"
    lines = [f"{requirement.label} from the hub; {place}:", f"{download}, or {requirement.folder_option}"]
    if requirement.gated:
        lines.append(requirement.gated)
    elif requirement.kind in ("models", "tokenizers") and requirement.id.startswith(backbones.GATED_HUB_PREFIXES):
        page = f"https://huggingface.co/{requirement.id}"
        lines.append(f"it is gated: accept its licence at {page} and set HF_TOKEN (or log in with 'hf auth login')")
    return "\n  ".join(lines)

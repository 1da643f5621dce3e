"""What a real start has to find and a plan cannot see: the hub's models and rows, GPUs."""

from __future__ import annotations

from platform.making import Reference
from search_spaces import backbones
from search_spaces.base import Sweep
from trainables import benchmarks as kinds
from trainables import models
from trainables.config import Benchmark, Recipe


def of(
    sweep: Sweep, benchmarks: dict[str, Benchmark], references: tuple[Reference, ...], recipes: tuple[Recipe, ...]
) -> tuple[str, ...]:
    """What a real start has to find and a dry run cannot see."""
    needs = []
    if sweep.fictional is None:
        kind = kinds.find(sweep.benchmark.name)
        needs += dict.fromkeys(need for benchmark in benchmarks.values() for need in kind.needs(benchmark))
    gpus = sweep.resources.gpus * sweep.resources.ranks
    if gpus:
        needs.append(f"{gpus:g} GPUs for each trial (a start counts the cluster's)")
    bases = [recipe.base for recipe in recipes if recipe.base is not None]
    found = [*(ref.model for ref in references), *bases]
    hub = [model.path for model in found if (model.fingerprint or "").startswith("hub:")]
    for path in dict.fromkeys(hub):
        setting = "target" if path == sweep.target else "models"
        needs.append(_from_hub(f"model {path}", path, f"--set {setting}=DIR"))
    tokenizers = dict.fromkeys(model.tokenizer for model in found if model.tokenizer)
    needs += [
        _from_hub(f"tokenizer {place}", place, "--set tokenizer=DIR")
        for place in tokenizers
        if not models.check_tokenizer(place)
    ]
    return tuple(needs)


def _from_hub(what: str, hub_id: str, instead: str) -> str:
    """What to have, accept or set for something on the hub."""
    if backbones.gated(hub_id):
        return (
            f"{what} from the hub, which is gated: accept its licence at https://huggingface.co/{hub_id} and set "
            f"HF_TOKEN (or log in with 'hf auth login'); or {instead}"
        )
    return f"{what} from the hub (a network, or {instead})"

"""Loading and saving causal language models: safetensors only, never code from a model's folder."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from trainables import fingerprints, storage
from trainables.config import Model
from trainables.errors import InputError

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def check(model: Model, field: str = "target") -> bool:
    """Whether `model` is a folder that can be loaded (False: a hub id). Raises InputError saying what is missing."""
    folder = Path(model.path).expanduser()
    if not folder.is_dir():
        if model.path.startswith((".", "/", "~")) or model.path.count("/") != 1:
            raise InputError(f"{field}: no model folder '{model.path}' (give a folder or a hub id)")
        return False
    for name, files in {
        "config.json": ["config.json"],
        "model.safetensors": ["model.safetensors", "model.safetensors.index.json"],
        "tokenizer.json": ["tokenizer.json", "tokenizer.model"],
    }.items():
        if not any((folder / file).is_file() for file in files):
            there = ", ".join(sorted(file.name for file in folder.iterdir())) or "nothing"
            raise InputError(f"{field}: model folder {folder} has no {name}; it has {there}")
    return True


def fingerprint(model: Model) -> str:
    """What the weights are: the content of a folder, or hub id and revision."""
    if check(model):
        return "files:" + fingerprints.of_model(Path(model.path).expanduser())
    return f"hub:{model.path}@{model.revision or 'main'}"


def depth_of(model: Model) -> int | None:
    """Number of layers as the folder's config.json has it; None for a hub id."""
    settings = storage.read_json(Path(model.path).expanduser() / "config.json") or {}
    return settings.get("num_hidden_layers")


def load(model: Model, precision: str = "fp32", field: str = "target") -> tuple[Any, Any]:
    """The model (evaluation mode, on the CPU) and its tokenizer. Raises InputError with what to accept or set."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    check(model, field)
    source = str(Path(model.path).expanduser()) if Path(model.path).expanduser().is_dir() else model.path
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, revision=model.revision, use_fast=True)
        network = AutoModelForCausalLM.from_pretrained(
            source, revision=model.revision, use_safetensors=True, dtype=getattr(torch, DTYPES[precision])
        )
    except Exception as error:
        raise InputError(f"{field}: cannot load '{model.path}': {_advice(model.path, error)}") from error
    if not tokenizer.is_fast:
        raise InputError(f"{field}: '{model.path}' has no fast tokenizer, whose offsets decide what is answer")
    return network.eval(), tokenizer


def with_adapters(network: Any, rank: int, alpha: int) -> Any:
    """`network` with LoRA adapters (Hu et al., 2021) on every linear layer but the head; nothing else is trained."""
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return get_peft_model(network, settings)


def merged(network: Any) -> Any:
    """Adapters folded into the weights, where there are any."""
    from peft import PeftModel

    return network.merge_and_unload() if isinstance(network, PeftModel) else network


def save(network: Any, tokenizer: Any, folder: Path, note: dict[str, Any]) -> None:
    """Write a model folder by rename, so that a half-written one is never read; `note` says how it was made."""
    staging = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    network.save_pretrained(staging, safe_serialization=True)
    tokenizer.save_pretrained(staging)
    (staging / "recipe.json").write_text(json.dumps(note, indent=2, sort_keys=True) + "\n")
    storage.publish(staging, folder)


def _advice(path: str, error: Exception) -> str:
    text = str(error)
    if "gated" in text.lower() or "401" in text or "403" in text:
        return f"it is gated: accept its licence at its hub page, then set HF_TOKEN ({text.splitlines()[0]})"
    if Path(path).expanduser().is_dir():
        return text.splitlines()[0] if text else repr(error)
    first = text.splitlines()[0] if text else repr(error)
    return f"{first}. Without a network give a folder: --set target=DIR"

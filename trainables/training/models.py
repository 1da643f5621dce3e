"""Loading and saving causal language models: safetensors only, never code from a model's folder."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from trainables.common import hashing, paths
from trainables.common.errors import InputError
from trainables.config.settings import Model, Shape
from trainables.data import hub
from trainables.storage.files import mark_complete, publish
from trainables.training import memory

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
TOKENIZER = {"tokenizer.json": ["tokenizer.json", "tokenizer.model"]}


def check(model: Model, field: str = "target") -> bool:
    """Whether `model` is a folder that can be loaded (False: a hub id). Raises InputError saying what is missing."""
    folder = paths.expand(model.path)
    if not paths.is_folder(model.path):
        if not paths.is_hub_id(model.path):
            raise InputError(f"{field}: no model folder '{model.path}' (give a folder or a hub id)")
        return False
    needed = {
        "config.json": ["config.json"],
        "model.safetensors": ["model.safetensors", "model.safetensors.index.json"],
    }
    if model.tokenizer is None:
        needed |= TOKENIZER
    for name, files in needed.items():
        if not any(paths.is_file(folder / file) for file in files):
            there = paths.list_folder(folder)
            other = "" if name not in TOKENIZER else "; --set tokenizer=DIR_OR_HUB_ID takes it from another place"
            raise InputError(f"{field}: model folder {folder} has no {name}; it has {there}{other}")
    return True


def check_tokenizer(place: str) -> bool:
    """Whether `place` is a folder with a tokenizer (False: a hub id). Raises InputError saying what is missing."""
    folder = paths.expand(place)
    if not paths.is_folder(place):
        if not paths.is_hub_id(place):
            raise InputError(f"tokenizer: no folder {paths.describe_path(place)} (give a folder or a hub id)")
        return False
    if not any(paths.is_file(folder / file) for file in TOKENIZER["tokenizer.json"]):
        raise InputError(f"tokenizer: {folder} has no tokenizer.json; it has {paths.list_folder(folder)}")
    return True


def fingerprint(model: Model) -> str:
    """What the weights and the tokenizer are: the content of a folder, or hub id and revision."""
    if check(model):
        found = "files:" + hashing.hash_model(paths.expand(model.path))
    else:
        found = f"hub:{model.path}@{model.revision or 'main'}"
    if model.tokenizer is None:
        return found
    if hub.parse_folder(model.tokenizer) or not check_tokenizer(model.tokenizer):
        return f"{found}+{hub.hub_id_of(model.tokenizer)}"
    return f"{found}+{hashing.hash_tokenizer(paths.expand(model.tokenizer))}"


def shape_of(model: Model) -> Shape | None:
    """The sizes that the model's configuration tells, of a hub id too; None where it names them in another way."""
    from transformers import AutoConfig

    try:
        settings = AutoConfig.from_pretrained(
            _source(model.path), revision=model.revision, trust_remote_code=False
        ).to_dict()
    except Exception as error:
        raise InputError(f"target: cannot read '{model.path}': {_advice(model.path, error)}") from error
    return memory.shape_of(settings)


def load(model: Model, precision: str = "fp32", field: str = "target") -> tuple[Any, Any]:
    """The model (evaluation mode, on the CPU) and its tokenizer. Raises InputError with what to accept or set."""
    import torch
    from transformers import AutoModelForCausalLM

    check(model, field)
    tokenizer = load_tokenizer(model, field)
    try:
        network = AutoModelForCausalLM.from_pretrained(
            _source(model.path),
            revision=model.revision,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=getattr(torch, DTYPES[precision]),
            attn_implementation=model.attention,
        )
    except Exception as error:
        raise InputError(f"{field}: cannot load '{model.path}': {_advice(model.path, error)}") from error
    return network.eval(), tokenizer


def load_tokenizer(model: Model, field: str = "target") -> Any:
    """Return the model's tokenizer. Raises InputError if it is missing, empty or without offsets."""
    from transformers import AutoTokenizer

    place = model.tokenizer or model.path
    revision = model.revision if model.tokenizer is None else None
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            _source(place), revision=revision, use_fast=True, trust_remote_code=False
        )
    except Exception as error:
        raise InputError(f"{field}: cannot load the tokenizer of '{place}': {_advice(place, error)}") from error
    if not tokenizer.vocab_size or not tokenizer("What is it?", add_special_tokens=False)["input_ids"]:
        raise InputError(
            f"{field}: '{place}' has no usable tokenizer (its vocabulary is empty); take another place's: "
            "--set tokenizer=DIR_OR_HUB_ID"
        )
    if not tokenizer.is_fast:
        raise InputError(f"{field}: '{place}' has no fast tokenizer, whose offsets decide what is answer")
    return tokenizer


def _source(path: str) -> str:
    return str(paths.expand(path)) if paths.is_folder(path) else path


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


def save(network: Any, tokenizer: Any, folder: Path, note: dict[str, Any], *, shared: bool = False) -> None:
    """Write a model folder by rename, so that a half-written one is never read; `note` says how it was made.

    `shared`: it is made once for all, so that what a loss of power or a cut takes of it must be seen.
    """
    staging = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    network.save_pretrained(staging, safe_serialization=True)
    tokenizer.save_pretrained(staging)
    (staging / hashing.RECIPE).write_text(json.dumps(note, indent=2, sort_keys=True) + "\n")
    if shared:
        mark_complete(staging)
    publish(staging, folder)


def _advice(path: str, error: Exception) -> str:
    text = str(error)
    if "gated" in text.lower() or "401" in text or "403" in text:
        return f"it is gated: accept its licence at its hub page, then set HF_TOKEN ({text.splitlines()[0]})"
    if paths.is_folder(path):
        return text.splitlines()[0] if text else repr(error)
    first = text.splitlines()[0] if text else repr(error)
    return f"{first}. Without a network give a folder: --set target=DIR"

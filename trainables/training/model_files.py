"""Loading and saving causal language models: safetensors only, never code from a model's folder."""

import json
import shutil
from pathlib import Path
from typing import Any

from trainables.common import fingerprints, typed_paths
from trainables.common.errors import InputError, first_error_line
from trainables.config.settings import Model, ModelShape
from trainables.data import hub_folders
from trainables.storage.atomic_files import read_json, write_folder, write_json
from trainables.training import memory, weight_files

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model")
WEIGHT_FILES = (weight_files.WHOLE_WEIGHTS_FILE, weight_files.WEIGHTS_INDEX_FILE)


def check_if_local_model(model: Model, field: str = "target") -> bool:
    """Return True for a folder, False for a hub id. Raise InputError with what keeps a folder from being loaded."""
    folder = typed_paths.expand_home(model.path)
    if not _is_folder(model.path, f"{field}: no model folder '{model.path}'"):
        return False
    if problem := weight_files.explain_adapter(folder):
        raise InputError(f"{field}: {problem}")
    for files in (("config.json",), WEIGHT_FILES, TOKENIZER_FILES if model.tokenizer is None else ()):
        if files and not any(typed_paths.is_file(folder / file) for file in files):
            there = typed_paths.describe_folder(folder)
            other = "; --set tokenizer=DIR_OR_HUB_ID takes it from another place" if files == TOKENIZER_FILES else ""
            raise InputError(f"{field}: model folder {folder} has no {files[0]}; it has {there}{other}")
    if problems := weight_files.list_weight_problems(folder, model.attention, _eager(field)):
        raise InputError("; ".join(f"{field}: {problem}" for problem in problems))
    return True


def _eager(field: str) -> str:
    """Return what to type for attention that every family has: in trainables.evaluate, or in a sweep."""
    return "--attention eager" if field == "--model" else "--set attention=eager"


def check_if_local_tokenizer(place: str) -> bool:
    """Return True for a folder with a tokenizer, False for a hub id. Raise InputError naming what is missing."""
    folder = typed_paths.expand_home(place)
    if not _is_folder(place, f"tokenizer: no folder {typed_paths.quote_path(place)}"):
        return False
    if not any(typed_paths.is_file(folder / file) for file in TOKENIZER_FILES):
        raise InputError(f"tokenizer: {folder} has no tokenizer.json; it has {typed_paths.describe_folder(folder)}")
    return True


def _is_folder(place: str, missing: str) -> bool:
    if typed_paths.is_folder(place) or typed_paths.is_hub_id(place):
        return typed_paths.is_folder(place)
    raise InputError(f"{missing} (give a folder or a hub id)")


def fingerprint_model(model: Model, field: str = "target") -> str:
    """Return what names weights and tokenizer: the content of a folder that can be loaded, or hub id and revision."""
    if check_if_local_model(model, field):
        found = "files:" + fingerprints.hash_folder(typed_paths.expand_home(model.path), fingerprints.MODEL_PATTERNS)
    else:
        found = f"hub:{model.path}@{model.revision or 'main'}"
    if model.tokenizer is None:
        return found
    if hub_folders.parse_cache_folder(model.tokenizer) or not check_if_local_tokenizer(model.tokenizer):
        return f"{found}+{hub_folders.find_hub_id_of_folder(model.tokenizer)}"
    folder = typed_paths.expand_home(model.tokenizer)
    return f"{found}+{fingerprints.hash_folder(folder, fingerprints.TOKENIZER_PATTERNS)}"


def read_model_shape(model: Model) -> ModelShape | None:
    """Return the sizes in the model's configuration, of a hub id too; None if it names them in another way."""
    from transformers import AutoConfig

    try:
        source = _source(model.path, model.revision)
        settings = AutoConfig.from_pretrained(source, revision=model.revision, trust_remote_code=False).to_dict()
    except Exception as error:
        raise InputError(f"target: cannot read '{model.path}': {_advice(model.path, error, 'target')}") from error
    return memory.parse_model_shape(settings)


def read_stated_precision(folder: Path) -> str:
    """Return the precision that a model folder's configuration states, fp32 if it states none or another one."""
    config = read_json(folder / "config.json") or {}
    stated = config.get("dtype") or config.get("torch_dtype")
    return next((name for name, dtype in DTYPES.items() if dtype == stated), "fp32")


def load_model_and_tokenizer(model: Model, precision: str = "fp32", field: str = "target") -> tuple[Any, Any]:
    """Return the model (evaluation mode, on the CPU) and its tokenizer. Raise InputError with what to accept or set."""
    import torch
    from transformers import AutoModelForCausalLM

    check_if_local_model(model, field)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans a graph for every new shape, and its gradients vary
    tokenizer = load_tokenizer(model, field)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            _source(model.path, model.revision),
            revision=model.revision,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=getattr(torch, DTYPES[precision]) if precision in DTYPES else precision,  # auto: as it was saved
            attn_implementation=model.attention,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
        )
    except Exception as error:
        raise InputError(f"{field}: cannot load '{model.path}': {_advice(model.path, error, field)}") from error
    network, read = loaded
    if getattr(network, "peft_config", None):
        raise InputError(f"{field}: '{model.path}' has an adapter; {weight_files.MERGE}")
    mismatched = (name for name, *_ in read["mismatched_keys"])
    if problem := weight_files.describe_tensor_mismatch(read["missing_keys"], read["unexpected_keys"], mismatched):
        raise InputError(f"{field}: '{model.path}' {problem}")
    rows = network.get_input_embeddings().num_embeddings
    if any(token >= rows for token in tokenizer.all_special_ids):
        raise InputError(f"{field}: '{model.path}' has {rows} embeddings, and its tokenizer special tokens beyond them")
    return network.eval(), tokenizer


def load_tokenizer(model: Model, field: str = "target") -> Any:
    """Return the model's tokenizer. Raises InputError if it is missing, empty or without offsets."""
    from transformers import AutoTokenizer

    place = model.tokenizer or model.path
    revision, folder = model.revision if model.tokenizer is None else None, typed_paths.expand_home(place)
    if "/" in str((read_json(folder / "tokenizer_config.json") or {}).get("fast_tokenizer_files")):
        raise InputError(f"{field}: tokenizer_config.json of '{place}' names fast_tokenizer_files outside the folder")
    try:
        tokenizer = AutoTokenizer.from_pretrained(_source(place, revision), revision=revision, trust_remote_code=False)
        tokenizer.name_or_path = _source(model.path, model.revision)  # its generation_config.json names further ends
    except Exception as error:
        raise InputError(f"{field}: cannot load the tokenizer of '{place}': {_advice(place, error, field)}") from error
    if not tokenizer.vocab_size or not tokenizer("What is it?", add_special_tokens=False)["input_ids"]:
        raise InputError(
            f"{field}: '{place}' has no usable tokenizer (an empty vocabulary); give --set tokenizer=DIR_OR_HUB_ID"
        )
    if not tokenizer.is_fast:
        raise InputError(f"{field}: '{place}' has no fast tokenizer, whose offsets decide what is answer")
    return tokenizer


def _source(path: str, revision: str | None) -> str:
    """Return a model's folder or hub id; where no way leads to the hub, the folder of what this machine has fetched."""
    if typed_paths.is_folder(path):
        return str(typed_paths.expand_home(path))
    if hub_folders.can_ask_hub():
        return path
    try:
        kept = hub_folders.HubRequirement("models", path)
        return str(hub_folders.download_commit(kept, revision or "main", only_cached=True))
    except OSError as error:
        raise ConnectionError("no way leads to the hub, and this machine has not fetched it") from error


def add_lora_adapters(network: Any, rank: int | None, alpha: int) -> Any:
    """Return `network` with LoRA adapters (Hu et al., 2021) on every linear layer but the head; rank None: as it is."""
    if rank is None:
        return network
    from peft import LoraConfig, get_peft_model

    where: dict[str, Any] = {"target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    return get_peft_model(network, LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, **where))


def merge_adapters(network: Any) -> Any:
    return network.merge_and_unload() if hasattr(network, "merge_and_unload") else network


def save_model(network: Any, tokenizer: Any, folder: Path, note: dict[str, Any]) -> None:
    """Write a model folder by rename, so that a half-written one is never read; `note` says how it was made."""
    with write_folder(folder) as staging:
        network.save_pretrained(staging, safe_serialization=True)
        tokenizer.save_pretrained(staging)
        # and the names that transformers before 5 reads: without its rotary ones it takes theta 10000 in silence
        older: dict[str, Any] = {}
        config = read_json(staging / "config.json") or {}
        rotary = dict(config.get("rope_parameters") or {})
        if "rope_theta" in rotary:  # of one kind of layers; other families nest theirs
            older = {name: rotary.pop(name) for name in ("rope_theta", "partial_rotary_factor") if name in rotary}
            older["rope_scaling"] = rotary if rotary.get("rope_type", "default") != "default" else None
        if "dtype" in config:
            older["torch_dtype"] = config["dtype"]
        _rewrite(staging / "config.json", config | older)
        settings = read_json(staging / "tokenizer_config.json") or {}
        if settings.get("tokenizer_class") == "TokenizersBackend":
            _rewrite(staging / "tokenizer_config.json", settings | {"tokenizer_class": "PreTrainedTokenizerFast"})
        for file in staging.glob("*.safetensors"):  # which safetensors lets nobody else read
            shutil.copymode(staging / "config.json", file)
        write_json(staging / fingerprints.RECIPE_FILE, note)


def _rewrite(path: Path, settings: dict[str, Any]) -> None:  # some have an Infinity, which `write_json` refuses
    path.write_text(json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def _advice(path: str, error: Exception, field: str) -> str:
    """Return the first line of an error, with what to do about it in words of the commands here."""
    first = first_error_line(error)
    folder = typed_paths.is_folder(path)
    if not folder and any(word in str(error).lower() for word in ("gated", "401", "403")):
        return f"it is gated: accept its licence at its hub page, then set HF_TOKEN ({first})"
    if "trust_remote_code" in str(error):
        return "it needs code from its own folder, which never runs here; give a model that transformers has itself"
    if "attn_implementation" in first or "flash_attn" in first:
        return f"{first.partition('. ')[0]}; add {_eager(field)}"
    return first if folder else f"{first}. Without a network give a folder" + ": --set target=DIR" * (field == "target")

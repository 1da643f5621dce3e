"""The weight files of a model folder, checked without torch: what a plan can say before a model is loaded."""

import re
from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError, safe_open

from trainables.common import typed_paths
from trainables.common.errors import InputError
from trainables.storage.atomic_files import read_json

WHOLE_WEIGHTS_FILE, WEIGHTS_INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
MERGE = "merge the adapter into its base model (peft: merge_and_unload, save_pretrained) and give that folder"
WRAP_PARTS = {"base_layer", "lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "original_module"}
WRAP_PARTS |= {"modules_to_save", "_orig_mod", "_fsdp_wrapped_module", "_forward_module", "_checkpoint_wrapped_module"}
"""Parts of names of peft, torch.compile, FSDP and DeepSpeed, which a model that is saved by itself does not have."""
BUFFER_PATTERN = re.compile(r"(rotary_emb\.inv_freq|\.attn\.(masked_)?bias|attention\.(masked_)?bias|position_ids)$")
"""Tensors of older files that are computed by now: no weights."""
MODEL_TYPES_WITHOUT_SDPA = {"bloom", "codegen", "gemma2", "gpt_neo", "gptj", "gpt_oss", "mpt", "vaultgemma", "xglm"}
"""Families (`model_type`) whose attention transformers has as `eager`, and not as `sdpa`."""
MAX_NAMES_SHOWN = 3


def list_weight_problems(folder: Path, attention: str, option: str) -> list[str]:
    """Return what is wrong in a model folder, as far as its files tell; loading it compares every tensor.

    `option`: what a person types to have attention `eager`.
    """
    config = read_json(folder / "config.json")
    if config is None:
        return [f"{folder}/config.json is no JSON object"]
    family, found = config.get("model_type"), []
    if attention == "sdpa" and family in MODEL_TYPES_WITHOUT_SDPA:
        found.append(f"{folder} is of the family {family}, which has no attention 'sdpa' in transformers; add {option}")
    names, file = set[str](), folder
    try:
        for file in list_weight_files(folder):
            with safe_open(file, framework="numpy") as tensors:
                names.update(tensors.keys())
    except (OSError, SafetensorError) as error:
        return [*found, f"{file} is damaged or cut short, and cannot be read as safetensors: {error}"]
    except InputError as error:
        return [*found, str(error)]
    wrapped = [name for name in names if WRAP_PARTS & set(name.split("."))]
    return [*found, f"{folder} {describe_tensor_mismatch((), wrapped, ())}"] if wrapped else found


def explain_adapter(folder: Path) -> str | None:
    """Return how to go on where an adapter is in a folder: transformers would put it on top of whole weights."""
    names = ("adapter_config.json", "adapter_model.safetensors")
    files = " and ".join(name for name in names if typed_paths.is_file(folder / name))
    if not files:
        return None
    if not any(typed_paths.is_file(folder / name) for name in (WHOLE_WEIGHTS_FILE, WEIGHTS_INDEX_FILE)):
        return f"{folder} has an adapter alone ({files}) and no whole model; {MERGE}"
    return f"{folder} has whole weights and beside them {files}; move these away to take the whole weights, or {MERGE}"


def list_weight_files(folder: Path) -> list[Path]:
    """Return the files that weights are loaded from. Raises InputError where one is not there, or is elsewhere."""
    named = (read_json(folder / "config.json") or {}).get("transformers_weights")
    first = named or (WHOLE_WEIGHTS_FILE if typed_paths.is_file(folder / WHOLE_WEIGHTS_FILE) else WEIGHTS_INDEX_FILE)
    names = [first]
    if first.endswith(".json"):
        try:
            names = sorted(set((read_json(folder / first) or {})["weight_map"].values()))
        except (LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{folder / first} is no index of weight files") from error
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise InputError(f"{folder / first} names '{name}', which is no safetensors file in the folder itself")
    lost = [name for name in names if not typed_paths.is_file(folder / name)]
    if lost:
        shown = ", ".join(lost[:MAX_NAMES_SHOWN])
        raise InputError(f"{folder} lacks {len(lost)} of {len(names)} files that {first} names: {shown}")
    return [folder / name for name in names]


def describe_tensor_mismatch(missing: Iterable[str], unexpected: Iterable[str], mismatched: Iterable[str]) -> str:
    """Return in what the tensors are not those of the model, the first of each kind by name; empty where they are."""
    others = (name for name in unexpected if not BUFFER_PATTERN.search(name))
    kinds = {"missing": sorted(missing), "unexpected": sorted(others), "of another shape": sorted(mismatched)}
    parts = [
        f"{len(found)} {kind}: {', '.join(found[:MAX_NAMES_SHOWN])}{', ...' if len(found) > MAX_NAMES_SHOWN else ''}"
        for kind, found in kinds.items()
        if found
    ]
    return f"has other tensors than the model of its config.json; {'; '.join(parts)}" if parts else ""

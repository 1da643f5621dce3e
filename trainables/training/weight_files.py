"""The weight files of a model folder, read without torch: what a plan can say of them before a model is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainables.common import typed_paths
from trainables.common.errors import InputError
from trainables.storage.atomic_files import read_json

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
MERGE = "merge the adapter into its base model (peft: merge_and_unload, save_pretrained) and give that folder"
WRAPPERS = {"base_layer", "lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "original_module"}
WRAPPERS |= {"modules_to_save", "_orig_mod", "_fsdp_wrapped_module", "_forward_module", "_checkpoint_wrapped_module"}
"""Parts of names of peft, torch.compile, FSDP and DeepSpeed, which a model that is saved by itself does not have."""
BUFFERS = re.compile(r"(rotary_emb\.inv_freq|\.attn\.(masked_)?bias|attention\.(masked_)?bias|position_ids)$")
"""Tensors of older files that are computed by now: no weights."""
WITHOUT_SDPA = {"bloom", "codegen", "gemma2", "gpt_neo", "gptj", "gpt_oss", "mpt", "vaultgemma", "xglm"}
"""Families (`model_type`) whose attention transformers has as `eager`, and not as `sdpa`."""
NAMED = 3
"""Tensors that a message names."""

_LLAMA = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj"
_NORMS, _OF_HEADS = " input_layernorm post_attention_layernorm", " self_attn.q_norm self_attn.k_norm"
_AROUND = " pre_feedforward_layernorm post_feedforward_layernorm"
LAYERS = dict.fromkeys(("llama", "mistral", "qwen2", "gemma", "smollm3"), _LLAMA + _NORMS) | {
    "qwen3": _LLAMA + _NORMS + _OF_HEADS,
    "gemma2": _LLAMA + _NORMS + _AROUND,
    "gemma3_text": _LLAMA + _NORMS + _AROUND + _OF_HEADS,
    "olmo2": _LLAMA + _OF_HEADS + " post_attention_layernorm post_feedforward_layernorm",
    "phi3": "self_attn.qkv_proj self_attn.o_proj mlp.gate_up_proj mlp.down_proj" + _NORMS,
    "gpt_neox": "attention.query_key_value attention.dense mlp.dense_h_to_4h mlp.dense_4h_to_h" + _NORMS,
    "gpt2": "ln_1 ln_2 attn.c_attn attn.c_proj mlp.c_fc mlp.c_proj",
}
"""By family, the modules with a weight of each of its layers, which are all equal."""
NAMES = {"gpt2": "transformer. h. wte wpe ln_f", "gpt_neox": "gpt_neox. layers. embed_in final_layer_norm"}
"""By family, if not as Llama's: what is in front of a layer's number, the embedding, and what else is outside of it."""
TIED = {"gemma", "gemma2", "gemma3_text", "gpt2", "smollm3"}
"""Families whose head is the embedding unless the config says otherwise."""
Shapes = dict[str, tuple[int, ...]]


def check_weights(folder: Path, attention: str, option: str) -> list[str]:
    """Return what is wrong in a model folder, as far as its files tell without being loaded.

    `option`: what a person types to have attention `eager`.
    """
    config = read_json(folder / "config.json")
    if config is None:
        return [f"{folder}/config.json is no JSON object"]
    family, found = config.get("model_type"), []
    if attention == "sdpa" and family in WITHOUT_SDPA:
        found.append(f"{folder} is of the family {family}, which has no attention 'sdpa' in transformers; add {option}")
    try:
        shapes = read_shapes(folder)
    except InputError as error:
        return [*found, str(error)]
    wrapped = {name for name in shapes if WRAPPERS & set(name.split("."))}
    missing, unexpected, mismatched = _compare_layers(config, shapes) if family in LAYERS else (set(), set(), set())
    if problem := describe_tensors(missing, unexpected | wrapped, mismatched):
        found.append(f"{folder} {problem}")
    return found


def check_adapter(folder: Path) -> str | None:
    """Return how to go on where an adapter is in a folder: transformers would put it on top of whole weights."""
    files = " and ".join(name for name in ADAPTER if typed_paths.is_file(folder / name))
    if not files:
        return None
    if not any(typed_paths.is_file(folder / name) for name in (WHOLE, INDEX)):
        return f"{folder} has an adapter alone ({files}) and no whole model; {MERGE}"
    return f"{folder} has whole weights and beside them {files}; move these away to take the whole weights, or {MERGE}"


def list_files(folder: Path) -> list[Path]:
    """Return the files that weights are loaded from. Raises InputError where one is not there, or is elsewhere."""
    named = (read_json(folder / "config.json") or {}).get("transformers_weights")
    first = named or (WHOLE if typed_paths.is_file(folder / WHOLE) else INDEX)
    names = [first]
    if first.endswith(".json"):
        try:
            names = sorted(set(json.loads((folder / first).read_bytes())["weight_map"].values()))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{folder / first} is no index of weight files") from error
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise InputError(f"{folder / first} names '{name}', which is no safetensors file in the folder itself")
    lost = [name for name in names if not typed_paths.is_file(folder / name)]
    if lost:
        raise InputError(
            f"{folder} lacks {len(lost)} of {len(names)} files that {first} names: {', '.join(lost[:NAMED])}"
        )
    return [folder / name for name in names]


def read_shapes(folder: Path) -> Shapes:
    """Return the shape of each tensor, from the headers of the files. Raises InputError where one cannot be read."""
    found: Shapes = {}
    for file in list_files(folder):
        try:
            with file.open("rb") as stream:
                length = int.from_bytes(stream.read(8), "little")
                header = json.loads(stream.read(min(length, file.stat().st_size)))
            header.pop("__metadata__", None)
            found |= {name: tuple(tensor["shape"]) for name, tensor in header.items()}
            end = 8 + length + max(tensor["data_offsets"][1] for tensor in header.values())
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{file} cannot be read as safetensors: its header is damaged") from error
        if file.stat().st_size != end:
            raise InputError(f"{file} is cut short: it has {file.stat().st_size} bytes, and its header tells of {end}")
    return found


def describe_tensors(missing: Iterable[str], unexpected: Iterable[str], mismatched: Iterable[str]) -> str:
    """Return in what the tensors are not those of the model, the first of each kind by name; empty where they are."""
    others = (name for name in unexpected if not BUFFERS.search(name))
    kinds = {"missing": sorted(missing), "unexpected": sorted(others), "of another shape": sorted(mismatched)}
    parts = [
        f"{len(found)} {kind}: {', '.join(found[:NAMED])}{', ...' if len(found) > NAMED else ''}"
        for kind, found in kinds.items()
        if found
    ]
    return f"has other tensors than the model of its config.json; {'; '.join(parts)}" if parts else ""


def _compare_layers(config: dict[str, Any], shapes: Shapes) -> tuple[set[str], set[str], set[str]]:
    """Return the tensors that are missing, unexpected, or of another shape than in layer 0 or in the config.

    Biases are expected in all layers where one has them.
    """
    family = config["model_type"]
    count, vocabulary = config.get("num_hidden_layers", config.get("n_layer")), config.get("vocab_size")
    if not isinstance(count, int) or "quantization_config" in config:
        return set(), set(), set()
    prefix, block, embedding, *others = NAMES.get(family, "model. layers. embed_tokens norm").split()
    prefix = "" if f"{embedding}.weight" in shapes else prefix  # older files, saved without a head
    pattern = re.compile(rf"{re.escape(prefix + block)}(\d+)\.(.+)")
    in_layers = {name: found for name in shapes if (found := pattern.fullmatch(name))}
    parts = {f"{module}.weight" for module in LAYERS[family].split()}
    parts |= {found[2] for found in in_layers.values() if found[2].removesuffix("bias") + "weight" in parts}
    layers = [{part: f"{prefix}{block}{number}.{part}" for part in parts} for number in range(count)]
    expected = {f"{prefix}{module}.weight" for module in (embedding, *others)}
    expected |= {name for layer in layers for name in layer.values()}
    if not config.get("tie_word_embeddings", family in TIED) and "embed_out.weight" not in shapes:
        expected.add("lm_head.weight")
    elif "lm_head.weight" in shapes:  # tied: either of the two may be stored
        expected.discard(f"{prefix}{embedding}.weight")
    unexpected = {name for name, found in in_layers.items() if int(found[1]) >= count}
    mismatched = {
        name
        for layer in layers
        for part, name in layer.items()
        if (shape := shapes.get(name)) and shape != shapes.get(layers[0][part], shape)
    }
    table = vocabulary, config.get("hidden_size", config.get("n_embd"))
    for name in (f"{prefix}{embedding}.weight", "lm_head.weight"):
        if None not in table and shapes.get(name, table) != table:
            mismatched.add(name)
    return expected - shapes.keys(), unexpected, mismatched

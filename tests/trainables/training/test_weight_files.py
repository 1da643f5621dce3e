"""Weights that are not those of the model are refused by name: at planning from the files alone, and at loading."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support import tiny
from trainables.common.errors import InputError
from trainables.config.settings import Model, Resources
from trainables.training import model_files
from trainables.training.runtime import prepare_process

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
LAYER = "model.layers.1.self_attn"
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Qwen3": {"head_dim": 16},
    "Gemma3Text": {"head_dim": 16},
    "Olmo2": {},
    "GPT2": {},
    "OPT": {"ffn_dim": 48, "word_embed_proj_dim": 32},
}


def save(folder: Path, family: str, **settings: Any) -> Path:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**tiny.SHAPE | {"num_hidden_layers": 2} | settings)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    tensors = load_file(folder / WHOLE)
    edit(tensors)
    save_file(tensors, folder / WHOLE, metadata={"format": "pt"})


def refusal(folder: Path, check: Callable[[Model], object] = model_files.check_if_local_model, **settings: Any) -> str:
    with pytest.raises(InputError) as raised:
        check(Model(path=str(folder), **settings))
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_models_as_they_are_saved_are_taken(family: str, tied: bool, tmp_path: Path) -> None:
    folder = save(tmp_path / "model", family, tie_word_embeddings=tied, **FAMILIES[family])
    model = Model(path=str(folder), attention="eager")
    assert model_files.check_if_local_model(model)
    network, _ = model_files.load_model_and_tokenizer(model)
    shards = tmp_path / "shards"
    network.save_pretrained(shards, max_shard_size="20KB")
    tiny.tokenizer().save_pretrained(shards)
    assert (shards / INDEX).is_file()
    assert model_files.check_if_local_model(Model(path=str(shards), attention="eager"))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda w: w.pop(f"{LAYER}.q_proj.weight"), f"1 missing: {LAYER}.q_proj.weight"),
        (
            lambda w: w.update({f"{LAYER}.q_proj.weight": w[f"{LAYER}.q_proj.weight"][:16]}),
            f"1 of another shape: {LAYER}.q_proj.weight",
        ),
        (
            lambda w: w.update({"_orig_mod." + name: w.pop(name) for name in list(w)}),
            "21 unexpected: _orig_mod.lm_head.weight",
        ),
    ],
)
def test_other_weights_are_refused_by_name(edit: Any, said: str, tmp_path: Path) -> None:
    folder = save(tmp_path, "Llama")
    change(folder, edit)
    assert said in refusal(folder, model_files.load_model_and_tokenizer)


def test_what_transformers_ignores_is_taken(tmp_path: Path) -> None:
    """Buffers of older versions, and a head that is the embedding: in neither place, or in both."""
    folder = save(tmp_path, "Llama", tie_word_embeddings=True)
    frequencies = {"model.layers.0.self_attn.rotary_emb.inv_freq": load_file(folder / WHOLE)["model.norm.weight"]}
    change(folder, lambda w: w.update(frequencies))
    model_files.load_model_and_tokenizer(Model(path=str(folder)))
    change(folder, lambda w: w.update({"lm_head.weight": w["model.embed_tokens.weight"].clone()}))
    model_files.load_model_and_tokenizer(Model(path=str(folder)))
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"tie_word_embeddings": False}))
    change(folder, lambda w: w.pop("lm_head.weight"))
    assert "1 missing: lm_head.weight" in refusal(folder, model_files.load_model_and_tokenizer)


@pytest.mark.parametrize("family", ["GPT2", "GPTJ"])
def test_masks_of_older_files_are_taken(family: str, tmp_path: Path) -> None:
    folder = save(tmp_path, family)
    masks = [f"transformer.h.{layer}.attn.{name}" for layer in (0, 1) for name in ("bias", "masked_bias")]
    older = family == "GPT2"  # its first files on the hub have no prefix either

    def edit(weights: dict[str, Any]) -> None:
        some = next(iter(weights.values()))
        weights |= {name: some[:1].clone() for name in masks}
        for name in list(weights) if older else ():
            weights[name.removeprefix("transformer.")] = weights.pop(name)

    change(folder, edit)
    model_files.load_model_and_tokenizer(Model(path=str(folder), attention="eager"))


def test_shards_are_in_the_folder(tmp_path: Path) -> None:
    network = tiny.network()
    network.save_pretrained(tmp_path, max_shard_size="20KB")
    tiny.tokenizer().save_pretrained(tmp_path)
    index, shard = tmp_path / INDEX, sorted(tmp_path.glob("model-*"))[0]
    before = model_files.fingerprint_model(Model(path=str(tmp_path)))
    content, text = shard.read_bytes(), index.read_text()
    shard.write_bytes(content[:-4])
    assert f"{shard} is damaged or cut short" in refusal(tmp_path)
    assert model_files.fingerprints.hash_folder(tmp_path, model_files.fingerprints.MODEL_PATTERNS) not in before
    shard.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert f"{shard} is damaged or cut short" in refusal(tmp_path)
    shard.unlink()
    assert f"lacks 1 of {len(set(json.loads(text)['weight_map'].values()))} files" in (found := refusal(tmp_path))
    assert found.endswith(shard.name)
    for place in ("../x.safetensors", "sub/x.safetensors", "/x.safetensors", "x.bin"):
        index.write_text(text.replace(shard.name, place))
        assert f"names '{place}', which is no safetensors file in the folder itself" in refusal(tmp_path)
    for odd in ("[]", "{", '{"weight_map": 3}'):
        index.write_text(odd)
        assert f"{index} is no index of weight files" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "config.json is no JSON object" in refusal(tmp_path)


def test_an_adapter_alone(tmp_path: Path) -> None:
    model_files.add_lora_adapters(tiny.network(), 2, 4).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    assert "has an adapter alone" in refusal(tmp_path)


def test_models_that_are_loaded_or_made_leave_cudnns_attention_alone(tmp_path: Path) -> None:
    """It plans a graph for every new shape of rows, and is not deterministic. All commands do one of the two."""
    folder = tiny.write_model(tmp_path)
    for begin in (
        lambda: model_files.load_model_and_tokenizer(Model(path=str(folder))),
        lambda: prepare_process(Resources(), 0),
    ):
        torch.backends.cuda.enable_cudnn_sdp(True)
        begin()
        assert not torch.backends.cuda.cudnn_sdp_enabled()


LLAMA3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 64}


def test_older_names_stand_beside_the_new(tmp_path: Path) -> None:
    """transformers 4.51 reads the new names alone as theta 10000 without scaling, without an error."""
    given: dict[str, Any] = {"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3}
    network = tiny.network(layers=1, rope_parameters=given)
    model_files.save_model(network, tiny.tokenizer(), tmp_path / "model", {})
    read = json.loads((tmp_path / "model" / "config.json").read_text())
    assert read["rope_parameters"] == given
    assert (read["rope_theta"], read["rope_scaling"]) == (500000.0, {"rope_type": "llama3", **LLAMA3})
    assert read["torch_dtype"] == read["dtype"] == "float32"
    names = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert names["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_an_empty_tokenizer_is_refused(tmp_path: Path) -> None:
    """transformers makes one without any token where the files are missing or empty."""
    empty = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": []}
    tiny.network().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(empty))
    with pytest.raises(InputError, match="has no usable tokenizer"):
        model_files.load_model_and_tokenizer(Model(path=str(tmp_path)))

"""Making what trials share: the recipe of a model."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from trainables.benchmarks import get_benchmark
from trainables.benchmarks.own import model_answers
from trainables.config.settings import Benchmark, Model, Training
from trainables.config.shared_artifacts import Recipe
from trainables.data import raw_rows
from trainables.training import model_files
from trainables.workers import shared_artifacts


def test_a_recipe_with_the_base_model_s_answers_trains_on_them_as_on_rows(trial_inputs: Any, tmp_path: Path) -> None:
    """Equal weights to those of a folder whose rows have the answers at the end."""
    base, columns = Model(path=str(trial_inputs.target)), shared_artifacts.QUESTION_COLUMNS
    rows = raw_rows.load_rows(str(trial_inputs.data), trial_inputs.split, columns, None)
    network, tokenizer = model_files.load_model(base, "fp32")
    encoder = get_benchmark("tofu").make_encoder(Benchmark(template="llama2"), tokenizer)
    prompts = model_answers.read_prompts()
    said = model_answers.generate_answers(network, encoder, prompts, 4096)
    rows += [{"question": prompt, "answer": text} for prompt, text in zip(prompts, said, strict=True) if text]
    assert len(rows) > len(prompts) / 2
    (tmp_path / "both.json").write_text(json.dumps(rows))
    shared: dict[str, Any] = {"base": base, "data_fingerprint": "test", "template": "llama2"}
    shared |= {"training": Training(lr=1e-3, epochs=1, batch_size=64, max_length=192)}
    recipes = [
        Recipe(**shared, data=str(trial_inputs.data), configs=(trial_inputs.split,), answers="said"),
        Recipe(**shared, data=str(tmp_path), configs=("both",)),
        Recipe(**shared, data=str(trial_inputs.data), configs=(trial_inputs.split,)),
    ]
    made = [Path(shared_artifacts.ensure_recipe_model(recipe, str(tmp_path / "store"))) for recipe in recipes]
    answered, both, alone = (load_file(folder / "model.safetensors") for folder in made)
    assert all(torch.equal(weight, both[name]) for name, weight in answered.items())
    assert not torch.equal(answered["model.norm.weight"], alone["model.norm.weight"])

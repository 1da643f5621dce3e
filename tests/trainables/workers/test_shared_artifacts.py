"""Making what trials share: the recipe of a model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from trainables.benchmarks import get_benchmark
from trainables.benchmarks.own import model_answers, row_scores
from trainables.benchmarks.own.facts import OwnRow
from trainables.config.settings import Benchmark, Model, Resources, Training
from trainables.config.shared_artifacts import ModelRecipe
from trainables.data import raw_rows
from trainables.training import engine, loop, model_files, runtime
from trainables.trial import setup
from trainables.workers import shared_artifacts


def test_a_recipe_trains_on_the_base_model_s_answers_as_own_rows_do(
    trial_inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of `own` end without a label for the end of the turn where an answer was cut off."""
    monkeypatch.setattr(model_answers, "ANSWER_TOKENS", 8)  # the answers of so small a model are short
    base, columns, length = Model(path=str(trial_inputs.target)), shared_artifacts.QUESTION_COLUMNS, 192
    training = Training(lr=1e-3, epochs=1, batch_size=64, max_length=length)
    rows: dict[str, Any] = {"data": str(trial_inputs.data), "data_fingerprint": "test", "configs": ("forget25",)}
    asked = ModelRecipe(base=base, training=training, template="llama2", **rows, answers="said")
    made = load_file(Path(shared_artifacts.ensure_recipe_model(asked, str(tmp_path))) / "model.safetensors")

    runtime.prepare_process(Resources(), 0)
    network, tokenizer = model_files.load_model_and_tokenizer(base, "fp32")
    encoder = get_benchmark("tofu").make_encoder(Benchmark(template="llama2"), tokenizer)
    loaded = raw_rows.load_rows(str(trial_inputs.data), "forget25", columns, None)
    examples = encoder.encode([(row["question"], row["answer"]) for row in loaded], max_length=length)
    prompts = model_answers.read_neutral_prompts()
    for prompt, text in zip(prompts, model_answers.generate_answers(network, encoder, prompts, 4096), strict=True):
        row = OwnRow(prompt, text, labels=model_answers.ANSWER_TOKENS)
        examples += row_scores.encode_row(encoder, row, "row", length, length) if text else []
    assert len(examples) > len(loaded) + len(prompts) / 2
    assert any(row.ending == 0 for row in examples[len(loaded) :])
    task = setup.make_fine_tuning_task(examples, training, tokenizer, 0, None, 1.0)
    runner = engine.create_engine(network.train(), training, Resources(), base.attention)
    assert len(list(loop.train_steps(runner, task))) == task.count_steps() > 0
    weights = runner.module.state_dict()
    assert made.keys() <= weights.keys()
    assert all(torch.equal(weights[name], weight) for name, weight in made.items())

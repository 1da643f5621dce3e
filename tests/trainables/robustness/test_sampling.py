"""Sampled answers, and the best of k of them."""

from __future__ import annotations

from itertools import combinations
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.benchmarks.tofu import rows
from trainables.config.settings import Benchmark, Model, Resources
from trainables.data.conversations import make_encoder
from trainables.robustness import sampling
from trainables.training import model_files
from trainables.training.runtime import prepare_process


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.lists(st.floats(0, 1), min_size=n, max_size=n), min_size=1)))
def test_leak_at_k_is_the_mean_best_over_all_subsets(scores: list[list[float]]) -> None:
    for k in range(1, len(scores[0]) + 1):
        wanted = mean(mean(max(subset) for subset in combinations(row, k)) for row in scores)
        assert sampling.leak_at(k, np.array(scores)) == pytest.approx(wanted, abs=1e-9)
    assert sampling.leak_curve(np.eye(1, 128)) == pytest.approx({2**k: 2**k / 128 for k in range(8)})


def test_answers_are_drawn_as_likely_as_the_model_says(trial_inputs: Any) -> None:
    """How often an answer begins with its likeliest letter, to three standard errors; none has more than its end."""
    prepare_process(Resources(), 3)
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split)
    network, tokenizer = model_files.load_model(Model(path=str(trial_inputs.target)))
    encoder = make_encoder("llama2", tokenizer)
    (prompt,) = encoder.encode_prompts([rows.read_evaluation_rows(benchmark)["forget"][0]["question"]])
    (texts,) = sampling.sample_answers(network, tokenizer, [prompt], 300, encoder.end_tokens, 20_000)
    with torch.no_grad():
        chances = network(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1).tolist()
    letters: dict[str, float] = {}
    for token, chance in enumerate(chances):
        letter = tokenizer.decode([token], skip_special_tokens=True)[:1]
        letters[letter] = letters.get(letter, 0.0) + chance
    likeliest = max(letters, key=lambda letter: letters[letter])
    assert 0.05 < (share := letters[likeliest]) < 0.95
    found = mean(text[:1] == likeliest for text in texts)
    assert found == pytest.approx(share, abs=3 * (share * (1 - share) / 300) ** 0.5 + 0.01), letters
    assert (len(texts), len(set(texts)) > 100) == (300, True)

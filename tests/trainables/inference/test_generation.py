"""Rows of padded batches against transformers' `generate` on one row at a time, in fp32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from tests.support.families import (
    END,
    FAMILIES,
    NEVER,
    VOCABULARY,
    PassCounter,
    frequent_token,
    generate,
    generate_alone,
    generate_each_alone,
    network,
    ragged_prompts,
)
from trainables.benchmarks import tofu
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark, Model
from trainables.data.conversations import make_encoder
from trainables.inference import generation, greedy_answers
from trainables.training import model_files

LLAMA = network("Llama")


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_end_one_by_one_as_they_do_alone(family: str) -> None:
    """Also where rows are padded with the end token."""
    model = network(family)
    prompts, limits = ragged_prompts(16, seed=0)
    end = frequent_token(model, prompts)
    expected = generate_each_alone(model, prompts, limits, end)
    assert len({len(ids) for ids in expected}) > 5
    assert any(0 < len(ids) < limit for ids, limit in zip(expected, limits, strict=True))
    assert any(len(ids) == limit for ids, limit in zip(expected, limits, strict=True) if limit)
    for budget in (150, 10**6):
        assert generate(model, prompts, limits, budget=budget, end=end) == expected
    assert generate(model, prompts, limits, budget=300, end=end, pad=end) == expected


def test_only_the_tokenizers_end_ends_a_row_whatever_the_model_lists() -> None:
    """As in transformers' `generate` that is given an end."""
    model = network("Llama")
    prompts, limits = ragged_prompts(6, seed=2)
    before = generate(model, prompts, limits, budget=300)
    model.generation_config.eos_token_id = list(range(VOCABULARY))
    assert generate(model, prompts, limits, budget=300) == before == generate_each_alone(model, prompts, limits)


def test_batches_keep_to_the_budget() -> None:
    """A batch has the columns of its widest prompt and of its longest answer, which may be of different rows."""
    prompts, limits = ragged_prompts(24, seed=4)
    prompts = [[5, *ids] for ids in prompts]  # two tokens at least: a pass of one is a step
    with PassCounter(LLAMA) as counted:
        generate(LLAMA, prompts, limits, budget=300, end=NEVER)
    first = [number for number, (_, tokens) in enumerate(counted.passes) if tokens > 1]
    for begin, end in zip(first, [*first[1:], len(counted.passes)], strict=True):
        rows, width = counted.passes[begin]
        assert rows * (width + end - begin - 1) <= 300


def test_any_of_several_tokens_ends_a_row() -> None:
    prompts, limits = ragged_prompts(8, seed=3)
    ends = {frequent_token(LLAMA, prompts), 7, 9}
    found = generation.continue_prompts(LLAMA, prompts, limits, ends=ends, pad=2, token_budget=10**4)
    for ids, whole in zip(found, generate_each_alone(LLAMA, prompts, limits, NEVER), strict=True):
        assert ids == whole[: next((place for place, token in enumerate(whole) if token in ends), None)]


def without_positions() -> Any:
    torch.manual_seed(0)
    config = transformers.BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=2)
    return transformers.BloomForCausalLM(config).eval()


def test_models_with_a_window_a_penalty_or_no_positions() -> None:
    prompts, limits = ragged_prompts(6, seed=5)
    penalised = network("Llama")
    penalised.generation_config.repetition_penalty = 5.0
    for model in (network("Mistral", sliding_window=16), penalised, without_positions()):
        assert generate(model, prompts, limits, budget=300) == generate_each_alone(model, prompts, limits)
    assert generate_each_alone(penalised, prompts, limits) != generate_each_alone(LLAMA, prompts, limits)


@torch.no_grad()
def sample_alone(model: Any, prompt: list[int], limit: int, end: int, numbers: list[float]) -> list[int]:
    """Nucleus sampling token by token, without a cache; `numbers`: a uniform one for each new token."""
    ids = list(prompt)
    while len(ids) < len(prompt) + limit:
        shares = model(input_ids=torch.tensor([ids])).logits[0, -1].double().softmax(-1).tolist()
        nucleus: list[int] = []
        for token in sorted(range(VOCABULARY), key=lambda token: -shares[token]):
            nucleus.append(token)
            if sum(shares[token] for token in nucleus) >= 0.9:
                break
        left = numbers[len(ids) - len(prompt)] * sum(shares[token] for token in nucleus)
        while (left := left - shares[nucleus[0]]) >= 0:
            nucleus.pop(0)
        if nucleus[0] == end:
            break
        ids.append(nucleus[0])
    return ids[len(prompt) :]


@pytest.mark.parametrize("family", ["Llama", "OPT"])
def test_sampled_rows_depend_on_no_other_row(family: str) -> None:
    model = network(family)
    prompts, limits = ragged_prompts(12, seed=7)
    draws = torch.rand(12, 31, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    end = frequent_token(model, prompts)
    rows = zip(prompts, limits, draws.tolist(), strict=True)
    expected = [sample_alone(model, prompt, limit, end, numbers) for prompt, limit, numbers in rows]
    settings: dict[str, Any] = {"ends": {end}, "pad": 2, "draws": draws}
    for budget in (150, 10**6):
        assert generation.continue_prompts(model, prompts, limits, token_budget=budget, **settings) == expected
    assert expected != generate(model, prompts, limits, budget=300, end=end)
    assert any(0 < len(ids) < limit for ids, limit in zip(expected, limits, strict=True))


# Tokens that scoring has shown to be the likeliest are not generated again


def test_a_known_beginning_changes_no_row() -> None:
    """Nothing, a part, all, and more than the limit is known."""
    model = network("Llama")
    prompts, limits = ragged_prompts(24, seed=9)
    rows = [generate_alone(model, ids, 40, NEVER) for ids in prompts]
    known = [row[: 3 * (number % 14)] for number, row in enumerate(rows)]
    expected = [row[:limit] for row, limit in zip(rows, limits, strict=True)]
    assert generate(model, prompts, limits, budget=4096, end=NEVER, known=known) == expected


def test_a_row_that_is_known_to_its_end_is_not_read_again() -> None:
    model, known = network("Llama"), [[11, 12, END], [13, 14, 15], [16]]
    with PassCounter(model) as counted:
        found = generate(model, [[5, 6], [7, 8], [9]], [20, 2, 0], budget=4096, known=known)
    assert found == [[11, 12], [13, 14], []]
    assert counted.passes == []


def test_what_is_known_is_left_out_where_a_model_does_not_choose_the_likeliest() -> None:
    model = network("Llama")
    model.generation_config.repetition_penalty = 5.0
    prompts, limits = ragged_prompts(6, seed=6)
    known = [[VOCABULARY - 1]] * 6
    plain = generate(model, prompts, limits, budget=4096)
    assert generate(model, prompts, limits, budget=4096, known=known) == plain


@pytest.fixture(scope="module")
def taught(trained_inputs: Any) -> tuple[Any, Any]:
    return model_files.load_model(Model(path=str(trained_inputs.target)))


@pytest.mark.parametrize("dialect", tofu.rows.RULES)
def test_an_evaluation_of_a_model_that_knows_its_rows(
    trained_inputs: Any, taught: Any, dialect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same texts, with fewer of them generated."""
    model, tokenizer = taught
    benchmark = Benchmark(data=str(trained_inputs.data), split=trained_inputs.split, dialect=dialect, limit=8)
    generated, steps = greedy_answers.generate, []
    texts = []
    for changed in (generated, lambda *given, scored, **more: generated(*given, **more)):
        monkeypatch.setattr(greedy_answers, "generate", changed)
        with PassCounter(model) as counted:
            records = tofu.row_scores.evaluate(model, tokenizer, benchmark, token_budget=700)
        steps.append(sum(rows for rows, tokens in counted.passes if tokens == 1))
        texts.append([record["generation"] for record in records])
    assert texts[0] == texts[1]
    assert steps[0] < 0.7 * steps[1]


def test_a_prompt_that_is_not_the_examples_own_is_asked_as_it_is(trained_inputs: Any, taught: Any) -> None:
    """As where a token holds the end of the question and the start of the answer."""
    model, tokenizer = taught
    row = tofu.rows.evaluation_rows(Benchmark(data=str(trained_inputs.data), split=trained_inputs.split))["forget"][0]
    encoder = make_encoder("llama2", tokenizer, tag_is_answer=True)
    (whole,) = encoder.encode([(row["question"], row["answer"])], max_length=200)
    (prompt,) = encoder.encode_prompts([row["question"]])

    def text(*scored: tuple[Example, list[bool]]) -> list[str]:
        return greedy_answers.generate(model, tokenizer, [prompt], token_budget=700, new_tokens=10, scored=scored)

    start = whole.answer_start
    changed = whole.input_ids[:start] + tuple(reversed(whole.input_ids[start:]))
    assert text((Example(changed, start + 1), [True] * 5)) == text()
    assert text((Example(changed, start), [True] * 5)) != text()

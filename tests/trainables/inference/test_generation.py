"""Rows of padded batches against transformers' `generate` on one row at a time, in fp32."""

from typing import Any

import pytest
import torch
import transformers

from tests.support import tiny
from tests.support.families import (
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
from trainables.inference import generation
from trainables.training import model_files

LLAMA = network("Llama")


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_end_one_by_one_as_they_do_alone(family: str) -> None:
    """Also where rows are padded with the end token."""
    model = network(family)
    prompts, limits = ragged_prompts(12, seed=0)
    end = frequent_token(model, prompts)
    expected = generate_each_alone(model, prompts, limits, end)
    assert len({len(ids) for ids in expected}) > 5
    assert any(0 < len(ids) < limit for ids, limit in zip(expected, limits, strict=True))
    assert any(len(ids) == limit for ids, limit in zip(expected, limits, strict=True) if limit)
    for budget in (150, 10**6):
        assert generate(model, prompts, limits, budget=budget, end=end) == expected
    assert generate(model, prompts, limits, budget=300, end=end, pad=end) == expected


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


def test_a_batch_takes_as_many_steps_as_its_longest_row() -> None:
    """Also a model that was saved to keep no keys and values, as after training with checkpointed activations."""
    model, (prompts, _) = network("Llama"), ragged_prompts(32, seed=6)
    model.generation_config.use_cache = False
    end, limits = frequent_token(LLAMA, prompts), [30] * len(prompts)
    with PassCounter(model) as counted:
        found = generate(model, prompts, limits, budget=10**6, end=end)
    steps = [min(len(ids) + 1, limit) for ids, limit in zip(found, limits, strict=True)]
    assert [width for _, width in counted.passes] == [max(map(len, prompts))] + [1] * (max(steps) - 1)


def test_models_with_a_window_a_penalty_or_no_positions() -> None:
    prompts, limits = ragged_prompts(6, seed=5)
    penalised = network("Llama")
    penalised.generation_config.repetition_penalty = 5.0
    torch.manual_seed(0)
    config = transformers.BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=2)
    without_positions = transformers.BloomForCausalLM(config).eval()
    for model in (network("Mistral", sliding_window=16), penalised, without_positions):
        assert generate(model, prompts, limits, budget=300) == generate_each_alone(model, prompts, limits)
    assert generate_each_alone(penalised, prompts, limits) != generate_each_alone(LLAMA, prompts, limits)


# Tokens that scoring has shown to be the likeliest are not generated again


def test_a_known_beginning_changes_no_row() -> None:
    """Nothing, a part, all, and more than the limit is known."""
    model = network("Llama")
    prompts, limits = ragged_prompts(12, seed=9)
    rows = [generate_alone(model, ids, 40, NEVER) for ids in prompts]
    known = [row[: 4 * number] for number, row in enumerate(rows)]
    expected = [row[:limit] for row, limit in zip(rows, limits, strict=True)]
    assert generate(model, prompts, limits, budget=4096, end=NEVER, known=known) == expected


@pytest.fixture(scope="module")
def taught(trained_inputs: Any) -> tuple[Any, Any]:
    return model_files.load_model_and_tokenizer(Model(path=str(trained_inputs.target)))


@pytest.mark.parametrize("dialect", tofu.rows.RULES)
def test_an_evaluation_of_a_model_that_knows_its_rows(
    trained_inputs: Any, taught: Any, dialect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same texts, with fewer of them generated."""
    model, tokenizer = taught
    benchmark = Benchmark(data=str(trained_inputs.data), split=trained_inputs.split, dialect=dialect, limit=8)
    generated, steps = generation.generate_texts, []
    texts = []
    for changed in (generated, lambda *given, scored, **more: generated(*given, **more)):
        monkeypatch.setattr(generation, "generate_texts", changed)
        with PassCounter(model) as counted:
            records = tofu.make_question_records(model, tokenizer, benchmark, token_budget=700)
        steps.append(sum(rows for rows, tokens in counted.passes if tokens == 1))
        texts.append([record["generation"] for record in records])
    assert texts[0] == texts[1]
    assert steps[0] < 0.7 * steps[1]


def test_a_prompt_that_is_not_the_examples_own_is_asked_as_it_is(trained_inputs: Any, taught: Any) -> None:
    """As where a token holds the end of the question and the start of the answer."""
    model, tokenizer = taught
    row = tofu.rows.read_evaluation_rows(Benchmark(data=str(trained_inputs.data), split=trained_inputs.split))[
        "forget"
    ][0]
    encoder = make_encoder("llama2", tokenizer, tag_is_answer=True)
    (whole,) = encoder.encode([(row["question"], row["answer"])], max_length=200)
    (prompt,) = encoder.encode_prompts([row["question"]])

    def text(*scored: tuple[Example, list[bool]]) -> list[str]:
        return generation.generate_texts(model, tokenizer, [prompt], token_budget=700, new_tokens=10, scored=scored)

    start = whole.answer_start
    changed = whole.input_ids[:start] + tuple(reversed(whole.input_ids[start:]))
    assert text((Example(changed, start + 1), [True] * 5)) == text()
    assert text((Example(changed, start), [True] * 5)) != text()


# Answers that go round


@pytest.mark.parametrize("period", [1, 3, 8, 9])
def test_a_continuation_ends_where_it_goes_round(period: int) -> None:
    """By hand: the last 24 ids repeat every `period` ids, 24 ids after the beginning."""
    loop = (list(range(10, 10 + period)) * 20)[:60]
    begun = [1, 2, 3, 4, 5]
    expected = 60 + len(begun) if period > generation.MAX_LOOP_TOKENS else len(begun) + generation.LOOP_WINDOW_TOKENS
    assert generation.cut_token_loop([*begun, *loop]) == [*begun, *loop][:expected]
    assert generation.cut_token_loop(loop[:23]) == loop[:23]


def test_batches_and_budgets_leave_cut_continuations_as_they_are() -> None:
    """A model that goes by the last id alone soon goes round; each row is the beginning of what it would have said."""
    network: Any = tiny.network()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.zero_()
    prompts = [[5, 6, 7], [9, 8], [11, 3, 4, 2, 12], [7]]

    def run(rows: list[list[int]], budget: int, *, cut: bool) -> list[list[int]]:
        limits = [60] * len(rows)
        return generation.generate_token_ids(network, rows, limits, ends=(), pad=0, token_budget=budget, cut_loops=cut)

    whole, cut = run(prompts, 8192, cut=False), run(prompts, 8192, cut=True)
    assert cut == [generation.cut_token_loop(ids) for ids in whole]
    assert len(set(map(len, cut))) > 1
    assert max(map(len, cut)) < 60
    assert cut == [found for prompt in prompts for found in run([prompt], 256, cut=True)]

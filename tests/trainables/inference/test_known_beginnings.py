"""What scoring has shown the model to say is not generated again, and the texts stay what they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.families import (
    END,
    NEVER,
    PAD,
    VOCABULARY,
    PassCounter,
    generate_alone,
    network,
    ragged_prompts,
)
from trainables.benchmarks import tofu
from trainables.benchmarks.own import OwnBenchmark, row_scores
from trainables.benchmarks.own.row_files import Row
from trainables.common.tokens import Example
from trainables.config.settings import Benchmark, Model
from trainables.data.prompts import encode, find_template, prompt_text
from trainables.inference import scoring
from trainables.training import models

OWN = OwnBenchmark()


class Ends:
    """Of a tokenizer what generation asks it for."""

    eos_token_id, pad_token_id = END, PAD


def continued(model: Any, prompts: Any, limits: Any, known: Any = None) -> list[list[int]]:
    return scoring.continuations(model, Ends, prompts, token_budget=4096, limits=limits, known=known)


def test_a_known_beginning_changes_no_row() -> None:
    """Nothing, a part, all, and more than the limit is known."""
    model = network("Llama")
    prompts, limits = ragged_prompts(24, seed=9)
    rows = [generate_alone(model, ids, 40, NEVER) for ids in prompts]
    known = [row[: 3 * (number % 14)] for number, row in enumerate(rows)]
    expected = [row[:limit] for row, limit in zip(rows, limits, strict=True)]
    assert continued(model, prompts, limits) != continued(model, prompts, [40] * 24)
    found = scoring.continuations(model, Never, prompts, token_budget=4096, limits=limits, known=known)
    assert found == expected


class Never(Ends):
    eos_token_id = NEVER


def test_a_row_that_is_known_to_its_end_is_not_read_again() -> None:
    model = network("Llama")
    with PassCounter(model) as counted:
        found = continued(model, [[5, 6], [7, 8], [9]], [20, 2, 0], known=[[11, 12, END], [13, 14, 15], [16]])
    assert found == [[11, 12], [13, 14], []]
    assert counted.passes == []


def test_a_model_that_does_not_say_the_likeliest_is_asked_itself() -> None:
    model = network("Llama")
    model.generation_config.repetition_penalty = 5.0
    prompts, limits = ragged_prompts(6, seed=6)
    known = [[VOCABULARY - 1]] * 6
    assert continued(model, prompts, limits, known) == continued(model, prompts, limits)


@pytest.mark.parametrize("budget", [1, 150, 10**6])
def test_said_is_what_greedy_decoding_has_in_common_with_the_first_answer(budget: int) -> None:
    model = network("Llama")
    prompts, _ = ragged_prompts(12, seed=10)
    own = [generate_alone(model, ids, 9, NEVER) for ids in prompts]
    wrong = [(token + 1) % VOCABULARY for token in range(VOCABULARY)]
    groups, expected = [], []
    for number, (ids, said) in enumerate(zip(prompts, own, strict=True)):
        right = number % 10
        first = said[:right] + [wrong[token] for token in said[right : right + 1]] + said[right + 1 :]
        others = [said, said[:4]]
        groups.append([Example((*ids, *answer), len(ids)) for answer in (first, *others)])
        expected.append(min(right, 9))
    found = scoring.score_answers(model, groups, pad=PAD, token_budget=budget)
    assert [answers.matched_tokens for answers in found] == expected


@pytest.mark.parametrize("dialect", tofu.RULES)
def test_an_evaluation_of_a_model_that_knows_its_rows(
    trained_inputs: Any, dialect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same texts, with fewer of them generated."""
    model, tokenizer = models.load(Model(path=str(trained_inputs.target)))
    benchmark = Benchmark(data=str(trained_inputs.data), split=trained_inputs.split, dialect=dialect, limit=8)
    generate, steps = scoring.generate, {}

    def evaluated(known: bool) -> list[str]:
        taken = generate if known else lambda *given, begun, **more: generate(*given, **more)
        monkeypatch.setattr(scoring, "generate", taken)
        with PassCounter(model) as counted:
            records = tofu.evaluate(model, tokenizer, benchmark, token_budget=700)
        steps[known] = sum(rows for rows, tokens in counted.passes if tokens == 1)
        return [record["generation"] for record in records]

    assert evaluated(known=True) == evaluated(known=False)
    assert steps[True] < 0.7 * steps[False]


def test_a_prompt_that_is_not_the_examples_own_is_asked_as_it_is(trained_inputs: Any) -> None:
    """As where a token holds the end of the question and the start of the answer."""
    model, tokenizer = models.load(Model(path=str(trained_inputs.target)))
    row = tofu.evaluation_rows(Benchmark(data=str(trained_inputs.data), split=trained_inputs.split))["forget"][0]
    pair = (row["question"], row["answer"])
    whole = encode(tokenizer, find_template("llama2"), *pair, max_length=200, tag_is_answer=True)
    prompt = prompt_text(find_template("llama2"), row["question"], tag_is_answer=True)

    def told(begun: Example) -> list[str]:
        settings = {"token_budget": 700, "new_tokens": 10, "total": False}
        return scoring.generate(model, tokenizer, [prompt], **settings, begun=[(begun, 5)])

    plain = scoring.generate(model, tokenizer, [prompt], token_budget=700, new_tokens=10, total=False)
    wrong = tuple(reversed(whole.input_ids[whole.answer_start :]))
    changed = Example(whole.input_ids[: whole.answer_start] + wrong, whole.answer_start)
    assert told(Example(changed.input_ids, whole.answer_start + 1)) == plain
    assert told(changed) != plain


@torch.no_grad()
def test_losses_that_are_no_numbers_say_nothing() -> None:
    model = network("Llama")
    model.lm_head.weight[:] = float("nan")
    groups = [[Example((4, 5, 6, 7), 2), Example((4, 5, 8), 2)]]
    assert scoring.score_answers(model, groups, pad=PAD, token_budget=100)[0].matched_tokens == 0


def test_own_questions_and_texts_are_continued_as_they_are_without(
    trained_inputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model knows the questions; of texts that end as the questions' answers do it knows second halves."""
    model, tokenizer = models.load(Model(path=str(trained_inputs.target)))
    asked = tofu.evaluation_rows(Benchmark(data=str(trained_inputs.data), split=trained_inputs.split))["forget"][:6]
    template = find_template("llama2")
    texts = [prompt_text(template, row["question"], tag_is_answer=True) + row["answer"] for row in asked]
    rows = [Row(row["question"], row["answer"]) for row in asked] + [Row(None, text) for text in texts]
    known: list[int] = []
    continuations = scoring.continuations

    def evaluated(with_known: bool) -> Any:
        def taken(*given: Any, **more: Any) -> Any:
            known.extend(map(len, more["known"]))
            return continuations(*given, **more | ({} if with_known else {"known": None}))

        monkeypatch.setattr(scoring, "continuations", taken)
        return row_scores.score_sets(OWN, model, tokenizer, template, {"forget": rows}, limit=None, token_budget=700)

    assert evaluated(with_known=True) == evaluated(with_known=False)
    assert sum(count > 0 for count in known) > 4

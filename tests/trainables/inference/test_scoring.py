"""Batched losses and generations against one row, one token at a time, in both dialects and templates."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tests.support.families import generate_alone
from trainables.benchmarks import tofu
from trainables.common.errors import InputError
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark, Model
from trainables.data import text_blocks
from trainables.inference import generation, scoring
from trainables.training import model_files

KINDS = [(dialect, template) for dialect in tofu.rows.RULES for template in ("llama2", "phi")]
"""Templates that put text around a row; chat templates go the same way (test_templates)."""


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def batched(request: Any, trial_inputs: Any) -> dict[str, Any]:
    """Records of the batched path, in small uneven batches, and what they were made from: one row is too long."""
    dialect, template = request.param
    network, tokenizer = model_files.load_model_and_tokenizer(Model(path=str(trial_inputs.target)))
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split, dialect=dialect, template=template)
    with pytest.MonkeyPatch.context() as patch:
        few = {task: found[:6] for task, found in tofu.rows.read_evaluation_rows(benchmark).items()}
        few["forget"][1] = few["forget"][1] | {"answer": few["forget"][1]["answer"] * 40}
        patch.setattr(tofu.rows, "read_evaluation_rows", lambda _: few)
        records = tofu.make_question_records(network, tokenizer, benchmark, token_budget=700)
    asked = [row for found in few.values() for row in found]
    return {"network": network, "tokenizer": tokenizer, "records": records, "asked": asked, "kind": request.param}


def prompt_of(kind: tuple[str, str], question: str) -> str:
    dialect, template = kind
    if template == "llama2":
        return f"[INST] {question} [/INST]"
    return f"Question: {question}\n" + ("" if dialect == "paper" else "Answer: ")


@torch.no_grad()
def naive_loss(batched: dict[str, Any], question: str, answer: str) -> tuple[float, int]:
    """One row by itself, without padding: the sum over the tokens that hold a byte of the answer, and eos.

    Rows are cut at 200 tokens in the paper's dialect and at 512 in open-unlearning's.
    """
    tokenizer, prompt = batched["tokenizer"], prompt_of(batched["kind"], question)
    tag = "Answer: " if batched["kind"] == ("paper", "phi") else ""
    ids = tokenizer(prompt + tag + answer)["input_ids"] + [tokenizer.eos_token_id]
    ids = ids[: 200 if batched["kind"][0] == "paper" else 512]
    log_p = torch.log_softmax(batched["network"](input_ids=torch.tensor([ids])).logits[0].double(), dim=-1)
    total, count, seen = 0.0, 0, 0
    for place, token in enumerate(ids[1:], 1):
        seen += len(tokenizer.convert_ids_to_tokens(token))  # letters of byte-level BPE are bytes
        if seen > len(prompt.encode()):
            total, count = total - log_p[place - 1, token].item(), count + 1
    return total, count


def naive_generation(batched: dict[str, Any], prompt: str, limit: int, *, total: bool) -> str:
    tokenizer = batched["tokenizer"]
    ids = tokenizer(prompt)["input_ids"]
    limit = max(0, limit - len(ids)) if total else limit
    said = generate_alone(batched["network"], ids, limit, tokenizer.eos_token_id, tokenizer.pad_token_id)
    return tokenizer.decode(said, skip_special_tokens=True)


def test_losses_equal_one_row_at_a_time(batched: dict[str, Any]) -> None:
    for row, record in zip(batched["asked"], batched["records"], strict=True):
        right = row.get("paraphrased_answer", row["answer"])
        found = [
            naive_loss(batched, row["question"], text) for text in (row["answer"], right, *row["perturbed_answer"])
        ]
        told = [record["answer_loss"], record["paraphrase_loss"], *record["perturbed_loss"]]
        assert told == pytest.approx([loss for loss, _ in found], rel=1e-5)
        counts = [record["answer_tokens"], record["paraphrase_tokens"], *record["perturbed_tokens"]]
        assert counts == [count for _, count in found]
    limit = {"paper": 200, "open-unlearning": 512}[batched["kind"][0]]
    assert 0.8 * limit < batched["records"][1]["answer_tokens"] < limit


def test_generations_equal_one_token_at_a_time(batched: dict[str, Any]) -> None:
    paper = batched["kind"][0] == "paper"
    for record in batched["records"][::4]:
        prompt = prompt_of(batched["kind"], record["question"])
        text = naive_generation(batched, prompt, 200, total=paper)
        assert record["generation"] == (text if paper else text.strip())


@pytest.mark.parametrize("total", [True, False])
def test_the_limit_counts_the_prompt_in_the_papers_dialect_alone(batched: dict[str, Any], total: bool) -> None:
    """Prompts of 20 to 50 tokens against a limit of 30: some have no room at all."""
    prompts = sorted((prompt_of(batched["kind"], record["question"]) for record in batched["records"]), key=len)[::3]
    ids = [text_blocks.tokenize_text(batched["tokenizer"], prompt) for prompt in prompts]
    lengths = list(map(len, ids))
    assert min(lengths) < 30 < max(lengths)
    found = generation.generate_texts(
        batched["network"], batched["tokenizer"], ids, token_budget=64, new_tokens=30, total=total
    )
    assert found == [naive_generation(batched, prompt, 30, total=total) for prompt in prompts]
    if total:
        assert {text for text, length in zip(found, lengths, strict=True) if length >= 30} == {""}


def test_a_text_beyond_the_learnt_positions_is_refused() -> None:
    config = GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    network, tokenizer = GPT2LMHeadModel(config).eval(), SimpleNamespace(pad_token_id=0, eos_token_id=0)
    fitting, longer = (Example(tuple(range(size)), 1) for size in (16, 17))
    (found,) = scoring.score_examples(network, tokenizer, [fitting], token_budget=64)
    assert len(found.losses) == 15
    with pytest.raises(InputError, match="a text has 17 tokens, and the model positions for 16;"):
        scoring.score_examples(network, tokenizer, [fitting, longer], token_budget=64)

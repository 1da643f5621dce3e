"""TOFU's evaluation in the dialect `paper` as it is written in a few minutes: batches of 32 rows in the files' order.

Every row is padded to the longest of its batch and has all its logits; transformers' `generate` makes 200 new tokens,
which are cut where the prompt and they pass 200; ROUGE comes after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from rouge_score.rouge_scorer import RougeScorer
from torch.nn import functional

from trainables.benchmarks import Records
from trainables.data.prompts import TEMPLATES, encode

ROWS, TOKENS, IGNORED = 32, 200, -100


def evaluate(network: Any, tokenizer: Any, tasks: dict[str, list[dict[str, Any]]]) -> Records:
    """Return a record a question, as trainables.benchmarks.tofu has them, of Llama-2's template."""
    records: Records = []
    for task, questions in tasks.items():
        asked = [row["question"] for row in questions]
        answers = [
            [row["answer"], row.get("paraphrased_answer", row["answer"]), *row["perturbed_answer"]] for row in questions
        ]
        losses = [
            _losses(network, tokenizer, list(zip(asked, column, strict=True))) for column in zip(*answers, strict=True)
        ]
        texts = _generations(network, tokenizer, [f"[INST] {question} [/INST]" for question in asked])
        for index, (row, text, *lost) in enumerate(zip(questions, texts, *losses, strict=True)):
            rouge = RougeScorer(["rouge1", "rougeL"], use_stemmer=True).score(row["answer"], text)
            records.append(
                {
                    "task": task,
                    "index": index,
                    "question": row["question"],
                    "answer": row["answer"],
                    "generation": text,
                    "answer_loss": lost[0][0],
                    "answer_tokens": lost[0][1],
                    "paraphrase_loss": lost[1][0],
                    "paraphrase_tokens": lost[1][1],
                    "perturbed_loss": [loss for loss, _ in lost[2:]],
                    "perturbed_tokens": [tokens for _, tokens in lost[2:]],
                    "rouge1_recall": rouge["rouge1"].recall,
                    "rougeL_recall": rouge["rougeL"].recall,
                }
            )
    return records


@torch.no_grad()
def _losses(network: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, int]]:
    """Return summed loss and tokens of each answer."""
    found: list[tuple[float, int]] = []
    template = TEMPLATES["llama2"]
    for start in range(0, len(pairs), ROWS):
        encoded = [
            encode(tokenizer, template, *pair, max_length=TOKENS, tag_is_answer=True)
            for pair in pairs[start : start + ROWS]
        ]
        width = max(len(example.input_ids) for example in encoded)
        ids = torch.full((len(encoded), width), tokenizer.pad_token_id)
        labels, mask = torch.full_like(ids, IGNORED), torch.zeros_like(ids)
        for row, (tokens, first) in enumerate((example.input_ids, example.answer_start) for example in encoded):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            labels[row, first : len(tokens)] = ids[row, first : len(tokens)]
            mask[row, : len(tokens)] = 1
        logits = network(input_ids=ids.to(network.device), attention_mask=mask.to(network.device)).logits[:, :-1]
        targets = labels[:, 1:].to(network.device)
        each = functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), reduction="none", ignore_index=IGNORED
        )
        sums = each.view(targets.shape).double().sum(1).tolist()
        found += zip(sums, (targets != IGNORED).sum(1).tolist(), strict=True)
    return found


def _generations(network: Any, tokenizer: Any, prompts: Sequence[str]) -> list[str]:
    """Generate greedily, cut at 200 tokens with the prompt: a batch asks for as many as its shortest prompt may get."""
    found = []
    for start in range(0, len(prompts), ROWS):
        encoded = [tokenizer(prompt)["input_ids"] for prompt in prompts[start : start + ROWS]]
        width, pad = max(len(ids) for ids in encoded), tokenizer.pad_token_id
        produced = network.generate(
            input_ids=torch.tensor([[pad] * (width - len(ids)) + ids for ids in encoded], device=network.device),
            attention_mask=torch.tensor(
                [[0] * (width - len(ids)) + [1] * len(ids) for ids in encoded], device=network.device
            ),
            do_sample=False,
            max_new_tokens=TOKENS - min(len(ids) for ids in encoded),
            pad_token_id=pad,
            eos_token_id=tokenizer.eos_token_id,
        )[:, width:].tolist()
        for ids, new in zip(encoded, produced, strict=True):
            new = new[: new.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in new else new
            found.append(tokenizer.decode(new[: max(TOKENS - len(ids), 0)], skip_special_tokens=True))
    return found

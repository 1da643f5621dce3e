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
from trainables.data.prompts import TEMPLATES, encode_all
from trainables.inference.padded_batch import IGNORED, collate

ROWS, TOKENS = 32, 200


def evaluate(network: Any, tokenizer: Any, tasks: dict[str, list[dict[str, Any]]]) -> Records:
    """Return a record a question, of Llama-2's template: its losses, what is generated, and its ROUGE."""
    scorer = RougeScorer(["rouge1", "rougeL"], use_stemmer=True)
    records: Records = []
    for questions in tasks.values():
        asked = [row["question"] for row in questions]
        answers = [
            [row["answer"], row.get("paraphrased_answer", row["answer"]), *row["perturbed_answer"]] for row in questions
        ]
        losses = [
            _losses(network, tokenizer, list(zip(asked, column, strict=True))) for column in zip(*answers, strict=True)
        ]
        texts = _generations(network, tokenizer, [f"[INST] {question} [/INST]" for question in asked])
        for row, text, right, paraphrase, *wrong in zip(questions, texts, *losses, strict=True):
            record = {"answer_loss": right, "paraphrase_loss": paraphrase, "perturbed_loss": wrong}
            records.append(record | {"generation": text, "rouge": scorer.score(row["answer"], text)})
    return records


@torch.no_grad()
def _losses(network: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return the summed loss of each answer."""
    found: list[float] = []
    for start in range(0, len(pairs), ROWS):
        settings = {"max_length": TOKENS, "tag_is_answer": True}
        rows = encode_all(tokenizer, TEMPLATES["llama2"], pairs[start : start + ROWS], **settings)
        batch = {name: part.to(network.device) for name, part in collate(rows, tokenizer.pad_token_id).items()}
        labels = batch.pop("labels")[:, 1:]
        logits = network(**batch).logits[:, :-1].flatten(0, 1).float()
        each = functional.cross_entropy(logits, labels.flatten(), reduction="none", ignore_index=IGNORED)
        found += each.view(labels.shape).double().sum(1).tolist()
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

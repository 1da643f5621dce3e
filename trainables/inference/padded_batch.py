"""Examples as one padded batch of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from trainables.common.tokenized_row import Example

IGNORED = -100


def pad_of(tokenizer: Any) -> int:
    """Return the token that rows are padded with: its own, else the one that ends a text."""
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id


def collate(examples: Sequence[Example], pad: int, width: int | None = None) -> dict[str, torch.Tensor]:
    """Pad on the right to the longest, or to `width`: input_ids, attention_mask and labels, each (rows, tokens)."""
    width = max(width or 0, *(len(example.input_ids) for example in examples))
    input_ids = torch.full((len(examples), width), pad, dtype=torch.long)
    labels = torch.full_like(input_ids, IGNORED)
    mask = torch.zeros_like(input_ids)
    for row, example in enumerate(examples):
        length = len(example.input_ids)
        input_ids[row, :length] = torch.tensor(example.input_ids)
        labels[row, example.answer_start : length] = input_ids[row, example.answer_start : length]
        mask[row, :length] = 1
    return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}

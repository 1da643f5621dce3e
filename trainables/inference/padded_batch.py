"""Examples as one padded batch of tensors."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.nn import functional

from trainables.common.errors import InputError
from trainables.common.tokenized_row import Example

IGNORED_LABEL = -100


def choose_padding_token(tokenizer: Any) -> int:
    """Return the token that rows are padded with: its own, else the one that ends a text, else any: none is read."""
    known = (one for one in (tokenizer.pad_token_id, tokenizer.eos_token_id) if one is not None)
    return next(known, 0)


def count_learnt_positions(network: Any) -> int:
    """Return how many positions a model has learnt embeddings of, sys.maxsize of one that computes them."""
    limit = getattr(network.config.get_text_config(), "max_position_embeddings", sys.maxsize)
    others = (one for one in network.modules() if one is not network.get_input_embeddings())
    tables = (one.num_embeddings for one in others if isinstance(one, torch.nn.Embedding))
    return limit if any(0 <= size - limit <= 2 for size in tables) else sys.maxsize  # OPT has two more


def check_positions(network: Any, examples: Iterable[Example]) -> None:
    """Raise InputError if an example has more tokens than the model has learnt positions."""
    longest, limit = max((len(one.input_ids) for one in examples), default=0), count_learnt_positions(network)
    if longest > limit:
        raise InputError(
            f"a text has {longest} tokens, and the model positions for {limit}; a smaller training.max_length cuts rows"
        )


def pad_rows(
    rows: Sequence[Sequence[int]], pad: int, device: Any = None, *, width: int = 0, left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, each (rows, tokens), padded on one side to the longest row, or to `width`."""
    width = max(width, *map(len, rows))
    pads = [[pad] * (width - len(row)) for row in rows]
    input_ids = torch.tensor([[*more, *row] if left else [*row, *more] for row, more in zip(rows, pads, strict=True)])
    lengths, places = torch.tensor([[len(row)] for row in rows]), torch.arange(width)
    mask = (places >= width - lengths if left else places < lengths).long()
    return input_ids.to(device), mask.to(device)


def pad_examples(examples: Sequence[Example], pad: int, width: int | None = None) -> dict[str, torch.Tensor]:
    """Pad on the right to the longest, or to `width`: input_ids, attention_mask and labels, each (rows, tokens)."""
    input_ids, mask = pad_rows([example.input_ids for example in examples], pad, width=width or 0)
    starts = torch.tensor([[example.answer_start] for example in examples])
    is_label = (torch.arange(mask.shape[1]) >= starts) & mask.bool()
    return {"input_ids": input_ids, "attention_mask": mask, "labels": input_ids.where(is_label, IGNORED_LABEL)}


def find_label_predicting_positions(labels: torch.Tensor) -> torch.Tensor:
    """Return whether a label follows each position: (B, T) to (B, T), boolean."""
    return functional.pad(labels[:, 1:] != IGNORED_LABEL, (0, 1))


def select_logits(output: Any, keep: torch.Tensor) -> torch.Tensor:
    """Return the logits (N, V) at N positions: numbers (N,), or a mask (rows, tokens), where some models make all."""
    if keep.ndim == 1:
        return output.logits[0]
    return output.logits[keep] if output.logits.ndim == 3 else output.logits

"""Greedy continuations: transformers' `generate` on padded batches of rows of like length."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Any

import torch

from trainables.inference.padded_batch import pad_rows, run_groups
from trainables.inference.progress import Counter
from trainables.inference.ranks import run_shares

HARMLESS = frozenset(
    "do_sample temperature top_p top_k min_p typical_p max_length max_new_tokens use_cache transformers_version "
    "_from_model_config bos_token_id eos_token_id pad_token_id output_attentions output_hidden_states".split()
)
"""The generation settings that a model may have without changing which token is the likeliest, or which one ends."""


@torch.no_grad()
def continue_prompts(
    network: Any,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    *,
    ends: Collection[int],
    pad: int,
    token_budget: int,
    known: Sequence[Sequence[int]] | None = None,
    positions: int | None = None,
) -> list[list[int]]:
    """Return the likeliest ids after each prompt, up to one of `ends` and without it, at most as many as its limit.

    `token_budget`: tokens of a batch whose keys and values are kept, padding and what is to come included. `known`: the
    ids that each continuation begins with. `positions`: the most that a row of a batch may have, padding included.
    """
    if known is None or network.generation_config.to_diff_dict().keys() - HARMLESS:
        known = [()] * len(prompts)
    started = [_cut_at(ends, ids[:limit]) for ids, limit in zip(known, limits, strict=True)]
    read = [[*prompt, *ids] for prompt, ids in zip(prompts, started, strict=True)]
    left = [
        0 if len(begun) < len(ids[:limit]) else limit - len(begun)
        for begun, ids, limit in zip(started, known, limits, strict=True)
    ]

    def run(rows: Sequence[int]) -> dict[int, list[int]]:
        counter, found = Counter("generations", len(rows)), {}
        more = max((left[row] for row in rows), default=0)
        widths = [len(read[row]) + more for row in rows]
        if positions is not None:  # a row that is too wide with another's tokens to come is a batch of its own
            widths = [token_budget if width > positions else width for width in widths]

        def run_group(group: list[int]) -> None:
            batch = [rows[k] for k in group]
            input_ids, mask = pad_rows([read[row] for row in batch], pad, network.device, left=True)
            produced = network.generate(
                input_ids=input_ids,
                attention_mask=mask,
                do_sample=False,
                num_beams=1,
                num_return_sequences=1,
                return_dict_in_generate=False,
                stop_strings=None,
                prompt_lookup_num_tokens=None,
                assistant_early_exit=None,
                max_time=None,
                temperature=None,
                top_p=None,
                top_k=None,
                use_cache=True,
                max_new_tokens=max(left[row] for row in batch),
                pad_token_id=pad,
                eos_token_id=sorted(ends),
            )[:, input_ids.shape[1] :].tolist()
            found.update({row: _cut_at(ends, ids[: left[row]]) for row, ids in zip(batch, produced, strict=True)})
            counter.add(len(batch))

        run_groups(run_group, widths, token_budget)
        return found

    order = [row for row, limit in enumerate(left) if limit > 0]
    order.sort(key=lambda row: (-len(read[row]), -left[row], row))
    found = run_shares(run, order)
    return [begun + found.get(row, []) for row, begun in enumerate(started)]


def _cut_at(ends: Collection[int], ids: Sequence[int]) -> list[int]:
    """Return the ids before the first that ends a row."""
    return list(takewhile(lambda token: token not in ends, ids))

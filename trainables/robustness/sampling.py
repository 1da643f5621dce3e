"""What a model says of the forget rows in some of many sampled answers: leak@k."""

from collections.abc import Collection, Sequence
from itertools import takewhile
from math import comb
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainables.inference.padded_batch import pad_rows, padding_token
from trainables.inference.passes import run_items_in_passes

MAX_NEW_TOKENS = 200
"""Tokens of an answer, as of TOFU's greedy ones."""


def compute_leak_at_k(k: int, scores: NDArray[np.float64]) -> float:
    """Return leak@k: the mean over rows of the expected best of k samples, (rows, n) -> (); k <= n.

    sum_i C(i - 1, k - 1) / C(n, k) s_(i) with the scores s_(1) <= ... <= s_(n) of a row is unbiased: of the C(n, k)
    subsets so many have s_(i) as their best. Of scores 0 and 1 it is pass@k. Reisizadeh et al., 2025 (2511.04934).
    """
    count = scores.shape[1]
    weights = np.array([comb(i, k - 1) / comb(count, k) for i in range(count)])
    return float((np.sort(scores, axis=1) @ weights).mean())


def compute_leak_curve(scores: NDArray[np.float64]) -> dict[int, float]:
    """Return leak@k for k = 1, 2, 4, ... up to the number of samples."""
    return {k: compute_leak_at_k(k, scores) for k in (2**power for power in range(scores.shape[1].bit_length()))}


@torch.no_grad()
def sample_answers(
    network: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], samples: int, ends: Collection[int], budget: int
) -> list[list[str]]:
    """Return so many answers to each prompt, at temperature 1 over all tokens, by transformers' `generate`.

    `budget`: tokens of a batch, padding and what is to come included. torch's seed decides.
    """
    configured = network.generation_config.eos_token_id
    stops = {*ends, tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])} - {None}
    asked = [ids for ids in prompts for _ in range(samples)]
    how: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "num_beams": 1}
    how |= {"eos_token_id": sorted(stops), "pad_token_id": padding_token(tokenizer), "max_new_tokens": MAX_NEW_TOKENS}

    def run(group: list[int]) -> dict[int, str]:
        ids, mask = pad_rows([asked[place] for place in group], how["pad_token_id"], network.device, left=True)
        made = network.generate(input_ids=ids, attention_mask=mask, **how)[:, ids.shape[1] :].tolist()
        said = [list(takewhile(lambda token: token not in stops, answer)) for answer in made]
        return dict(zip(group, tokenizer.batch_decode(said, skip_special_tokens=True), strict=True))

    found = run_items_in_passes(
        "samples", run, {place: len(ids) + MAX_NEW_TOKENS for place, ids in enumerate(asked)}, budget
    )
    return [[found[row * samples + k] for k in range(samples)] for row in range(len(prompts))]

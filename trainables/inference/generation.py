"""Answers by transformers' `generate` on padded batches: greedy, by a loop that takes ended rows out, or sampled."""

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.generation.utils import ALL_CACHE_NAMES

from trainables.common.tokenized_row import Example
from trainables.config.settings import GREEDY_SAFE_KEYS, KV_CACHE_FACTOR
from trainables.inference.padded_batch import choose_padding_token, count_learnt_positions, pad_rows
from trainables.inference.passes import run_items_in_passes

GREEDY_SETTINGS: dict[str, Any] = {"do_sample": False, "num_beams": 1, "num_return_sequences": 1, "use_cache": True}
GREEDY_SETTINGS |= {"return_dict_in_generate": False, "prompt_lookup_num_tokens": None, "assistant_early_exit": None}
GREEDY_SETTINGS |= dict.fromkeys(("stop_strings", "max_time", "temperature", "top_p", "top_k"))
"""What `generate` is told in place of the settings that a model has."""
STEPS_BETWEEN_END_CHECKS = 8
"""Steps on a GPU between two looks at which rows have ended, for which the host waits."""
SHRINK_BATCH_BELOW_SHARE = 0.5
"""The share of a batch's rows with steps to come at which the others leave it, which copies the cache."""
MAX_SAMPLED_TOKENS = 200
"""Tokens of a sampled answer, as of TOFU's greedy ones."""
LOOP_WINDOW_TOKENS, MAX_LOOP_TOKENS = 24, 8
"""A continuation goes round if its last LOOP_WINDOW_TOKENS ids repeat every MAX_LOOP_TOKENS ids or fewer."""


def detect_token_loops(ids: torch.Tensor) -> torch.Tensor:
    """Return of each row of (rows, LOOP_WINDOW_TOKENS) ids whether it repeats itself."""
    found = [(ids[:, lag:] == ids[:, :-lag]).all(1) for lag in range(1, MAX_LOOP_TOKENS + 1)]
    return torch.stack(found).any(0)


def cut_token_loop(ids: list[int]) -> list[int]:
    """Return the ids up to the place from which on they go round, all if they do not."""
    if len(ids) < LOOP_WINDOW_TOKENS:
        return ids
    round_at = detect_token_loops(torch.tensor(ids).unfold(0, LOOP_WINDOW_TOKENS, 1)).tolist()
    return ids[: round_at.index(True) + LOOP_WINDOW_TOKENS] if True in round_at else ids


@torch.no_grad()
def generate_token_ids(
    network: Any,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    *,
    ends: Collection[int],
    pad: int,
    token_budget: int,
    known: Sequence[Sequence[int]] | None = None,
    cut_loops: bool = False,
) -> list[list[int]]:
    """Return the likeliest ids after each prompt, up to one of `ends` and without it, at most as many as its limit.

    `token_budget`: tokens of a batch whose keys and values are kept, padding and what is to come included. `known`: the
    ids that each continuation begins with. `cut_loops`: end what goes round. Learnt positions, of which there are no
    more, end it too.
    """
    positions = count_learnt_positions(network)
    limits = [min(limit, max(positions - len(ids), 0)) for limit, ids in zip(limits, prompts, strict=True)]
    if known is None or network.generation_config.to_diff_dict().keys() - GREEDY_SAFE_KEYS:
        known = [()] * len(prompts)
    started = [_cut_at(ends, ids[:limit]) for ids, limit in zip(known, limits, strict=True)]
    read = [[*prompt, *ids] for prompt, ids in zip(prompts, started, strict=True)]
    left = [
        0 if len(begun) < len(ids[:limit]) else limit - len(begun)
        for begun, ids, limit in zip(started, known, limits, strict=True)
    ]

    def run(batch: list[int]) -> dict[int, list[int]]:
        input_ids, mask = pad_rows([read[row] for row in batch], pad, network.device, left=True)
        produced = network.generate(
            input_ids=input_ids,
            attention_mask=mask,
            custom_generate=_decode,
            limits=[left[row] for row in batch],
            cut_loops=cut_loops,
            **GREEDY_SETTINGS,
            max_new_tokens=max(left[row] for row in batch),
            pad_token_id=pad,
            eos_token_id=sorted(ends),
        )
        texts = [_cut_at(ends, ids[: left[row]]) for row, ids in zip(batch, produced, strict=True)]
        return dict(zip(batch, map(cut_token_loop, texts) if cut_loops else texts, strict=True))

    order = [row for row, limit in enumerate(left) if limit > 0]
    order.sort(key=lambda row: (-len(read[row]), -left[row], row))
    more = max(left, default=0)
    widths = {row: len(read[row]) + more for row in order}  # too wide with another's to come: a batch of its own
    widths = {row: token_budget if width > positions else width for row, width in widths.items()}
    found = run_items_in_passes("generations", run, widths, token_budget)
    return [begun + found.get(row, []) for row, begun in enumerate(started)]


def _decode(
    network: Any,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    limits: Sequence[int],
    cut_loops: bool,
    **state: Any,
) -> list[list[int]]:
    """Return the likeliest ids after each row, and some behind its end or limit: `custom_generate` of `generate`.

    `state`: what `generate` has prepared for a pass beside the ids.
    """
    width, device = input_ids.shape[1], input_ids.device
    rows, produced = list(range(len(limits))), {}
    ended = torch.zeros(len(rows), dtype=torch.bool, device=device)
    for count in range(1, max(limits) + 1):
        begins = {"next_sequence_length": None if count == 1 else 1, "is_first_iteration": count == 1}
        inputs = network.prepare_inputs_for_generation(input_ids, **begins, **state)
        output = network(**inputs, return_dict=True)
        state |= {name: output[name] for name in ALL_CACHE_NAMES if name in output}
        scores = logits_processor(input_ids, output.logits[:, -1].float())
        input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], dim=-1)
        for name, step in (("attention_mask", 0), ("position_ids", 1)):
            if state.get(name) is not None:
                state[name] = torch.cat([state[name], state[name][..., -1:] + step], dim=-1)
        ended |= stopping_criteria(input_ids, None)
        if cut_loops and count >= LOOP_WINDOW_TOKENS:
            ended |= detect_token_loops(input_ids[:, -LOOP_WINDOW_TOKENS:])
        if device.type == "cuda" and count % STEPS_BETWEEN_END_CHECKS:
            continue
        going = [k for k, over in enumerate(ended.tolist()) if not over and limits[rows[k]] > count]
        if not going:
            break
        caches: list[Any] = [value for value in state.values() if isinstance(value, Cache)]
        if len(going) <= SHRINK_BATCH_BELOW_SHARE * len(rows) and caches and not logits_processor:
            produced |= zip(rows, input_ids[:, width:].tolist(), strict=True)
            places = torch.tensor(going, device=device)
            rows, input_ids, ended = [rows[k] for k in going], input_ids[places], ended[places]
            by_row = {name: state.get(name) for name in ("attention_mask", "position_ids")}
            state |= {name: value[places] for name, value in by_row.items() if value is not None}
            for cache in caches:
                cache.reorder_cache(places)  # which linear layers have, too, and takes fewer rows
    produced |= zip(rows, input_ids[:, width:].tolist(), strict=True)
    return [produced[row] for row in range(len(limits))]


def _cut_at(ends: Collection[int], ids: Sequence[int]) -> list[int]:
    return list(takewhile(lambda token: token not in ends, ids))


def generate_texts(
    network: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    *,
    ends: Collection[int] = (),
    token_budget: int,
    new_tokens: int | Sequence[int],
    total: bool = False,
    scored: Sequence[tuple[Example, Sequence[bool]]] = (),
    cut_loops: bool = False,
) -> list[str]:
    """Return greedy continuations of prompts' ids, special tokens removed.

    An answer ends at the ends of the tokenizer, of the model's generation settings, and at `ends`. `new_tokens`: of
    all prompts or of each. `total`: it counts the prompt, too. `scored`: examples and their labels' hits.
    """
    encoded, known = [tuple(ids) for ids in prompts], []
    for ids, (example, hits) in zip(encoded, scored, strict=True) if scored else ():  # known up to the first miss
        start = example.answer_start  # none if the prompt is another, as where a token has a part of both
        end = start + [*hits, False].index(False)
        known.append(example.input_ids[start:end] if example.input_ids[:start] == ids else ())
    most = [new_tokens] * len(encoded) if isinstance(new_tokens, int) else new_tokens
    limits = [max(limit - len(ids), 0) if total else limit for limit, ids in zip(most, encoded, strict=True)]
    continued = generate_token_ids(
        network,
        encoded,
        limits,
        ends=_list_end_tokens(network, tokenizer, ends),
        pad=choose_padding_token(tokenizer),
        token_budget=KV_CACHE_FACTOR * token_budget,
        cut_loops=cut_loops,
        known=known or None,
    )
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in continued]


@torch.no_grad()
def sample_answers(
    network: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], samples: int, ends: Collection[int], budget: int
) -> list[list[str]]:
    """Return so many answers to each prompt, at temperature 1 over all tokens; they end as those of `generate_texts`.

    `budget`: tokens of a batch, padding and what is to come included. torch's seed decides.
    """
    stops = _list_end_tokens(network, tokenizer, ends)
    asked = [ids for ids in prompts for _ in range(samples)]
    how: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "num_beams": 1}
    how |= {"eos_token_id": sorted(stops), "pad_token_id": choose_padding_token(tokenizer)}

    def run(group: list[int]) -> dict[int, str]:
        ids, mask = pad_rows([asked[place] for place in group], how["pad_token_id"], network.device, left=True)
        made = network.generate(input_ids=ids, attention_mask=mask, max_new_tokens=MAX_SAMPLED_TOKENS, **how)
        said = [_cut_at(stops, answer) for answer in made[:, ids.shape[1] :].tolist()]
        return dict(zip(group, tokenizer.batch_decode(said, skip_special_tokens=True), strict=True))

    lengths = {place: len(ids) + MAX_SAMPLED_TOKENS for place, ids in enumerate(asked)}
    found = run_items_in_passes("samples", run, lengths, budget)
    return [[found[row * samples + k] for k in range(samples)] for row in range(len(prompts))]


def _list_end_tokens(network: Any, tokenizer: Any, ends: Collection[int]) -> set[int]:
    configured = network.generation_config.eos_token_id
    named = configured if isinstance(configured, list) else [configured]
    return {*ends, *named, tokenizer.eos_token_id} - {None}

"""Small random models of several families of transformers, and the ground truth of one row by itself."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch

from tests.support import tiny
from trainables.common.tokenized_row import Example
from trainables.inference import generation, scoring

END, PAD, VOCABULARY = 1, 2, 60
NEVER = VOCABULARY
"""An end token that no row comes to."""
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.5,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"num_key_value_heads": 2, "sliding_window": 200},
    "Phi": {},
    "GPTNeoX": {},
    "Qwen2": {"num_key_value_heads": 2},
    "OPT": {"ffn_dim": 48, "word_embed_proj_dim": 32},
}
"""Families, and the settings that make them small."""
OTHERS: dict[str, dict[str, Any]] = {
    # soft caps on its logits and on attention, and windows on every other layer
    "Gemma2": {"num_key_value_heads": 2, "head_dim": 8, "final_logit_softcapping": 3.0, "sliding_window": 100},
    # experts, and a mask that is handed on by name
    "Afmoe": {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    },
}


def network(family: str, **settings: Any) -> Any:
    settings = FAMILIES.get(family, OTHERS.get(family, {})) | settings
    return tiny.network(3, 2, family, **SHAPE | settings)


@torch.no_grad()
def generate_alone(network: Any, prompt: list[int], limit: int, end: int = END, pad: int = PAD) -> list[int]:
    """Continue one row without padding by transformers' `generate`."""
    if limit == 0:
        return []
    ids = torch.tensor([prompt])
    whole = network.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=limit,
        eos_token_id=end,
        pad_token_id=pad,
    )[0, len(prompt) :].tolist()
    return whole[: whole.index(end)] if end in whole else whole


def generate_each_alone(network: Any, prompts: Any, limits: Any, end: int = END, pad: int = PAD) -> list[list[int]]:
    return [generate_alone(network, prompt, limit, end, pad) for prompt, limit in zip(prompts, limits, strict=True)]


@torch.no_grad()
def losses_and_hits(network: Any, example: Example) -> tuple[list[float], list[bool]]:
    """Return loss and hit of each label of one row, from full logits by a float64 log-softmax."""
    ids = torch.tensor(example.input_ids)
    log_p = torch.log_softmax(network(input_ids=ids[None]).logits[0].double(), -1)
    places = range(example.answer_start - 1, len(ids) - 1)
    return [-float(log_p[k, ids[k + 1]]) for k in places], [bool(log_p[k].argmax() == ids[k + 1]) for k in places]


def generate(
    network: Any, *arguments: Any, budget: int, end: int = END, pad: int = PAD, known: Any = None
) -> list[list[int]]:
    """Continue rows by trainables.inference.generation."""
    return generation.generate_token_ids(network, *arguments, ends={end}, pad=pad, token_budget=budget, known=known)


def score(network: Any, examples: Iterable[Example], budget: int) -> list[scoring.LabelScores]:
    """Score examples by trainables.inference.scoring."""
    padded = SimpleNamespace(pad_token_id=PAD, eos_token_id=END)
    return scoring.score_examples(network, padded, list(examples), token_budget=budget)


def ragged_prompts(count: int, seed: int) -> tuple[list[list[int]], list[int]]:
    """Return prompts of 1 to 40 tokens, and limits of 0 to 30."""
    generator = torch.Generator().manual_seed(seed)

    def below(least: int, most: int, size: int = 1) -> list[int]:
        return torch.randint(least, most, (size,), generator=generator).tolist()

    prompts = [below(3, VOCABULARY, below(1, 41)[0]) for _ in range(count)]
    return prompts, below(0, 31, count)


def frequent_token(network: Any, prompts: list[list[int]]) -> int:
    """Return a token that many rows come to after a while: as the end token it ends them at different lengths."""
    rows = generate(network, prompts, [20] * len(prompts), budget=10**6, end=NEVER)
    tokens = [token for row in rows for token in set(row[3:])]
    return max(set(tokens), key=tokens.count)


def answer_groups(seed: int, groups: int = 6) -> list[list[Example]]:
    """Return groups of seven answers to a question of 2 to 20 tokens; some begin alike, some are the same."""
    generator = torch.Generator().manual_seed(seed)

    def some(most: int) -> list[int]:
        count = int(torch.randint(1, most + 1, (1,), generator=generator))
        return torch.randint(3, VOCABULARY, (count,), generator=generator).tolist()

    made = []
    for _ in range(groups):
        question, opening = [3, *some(19)], some(3)
        answers = [some(12) for _ in range(4)] + [opening + some(12) for _ in range(2)]
        made.append([Example(tuple(question + answer), len(question)) for answer in [answers[0], *answers]])
    return made


class PassCounter:
    """Counts the positions (rows, tokens) of every pass of a model, and its rows of logits."""

    def __init__(self, network: Any) -> None:
        self.passes: list[tuple[int, int]] = []
        self.logits = 0
        body = network.get_input_embeddings()
        self.handles = [
            body.register_forward_hook(lambda _, __, output: self.passes.append(tuple(output.shape[:2]))),
            network.get_output_embeddings().register_forward_hook(self._count_logits),
        ]

    def _count_logits(self, _: Any, __: Any, output: torch.Tensor) -> None:
        self.logits += output.numel() // output.shape[-1]

    def __enter__(self) -> PassCounter:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()

"""Rows of a micro-batch behind each other in one row, without padding: each token attends within its own row.

transformers hands a model's keywords `cu_seq_lens_q` (where rows begin and end) and `max_length_q` (tokens of the
longest) on to the attention function. `enable_packed_rows_if_exact` compares, and finds which models may take them.
"""

import inspect
from itertools import accumulate
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from trainables.common.tokenized_row import Example
from trainables.inference.padded_batch import pad_examples

PACKED_ATTENTION_NAME = "packed_rows"
"""Of the attention function, which is sdpa, with sdpa's masks, where rows are not packed."""
PACK_TOKENS_MULTIPLE = 64
"""Tokens of a pack on a GPU are a multiple of it, so that shapes are few: one more row fills up, without labels."""
FP32_LOGITS_TOLERANCE, BF16_LOGITS_TOLERANCE = 1e-4, 3e-2
"""Relative, of the logits of packed rows: rounding. Tokens that see another row are far outside."""
GQA_OPTION: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
"""What torch asks for, from 2.13 on, where several heads share their keys."""


def attend_within_rows(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, **keywords: Any
) -> tuple[torch.Tensor, None]:
    """Return causal attention within each row: (1, heads, tokens, size) three times to (1, tokens, heads, size).

    Raises ValueError for attention with dropout or a window.
    """
    cuts, scale = keywords.get("cu_seq_lens_q"), keywords.get("scaling")
    if cuts is None:
        return sdpa_attention_forward(module, query, key, value, mask, **keywords)
    if keywords.get("dropout") or keywords.get("sliding_window"):
        raise ValueError("packed rows have no attention with dropout or a window")
    if query.device.type == "cpu":
        rows = zip(*(part.split(cuts.diff().tolist(), 2) for part in (query, key, value)), strict=True)
        found = [sdpa_attention_forward(module, q, k, v, None, scaling=scale)[0] for q, k, v in rows]
        return torch.cat(found, 1), None
    q, k, v = (part.squeeze(0).transpose(0, 1) for part in (query, key, value))
    longest = keywords["max_length_q"]
    whole: Any = varlen_attn(q, k, v, cuts, cuts, longest, longest, scale=scale, window_size=(-1, 0), **GQA_OPTION)
    return whole.unsqueeze(0), None


AttentionInterface.register(PACKED_ATTENTION_NAME, attend_within_rows)
AttentionMaskInterface.register(PACKED_ATTENTION_NAME, sdpa_mask)


def pack_batch(batch: dict[str, torch.Tensor], where: torch.Tensor, pad: int, device: torch.device) -> dict[str, Any]:
    """Return a model's keywords for the rows of a collated batch on the host, with logits at the mask `where`."""
    real, multiple = batch["attention_mask"].bool(), 1 if device.type == "cpu" else PACK_TOKENS_MULTIPLE
    lengths = real.sum(1).tolist()
    if filler := -sum(lengths) % multiple:
        lengths.append(filler)
    return {
        "input_ids": functional.pad(batch["input_ids"][real], (0, filler), value=pad)[None],
        "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
        "logits_to_keep": where[real].nonzero()[:, 0],
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool),  # so that transformers makes none
        "cu_seq_lens_q": torch.tensor([0, *accumulate(lengths)], dtype=torch.int32),
        "max_length_q": -(-max(lengths) // multiple) * multiple,
    }


def move_to_device(values: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return `values` with the host's tensors on a device, where one copy brings them; a GPU is not waited for."""
    if device.type == "cpu":
        return values
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    flat = torch.cat([tensor.flatten() for tensor in tensors.values()])
    flat = (flat.pin_memory() if device.type == "cuda" else flat).to(device, non_blocking=True)
    parts = flat.split([tensor.numel() for tensor in tensors.values()])
    moved = zip(tensors.items(), parts, strict=True)
    return values | {name: part.view(tensor.shape).to(tensor.dtype) for (name, tensor), part in moved}


def enable_packed_rows_if_exact(network: Any) -> bool:
    """Let a model attend by rows; return whether it takes packed rows, else leave it with sdpa.

    Windows and layers of other kinds are told by its configuration, for rows of a few tokens would not show them.
    All else shows in the logits of two rows, packed beside padded.
    """
    config, training = network.config.get_text_config(), network.training
    other = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if other or getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None):
        return False
    network.set_attn_implementation(PACKED_ATTENTION_NAME)
    try:
        agrees = _agrees(network)
    except Exception:  # keywords, sizes or a precision that a family or its attention does not take, in any words
        agrees = False
    network.train(training)
    if not agrees:
        network.set_attn_implementation("sdpa")
    return agrees


@torch.no_grad()
def _agrees(network: Any) -> bool:
    """Return whether two rows have the same logits packed and padded, after a pass in which dropout may refuse."""
    batch = pad_examples([Example(tuple(range(3, 15)), 1), Example(tuple(range(15, 20)), 1)], 0)
    where = batch["attention_mask"].bool() & (batch["input_ids"] != 4)  # not all: the head has to be told of places
    inputs = move_to_device(pack_batch(batch, where, 0, network.device), network.device)
    network.train()(**inputs, use_cache=False)
    packed = network.eval()(**inputs, use_cache=False).logits[0].float()
    ids, where = batch["input_ids"].to(network.device), where.to(network.device)
    padded = network(input_ids=ids, use_cache=False).logits[where].float()
    tolerance = BF16_LOGITS_TOLERANCE if network.dtype == torch.bfloat16 else FP32_LOGITS_TOLERANCE
    return bool((packed - padded).norm() < tolerance * padded.norm())

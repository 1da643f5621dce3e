"""Weights rounded as a quantized model has them, in place and in the type that they had: no library, on any device."""

from typing import Any

import torch

from trainables.common.errors import InputError

NF4_BLOCK_SIZE = 64
"""Weights that share a scale in NF4 (bitsandbytes' default)."""
NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334)
NF4 += (-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224)
NF4 += (0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)
"""The sixteen values of a weight over its block's largest (Dettmers et al., 2023, QLoRA, appendix E)."""


def fake_quantize_weights(network: Any, kind: str) -> None:
    """Round the weights of every linear layer but the last, `lm_head`, as transformers does; `kind`: int8 or nf4.

    NF4 gives bitsandbytes' dequantized weights bit for bit in fp32. int8: of each output row, symmetric, weights only.
    """
    head = network.get_output_embeddings()
    layers = [one for one in network.modules() if isinstance(one, torch.nn.Linear) and one is not head]
    if not layers:
        raise InputError(f"--attacks: {kind} rounds linear layers, and {type(network).__name__} has none but the last")
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(fake_quantize_nf4(layer.weight) if kind == "nf4" else fake_quantize_int8(layer.weight))


def fake_quantize_int8(weight: torch.Tensor) -> torch.Tensor:
    """Return (rows, columns) with each row rounded to 255 steps of its largest absolute value."""
    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
    return (weight.float() / scale).round() * scale


def fake_quantize_nf4(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight with each block of 64, counted along the rows, rounded to NF4 of its largest absolute value."""
    flat = weight.float().reshape(-1)
    blocks = torch.nn.functional.pad(flat, (0, -len(flat) % NF4_BLOCK_SIZE)).reshape(-1, NF4_BLOCK_SIZE)
    scale = blocks.abs().amax(dim=1, keepdim=True)
    codes = torch.tensor(NF4, device=weight.device)
    shares = blocks / scale.clamp(min=torch.finfo(torch.float32).tiny)
    rounded = codes[torch.bucketize(shares, (codes[1:] + codes[:-1]) / 2)] * scale
    return rounded.reshape(-1)[: len(flat)].reshape(weight.shape)

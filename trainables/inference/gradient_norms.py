"""How large the gradient of a row's loss is: rows that a model was trained on have small ones."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from trainables.common.tokenized_row import Example


def mean_gradient_norm(network: Any, example: Example) -> float:
    """Return the mean over the parameters of the norm of the gradient of the labels' mean loss, without the last label.

    open-unlearning's `mia_gradnorm` with p = 2, but without dropout. One forward and one backward pass; no `.grad` is
    touched.
    """
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    with torch.enable_grad():
        ids = torch.tensor([example.input_ids[:-1]], device=parameters[0].device)
        logits = network(input_ids=ids).logits[0, example.answer_start - 1 : -1].float()
        loss = functional.cross_entropy(logits, ids[0, example.answer_start :])
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    norms = [gradient.float().norm() for gradient in gradients if gradient is not None]
    return torch.stack(norms).mean().item()

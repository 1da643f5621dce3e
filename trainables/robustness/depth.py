"""The unlearning depth score: how much of what a model knew its layers still hold, by states patched into that model.

Source: gnueaj/unlearning-depth-score (fc31639). It patches where the named entity of an answer is predicted; its spans
of those are no part of TOFU, so all tokens of an answer count here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from trainables.benchmarks import Metrics
from trainables.common.errors import InputError, TrialStopped
from trainables.common.tokenized_row import Example
from trainables.inference import scoring
from trainables.inference.padded_batch import IGNORED, before_labels, collate, group_by_length

LEAST_DROP = 0.05
"""Nats a token: where the retain model's states take away less, a layer holds nothing of the row."""
SOURCES = ("retain", "model")


@torch.no_grad()
def score_depth(load: Callable[[str], Any], examples: Sequence[Example], *, pad: int, token_budget: int) -> Metrics:
    """Return `uds`, None if no row counts, the number of `rows` that count, and of those `left_out`.

    The output of the target model's layer l where answer tokens are predicted is replaced by another model's there;
    D_l is by how much the mean log-likelihood of these tokens falls. A row's score is
    sum_l D_l(retain) clip(D_l(model) / D_l(retain), 0, 1) / sum_l D_l(retain), over the layers whose D_l(retain) is
    above LEAST_DROP; a row without one is left out. 0: the model's states tell the answers as the target model's do;
    1: no more than the retain model's.

    `load` returns a model by its role, target, retain or model; one is held at a time, the states of two on the CPU.
    Raises InputError where their layers differ, TrialStopped where a likelihood is not finite.
    """
    lengths = [len(example.input_ids) for example in examples]
    batches = [[examples[row] for row in rows] for rows in group_by_length(lengths, token_budget)]
    states = [_read_states(load(role), batches, pad) for role in SOURCES]
    network, found = load("target"), []
    layers = _find_layers(network)
    for number, batch in enumerate(batches):
        collated = collate(batch, pad)
        keep = before_labels(collated["labels"])
        intact = _mean_losses(network, batch, collated)
        drops = np.empty((len(SOURCES), len(layers), len(batch)))
        for source, role in enumerate(SOURCES):
            if len(states[source][number]) != len(layers):
                raise InputError(f"--attacks: uds: the {role} model has other layers than the target model")
            for place, (layer, state) in enumerate(zip(layers, states[source][number], strict=True)):
                with layer.register_forward_hook(partial(_write_states, state, keep)):
                    drops[source, place] = _mean_losses(network, batch, collated) - intact
        if not np.isfinite(drops).all():
            raise TrialStopped("diverged", "the likelihood of a forget row is not finite")
        known = np.where(drops[0] > LEAST_DROP, drops[0], 0.0)
        erased = np.clip(drops[1], 0.0, known)
        found += [float(part / whole) for part, whole in zip(erased.sum(0), known.sum(0), strict=True) if whole]
    return {"uds": float(np.mean(found)) if found else None, "rows": len(found), "left_out": len(examples) - len(found)}


def _find_layers(network: Any) -> Any:
    """Return the decoder's layers."""
    depth = network.config.get_text_config().num_hidden_layers
    lists = (one for one in network.modules() if isinstance(one, torch.nn.ModuleList))
    return next(one for one in lists if len(one) == depth)


def _read_states(network: Any, batches: Sequence[Sequence[Example]], pad: int) -> list[list[torch.Tensor]]:
    """Return of each batch the output (labels, size) of each layer where labels are predicted, on the CPU."""
    found = []
    for batch in batches:
        collated, states = collate(batch, pad), []
        keep = before_labels(collated["labels"])
        with ExitStack() as hooks:
            for layer in _find_layers(network):
                hooks.enter_context(layer.register_forward_hook(partial(_keep_states, states, keep)))
            scoring.read_labels(network, collated)
        found.append(states)
    return found


def _keep_states(states: list[torch.Tensor], keep: torch.Tensor, _: Any, __: Any, output: Any) -> None:
    """Append a layer's output at the positions `keep` (rows, tokens)."""
    states.append((output[0] if isinstance(output, tuple) else output)[keep].cpu())


def _write_states(state: torch.Tensor, keep: torch.Tensor, _: Any, __: Any, output: Any) -> None:
    """Replace a layer's output at the positions `keep`."""
    hidden = output[0] if isinstance(output, tuple) else output
    hidden[keep] = state.to(hidden)


def _mean_losses(network: Any, examples: Sequence[Example], batch: Mapping[str, torch.Tensor]) -> Any:
    """Return the mean loss of each row's labels: (rows,)."""
    logits, labels = scoring.read_labels(network, batch).float(), batch["labels"][batch["labels"] != IGNORED]
    losses = functional.cross_entropy(logits, labels.to(logits.device), reduction="none").double().cpu()
    return np.array([part.mean() for part in losses.split([example.answer_tokens for example in examples])])

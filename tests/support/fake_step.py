"""Passes of real models at full size on tensors without data, whose bytes PyTorch's memory tracker counts as a GPU's.

PyTorch's CPU build cannot run autograd on fake CUDA tensors, so that fake CPU tensors stand for them, and attention
calls the kernels that a GPU would choose.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest import mock

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support import tiny
from trainables.common.tokenized_row import Example
from trainables.config.method_tables import RECTIFIERS, RETAIN_PASS
from trainables.config.settings import Shape
from trainables.config.trial import Trial
from trainables.methods import method_constants, objectives
from trainables.training import forward_backward, model_files
from trainables.trial import setup

aten = torch.ops.aten


class Tracker(MemTracker):
    """Counts all storages, whatever module made them."""

    def _pre_fw_hook(self, module: Any, inputs: Any) -> None: ...

    def _post_fw_hook(self, module: Any, inputs: Any, outputs: Any) -> None: ...

    def _pre_bw_hook(self, module: Any, args: Any) -> None: ...

    def _post_bw_hook(self, module: Any, args: Any) -> None: ...

    def total(self, kind: str) -> int:
        return max((found["Total"] for found in self.get_tracker_snapshot(kind).values()), default=0)


class _ChosenPositions(TorchDispatchMode):
    """Chooses with a boolean mask as many elements as `count_chosen` noted, else all: data are not there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name.lstrip("_").startswith(("index", "unsafe_index")) and isinstance(args[1], list | tuple):
            masks = [index for index in args[1] if index is not None and index.dtype == torch.bool]
            if masks:
                count = getattr(masks[0], "chosen", masks[0].numel())
                places = [torch.empty(count, dtype=torch.long)] * masks[0].ndim
                args = (args[0], places, *args[2:])
        return func(*args, **kwargs or {})


def count_chosen(real: Any, which: objectives.Positions, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    found = real(which, labels, mask)
    rows, tokens = labels.shape
    found.chosen = {"labels": rows * (tokens - 1), "none": 0}.get(which, rows * tokens)
    return found


def attention(query: Any, key: Any, value: Any, attn_mask: Any = None, **given: Any) -> torch.Tensor:
    """Choose as PyTorch does on CUDA: flash in bf16 without a mask, else memory-efficient, which shares no keys."""
    causal, scale = given["is_causal"], given["scale"]
    if attn_mask is None and query.dtype == torch.bfloat16:
        return aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal, scale=scale)[0]
    if given.get("enable_gqa"):
        return aten._scaled_dot_product_attention_math(
            query, key, value, is_causal=causal, scale=scale, enable_gqa=True
        )[0]
    if attn_mask is not None:  # PyTorch makes numbers of it
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).expand(*query.shape[:3], key.shape[2])
    return aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, True, 0.0, causal, scale=scale)[0]


class _Engine(tiny.PlainEngine):
    """The model alone. Gradients leave as soon as they are there, as into DeepSpeed's buckets."""

    def total(self, value: torch.Tensor) -> Any:
        return 0.0


def network_of(shape: Shape, family: str, trial: Trial) -> Any:
    config = getattr(transformers, f"{family}Config")(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
    )
    dtype = getattr(torch, model_files.DTYPES[trial.resources.precision])
    return transformers.AutoModelForCausalLM.from_config(
        config, dtype=dtype, attn_implementation=trial.target.attention
    )


def count_peak(trial: Trial, shape: Shape, family: str, rows: int, length: int) -> int:
    """Return the peak bytes of a step's passes, one after the other, beside weights and gradients."""
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode())
        stack.enter_context(mock.patch.object(functional, "scaled_dot_product_attention", attention))
        chosen = partial(count_chosen, objectives.positions)
        stack.enter_context(mock.patch.object(objectives, "positions", chosen))
        packed = "transformers.masking_utils.find_packed_sequence_indices"  # which looks at data
        stack.enter_context(mock.patch(packed, return_value=None))
        network = network_of(shape, family, trial).train()
        constants = method_constants.constants(trial.method, trial.objective, trial.benchmark.split)
        objective = objectives.make_objective(trial.method, constants, trial.seed)
        frozen = network_of(shape, family, trial).eval().requires_grad_(False) if objective.needs_frozen else None
        if trial.method == "rmu":
            setup.train_only_rmu_weights(network, constants.layer)
        if trial.resources.gradient_checkpointing:
            network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda done: setattr(done, "grad", None))
        terms = list(objective.terms)
        if RETAIN_PASS in RECTIFIERS[trial.rectifier.name].needs:
            terms.append(objectives.NLL)
        task = mock.Mock(pad=0, micro_batch=rows, frozen=frozen)
        examples = [Example((5,) * length, 1)] * rows
        reference = dict.fromkeys(range(rows), 0.0) if objective.needs_reference else None
        return max(_count_pass(network, frozen, task, term, examples, reference) for term in terms)


def _count_pass(network: Any, frozen: Any, task: Any, term: Any, rows: list[Example], reference: Any) -> int:
    tracker = Tracker()
    for model in filter(None, (network, frozen)):
        tracker.track_external(*model.parameters(), *model.buffers())
    held = tracker.total("current")
    numbers = list(range(len(rows)))
    with tracker, _ChosenPositions():
        forward_backward.accumulate_gradient(_Engine(network), [(term, rows, numbers)], task, reference)
    return tracker.total("peak") - held

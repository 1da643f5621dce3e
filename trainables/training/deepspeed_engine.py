"""The one file that knows DeepSpeed: a training engine whose gradient can be read and written before the step.

DeepSpeed has no public way to change a sharded gradient between backward and step that is right for every stage: its
`safe_set_full_grad` gathers one parameter after another, and reaches the step only on some stages. What is private here
is that of DeepSpeed 0.19.8, the pinned version. A test (tests/trainables/training/test_invariance.py) writes a constant
gradient and steps with plain SGD for every combination of stage, precision and offloading that `Resources` allows.
"""

import inspect
import os
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainables.config.settings import Resources
from trainables.methods.rectifiers.base import AdamSecondMoments, TensorSegments
from trainables.training import memory

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")

import deepspeed
from deepspeed.runtime.checkpoint_engine import TorchCheckpointEngine
from deepspeed.runtime.fp16.loss_scaler import LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.runtime.zero.parameter_offload import FWD_MODULE_STACK
from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator
from deepspeed.utils.tensor_fragment import fragment_address

# 0.19.8: the table of native operations that can be compiled here, without a public switch for a single one. The
# shared-memory collective of CPUs would be compiled at first use; gloo does its work.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

SAFE_PICKLE_TYPES = [LossScaler, ZeroStageEnum, fragment_address]
"""Types in DeepSpeed's checkpoints apart from tensors and built-in ones: unpickling them runs nothing."""


class _TensorsOnly(TorchCheckpointEngine):
    """Reads DeepSpeed's files, whose pickles may hold tensors, built-in types and SAFE_PICKLE_TYPES alone."""

    def load(self, path: str, map_location: Any = None) -> Any:
        with torch.serialization.safe_globals(SAFE_PICKLE_TYPES):
            return torch.load(path, map_location=map_location, weights_only=True)


class DeepSpeedEngine:
    """A DeepSpeed engine. `grad_shard()` is this rank's part of the gradient, averaged over ranks."""

    packs, compiled_losses = False, None

    def __init__(self, inner: Any, resources: Resources, stage: int) -> None:
        self.inner = inner
        self.module = inner.module
        self.resources = resources
        self.stage = stage
        self.world = dist.get_world_size()
        self.rank = dist.get_rank()
        self.device = torch.device(inner.device)
        self.shard_device = torch.device("cpu") if resources.offload_optimizer else self.device
        self.whole = stage == 1 and resources.precision == "bf16" and not resources.offload_optimizer
        """DeepSpeed's BF16_Optimizer, where every rank has the whole fp32 gradient."""

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add one micro-batch's gradient; `last` ends the pass and makes `grad_shard()` readable."""
        self.inner.set_gradient_accumulation_boundary(last)
        self.inner.backward(loss * self.world)  # this rank's share of a sum; DeepSpeed averages over ranks

    def grad_shard(self) -> list[torch.Tensor]:
        """Views of this rank's gradient whose writes reach `step()`; flat or shaped, padding included."""
        optimizer, stage = self.inner.optimizer, self.stage
        if self.resources.offload_optimizer:  # the CPU has the sum of all micro-batches, copied after the last
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # those copies are asynchronous
            return [group.grad for group in self._masters()]
        if stage == 0:
            return [p.grad for p in self.module.parameters() if p.requires_grad]
        if stage == 3:
            # 0.19.8: one flat buffer of all trained parameters' gradients of this rank, in the order of the optimizer's
            # groups, each parameter padded to a multiple of the world size.
            return [optimizer.grad_partitions_flat_buffer]
        if self.whole:
            # 0.19.8: an fp32 buffer a group, flattened and padded, and this rank's slice of it.
            return list(optimizer.fp32_groups_gradient_flat_partition)
        # 0.19.8: of each group this rank's gradients after the last micro-batch: a list of tensors, or a list whose
        # tensors are views of one buffer, `flat_partition`, padding included. The step reads these.
        parts: list[torch.Tensor] = []
        for index in sorted(optimizer.averaged_gradients):
            group = optimizer.averaged_gradients[index]
            flat = getattr(group, "flat_partition", None)
            parts += [flat] if flat is not None else list(group)
        return parts

    gradients = grad_shard

    @cached_property
    def segments(self) -> TensorSegments:
        """Which elements of `grad_shard()` belong to which trained tensor, in the order of the model's parameters.

        Once for all passes, of which one must be over. Ranks own other elements of the same tensors.
        """
        optimizer, begin = self.inner.optimizer, 0
        parameters = trained = [p for p in self.module.parameters() if p.requires_grad]
        sizes, starts = [p.numel() for p in trained], None
        if self.stage == 3:  # 0.19.8: this rank's slice of each, one after another, each with padding of its own
            parameters = list(chain.from_iterable(optimizer.fp16_groups))
            sizes = [p.partition_numel() for p in parameters]
        elif self.stage > 0:  # 0.19.8: this rank's range of one flat vector, at whose ends parameters are cut
            (parameters,) = optimizer.bf16_groups if self.whole else optimizer.round_robin_bit16_groups
            sizes = [p.numel() for p in parameters]
            starts = None if self.whole else optimizer.round_robin_bit16_offsets[0]
            begin = self.rank * sum(part.numel() for part in self.grad_shard())
        starts = starts or list(accumulate(sizes, initial=0))
        numbers = {id(p): number for number, p in enumerate(trained)}
        cuts: list[list[tuple[int, int, int]]] = []
        for part in self.grad_shard():
            end = begin + part.numel()
            cuts.append(
                [
                    (numbers[id(p)], max(start, begin) - begin, min(start + size, end) - begin)
                    for p, start, size in zip(parameters, starts, sizes, strict=False)
                    if start < end and start + size > begin
                ]
            )
            begin = end
        return TensorSegments(len(numbers), cuts)

    def adam_second_moments(self) -> AdamSecondMoments | None:
        optimizer = self.inner.optimizer
        base = optimizer.optimizer if self.stage > 0 else optimizer
        keys = self._masters() if self.stage > 0 else [p for p in self.module.parameters() if p.requires_grad]
        moments = [base.state.get(key, {}).get("exp_avg_sq") for key in keys]
        if any(moment is None for moment in moments):
            return None
        return AdamSecondMoments(moments, base.param_groups[0]["eps"])

    def _masters(self) -> Any:
        """Return the fp32 weights of each group, this rank's part, flat (0.19.8)."""
        optimizer = self.inner.optimizer
        if self.stage == 3:
            return optimizer.fp32_partitioned_groups_flat
        return optimizer.fp32_groups_flat_partition if self.whole else optimizer.single_partition_of_fp32_groups

    def sum_over_shards(self, value: torch.Tensor) -> torch.Tensor:
        """Return the sum over the ranks that hold different shards; a replicated gradient (ZeRO 0) is whole on each."""
        return value if self.stage == 0 else self.sum_over_ranks(value)

    def sum_over_ranks(self, value: torch.Tensor) -> torch.Tensor:
        value = value.to(self.device)
        if self.world > 1:
            dist.all_reduce(value)
        return value

    def clear_gradients(self) -> None:
        parts, optimizer = self.grad_shard(), self.inner.optimizer
        # 0.19.8: with the optimizer on the CPU the next pass would go on summing. DeepSpeed empties the buffers in its
        # own step only, and a retain pass has none: stage 3 sums in the flat buffer on the GPU, stages 1 and 2 in one
        # CPU tensor a parameter, or in a group's flat partition.
        if self.resources.offload_optimizer and self.stage == 3:
            parts.append(optimizer.grad_partitions_flat_buffer)
        elif self.resources.offload_optimizer:
            groups = [getattr(group, "flat_partition", None) for group in optimizer.averaged_gradients.values()]
            parts += [*optimizer.accumulated_grads_in_cpu.values(), *(flat for flat in groups if flat is not None)]
        for part in parts:
            part.zero_()
        optimizer.zero_grad()

    def step(self, lr: float) -> None:
        for group in self.inner.optimizer.param_groups:
            group["lr"] = lr
        self.inner.step()
        if self.resources.offload_optimizer:
            self.clear_gradients()

    def gather(self) -> dict[str, torch.Tensor]:
        """Return the whole model's weights on the CPU of rank 0 (nothing elsewhere), one tensor after another."""
        state: dict[str, torch.Tensor] = {}
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            with deepspeed.zero.GatheredParameters([parameter], enabled=self.stage == 3):
                if self.rank == 0:
                    state[name] = parameter.detach().cpu().clone()
        for name, buffer in self.module.named_buffers():
            if self.rank == 0 and name in self.module.state_dict():
                state[name] = buffer.detach().cpu().clone()
        return state

    def save(self, folder: Path, tag: str) -> None:
        self.inner.save_checkpoint(str(folder), tag=tag)

    def restore(self, folder: Path, tag: str) -> None:
        """Load what `save` wrote. Raises pickle.UnpicklingError if a file holds more than tensors and plain values."""
        # 0.19.8: what reads files, and the parsed configuration that it is made from; no public argument chooses it.
        self.inner.checkpoint_engine = _TensorsOnly(self.inner._config)
        self.inner.load_checkpoint(str(folder), tag=tag)

    def close(self) -> None:
        """End DeepSpeed's part. Its memory comes back with `runtime.release_memory`, when nobody has this engine."""
        self.inner.destroy()
        # 0.19.8: two places of the process that would keep a model of ZeRO 3: the stack of modules amid their forward
        # pass, whose first is the model, and a cache of what to release after a module, behind a wrapper.
        FWD_MODULE_STACK.clear()
        wrapped = vars(PartitionedParameterCoordinator)["_PartitionedParameterCoordinator__params_to_release"]
        inspect.getclosurevars(wrapped).nonlocals["func"].cache_clear()


def create_deepspeed_engine(network: Any, optimizer: torch.optim.Optimizer, resources: Resources) -> DeepSpeedEngine:
    """Return a DeepSpeed engine around `network`. The process group must exist (`runtime.prepare_process`).

    Accumulation, loss scaling, clipping and the schedule are this project's. Offloaded states of the optimizer lie in
    pinned memory if there is a GPU to copy from. Without a chosen ZeRO stage it is 1.
    """
    stage = 1 if resources.zero_stage is None else resources.zero_stage
    trained = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    zero: dict[str, Any] = {"stage": stage, "reduce_bucket_size": min(memory.GRADIENT_BUCKET_ELEMENTS, trained)}
    if resources.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
    }
    if resources.precision == "bf16":
        config |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
        if stage == 1:  # 0.19.8: it sums over ranks what was accumulated in fp32, and would round that to bf16
            config["communication_data_type"] = "fp32"
    inner, *_ = deepspeed.initialize(model=network, optimizer=optimizer, config=config, dist_init_required=False)
    return DeepSpeedEngine(inner, resources, stage)

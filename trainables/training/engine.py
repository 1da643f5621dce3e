"""Engines of a training step: they hold a model's gradient between its backward passes and the optimizer step.

`PlainEngine` is for one rank. DeepSpeed's (deepspeed_engine.py) is for several ranks, ZeRO stages and offloading. Both
have the same methods and give the same trajectory (tests/trainables/training/test_invariance.py).
"""

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from transformers.modeling_layers import GradientCheckpointingLayer

from trainables.config.settings import Attention, Resources, Training
from trainables.methods.objectives.base import compute_label_losses
from trainables.methods.rectifiers import base
from trainables.training import packed_rows

if TYPE_CHECKING:
    from trainables.training.deepspeed_engine import DeepSpeedEngine

Engine: TypeAlias = "PlainEngine | DeepSpeedEngine"

ALIGNED_ELEMENTS = 64
"""Elements: every tensor of a model begins at a multiple of it, so that matrix products find aligned memory."""
STATES_FILE = "states.safetensors"


class PlainEngine:
    """The engine of one rank: weights, gradient and the optimizer's states are one flat tensor each.

    AdamW works on fp32 weights, of which bf16 ones are a copy. After one micro-batch the gradient is kept in the
    precision of the weights, which holds it exactly; sums of several are fp32.
    """

    stage, rank, world = 0, 0, 1

    def __init__(self, network: Any, training: Training, resources: Resources, *, packs: bool = False) -> None:
        self.inner = self.module = network
        self.packs = packs
        self.resources = resources
        self.trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.device = self.shard_device = self.trained[0].device
        sizes = [-(-parameter.numel() // ALIGNED_ELEMENTS) * ALIGNED_ELEMENTS for parameter in self.trained]
        self.starts = list(accumulate(sizes, initial=0))
        self.weights = torch.zeros(self.starts[-1], dtype=self.trained[0].dtype, device=self.device)
        for parameter, start in zip(self.trained, self.starts, strict=False):  # which become views of it
            part = self.weights[start : start + parameter.numel()]
            part.copy_(parameter.detach().reshape(-1))
            parameter.data = part.view_as(parameter)
        self.master = torch.nn.Parameter(self.weights.float())  # of fp32 weights the very same memory
        self.optimizer = make_optimizer([self.master], training)
        self.flat = torch.zeros_like(self.weights)
        self.wide: torch.Tensor | None = None
        self.gradient: torch.Tensor | None = None
        self.combination: tuple[float, float, torch.Tensor | None] | None = None
        self.compiled_losses: Any = None

    def compile(self, **how: Any) -> None:
        """Compile the decoder's layers and `compute_label_losses`, once for all lengths; `how`: as of torch.compile.

        Only `accumulate_gradient` runs them compiled: evaluations, whose passes have many other shapes, stay eager.
        """
        torch.compiler.set_stance("force_eager")
        for part in self.inner.modules():
            if isinstance(part, GradientCheckpointingLayer):  # transformers' class of decoder layers
                part.compile(dynamic=True, **how)
        self.compiled_losses = torch.compile(compute_label_losses, dynamic=True, **how)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add one micro-batch's gradient to what the passes since `clear_gradients` have left."""
        loss.backward()
        parts = []
        for parameter, start, end in zip(self.trained, self.starts, self.starts[1:], strict=False):
            found = parameter.grad
            parts.append(self.weights.new_zeros(parameter.numel()) if found is None else found.reshape(-1))
            if end - start > parameter.numel():
                parts.append(self.weights.new_zeros(end - start - parameter.numel()))
            parameter.grad = None
        if self.gradient is self.flat:
            self.gradient = self._widen()
        torch.cat(parts, out=self.flat)
        self.gradient = self.flat if self.gradient is None else self.gradient.add_(self.flat)

    def _widen(self) -> torch.Tensor:
        self.wide = torch.empty_like(self.master.detach()) if self.wide is None else self.wide
        return self.wide.copy_(self.flat)

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradient of the passes so far to be read, in the precision that holds it."""
        self.gradient = self.flat.zero_() if self.gradient is None else self.gradient
        return [self.gradient]

    def grad_shard(self) -> list[torch.Tensor]:
        """Return the gradient in fp32, as `combine` changes it; what is written there reaches `step`."""
        (self.gradient,) = self.gradients()
        if self.gradient is self.flat and self.flat.dtype != torch.float32:
            self.gradient = self._widen()
        if self.combination is not None:
            forget, retain, average = self.combination
            if forget != 1.0:
                self.gradient.mul_(forget)
            if average is not None and retain != 0.0:
                self.gradient.add_(average, alpha=retain)
            self.combination = None
        return [self.gradient]

    def combine(self, found: base.GradientMixture, average: base.Shard) -> None:
        """Replace the gradient by found.forget times itself and found.retain times `average`, as `step` reads it."""
        self.combination = (found.forget, found.retain, average[0] if average else None)

    @property
    def segments(self) -> base.TensorSegments:
        """Which elements of `grad_shard()` belong to which trained tensor, in the order of the model's parameters."""
        cuts = [
            (number, start, start + parameter.numel())
            for number, (parameter, start) in enumerate(zip(self.trained, self.starts, strict=False))
        ]
        return base.TensorSegments(len(cuts), [cuts])

    def adam_second_moments(self) -> base.AdamSecondMoments | None:
        """Return Adam's second moments of what is in `grad_shard()`; None of another optimizer, and before a step."""
        moments = self.optimizer.state[self.master].get("exp_avg_sq")
        return None if moments is None else base.AdamSecondMoments([moments], self.optimizer.param_groups[0]["eps"])

    def sum_over_shards(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def sum_over_ranks(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.device)

    def clear_gradients(self) -> None:
        self.gradient = self.combination = None

    def step(self, lr: float) -> None:
        (group,) = self.optimizer.param_groups
        group["lr"] = lr
        if self._kernels is not None:
            state, master = self.optimizer.state[self.master], self.master.detach()
            if not state:
                moments = {name: torch.zeros_like(master) for name in ("exp_avg", "exp_avg_sq")}
                state.update(step=torch.tensor(0.0), **moments)
            state["step"] += 1
            forget, retain, average = self.combination or (1.0, 0.0, None)
            (gradient,) = self.gradients()
            buffers = gradient, average, master, state["exp_avg"], state["exp_avg_sq"], self.weights
            step = int(state["step"])
            self._kernels.adamw_step(*buffers, forget=forget, retain=retain, step=step, group=group)
        else:
            (self.master.grad,) = self.grad_shard()
            self.optimizer.step()
            self.master.grad = None
            if self.weights.dtype != self.master.dtype:
                self.weights.copy_(self.master.detach())
        self.clear_gradients()

    @property
    def _kernels(self) -> Any:
        """Those that take AdamW's step in one reading; None on a CPU and for another optimizer."""
        return base.find_triton_kernels(self.master) if isinstance(self.optimizer, torch.optim.AdamW) else None

    def gather(self) -> dict[str, torch.Tensor]:
        return {name: part.detach().cpu().clone() for name, part in self.module.state_dict().items()}

    def save(self, folder: Path, tag: str) -> None:
        (folder / tag).mkdir(parents=True, exist_ok=True)
        save_file({"weights": self.master.detach(), **self.optimizer.state[self.master]}, folder / tag / STATES_FILE)

    def restore(self, folder: Path, tag: str) -> None:
        states = load_file(folder / tag / STATES_FILE, device=str(self.device))
        self.master.detach().copy_(states.pop("weights"))
        self.weights.copy_(self.master.detach())
        if states and self._kernels is not None:
            states["step"] = states["step"].cpu()  # where the kernel's scalars are made from it without a look
        self.optimizer.state[self.master] = states

    def close(self) -> None:
        """Leave the model to its owner; the engine's memory goes with it."""
        self.clear_gradients()
        if self.compiled_losses:
            torch.compiler.set_stance("default")


def create_engine(network: Any, training: Training, resources: Resources, attention: Attention = "sdpa") -> Engine:
    """Return an engine around `network`: DeepSpeed's where ranks, a ZeRO stage or offloading ask for it.

    It switches gradient checkpointing on where that is asked for. The plain engine packs rows where `attention` is
    sdpa and the model takes them (`enable_packed_rows_if_exact`).
    """
    if resources.gradient_checkpointing:
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if resources.uses_plain_engine:
        dtype = torch.bfloat16 if resources.precision == "bf16" else torch.float32
        for parameter in network.parameters():  # and no buffer: positions of rotary embeddings stay exact
            parameter.data = parameter.data.to(dtype)
        cut = resources.compile and network.device.type == "cpu"  # there packed rows are cut by lists, each graph too
        packs = attention == "sdpa" and not cut and packed_rows.enable_packed_rows_if_exact(network)
        engine = PlainEngine(network, training, resources, packs=packs)
        if resources.compile:
            engine.compile()
        return engine
    from trainables.training.deepspeed_engine import create_deepspeed_engine

    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return create_deepspeed_engine(network, make_optimizer(trained, training), resources)


def make_optimizer(parameters: list[Any], training: Training) -> torch.optim.Optimizer:
    if training.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=training.lr, weight_decay=training.weight_decay)
    chosen: dict[str, Any] = {"lr": training.lr, "weight_decay": training.weight_decay}
    return torch.optim.AdamW(parameters, **chosen, betas=training.betas, eps=training.eps, fused=True)

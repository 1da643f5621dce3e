"""A device whose work is counted and not done: torch's meta device, with the kernels of a GPU.

It tells what belongs to a host from what belongs to a device, which no CPU does.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WITHOUT_WORK = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh")
MAY_LOOK = ("nonzero", "masked_select", "masked_scatter", "unique_consecutive", "_unique2", "equal", "is_nonzero")
READING = 0.5
"""The value of every number that is read there."""


class CountedDevice(TorchDispatchMode):
    """`launches` by name; `looks`: what the host waits for; `bytes` that are read and written of flat tensors, by name.

    `attention`: the shapes that attention is called with. `flat`: the elements of a flat tensor.
    """

    def __init__(self, flat: int) -> None:
        super().__init__()
        self.flat = flat
        self.begin()

    def begin(self) -> None:
        self.launches: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.looks: list[str] = []
        self.attention: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.__name__.split(".")[0], kwargs or {}
        there = any(map(_is_there, tree_leaves((args, kwargs))))
        if there and name == "_local_scalar_dense":
            self.looks.append(name)
            return READING
        if there and name == "_to_copy" and kwargs.get("device") == torch.device("cpu"):
            self.looks.append(name)
            return torch.full(args[0].shape, READING, dtype=kwargs.get("dtype") or args[0].dtype)
        found = func(*args, **kwargs)
        if there or any(map(_is_there, tree_leaves(found))):
            self._count(func, name, args, kwargs, found, there)
        return found

    def _count(self, func: Any, name: str, args: Any, kwargs: Any, found: Any, there: bool) -> None:
        if func.is_view or name in WITHOUT_WORK:
            return
        by_mask = name.startswith("index") and any(
            isinstance(part, torch.Tensor) and part.dtype == torch.bool for part in tree_leaves(args[1])
        )
        from_host = not there and name in ("_to_copy", "copy_") and not kwargs.get("non_blocking")
        if name in MAY_LOOK or by_mask or from_host:
            self.looks.append(name)
        if name == "_varlen_attn":
            self.attention.add((*(tuple(part.shape) for part in args[:4]), args[5]))
        self.launches[name] += 1
        written = [part for part in tree_leaves(found) if _is_there(part)]
        if any(part.numel() == self.flat for part in written):
            self.move(name, tree_leaves(args), written)

    def move(self, name: str, read: Any, written: Any) -> None:
        """Count the bytes of tensors that are read, and of those that are written."""
        self.bytes[name] += sum(part.nbytes for part in (*read, *written) if isinstance(part, torch.Tensor))


class CountedKernels:
    """`trainables.methods.triton_kernels` by what they are given: each element is read and written once."""

    def __init__(self, device: CountedDevice) -> None:
        self.device = device

    def lerp(self, mean: torch.Tensor, part: torch.Tensor, weight: float) -> None:
        self._launch("lerp", [mean, part], [mean])

    def inner_products(self, gradient: torch.Tensor, average: torch.Tensor) -> torch.Tensor:
        self._launch("inner_products", [gradient, average], [])
        return gradient.new_empty(1, 3, dtype=torch.float32).double().sum(0)

    def adamw_step(
        self, gradient: Any, average: Any, weights: Any, first: Any, second: Any, copy: Any, **settings: Any
    ) -> None:
        copies = [copy] if copy.dtype != weights.dtype else []
        self._launch("adamw_step", [gradient, average, weights, first, second], [weights, first, second, *copies])

    def _launch(self, name: str, read: list[Any], written: list[Any]) -> None:
        self.device.launches[name] += 1
        self.device.move(name, read, written)


def _is_there(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "meta"

"""Clocks for measurements on several ranks and on GPUs, whose work goes on after a call returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def timed(function: Callable[..., Any], seconds: list[float], device: torch.device) -> Callable[..., Any]:
    """`function`, which adds what each call took to `seconds`."""

    def call(*arguments: Any) -> Any:
        started = time.perf_counter()
        result = function(*arguments)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
        return result

    return call


def now(device: torch.device) -> float:
    """Seconds, when every rank is here and the GPU idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.barrier()
    return time.perf_counter()

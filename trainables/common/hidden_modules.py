"""Libraries without what they import at every start and nothing here uses."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any


@contextlib.contextmanager
def without_modules(*names: str) -> Iterator[None]:
    """Let these modules look as if they were not installed to what is imported meanwhile."""
    known = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    # Python takes None for a module that cannot be imported.
    sys.modules.update(dict.fromkeys(names))  # pyright: ignore[reportArgumentType, reportCallIssue]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(known)


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    """Spare libraries torch's compiler, of which they want decorators: these leave functions as they are meanwhile.

    Whoever compiles afterwards imports it then. It takes a third of a start of transformers.
    """
    import torch

    name = "torch._dynamo"
    if name in sys.modules:
        yield
        return
    compiler = ModuleType(name)
    compiler.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]  # transformers' masks need a class from there
    compiler.__getattr__ = _find_decorator  # type: ignore[method-assign]
    sys.modules[name] = torch._dynamo = compiler
    try:
        yield
    finally:
        del sys.modules[name], torch._dynamo


@contextlib.contextmanager
def without_distributed_tensors() -> Iterator[None]:
    """Let transformers be imported without its own sharding: 400 modules. Ranks here are DeepSpeed's."""
    import torch.distributed

    is_available = torch.distributed.is_available
    torch.distributed.is_available = lambda: False  # transformers keeps the answer
    try:
        yield
    finally:
        torch.distributed.is_available = is_available


def _find_decorator(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)
    return _leave_as_it_is


def _leave_as_it_is(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Callable[..., Any]:
    return function or _leave_as_it_is

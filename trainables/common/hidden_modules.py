"""Libraries without what they import at every start and nothing here uses."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
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
def bare_packages(*names: str) -> Iterator[None]:
    """Let parts of these packages be imported meanwhile without what their `__init__` imports.

    Afterwards it is as if nothing of them had been imported. Parents come before their parts.
    """
    parts = tuple(f"{name}." for name in names)
    known = {name: sys.modules.pop(name) for name in list(sys.modules) if f"{name}.".startswith(parts)}
    try:
        for name in names:
            sys.modules[name] = module_from_spec(find_spec(name))  # pyright: ignore[reportArgumentType]
        yield
    finally:
        for name in [name for name in list(sys.modules) if f"{name}.".startswith(parts)]:
            del sys.modules[name]
        sys.modules.update(known)


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let a library have another value for a name meanwhile."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def defer_compiler() -> None:
    """Let torch's compiler be imported when something compiles: 700 modules, a quarter of a start.

    Libraries ask for it where they decorate what it shall leave alone, and torch's optimizers at every step.
    """
    import torch

    if COMPILER in sys.modules:
        return
    sys.modules[COMPILER] = torch._dynamo = compiler = _Compiler(COMPILER)
    compiler.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]
    importlib.import_module(f"{COMPILER}._trace_wrapped_higher_order_op")  # masks need a class of this file alone
    del compiler.__path__


COMPILER = "torch._dynamo"


class _Compiler(ModuleType):
    """Stands in for torch's compiler until it is asked for more than what does nothing where nothing is compiled."""

    def __getattr__(self, name: str) -> Any:
        if name in IDLE:
            return IDLE[name]
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(COMPILER) is self:
            sys.modules.pop(COMPILER, None)  # another thread may ask at once
        return getattr(importlib.import_module(COMPILER), name)


def _leave_as_it_is(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Callable[..., Any]:
    return function or _leave_as_it_is


def _do_nothing() -> None:
    pass


IDLE = {
    **dict.fromkeys(("disable", "allow_in_graph", "assume_constant_result"), _leave_as_it_is),
    "graph_break": _do_nothing,
    "trace_rules": SimpleNamespace(clear_lru_cache=_do_nothing),
}

"""Libraries without what they import at every start and nothing here uses."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
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


KEPT_NAMES = Path(__file__).parent / "__pycache__" / "transformers.json"


def keep_names_of_models() -> contextlib.AbstractContextManager[None]:
    """Let transformers, imported meanwhile, find the names in its models' files where they were kept.

    It would open those of 500 models at each start, and twice: a bare lru_cache remembers 128 folders.
    """
    return replaced(functools, "lru_cache", functools.partial(_keep_all, usual=functools.lru_cache))


def _keep_all(maxsize: Any = 128, typed: bool = False, *, usual: Any) -> Any:
    if getattr(maxsize, "__name__", "") == "create_import_structure_from_path":
        maxsize = functools.partial(_read_names, maxsize)
    return usual(None)(maxsize) if callable(maxsize) else usual(maxsize, typed)


def _read_names(read: Callable[[Any], Any], path: Any) -> Any:
    """Return the names that a folder of transformers, or that of a file in it, defines: `read(path)`.

    Those of all models are kept for one version, and until a file is added to or taken from a model.
    """
    folder = Path(path).parent if str(path).endswith(".py") else Path(path)
    if folder.name != "models":
        return read(path)
    newest = max(entry.stat().st_mtime for entry in os.scandir(folder))
    state = [str(folder), sys.modules["transformers"].__version__, newest]
    with contextlib.suppress(OSError, ValueError):  # not made yet, another's alone, or damaged
        known, names = json.loads(KEPT_NAMES.read_text(encoding="utf-8"), object_hook=_from_json)
        if known == state:
            return names
    names = read(path)
    with contextlib.suppress(OSError):  # a package that only others may write to
        KEPT_NAMES.parent.mkdir(exist_ok=True)
        KEPT_NAMES.write_text(json.dumps([state, _to_json(names)]), encoding="utf-8")
    return names


def _to_json(names: Any) -> Any:
    """Return dictionaries of sets, with sets of libraries among their keys, as dictionaries of lists."""
    if not isinstance(names, dict):
        return sorted(names)
    texts = {key: key if isinstance(key, str) else f",{','.join(sorted(key))}" for key in names}
    return {texts[key]: _to_json(value) for key, value in names.items()}


def _from_json(part: dict[str, Any]) -> dict[Any, Any]:
    keys = [frozenset(filter(None, key.split(","))) if key.startswith(",") else key for key in part]
    return dict(zip(keys, (set(value) if isinstance(value, list) else value for value in part.values()), strict=True))

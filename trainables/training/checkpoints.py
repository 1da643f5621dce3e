"""A trial in progress on disk: model, optimizer, moving average, position. Resume is bit-exact, or refused.

Every rank writes its own shards; meta.json, written by rename once all are there, names the step that counts.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from trainables.common import processes
from trainables.common.errors import InputError
from trainables.config.settings import Resources
from trainables.storage import base, complete
from trainables.storage import files as storage_files
from trainables.storage.base import CHECKPOINT, OUTAGES, STEPS, Storage
from trainables.training import loop
from trainables.training.engine import Engine

FOLDER, META = CHECKPOINT, base.META
LAYOUT = ("ranks", "zero_stage", "precision", "offload_optimizer")
"""Shards belong to one layout; another one cannot read them."""


class Damaged(Exception):
    """A checkpoint that cannot be read."""


def save(
    engine: Engine,
    task: loop.Task,
    state: loop.State,
    records: list[dict[str, Any]],
    seconds: Mapping[str, float],
    folder: Path,
    store: Storage,
) -> None:
    """Write the state after `state.step`, reached in `seconds` of each part, and drop the one before."""
    tag = f"step-{state.step}"
    engine.save(folder, tag)
    average = {f"{number:05}": part.contiguous() for number, part in enumerate(task.rectifier.state())}
    save_file({**average, "step": torch.tensor(state.step)}, folder / tag / f"average-{engine.rank}.safetensors")
    dist.barrier()
    if engine.rank == 0:
        storage_files.write_rows(folder / tag / STEPS, records)
        if state.reference is not None:
            reference = torch.tensor(list(state.reference.values()), dtype=torch.float64)
            numbers = torch.tensor(list(state.reference), dtype=torch.int64)
            save_file({"reference": reference, "rows": numbers}, folder / tag / "reference.safetensors")
        layout = {name: getattr(engine.resources, name) for name in LAYOUT}
        files = complete.sizes_of(folder / tag)
        meta = {"step": state.step, "tag": tag, "layout": layout, "seconds": dict(seconds), "files": files}
        storage_files.write_json(folder / META, meta)
    dist.barrier()
    _show(engine, folder, tag, store)


def _show(engine: Engine, folder: Path, tag: str, store: Storage) -> None:
    """Let other machines see a checkpoint: it counts when every machine's shards are there. Then the old ones go."""
    first = processes.first_here()
    sent = torch.tensor(int(not first or store.try_push(folder / tag)), device=engine.device)
    dist.all_reduce(sent, op=dist.ReduceOp.MIN)
    if engine.rank == 0 and sent:
        store.finish_checkpoint(folder, tag)
    dist.barrier()
    for old in folder.glob("step-*") if first else ():
        if old.name != tag:
            shutil.rmtree(old, ignore_errors=True)


def check(folder: Path, resources: Resources) -> bool:
    """Whether there is a checkpoint to go on from. Raises InputError where it is of another layout."""
    meta = storage_files.read_json(folder / META)
    if meta is None:
        return False
    for name in LAYOUT:
        kept, asked = meta["layout"][name], getattr(resources, name)
        if kept != asked:
            raise InputError(
                f"resources.{name}: the checkpoint in {folder} was written with {name}={kept}, this trial has {asked}; "
                f"go on with {kept}, or delete the checkpoint to start again"
            )
    return True


def step_of(folder: Path) -> int:
    """The step that a checkpoint is of, 0 where there is none."""
    return (storage_files.read_json(folder / META) or {}).get("step", 0)


def seconds_of(folder: Path) -> dict[str, float]:
    """The seconds of each part of the trial that a checkpoint took, empty where there is none."""
    return (storage_files.read_json(folder / META) or {}).get("seconds", {})


def drop(folder: Path) -> None:
    """Remove a checkpoint that is not gone on from, what makes it one first."""
    (folder / META).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def layout(folder: Path) -> dict[str, Any]:
    """The layout a checkpoint was written with, empty where there is none."""
    return (storage_files.read_json(folder / META) or {}).get("layout", {})


def set_aside(folder: Path, store: Storage) -> Path:
    """Move a checkpoint that cannot be read out of the way; of several ranks the first one does it."""
    with contextlib.suppress(FileNotFoundError):
        return base.set_aside([folder], store) / folder.name
    return folder


def restore(engine: Engine, task: loop.Task, folder: Path) -> tuple[loop.State, list[dict[str, Any]]]:
    """Load what `save` wrote: the state and the records of the steps before it. Raises Damaged: `engine` is spoilt."""
    meta = storage_files.read_json(folder / META) or {}
    if not complete.has_files(folder / meta["tag"], meta.get("files", {})):
        raise Damaged(f"the files of {meta['tag']} are not all there as they were written")
    try:
        return _restore(engine, task, folder, meta)
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError) or getattr(error, "errno", None) in OUTAGES:
            raise
        # what DeepSpeed, torch, safetensors and pyarrow make of a file that is no more whole
        first = (str(error).splitlines() or [""])[0]
        raise Damaged(f"{type(error).__name__}: {first}") from error


def _restore(
    engine: Engine, task: loop.Task, folder: Path, meta: dict[str, Any]
) -> tuple[loop.State, list[dict[str, Any]]]:
    tag = meta["tag"]
    engine.restore(folder, tag)
    parts = load_file(folder / tag / f"average-{engine.rank}.safetensors", device=str(engine.home))
    parts.pop("step")
    task.rectifier.restore([parts[name] for name in sorted(parts)])
    path = folder / tag / "reference.safetensors"
    reference = None
    if path.is_file():
        kept = load_file(path)
        reference = dict(zip(kept["rows"].tolist(), kept["reference"].tolist(), strict=True))
    return loop.State(reference, meta["step"]), storage_files.read_rows(folder / tag / STEPS)

"""A trial in progress on disk: model, optimizer, moving average, position. Resume is bit-exact, or refused.

Every rank writes its own shards; meta.json, written by rename after all of them, names the step that counts.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from trainables.common import process_identity
from trainables.common.errors import InputError, first_error_line, is_out_of_memory
from trainables.config.settings import Resources
from trainables.storage.atomic_files import read_json, read_parquet_rows, write_json, write_parquet_rows
from trainables.storage.file_names import META_FILE, STEPS
from trainables.storage.folder_storage import DISK_ERROR_NUMBERS, Storage
from trainables.training import loop
from trainables.training.engine import Engine

LAYOUT_FIELDS = ("ranks", "engine", "zero_stage", "precision", "offload_optimizer")
"""Shards belong to one layout; another one cannot read them."""


class DamagedCheckpointError(Exception):
    """A checkpoint that cannot be read."""


def save_checkpoint(
    engine: Engine,
    task: loop.TrainingTask,
    state: loop.TrainingState,
    records: list[dict[str, Any]],
    seconds: Mapping[str, float],
    folder: Path,
    store: Storage,
) -> None:
    """Write the state after `state.step`, with the `seconds` of each part so far, and drop the one before."""
    tag = f"step-{state.step}"
    engine.save(folder, tag)
    average = {f"{number:05}": part.contiguous() for number, part in enumerate(task.rectifier.state())}
    save_file(average, folder / tag / f"average-{engine.rank}.safetensors")
    dist.barrier()
    if engine.rank == 0:
        write_parquet_rows(folder / tag / STEPS, records)
        layout = {name: getattr(engine.resources, name) for name in LAYOUT_FIELDS}
        write_json(folder / META_FILE, {"tag": tag, "layout": layout, "seconds": dict(seconds), **asdict(state)})
    dist.barrier()
    first = process_identity.is_first_local_rank()  # of a machine, which sends its ranks' shards
    sent = torch.tensor(int(not first or store.try_push(folder / tag)), device=engine.device)
    dist.all_reduce(sent, op=dist.ReduceOp.MIN)
    if engine.rank == 0 and sent:
        store.publish_checkpoint(folder, tag)
    dist.barrier()
    for old in folder.glob("step-*") if first else ():
        if old.name != tag:
            shutil.rmtree(old, ignore_errors=True)


def read_checkpoint_meta(folder: Path) -> dict[str, Any]:
    return read_json(folder / META_FILE) or {}


def check_checkpoint_layout(folder: Path, resources: Resources) -> None:
    """Raise InputError if a checkpoint was written with another layout than the trial has."""
    meta = read_checkpoint_meta(folder)
    for name in LAYOUT_FIELDS if meta else ():
        kept, asked = meta["layout"].get(name), getattr(resources, name)
        if kept != asked:
            advice = f"this trial has {asked}; go on with {kept}, or delete the checkpoint to start again"
            raise InputError(f"resources.{name}: the checkpoint in {folder} was written with {name}={kept}, {advice}")


def remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint; first the file that makes it count."""
    (folder / META_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def restore_checkpoint(
    engine: Engine, task: loop.TrainingTask, folder: Path
) -> tuple[loop.TrainingState, list[dict[str, Any]]]:
    """Load what `save_checkpoint` wrote. Raises DamagedCheckpointError; the engine cannot be used after that."""
    meta = read_checkpoint_meta(folder)
    place = folder / meta["tag"]
    if "reference" not in meta:
        raise DamagedCheckpointError("another version wrote it")
    try:
        engine.restore(folder, meta["tag"])
        parts = load_file(place / f"average-{engine.rank}.safetensors", device=str(engine.shard_device))
        task.rectifier.restore([parts[name] for name in sorted(parts)])
        reference = meta["reference"] and {int(row): loss for row, loss in meta["reference"].items()}
        return loop.TrainingState(reference, meta["step"], meta["multiplier"]), read_parquet_rows(place / STEPS)
    except Exception as error:
        if is_out_of_memory(error) or getattr(error, "errno", None) in DISK_ERROR_NUMBERS:
            raise
        # DeepSpeed, torch, safetensors and pyarrow each raise errors of their own for a damaged file
        raise DamagedCheckpointError(f"{type(error).__name__}: {first_error_line(error)}") from error

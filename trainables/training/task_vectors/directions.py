"""The direction of TV or TRU, the sum of their task vectors: made if there is none, added up, and moved along."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from filelock import FileLock
from safetensors import safe_open
from safetensors.torch import save_file

from trainables.common import processes, provenance
from trainables.common.errors import InputError
from trainables.config.trial import Direction
from trainables.storage.base import RESULT, Storage
from trainables.storage.files import mark_complete, publish, read_json, write_json, write_rows
from trainables.training.task_vectors import spec
from trainables.training.task_vectors.train import LoadRows, open_trainer

FILE_BYTES = 4 * 2**30
"""Size of one safetensors file of a direction."""


def ensure_direction(
    direction: Direction, store: Storage, load_rows: LoadRows, micro_batch: int | None, checkpointing: bool = False
) -> Path:
    """Return the folder of a direction; make the direction first if there is none. Every rank calls this."""
    folder = spec.direction_folder(direction, store)
    if dist.get_rank() == 0:
        store.fetch(folder)
    exists: list[Any] = [folder.is_dir()]
    dist.broadcast_object_list(exists)
    if exists[0]:
        return folder
    trainer = open_trainer(direction, store, load_rows, micro_batch, checkpointing)
    if direction.rectified:
        for group in range(spec.count_groups(direction)):
            trainer.sum_gradients(group)
        _share_parts(trainer.folder, store)
    for group in range(spec.count_groups(direction)):
        trainer.sum_vectors(group)
    _share_parts(trainer.folder, store)
    if dist.get_rank() == 0:
        combine(direction, store)
    dist.barrier()
    return folder


def _share_parts(parts: Path, store: Storage) -> None:
    """Give every machine the parts that ranks on other machines made, where each has its own copy of the storage."""
    if not store.is_remote or dist.get_world_size() == 1:
        return
    if processes.is_first_rank():
        store.push_parts(parts)
    dist.barrier()
    if processes.is_first_rank():
        store.fetch_parts(parts)
    dist.barrier()


def combine(direction: Direction, store: Storage) -> Path:
    """Add up the groups' vectors, publish the sum as the direction unless it is there, and remove the parts."""
    folder, parts = spec.direction_folder(direction, store), spec.parts_folder(direction, store)
    with FileLock(parts.with_name(f"{parts.name}.lock")):
        if not folder.is_dir():
            for leftover in folder.parent.glob(f".{folder.name}.*"):  # of a process that was killed here
                shutil.rmtree(leftover, ignore_errors=True)
            _write_direction(direction, parts, folder)
        store.push(folder)
        store.remove(parts)
    for lock in parts.parent.glob(f"{parts.name}*.lock"):
        lock.unlink(missing_ok=True)
    return folder


def _write_direction(direction: Direction, parts: Path, folder: Path) -> None:
    notes = [read_json(parts / spec.NOTE.format(group)) or {} for group in range(spec.count_groups(direction))]
    records = sorted((record for note in notes for record in note.get("records", ())), key=lambda item: item["batch"])
    if [record["batch"] for record in records] != list(range(direction.vector.batches)):
        raise RuntimeError(f"the parts of direction {direction.id()} in {parts} are not all there; start again")
    staging = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    staging.mkdir(parents=True)
    norm = _write_sums(parts, notes, staging)
    if norm == 0.0:
        shutil.rmtree(staging)
        vector = direction.vector
        raise InputError(
            f"task_vector: every vector is zero after {vector.steps} step(s) at lr {vector.lr:g}, so there is no "
            "direction; raise task_vector.lr or task_vector.steps"
        )
    write_rows(staging / spec.BATCHES, records)
    result = {
        "id": direction.id(),
        "recipe": direction.model_dump(mode="json"),
        "norm": norm,
        "batches": len(records),
        "rectified": sum(record["rectified"] for record in records),
        "zero": sum(record["rectified_norm"] == 0 for record in records),
        "ranks": sorted({note["world"] for note in notes if note}),
        "threads": torch.get_num_threads(),
        "made": provenance.now(),
        **provenance.stamp(),
    }
    write_json(staging / RESULT, result, checked=True)
    mark_complete(staging)
    publish(staging, folder)


def _write_sums(parts: Path, notes: list[dict[str, Any]], folder: Path) -> float:
    """Write the tensors of the direction into files of FILE_BYTES; return its norm."""
    square, number = 0.0, 0
    buffer: dict[str, torch.Tensor] = {}
    for name, tensor in _sum_groups(parts, notes):
        square += float(tensor.double().square().sum())
        buffer[name] = tensor
        if sum(kept.nbytes for kept in buffer.values()) >= FILE_BYTES:
            save_file(buffer, folder / f"direction-{number:05}.safetensors")
            number, buffer = number + 1, {}
    if buffer:
        save_file(buffer, folder / f"direction-{number:05}.safetensors")
    return square**0.5


def _sum_groups(parts: Path, notes: list[dict[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each tensor of the direction: summed over the groups, its shards of all ranks put together."""
    files = [
        [parts / f"vectors-{group}-{note['done']}-{rank}of{note['world']}.safetensors" for rank in range(note["world"])]
        for group, note in enumerate(notes)
    ]
    with safe_open(files[0][0], framework="pt") as first:
        names = list(first.keys())
    for name in names:
        total: torch.Tensor | None = None
        for group_files in files:
            shards = []
            for file in group_files:
                with safe_open(file, framework="pt") as opened:
                    shards.append(opened.get_tensor(name))
            whole = torch.cat(shards)
            total = whole if total is None else total.add_(whole)
        if total is not None:
            yield name, total


@torch.no_grad()
def move_along(network: Any, folder: Path, strength: float) -> None:
    """Set theta - strength * direction, tensor by tensor, added in fp32 and rounded to the model's precision."""
    parameters = dict(network.named_parameters())
    for path in sorted(folder.glob("direction-*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - safe_open is no mapping
                parameter = parameters.pop(name)
                change = file.get_tensor(name).to(parameter.device)
                parameter.copy_(parameter.float().add_(change, alpha=-strength))
    if parameters:
        raise InputError(f"task_vector: {folder} has no tensor '{next(iter(parameters))}', which the model has")

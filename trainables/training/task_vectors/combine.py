"""A direction as a whole: made where it is not there, put together from its parts, and moved along."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file

from trainables.common import processes, provenance
from trainables.common.errors import InputError
from trainables.config.trial import Direction
from trainables.storage import complete
from trainables.storage import files as storage_files
from trainables.storage.base import RESULT, Storage
from trainables.training.task_vectors import spec, train

PART_BYTES = 4 * 2**30
"""Size of one safetensors file of a direction."""


def ensure(direction: Direction, store: Storage, micro_batch: int | None, checkpointing: bool = False) -> Path:
    """The folder of a direction, made here, by the ranks of this group, where it is not there."""
    folder = spec.folder_of(direction, store)
    if dist.get_rank() == 0:
        store.fetch(folder)
    there: list[Any] = [folder.is_dir()]
    dist.broadcast_object_list(there)
    if not there[0]:
        make_groups(direction, store, micro_batch, checkpointing)
        if dist.get_rank() == 0:
            combine(direction, store)
        dist.barrier()
    return folder


def make_groups(direction: Direction, store: Storage, micro_batch: int | None, checkpointing: bool = False) -> None:
    """Both stages of every group, one after another; on many ranks, every rank calls it."""
    shop = train.open_workshop(direction, store, micro_batch, checkpointing)
    if direction.rectified:
        for group in range(spec.groups(direction)):
            train.sum_gradients(shop, group)
        _gather(spec.making_of(direction, store), store)
    for group in range(spec.groups(direction)):
        train.sum_vectors(shop, group)
    _gather(spec.making_of(direction, store), store)


def _gather(making: Path, store: Storage) -> None:
    """Give every machine the parts that the ranks of the others made, where each has a copy of its own."""
    if not store.is_remote or dist.get_world_size() == 1:
        return
    if processes.first_here():
        store.push_parts(making)
    dist.barrier()
    if processes.first_here():
        store.fetch_parts(making)
    dist.barrier()


def combine(direction: Direction, store: Storage) -> Path:
    """Add the groups up, tensor by tensor and rank by rank, and publish the direction unless it is there."""
    folder, making = spec.folder_of(direction, store), spec.making_of(direction, store)
    with spec.locked(making.with_name(f"{making.name}.lock")):
        if not folder.is_dir():
            for left in folder.parent.glob(f".{folder.name}.*"):  # of a process that was killed here
                shutil.rmtree(left, ignore_errors=True)
            _combine(direction, making, folder)
        store.push(folder)
        store.remove(making)
    for lock in making.parent.glob(f"{making.name}*.lock"):
        lock.unlink(missing_ok=True)
    return folder


def _combine(direction: Direction, making: Path, folder: Path) -> None:
    notes = [storage_files.read_json(making / spec.NOTE.format(group)) for group in range(spec.groups(direction))]
    records = sorted((record for note in notes if note for record in note["records"]), key=lambda item: item["batch"])
    if [record["batch"] for record in records] != list(range(direction.vector.batches)):
        raise RuntimeError(f"the parts of direction {direction.id()} in {making} are not all there; start again")
    staging = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    staging.mkdir(parents=True)
    square, part, held = 0.0, 0, {}
    for name, tensor in _summed(making, [note for note in notes if note]):
        square += float(tensor.double().square().sum())
        held[name] = tensor
        if sum(kept.nbytes for kept in held.values()) >= PART_BYTES:
            save_file(held, staging / f"direction-{part:05}.safetensors")
            part, held = part + 1, {}
    if held:
        save_file(held, staging / f"direction-{part:05}.safetensors")
    if square == 0.0:
        shutil.rmtree(staging)
        vector = direction.vector
        raise InputError(
            f"task_vector: every vector is zero after {vector.steps} step(s) at lr {vector.lr:g}, so there is no "
            "direction; raise task_vector.lr or task_vector.steps"
        )
    storage_files.write_rows(staging / spec.BATCHES, records)
    told = {"id": direction.id(), "recipe": direction.model_dump(mode="json"), "norm": square**0.5}
    zero = sum(record["rectified_norm"] == 0 for record in records)
    told |= {"batches": len(records), "rectified": sum(record["rectified"] for record in records), "zero": zero}
    told |= {"ranks": sorted({note["world"] for note in notes if note}), "threads": torch.get_num_threads()}
    storage_files.write_json(staging / RESULT, {**told, "made": provenance.now(), **provenance.stamp()})
    complete.mark_complete(staging)
    storage_files.publish(staging, folder)


@torch.no_grad()
def move(network: Any, folder: Path, strength: float) -> None:
    """theta - strength * direction, tensor by tensor, added in fp32 and rounded to the model's precision."""
    parameters = dict(network.named_parameters())
    for file in sorted(folder.glob("direction-*.safetensors")):
        with safe_open(file, framework="pt") as held:
            for name in held.keys():  # noqa: SIM118 - safe_open is no mapping
                parameter = parameters.pop(name)
                change = held.get_tensor(name).to(parameter.device)
                parameter.copy_(parameter.float().add_(change, alpha=-strength))
    if parameters:
        raise InputError(f"task_vector: {folder} has no tensor '{next(iter(parameters))}', which the model has")


def _summed(making: Path, notes: list[dict[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor of the direction, whole."""
    parts = [
        [
            making / f"vectors-{group}-{note['done']}-{rank}of{note['world']}.safetensors"
            for rank in range(note["world"])
        ]
        for group, note in enumerate(notes)
    ]
    with safe_open(parts[0][0], framework="pt") as first:
        names = list(first.keys())
    for name in names:
        total: torch.Tensor | None = None
        for files in parts:
            rows = []
            for file in files:
                with safe_open(file, framework="pt") as held:
                    rows.append(held.get_tensor(name))
            whole = torch.cat(rows)
            total = whole if total is None else total.add_(whole)
        if total is not None:
            yield name, total

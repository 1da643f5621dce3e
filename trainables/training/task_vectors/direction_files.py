"""The direction of TV or TRU, the sum of their task vectors: made if there is none, and moved along."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file

from trainables.common import provenance
from trainables.common.errors import InputError
from trainables.config.shared_artifacts import SharedVector
from trainables.storage.atomic_files import publish_folder, write_json, write_rows
from trainables.storage.file_names import RESULT
from trainables.storage.folder_storage import Storage
from trainables.training.task_vectors import forget_batches
from trainables.training.task_vectors.compute_direction import LoadRows, open_trainer
from trainables.training.task_vectors.sharded_model import ShardedModel

MAX_FILE_BYTES = 4 * 2**30


def ensure_direction(
    direction: SharedVector, store: Storage, load_rows: LoadRows, micro_batch: int | None, checkpointing: bool = False
) -> Path:
    """Return the folder of a direction; make the direction first if there is none. Every rank calls this.

    Of two trials that make it at once the first to end counts.
    """
    folder, first = forget_batches.direction_folder(direction, store), dist.get_rank() == 0
    if first:
        store.fetch(folder)
    exists: list[Any] = [folder.is_dir()]
    dist.broadcast_object_list(exists)
    if not exists[0]:
        trainer = open_trainer(direction, load_rows, micro_batch, checkpointing)
        _write_direction(direction, trainer.model, trainer.train_and_average_vectors(), folder)
    if first:
        store.push(folder)
    dist.barrier()
    return folder


def _write_direction(direction: SharedVector, model: ShardedModel, records: list[dict[str, Any]], folder: Path) -> None:
    """Write the direction, which the model's parameters hold here. Every rank gathers, rank 0 writes."""
    norm = model.weight_norm()
    if norm == 0.0:
        vector = direction.vector
        raise InputError(
            f"task_vector: every vector is zero after {vector.steps} step(s) at lr {vector.lr:g}, so there is no "
            "direction; raise task_vector.lr or task_vector.steps"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as place:
        staging = Path(place) / folder.name
        staging.mkdir()
        _write_tensors(model, staging)
        if model.rank > 0:
            return
        write_rows(staging / forget_batches.BATCHES_FILE, records)
        result = {
            "id": direction.id(),
            "recipe": direction.model_dump(mode="json"),
            "norm": norm,
            "batches": len(records),
            "rectified": sum(record["rectified"] for record in records),
            "zero": sum(record["rectified_norm"] == 0 for record in records),
            "ranks": [model.world],
            "threads": torch.get_num_threads(),
            "made": provenance.utc_now(),
            **provenance.read_provenance(),
        }
        write_json(staging / RESULT, result)
        publish_folder(staging, folder)


def _write_tensors(model: ShardedModel, folder: Path) -> None:
    number, buffer = 0, {}
    for name, tensor in model.gather():
        if model.rank == 0:
            buffer[name] = tensor
        if sum(kept.nbytes for kept in buffer.values()) >= MAX_FILE_BYTES:
            save_file(buffer, folder / f"direction-{number:05}.safetensors")
            number, buffer = number + 1, {}
    if buffer:
        save_file(buffer, folder / f"direction-{number:05}.safetensors")


@torch.no_grad()
def subtract_direction(network: Any, folder: Path, strength: float) -> None:
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

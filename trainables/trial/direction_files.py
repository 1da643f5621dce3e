"""The direction of TV or TRU, the sum of their task vectors: made if there is none, kept in files, and moved along.

A trial's model is `theta_org - strength * direction`, of one direction for all strengths: TRU's mean of rectified unit
vectors, or TV's plain vector. Vectors are fine-tuned on each batch of the forget set. Beside weights and gradients a
rank holds three of its part: the gradient of the whole forget set, that of the other points, and the running sum;
theta_org is read from disk again.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from huggingface_hub import save_torch_state_dict
from safetensors import safe_open

from trainables import benchmarks
from trainables.common import provenance
from trainables.common.errors import InputError, TrialDiverged
from trainables.common.tokenized_row import Example
from trainables.config.shared_artifacts import TaskVectorRecipe
from trainables.inference.padded_batch import choose_padding_token
from trainables.methods import method_constants, task_vector_rectification
from trainables.methods.objectives.base import NLL_TERM
from trainables.storage.atomic_files import write_folder, write_json, write_parquet_rows
from trainables.storage.file_names import RESULT
from trainables.storage.folder_storage import Storage
from trainables.training import forward_backward, model_files, sharded_model
from trainables.trial import weights_on_disk

SPLIT_SEED_STREAM = 11
"""Added to the seed, so that the random split differs from other streams of the same seed."""
VECTOR_RECORDS_FILE = "batches.parquet"
TensorsByName = dict[str, torch.Tensor]
"""This rank's part of each parameter, by name."""


@dataclass(frozen=True)
class TaskVectorTrainer:
    """One rank's part of the model, the forget rows, and their batches as row numbers."""

    direction: TaskVectorRecipe
    model: sharded_model.ShardedModel
    rows: Sequence[Example]
    batches: list[list[int]]
    target: weights_on_disk.TensorFiles
    pad: int
    micro_batch: int | None

    def train_and_average_vectors(self) -> list[dict[str, Any]]:
        """Make all vectors; leave their mean (TV: the one) in the place of the weights, and return a record a batch."""
        pieces, everything = self.model.parameter_rows, list(range(len(self.rows)))
        total: TensorsByName = {}
        tokens = 0
        if self.direction.rectified:  # the gradient of the summed NLL over the forget set, and its label tokens
            loss, tokens = self._add_gradient(everything)
            _check_finite(loss, "the forget set at the target model")
            total = {piece.name: piece.gradient.mul(tokens) for piece in pieces}
        mean, records = {piece.name: torch.zeros_like(piece.weight) for piece in pieces}, []
        for number in range(len(self.batches)):
            for piece in pieces:
                piece.weight.copy_(self._target_part(piece))
            records.append({"batch": number, **self._add_vector(number, mean, total, tokens)})
        for piece in pieces:
            piece.weight.copy_(mean[piece.name])
        return records

    def _add_vector(self, number: int, mean: TensorsByName, total: TensorsByName, tokens: int) -> dict[str, Any]:
        pieces = self.model.parameter_rows
        losses, own, others = self._fine_tune(number, total, tokens)
        for piece in pieces:  # the weights become the task vector
            piece.weight.sub_(self._target_part(piece))
        against = [others[piece.name] for piece in pieces] if others else None
        products = task_vector_rectification.compute_tensor_products([piece.weight for piece in pieces], against)
        unmoved = torch.stack([(piece.weight == 0).sum() for piece in pieces]).sum().double()
        products = self.model.sum_over_ranks(products)
        outcome = task_vector_rectification.decide_vector_rectification(products, self.direction.vector.normalise)
        for piece, scale in zip(pieces, outcome.scales, strict=True):
            share = scale / len(self.batches) if self.direction.rectified else 1.0
            mean[piece.name].add_(piece.weight, alpha=share)
            if outcome.coefficient:
                mean[piece.name].add_(others[piece.name], alpha=share * outcome.coefficient)
        record: dict[str, Any] = {name: value for name, value in asdict(outcome).items() if name != "scales"}
        record["cos"] = None if math.isnan(outcome.cos) else outcome.cos
        record["unmoved"] = float(self.model.sum_over_ranks(unmoved)) / sum(piece.parameter.numel() for piece in pieces)
        rows = len(self.batches[number])
        return {"rows": rows, "tokens": own, "loss": losses[0], "last_loss": losses[-1], **record}

    def _fine_tune(self, number: int, total: TensorsByName, tokens: int) -> tuple[list[float], int, TensorsByName]:
        """Take a batch's steps from theta_org; return the loss of each, the batch's label tokens, the others' gradient.

        The last, for TRU, is of the mean NLL of the other points at theta_org: from the sum `total` over all `tokens`.
        """
        vector, rows = self.direction.vector, self.batches[number]
        parameters = list(self.model.inner.parameters())
        optimizer: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=vector.lr, foreach=False)
        if vector.optimizer == "adamw":
            optimizer = torch.optim.AdamW(parameters, lr=vector.lr, weight_decay=0.0, foreach=False)
        others: TensorsByName = {}
        losses, own = [], 0
        for step in range(vector.steps):
            self.model.clear_gradients()
            loss, own = self._add_gradient(rows)
            _check_finite(loss, f"batch {number} at step {step + 1}")
            losses.append(loss)
            if step == 0 and self.direction.rectified:
                for piece in self.model.parameter_rows:
                    others[piece.name] = piece.gradient.mul(-own).add_(total[piece.name]).div_(tokens - own)
            optimizer.step()
        return losses, own, others

    def _add_gradient(self, rows: list[int]) -> tuple[float, int]:
        loss, tokens = forward_backward.accumulate_gradient(self.model, [(NLL_TERM, self.rows, rows)], self)
        return float(loss), tokens

    def _target_part(self, piece: sharded_model.ParameterRows) -> torch.Tensor:
        stored = weights_on_disk.read_tensor_rows(self.target, piece.name, piece.start, piece.stop)
        return stored.to(self.model.device, torch.float32)


def load_task_vector_trainer(
    direction: TaskVectorRecipe, micro_batch: int | None, checkpointing: bool
) -> TaskVectorTrainer:
    """Load the target model in fp32 and the forget rows. The process group must exist."""
    on_gpu = dist.get_backend() == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    network, tokenizer = model_files.load_model_and_tokenizer(direction.target)
    benchmark, count = direction.benchmark, direction.vector.batches
    rows, _ = benchmarks.get_benchmark(benchmark.name).training_examples(benchmark, tokenizer, direction.max_length)
    if direction.rectified:
        method_constants.check_enough_forget_rows(len(rows), count, benchmark.split)
    target = weights_on_disk.map_tensors_to_files(direction.target)
    weights_on_disk.check_tensor_names(target, network)
    if checkpointing:  # needs training mode: there dropout is off by its rate: all gradients are of one function
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for module in network.modules():
            dropped = [name for name, value in vars(module).items() if "drop" in name and isinstance(value, float)]
            for name in (*dropped, *(("p",) if isinstance(module, torch.nn.Dropout) else ())):
                setattr(module, name, 0.0)
    return TaskVectorTrainer(
        direction=direction,
        model=sharded_model.shard_model(network.train(checkpointing), device, direction.precision),
        rows=rows,
        batches=divide_rows_into_batches(len(rows), count, direction.seed),
        target=target,
        pad=choose_padding_token(tokenizer),
        micro_batch=micro_batch,
    )


def divide_rows_into_batches(rows: int, batches: int, seed: int) -> list[list[int]]:
    """Return the row numbers of each batch: a random division into parts whose sizes differ by one at most."""
    order = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, SPLIT_SEED_STREAM]))).permutation(rows)
    return [part.tolist() for part in np.array_split(order, batches)]


def _check_finite(loss: float, where: str) -> None:
    if not math.isfinite(loss):
        raise TrialDiverged(f"task vector: the loss of {where} is {loss}")


def ensure_task_vector(
    direction: TaskVectorRecipe, store: Storage, micro_batch: int | None, checkpointing: bool = False
) -> Path:
    """Return a direction's folder, made if there is none; all ranks call it. Of two trials at once the first counts."""
    folder, first = store.direction(direction.id()), dist.get_rank() == 0
    if first:
        store.fetch(folder)
    exists: list[Any] = [folder.is_dir()]
    dist.broadcast_object_list(exists)
    if not exists[0]:
        trainer = load_task_vector_trainer(direction, micro_batch, checkpointing)
        _write_direction(direction, trainer.model, trainer.train_and_average_vectors(), folder)
    if first:
        store.push(folder)
    dist.barrier()
    return folder


def _write_direction(
    direction: TaskVectorRecipe, model: sharded_model.ShardedModel, records: list[dict[str, Any]], folder: Path
) -> None:
    squares = [piece.weight.double().square().sum() for piece in model.parameter_rows]
    norm = float(model.sum_over_ranks(torch.stack(squares).sum())) ** 0.5
    if norm == 0.0:
        vector = direction.vector
        made = f"every vector is zero after {vector.steps} step(s) at lr {vector.lr:g}"
        raise InputError(f"task_vector: {made}, so there is no direction; raise task_vector.lr or task_vector.steps")
    tensors = model.gather()
    if model.rank > 0:
        return
    with write_folder(folder) as staging:
        staging.mkdir()
        save_torch_state_dict(tensors, staging, filename_pattern="direction{suffix}.safetensors")
        write_parquet_rows(staging / VECTOR_RECORDS_FILE, records)
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
            **provenance.collect_provenance(),
        }
        write_json(staging / RESULT, result)


@torch.no_grad()
def subtract_task_vector(network: Any, folder: Path, strength: float) -> None:
    """Set theta - strength * direction, tensor by tensor, added in fp32 and rounded to the model's precision."""
    parameters = dict(network.named_parameters())
    for path in sorted(folder.glob("direction*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - safe_open is no mapping
                parameter = parameters.pop(name)
                change = file.get_tensor(name).to(parameter.device)
                parameter.copy_(parameter.float().add_(change, alpha=-strength))
    if parameters:
        raise InputError(f"task_vector: {folder} has no tensor '{next(iter(parameters))}', which the model has")

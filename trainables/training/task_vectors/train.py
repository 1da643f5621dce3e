"""The vectors of a direction: fine-tuning on each batch of the forget set, rectification, and their sum.

Beside weights and gradients a rank holds three vectors of its part: the gradient of the whole forget set, that of the
other points, and the running sum; theta_org is read from disk again. A group writes its sum after every batch, so that
a lost one goes on from there. A group is one process's at a time (a lock on a file); who comes second finds it done.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open

from trainables import benchmarks
from trainables.common.errors import TrialStopped
from trainables.common.tokens import Example
from trainables.config.settings import TaskVector
from trainables.config.trial import Direction
from trainables.inference import scoring
from trainables.methods import objectives, task_vectors
from trainables.storage import files
from trainables.storage.base import Storage
from trainables.training import effective_batch, models, target_weights
from trainables.training.task_vectors import fsdp, spec


@dataclass(frozen=True)
class Settings:
    """What trainables.training.effective_batch reads of a task."""

    pad: int
    micro_batch: int | None
    frozen: Any = None


@dataclass(frozen=True)
class Workshop:
    """One rank's model on the forget rows, and the batches as row numbers."""

    direction: Direction
    engine: fsdp.Sharded
    rows: Sequence[Example]
    batches: list[list[int]]
    settings: Settings
    origin: target_weights.Originals
    making: Path
    published: Path

    def gradient(self, rows: list[int]) -> tuple[float, int]:
        """Add the gradient of the mean NLL of `rows` to the model's: loss and label tokens."""
        return effective_batch.effective_batch(self.engine, [(objectives.NLL, self.rows, rows)], self.settings, None)

    def file(self, kind: str, group: int, tag: int = 0) -> Path:
        return self.making / f"{kind}-{group}-{tag}-{self.engine.rank}of{self.engine.world}.safetensors"


def open_workshop(
    direction: Direction, store: Storage, micro_batch: int | None, checkpointing: bool = False
) -> Workshop:
    """Load the target model in fp32 and the forget rows. The process group must exist.

    Dropout is off, so that all gradients are of one function; `checkpointing` of activations needs training mode.
    """
    device = torch.device("cuda", torch.cuda.current_device()) if _on_gpu() else torch.device("cpu")
    network, tokenizer = models.load(direction.target)
    benchmark, count = direction.benchmark, direction.vector.batches
    rows, _ = benchmarks.find(benchmark.name).training_examples(benchmark, tokenizer, direction.max_length)
    if direction.rectified:
        spec.check_sizes(len(rows), count, benchmark.split)
    origin = target_weights.of(direction.target)
    origin.check(network)
    if checkpointing:
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return Workshop(
        direction=direction,
        engine=fsdp.wrap(network.train(checkpointing), device, direction.precision),
        rows=rows,
        batches=spec.divide(len(rows), count, direction.seed),
        settings=Settings(scoring.pad_of(tokenizer), micro_batch),
        origin=origin,
        making=spec.making_of(direction, store),
        published=spec.folder_of(direction, store),
    )


def sum_gradients(shop: Workshop, group: int) -> None:
    """Write the gradient of the summed NLL over all points of a group at theta_org, unless it is written."""
    with _alone(shop, group):
        if _first(shop, shop.published.is_dir()) or _agreed(shop, shop.file("gradient", group).is_file()):
            return
        rows = [row for batch in shop.batches[group :: spec.groups(shop.direction)] for row in batch]
        shop.engine.clear()
        loss, tokens = shop.gradient(rows)
        _finite(loss, "the forget set at the target model")
        found = {piece.name: piece.gradient.mul(tokens) for piece in shop.engine.pieces()}
        files.write_tensors(shop.file("gradient", group), found, {"tokens": str(tokens)})
        shop.engine.clear()


def sum_vectors(shop: Workshop, group: int) -> None:
    """Write the sum of a group's vectors, each over the number of batches; goes on where a lost one stopped."""
    with _alone(shop, group):
        if not _first(shop, shop.published.is_dir()):
            _sum_vectors(shop, group)


def _sum_vectors(shop: Workshop, group: int) -> None:
    mine = list(range(len(shop.batches)))[group :: spec.groups(shop.direction)]
    done, records = _resume(shop, group, len(mine))
    if done == len(mine):
        return
    pieces = shop.engine.pieces()
    mean = {piece.name: torch.zeros_like(piece.weight) for piece in pieces}
    if done:
        _add(shop.file("vectors", group, done), mean)
    total, tokens = _whole_gradient(shop) if shop.direction.rectified else ({}, 0)
    for number in mine[done:]:
        _reset(shop, pieces)
        records.append({"batch": number, **_one_vector(shop, pieces, number, mean, total, tokens)})
        done += 1
        files.write_tensors(shop.file("vectors", group, done), mean, {"tokens": str(tokens)})
        dist.barrier()
        if shop.engine.rank == 0:
            note = {"done": done, "world": shop.engine.world, "records": records}
            files.write_json(shop.making / spec.NOTE.format(group), note)
        dist.barrier()
        shop.file("vectors", group, done - 1).unlink(missing_ok=True)


def _one_vector(
    shop: Workshop,
    pieces: list[fsdp.Piece],
    number: int,
    mean: dict[str, torch.Tensor],
    total: dict[str, torch.Tensor],
    tokens: int,
) -> dict[str, Any]:
    """Fine-tune on one batch, rectify, and add the outcome to the mean: what the log says of it."""
    losses, own, others = _fine_tune(shop, pieces, number, total, tokens)
    for piece in pieces:  # the weights become the task vector
        piece.weight.sub_(_origin(shop, piece))
    found = task_vectors.products(
        [piece.weight for piece in pieces], [others[piece.name] for piece in pieces] if others else None
    )
    still = torch.stack([(piece.weight == 0).sum() for piece in pieces]).sum().double()
    size = torch.tensor(sum(piece.weight.numel() for piece in pieces), dtype=torch.float64, device=still.device)
    outcome = task_vectors.rectify(shop.engine.total(found), shop.direction.vector.normalise)
    for piece, scale in zip(pieces, outcome.scales, strict=True):
        share = scale / len(shop.batches) if shop.direction.rectified else 1.0
        mean[piece.name].add_(piece.weight, alpha=share)
        if outcome.coefficient:
            mean[piece.name].add_(others[piece.name], alpha=share * outcome.coefficient)
    told: dict[str, Any] = {name: value for name, value in asdict(outcome).items() if name != "scales"}
    told["cos"] = None if math.isnan(outcome.cos) else outcome.cos
    told["unmoved"] = float(shop.engine.total(still)) / float(shop.engine.total(size))
    rows = len(shop.batches[number])
    return {"rows": rows, "tokens": own, "loss": losses[0], "last_loss": losses[-1], **told}


def _fine_tune(
    shop: Workshop, pieces: list[fsdp.Piece], number: int, total: dict[str, torch.Tensor], tokens: int
) -> tuple[list[float], int, dict[str, torch.Tensor]]:
    """Take a batch's steps from theta_org: the loss of each, the batch's label tokens, and the other points' gradient.

    That one is of their mean NLL at theta_org, from the sum `total` over all `tokens`; of a plain vector there is none.
    """
    vector, rows = shop.direction.vector, shop.batches[number]
    optimizer = inner_optimizer([piece.parameter for piece in pieces], vector)
    others: dict[str, torch.Tensor] = {}
    losses, own = [], 0
    for step in range(vector.steps):
        shop.engine.clear()
        loss, own = shop.gradient(rows)
        _finite(loss, f"batch {number} at step {step + 1}")
        losses.append(loss)
        if step == 0 and shop.direction.rectified:
            others = {
                piece.name: piece.gradient.mul(-own).add_(total[piece.name]).div_(tokens - own) for piece in pieces
            }
        optimizer.step()
    return losses, own, others


def inner_optimizer(parameters: list[torch.nn.Parameter], vector: TaskVector) -> torch.optim.Optimizer:
    """Of the fine-tuning: the paper's plain gradient steps, or AdamW without weight decay."""
    if vector.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=vector.lr, foreach=False)
    return torch.optim.AdamW(parameters, lr=vector.lr, weight_decay=0.0, foreach=False)


def _whole_gradient(shop: Workshop) -> tuple[dict[str, torch.Tensor], int]:
    """The gradient of the summed NLL over the forget set, this rank's part, and its label tokens."""
    total = {piece.name: torch.zeros_like(piece.weight) for piece in shop.engine.pieces()}
    return total, sum(_add(shop.file("gradient", group), total) for group in range(spec.groups(shop.direction)))


def _reset(shop: Workshop, pieces: list[fsdp.Piece]) -> None:
    for piece in pieces:
        piece.weight.copy_(_origin(shop, piece))


def _origin(shop: Workshop, piece: fsdp.Piece) -> torch.Tensor:
    return shop.origin.rows(piece.name, piece.start, piece.stop).to(shop.engine.device, torch.float32)


def _resume(shop: Workshop, group: int, wanted: int) -> tuple[int, list[dict[str, Any]]]:
    """How many vectors of a group are summed, and their records; other ranks than made them take a whole group only."""
    note = files.read_json(shop.making / spec.NOTE.format(group)) or {"done": 0, "world": 0, "records": []}
    same = note["world"] == shop.engine.world and shop.file("vectors", group, note["done"]).is_file()
    return (note["done"], note["records"]) if _agreed(shop, same or note["done"] == wanted) else (0, [])


@contextlib.contextmanager
def _alone(shop: Workshop, group: int) -> Iterator[None]:
    """Wait until no other process works on this rank's part of the group."""
    with spec.locked(shop.making.with_name(f"{shop.making.name}-{group}-{shop.engine.rank}.lock")):
        yield


def _first(shop: Workshop, value: bool) -> bool:
    """What rank 0 says."""
    told = int(value) if shop.engine.rank == 0 else 0
    return bool(shop.engine.total(torch.tensor(told, device=shop.engine.device)))


def _agreed(shop: Workshop, there: bool) -> bool:
    """Whether every rank says so."""
    return int(shop.engine.total(torch.tensor(int(there), device=shop.engine.device))) == shop.engine.world


def _add(path: Path, total: dict[str, torch.Tensor]) -> int:
    """Add a file's tensors to those of `total`; returns the label tokens it was made from."""
    with safe_open(path, framework="pt") as held:
        for name, part in total.items():
            part.add_(held.get_tensor(name).to(part.device))
        return int(held.metadata()["tokens"])


def _finite(loss: float, where: str) -> None:
    if not math.isfinite(loss):
        raise TrialStopped("diverged", f"task vector: the loss of {where} is {loss}")


def _on_gpu() -> bool:
    return dist.is_initialized() and dist.get_backend() == "nccl"

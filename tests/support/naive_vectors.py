"""A small direction, made as the project makes it, and TRU and TV re-stated in float64 with every vector in memory."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tests.support import reference
from tests.support.tiny import encode_rows
from trainables.benchmarks import tofu
from trainables.config.settings import Benchmark, Model, Resources, TaskVector
from trainables.config.shared_artifacts import TaskVectorRecipe
from trainables.storage.opening import open_storage
from trainables.training import model_files
from trainables.training.runtime import prepare_process
from trainables.trial.direction_files import ensure_task_vector

TOFU = tofu.TofuBenchmark()


def recipe(trial_inputs: Any, **changes: Any) -> TaskVectorRecipe:
    settings = {"steps": 3, "lr": 0.05, "batches": 5, **changes}
    return TaskVectorRecipe(
        rectified=settings.pop("rectified", True),
        target=Model(path=str(trial_inputs.target), fingerprint="of-the-tests"),
        benchmark=Benchmark(data=str(trial_inputs.data), split=trial_inputs.split, fingerprint="of-the-tests"),
        vector=TaskVector(**settings),
        max_length=192,
        seed=2,
    )


def make(direction: TaskVectorRecipe, place: Path, micro_batch: int | None = None) -> dict[str, torch.Tensor]:
    """The direction's tensors, made in this process."""
    prepare_process(Resources(), 0)
    folder = ensure_task_vector(direction, open_storage(str(place)), micro_batch)
    return load_file(folder / "direction.safetensors")


class Naive:
    """The equations in float64 with every vector in memory, on flat parameters."""

    def __init__(self, trial_inputs: Any, direction: TaskVectorRecipe) -> None:
        network, tokenizer = model_files.load_model_and_tokenizer(direction.target)
        self.network = network.double()
        self.examples = encode_rows(tokenizer, TOFU.training_rows(direction.benchmark)[0], "llama2", "paper", 192)
        self.direction = direction
        self.start = reference.flat(self.network)

    def load(self, weights: torch.Tensor) -> None:
        torch.nn.utils.vector_to_parameters(weights.clone(), self.network.parameters())

    def trainer(self, numbers: list[int]) -> tuple[reference.Reference, list[Any]]:
        """Return plain fine-tuning from the weights of now, and these rows."""
        vector = self.direction.vector
        plain = reference.Settings("nll", "none", vector.lr, weight_decay=0.0, eps=1e-8, optimizer=vector.optimizer)
        return reference.Reference(self.network, plain), [self.examples[number] for number in numbers]

    def gradient(self, numbers: list[int]) -> torch.Tensor:
        plain, rows = self.trainer(numbers)
        return plain.gradient(plain.mean_nll(rows))

    def vector(self, numbers: list[int]) -> torch.Tensor:
        plain, rows = self.trainer(numbers)
        for step in range(1, self.direction.vector.steps + 1):
            plain.step(step, rows, [], [])
        vector = reference.flat(self.network) - self.start
        self.load(self.start)
        return vector

    @staticmethod
    def others(batches: list[list[int]], batch: list[int]) -> list[int]:
        return [row for other in batches if other is not batch for row in other]

    def pairs(self, batches: list[list[int]]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each batch's vector, and the gradient of the others."""
        return [(self.vector(batch), self.gradient(self.others(batches, batch))) for batch in batches]

    def unit(self, vector: torch.Tensor, gradient: torch.Tensor, normalise: str) -> torch.Tensor:
        vector = vector + max(-float(vector @ gradient), 0) / float(gradient @ gradient) * gradient
        sizes = [parameter.numel() for parameter in self.network.parameters()]
        pieces = vector.split(sizes) if normalise == "per_tensor" else [vector]
        return torch.cat([piece / piece.norm() for piece in pieces])

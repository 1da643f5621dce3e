"""The target model's weights on disk, read tensor by tensor: no second model in memory."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch.linalg import vector_norm

from trainables.common import typed_paths
from trainables.common.errors import InputError
from trainables.config.settings import Model
from trainables.training import weight_files

TensorFiles = Mapping[str, Path]
"""The safetensors file of each tensor of a model folder, by the tensor's name."""


def check_tensor_names(files: TensorFiles, network: Any) -> None:
    """Raise InputError if the loaded model has a weight that the files lack, or name in another way."""
    missing = [name for name, _ in network.named_parameters() if name not in files]
    if missing:
        raise InputError(
            f"target: {next(iter(files.values())).parent} has no tensor '{missing[0]}', which the loaded model has; "
            "save it again with transformers (from_pretrained, save_pretrained), which names tensors as it loads them"
        )


def read_tensor_rows(files: TensorFiles, name: str, start: int = 0, stop: int | None = None) -> torch.Tensor:
    """Return rows `start` to `stop` of one tensor, as stored."""
    with safe_open(files[name], framework="pt") as file:
        part: Any = file.get_slice(name)
        return part[start:stop]


def map_tensors_to_files(model: Model) -> TensorFiles:
    """Return where the weights of a model folder are, or of a hub model that was fetched before."""
    folder = typed_paths.expand_home(model.path)
    if not typed_paths.is_folder(folder):
        from huggingface_hub import snapshot_download

        patterns = ["*.safetensors", weight_files.WEIGHTS_INDEX_FILE, "config.json"]
        found = snapshot_download(model.path, revision=model.revision, allow_patterns=patterns, local_files_only=True)
        folder = Path(found)
    files: dict[str, Path] = {}
    for path in weight_files.list_weight_files(folder):
        with safe_open(path, framework="pt") as file:
            files |= dict.fromkeys(file.keys(), path)
    return files


@torch.no_grad()
def compute_relative_change(network: Any, target: TensorFiles) -> float | None:
    """Return ||theta - theta_org|| / ||theta_org|| over all weights, with theta_org rounded as it was loaded.

    None: the model's files name their tensors in another way than the loaded model does.
    """
    if any(name not in target for name, _ in network.named_parameters()):
        return None
    norms = []  # on the model's device, where they are read once, at the end
    for name, parameter in network.named_parameters():
        before = read_tensor_rows(target, name).to(parameter.device, parameter.dtype).float()
        norms += [vector_norm(each, dtype=torch.float64) for each in (parameter.float() - before, before)]
    moved, origin = torch.stack(norms).view(-1, 2).square().sum(0).tolist()
    return math.sqrt(moved / origin)


@torch.no_grad()
def load_mixture(network: Any, unlearned: Mapping[str, torch.Tensor], target: TensorFiles, weight: float) -> None:
    """Set theta = weight * theta_u + (1 - weight) * theta_org (the paper's UWC), one tensor after another.

    `unlearned`: the tensors of theta_u on the CPU, by name.
    """
    for name, parameter in network.named_parameters():
        after, before = unlearned[name].float(), read_tensor_rows(target, name).to(parameter.dtype).float()
        parameter.copy_(torch.lerp(before, after, weight))

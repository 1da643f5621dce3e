"""The process that a model is trained or evaluated in: threads, determinism, the process group, its device."""

import contextlib
import gc
import os
import resource
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainables.common import provenance
from trainables.config.settings import Resources
from trainables.training import memory


def prepare_process(resources: Resources, seed: int) -> torch.device:
    """Set threads, determinism and, for one rank, the process group; note the code's version; return the device."""
    provenance.collect_provenance()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may sum in another order each time
    release_memory()
    torch.set_num_threads(resources.cpus)
    torch.set_deterministic_debug_mode("warn")  # use_deterministic_algorithms would import torch's compiler
    # No code here reads memory that it has not written; filling new tensors with NaN takes three times as long.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.enable_cudnn_sdp(False)  # as where a model is loaded; here one may be made from nothing
    torch.manual_seed(seed)
    on_gpu = resources.gpus > 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.set_per_process_memory_fraction(memory.compute_usable_gpu_share(resources))
    else:
        with contextlib.suppress(OSError):  # Linux counts the peak from now on; elsewhere it is the process's
            Path("/proc/self/clear_refs").write_text("5")
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    ensure_process_group(device)
    return device


def ensure_process_group(device: torch.device) -> None:
    if dist.is_initialized():
        return
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # pyright: ignore[reportPrivateImportUsage]


def release_memory() -> None:
    """Free what nobody refers to. DeepSpeed's engines lie in cycles, some through autograd, which take two goes."""
    for _ in range(2):
        gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def read_device_name(gpus: float) -> str:
    return torch.cuda.get_device_name(0) if gpus and torch.cuda.is_available() else "cpu"


def read_device_memory(device: torch.device) -> int:
    """Return the bytes of the GPU, or of the memory that this process may take of its machine's."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return memory.read_usable_machine_memory()


def choose_process_token_budget(resources: Resources, network: Any) -> int:
    """Return the padded tokens of an evaluation's pass: as set, or as this process's part of the GPU has room for."""
    room = None
    if network.device.type == "cuda":
        whole = resources.gpu_memory * 1e9 if resources.gpu_memory else read_device_memory(network.device)
        room = memory.USABLE_SHARE * whole * min(1.0, resources.gpus) - torch.cuda.memory_allocated(network.device)
    shape = memory.parse_model_shape(network.config.to_dict())
    return memory.choose_evaluation_token_budget(resources, shape, network.dtype.itemsize, room)


def read_peak_memory(device: torch.device) -> int:
    """Return the peak bytes: of the GPU where there is one, else of this process's resident set."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale

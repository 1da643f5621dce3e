"""A small model's training steps in this process, and the peak of a GPU's memory in them: test_gpu runs it."""

import copy
import json
import sys
from typing import Any

import torch
import transformers

from trainables.common.tokenized_row import Example
from trainables.config.settings import Model, Objective, Resources, Training
from trainables.config.trial import Rectifier, Trial
from trainables.methods import method_constants, objectives, rectifiers
from trainables.training import engine, loop, model_files
from trainables.training.runtime import ensure_process_group
from trainables.trial import setup

DEVICE = torch.device("cuda")


def trial_of(job: dict[str, Any], **resources: Any) -> Trial:
    """Return the job's method with GRU as a trial, two micro-batches a step."""
    return Trial(
        method=job["method"],
        rectifier=Rectifier(name="gru", gamma=0.8),
        target=Model(path="m"),
        objective=Objective(layer=job["layer"]),
        training=Training(batch_size=2 * job["micro_batch"], lora_rank=job["lora"]),
        resources=Resources(zero_stage=1, precision=job["precision"], **resources),
    )


def network_of(job: dict[str, Any], device: torch.device = DEVICE) -> Any:
    """A random model of the job's family and sizes: `Llama`, `Mistral`, `Phi`."""
    family, wide = job["family"], {"max_position_embeddings": job["length"], **job["sizes"]}
    config = getattr(transformers, f"{family}Config")(**wide)
    made = getattr(transformers, f"{family}ForCausalLM")(config)
    return made.to(device, torch.bfloat16 if job["precision"] == "bf16" else torch.float32)


def train(job: dict[str, Any]) -> None:
    """Two steps of the job's method with GRU on rows that are labels from the second token on, two micro-batches each.

    The model, its frozen copy and what is trained of it are put together as in trainables.trial.setup.
    """
    network, length, size = network_of(job), job["length"], job["micro_batch"]
    constants = method_constants.resolve_constants(job["method"], Objective(layer=job["layer"]), "forget05")
    objective = objectives.make_objective(job["method"], constants)
    frozen = copy.deepcopy(network).eval().requires_grad_(False) if objective.needs_frozen_model else None
    if job["method"] == "rmu":
        setup.freeze_all_but_rmu_weights(network, job["layer"])
    if job["lora"]:
        network = model_files.add_lora_adapters(network, job["lora"], 16)
    training = Training(lr=1e-4, batch_size=2 * size, epochs=2, max_steps=2)
    runner = engine.create_engine(network.train(), training, Resources(zero_stage=1, precision=job["precision"]))
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(3, job["sizes"]["vocab_size"], (2 * size, length), generator=generator).tolist()
    rows = [Example(tuple(row), 1) for row in drawn]
    task = loop.TrainingTask(
        forget=rows,
        retain=rows,
        objective=objective,
        rectifier=rectifiers.GRU(0.8, None),
        training=training,
        seed=0,
        pad=0,
        micro_batch=size,
        frozen=frozen,
    )
    for _ in loop.train_steps(runner, task):
        pass
    runner.close()


def main(job: dict[str, Any]) -> None:
    """Print the bytes that PyTorch's allocator has handed out at most, beyond those before."""
    ensure_process_group(DEVICE)
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2}
    libraries = {"sizes": {**small, "num_key_value_heads": 2, "vocab_size": 64}, "micro_batch": 1, "length": 8}
    train(job | libraries | {"layer": 2})  # what libraries take at first use is not the plan's
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    train(job)
    print(json.dumps({"bytes": torch.cuda.max_memory_allocated() - before}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

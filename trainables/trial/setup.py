"""The parts of a trial's training, from its configuration: rows, objective, trained weights, ZeRO stage."""

import copy
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

from trainables import benchmarks
from trainables.benchmarks import evaluation
from trainables.common.errors import InputError
from trainables.common.tokenized_row import Example
from trainables.common.typed_paths import expand_home
from trainables.config.method_tables import METHODS
from trainables.config.settings import Benchmark, Model, Resources, Training
from trainables.config.trial import Trial, check_trial_runnable
from trainables.data.raw_rows import fingerprint_idk_answers, read_idk_answers
from trainables.inference.padded_batch import check_positions, choose_padding_token
from trainables.methods import method_constants, objectives, rectifiers
from trainables.storage.atomic_files import check_folder_unchanged, read_json
from trainables.training import checkpoints, loop, memory, model_files, sampling
from trainables.training.engine import Engine
from trainables.training.runtime import choose_process_token_budget, read_device_memory

RMU_WEIGHTS = "mlp.down_proj.weight"
"""RMU trains these of its layer and the two before it, as its authors do."""


def check_inputs_unchanged(trial: Trial) -> None:
    """Raise InputError if data or weights have changed since the trial was planned, or no pass measures its bar."""
    check_trial_runnable(trial)
    method_constants.check_rectifier_fits_retain_terms(trial)
    evaluation.check_data_unchanged(trial.benchmark)
    model_files.check_if_local_model(trial.target)
    check_folder_unchanged(expand_home(trial.target.path), "target")
    objective = trial.objective
    if objective.idk_fingerprint and fingerprint_idk_answers(objective.idk) != objective.idk_fingerprint:
        which = f"'{objective.idk}'" if objective.idk else "the project's answers"
        raise InputError(f"objective.idk: {which} changed after this trial was planned; plan it again")
    known = trial.target.fingerprint or ""
    if known.startswith("files:") and model_files.fingerprint_model(trial.target) != known:
        raise InputError(f"target: '{trial.target.path}' has changed since this trial was planned; plan it again")


def load_reference_evaluation(trial: Trial) -> Any:
    """Return the retain model's evaluation. Raises InputError if the file is another one than was planned."""
    kept = trial.retain_evaluation
    if kept is None:
        if trial.calibration.targets and benchmarks.get_benchmark(trial.benchmark.name).REFERENCE == "original":
            raise InputError("retain_evaluation: not given; calibration needs the target model's, to measure utility")
        return None
    path = Path(kept.path)
    found = (read_json(path) or {}).get("id")
    if kept.fingerprint and found and found != kept.fingerprint:
        raise InputError(f"retain_evaluation: {path} is evaluation {found}, not {kept.fingerprint} as planned")
    return evaluation.read_reference_evaluation(path, trial.benchmark, "retain_evaluation")


def load_training_examples(trial: Trial) -> tuple[benchmarks.Examples, benchmarks.Examples]:
    """Return forget rows and retain rows as tokens; kept for the process's next trials if known by their content."""
    target, benchmark = trial.target, trial.benchmark  # many ranks would have to agree on what each still has
    known = target.fingerprint is not None and benchmark.fingerprint is not None and trial.resources.ranks == 1
    load = _keep_examples if known else _keep_examples.__wrapped__
    return load(benchmark, target, trial.training.max_length)  # type: ignore[arg-type]  # frozen, and so hashable


@lru_cache(maxsize=4)
def _keep_examples(
    benchmark: Benchmark, target: Model, max_length: int
) -> tuple[benchmarks.Examples, benchmarks.Examples]:
    tokenizer = model_files.load_tokenizer(target)
    return benchmarks.get_benchmark(benchmark.name).training_examples(benchmark, tokenizer, max_length)


def load_target_model(target: Model, precision: str, resources: Resources, device: torch.device) -> tuple[Any, Any]:
    """Return the target model and its tokenizer; one is kept as loaded for the process's next trials, like rows.

    Each trial gets a copy, so that nothing that it does to its model reaches the next; none is kept if memory is short.
    """
    known = target.fingerprint is not None and resources.ranks == 1
    load = _keep_target if known else model_files.load_model_and_tokenizer
    network, tokenizer = load(target, precision)  # type: ignore[arg-type]  # frozen, and so hashable
    free = min(psutil.virtual_memory().available, memory.read_usable_machine_memory())
    if not known or network.get_memory_footprint() > free / 8:  # other GPUs' processes keep theirs, too
        _keep_target.cache_clear()
        return network.to(device), tokenizer
    copies: dict[int, Any] = {
        id(weight): torch.nn.Parameter(weight.detach().to(device, copy=True), weight.requires_grad)
        for weight in network.parameters()
    }
    return copy.deepcopy(network, copies).to(device), tokenizer


_keep_target = lru_cache(maxsize=1)(model_files.load_model_and_tokenizer)


def make_training_task(
    trial: Trial, network: Any, tokenizer: Any, device: torch.device, micro_batch: int | None
) -> loop.TrainingTask:
    """Return rows, objective and rectifier; freezes what the objective does not train."""
    if trial.training.targets == "rows":
        forget, retain = load_training_examples(trial)
    else:  # in the model's own words, which rank 0 asks for, so that all ranks have the same
        found: list[Any] = [None]
        network = network.to(device)
        if dist.get_rank() == 0:
            length, budget = trial.training.max_length, choose_process_token_budget(trial.resources, network)
            chosen: Any = benchmarks.get_benchmark(trial.benchmark.name)  # own: other benchmarks' rows have no facts
            found[0] = chosen.training_examples(
                trial.benchmark, tokenizer, length, network, budget, facts=trial.training.targets == "fact"
            )
        if trial.resources.ranks > 1:
            dist.broadcast_object_list(found, src=0, device=network.device)
        forget, retain = found[0]
    check_positions(network, [*forget, *retain])
    constants = method_constants.resolve_constants(trial.method, trial.objective, trial.benchmark.split)
    objective = objectives.make_objective(trial.method, constants, trial.seed)
    rule = trial.rectifier  # whose `memory` gamma tells, which is none without a moving average
    stated = rule.model_dump(exclude={"name", "gamma", "tau", "memory"}, exclude_none=True)
    rectifier = rectifiers.find_rectifier_class(rule.name)(rule.gamma, rule.tau, **stated)
    if rectifier.adds_retain and objective.needs_retain:  # of files in custom/, whose rows may not say so
        raise InputError("rectifier.name: it adds the retain gradient; the objective's retain term would count twice")
    if any(term.answers != "own" for term in objective.terms):
        forget = add_alternative_answers(trial, forget, tokenizer)
    frozen = copy.deepcopy(network).to(device).eval().requires_grad_(False) if objective.needs_frozen_model else None
    if METHODS[trial.method].steers:
        freeze_all_but_rmu_weights(network, constants.layer)
    return loop.TrainingTask(
        forget=forget,
        retain=retain,
        objective=objective,
        rectifier=rectifier,
        training=trial.training,
        seed=trial.seed,
        pad=choose_padding_token(tokenizer),
        micro_batch=micro_batch,
        observe=trial.observe,
        frozen=frozen,
    )


def make_fine_tuning_task(
    examples: benchmarks.Examples, training: Training, tokenizer: Any, seed: int, rows: int | None, clip: float | None
) -> loop.TrainingTask:
    """Return the task of plain training by the mean loss of labels, `rows` at once; `clip`: a norm, if any."""
    return loop.TrainingTask(
        forget=examples,
        retain=(),
        objective=objectives.make_objective("nll", method_constants.ObjectiveConstants()),
        rectifier=rectifiers.ClippingRectifier(tau=clip),
        training=training,
        seed=seed,
        pad=choose_padding_token(tokenizer),
        micro_batch=rows,
    )


def add_alternative_answers(
    trial: Trial, forget: benchmarks.Examples, tokenizer: Any
) -> sampling.AlternativeAnswerRows:
    """Return the forget rows with answers of `objective.idk`. Raises InputError where a row is a text."""
    benchmark, chosen = trial.benchmark, benchmarks.get_benchmark(trial.benchmark.name)
    chosen.check_rows_are_questions(benchmark)
    questions = [row["question"] for row in chosen.training_rows(benchmark)[0]]
    encoder = chosen.make_encoder(benchmark, tokenizer)

    def encode(row: int, answer: str) -> Example:
        return encoder.encode([(questions[row], answer)], max_length=trial.training.max_length)[0]

    return sampling.AlternativeAnswerRows(forget, read_idk_answers(trial.objective.idk), encode, trial.seed)


def plan_micro_batch(trial: Trial, device: torch.device) -> int | None:
    """Return the rows of a pass, as configured or as fit the smallest GPU or a CPU's caches; None: a whole share."""
    resources = trial.resources
    if resources.micro_batch is not None:
        return resources.micro_batch
    if device.type != "cuda":
        if trial.task_vector is not None:
            return None  # as directions are made that several trials share
        lengths = [len(row.input_ids) for side in load_training_examples(trial) for row in side]
        return memory.choose_cpu_micro_batch(trial, sum(lengths) / len(lengths))
    shape = model_files.read_model_shape(trial.target)
    if shape is None:
        return None
    benchmark, kind = trial.benchmark, benchmarks.get_benchmark(trial.benchmark.name)
    longest = kind.estimate_training_size(benchmark, trial.training.max_length).longest
    return memory.fit_trial_to_memory(trial, shape, longest, find_trial_gpu_bytes(trial, device)).micro_batch


def find_trial_gpu_bytes(trial: Trial, device: torch.device) -> float:
    """Return the bytes of a trial's part of a GPU, of the smallest if ranks have different ones."""
    part = min(1.0, trial.resources.gpus)
    if trial.resources.gpu_memory is not None:
        return trial.resources.gpu_memory * 1e9 * part
    least = torch.tensor(read_device_memory(device), dtype=torch.int64, device=device)
    if trial.resources.ranks > 1:
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
    return float(least) * part


def choose_engine_and_zero_stage(trial: Trial, network: Any, device: torch.device, checkpoint: Path) -> Resources:
    """Return the resources with a ZeRO stage: the checkpoint's or the memory plan's, where the user chose none."""
    if trial.resources.uses_plain_engine:
        return trial.resources.model_copy(update={"engine": "plain"})
    if trial.resources.zero_stage is not None:
        return trial.resources
    meta = checkpoints.read_checkpoint_meta(checkpoint)
    if meta:
        return trial.resources.model_copy(update={"zero_stage": meta["layout"]["zero_stage"]})
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in network.parameters()]
    cuda = device.type == "cuda"
    room = find_trial_gpu_bytes(trial, device) if cuda else read_device_memory(device) / trial.resources.ranks
    trained = sum(size for size, is_trained in sizes if is_trained)
    stage = memory.choose_fitting_zero_stage(trial, sum(size for size, _ in sizes), trained, room)
    return trial.resources.model_copy(update={"zero_stage": stage})


def gather_trained_model(trial: Trial, engine: Engine, *, final: bool = True) -> tuple[Any, bool]:
    """Return the trained model, adapters folded in, and whether every rank has it; `final`: training ends here."""
    if engine.stage < 3 and (final or trial.training.lora_rank is None):
        return model_files.merge_adapters(engine.module), True
    state = engine.gather()
    if engine.rank > 0:
        return None, False
    network, _ = model_files.load_model_and_tokenizer(trial.target, trial.resources.precision)
    network = model_files.add_lora_adapters(network, trial.training.lora_rank, trial.training.lora_alpha)
    network.load_state_dict(state)
    return model_files.merge_adapters(network.to(engine.device)), False


def freeze_all_but_rmu_weights(network: Any, layer: int) -> None:
    """Freeze all weights but RMU's. Raises InputError if the model has none of these."""
    depth = network.config.num_hidden_layers
    method_constants.check_rmu_layer(layer, depth)
    layers = range(max(0, layer - 2), layer + 1)
    wanted = {f"layers.{number}.{RMU_WEIGHTS}" for number in layers}
    found = 0
    for name, parameter in network.named_parameters():
        chosen = any(name.endswith(suffix) for suffix in wanted)
        parameter.requires_grad_(chosen)
        found += chosen
    if found != len(layers):
        raise InputError(f"objective.layer: RMU needs {RMU_WEIGHTS} of layers {list(layers)}; the model has {depth}")

"""The memory of a rank, the micro-batch and the time of a plan's trials, from configurations and measured constants.

A forward pass of a model of N parameters over D tokens is 2 N D operations, its backward pass 4 N D; recomputed
activations add 2 N D. The host launches each operation of each layer: a pass takes what the slower of both takes.
Where the constants come from: docs/reproduction.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from platform.plan.plan import Plan
from search_spaces.schema.sweep import Sweep
from trainables import benchmarks
from trainables.benchmarks.base import EvaluationSize, TrainingSize
from trainables.benchmarks.own import model_answers, row_files
from trainables.common.errors import InputError
from trainables.config.method_tables import METHODS, RECTIFIERS, RETAIN_PASS
from trainables.config.settings import KV_CACHE_FACTOR, ModelShape, Resources, Training
from trainables.config.shared_artifacts import ModelRecipe, make_task_vector_recipe
from trainables.config.trial import Trial
from trainables.training import memory, sampling

REACHED_PEAK_SHARE, GENERATION_SHARE_OF_BANDWIDTH = 0.3, 0.5
"""The shares of a GPU's dense peak that training reaches (measured), and of its bandwidth that generation reaches."""
CPU_CORE_RATES = {"bf16": 80e9, "fp32": 52e9, "bandwidth": 10e9, "launch": 10e-6}
"""Of a CPU's core (measured): operations and bytes a second, seconds for a launch."""
CPU_INFO_FILE, CPU_BF16_FLAGS = Path("/proc/cpuinfo"), ("avx512_bf16", "amx_bf16", "bf16")
"""Where Linux says what a CPU can do, and the words without which bf16 is taken to be as fast as fp32."""
LAUNCHES_PER_LAYER, GPU_SECONDS_PER_LAUNCH = (39, 72), 33e-6
"""Operations that a Llama's layer launches, forward and backward (counted); seconds for one beside a GPU (measured)."""
MAX_NEW_TOKENS, PROMPT_AND_ANSWER_TOKENS = 200, 256
"""Tokens that a row is given at most, and those of such a row with its prompt."""
SWEEP_START_SECONDS, LOAD_SECONDS, DISK_BYTE_RATE, SECONDS_PER_TEXT_TOKEN = 20.0, 1.0, 1e9, 5e-6
"""Seconds until a sweep's first work, and until a trial's beside reading its model; bytes a second of that; seconds for
a token that an evaluation reads, by a tokenizer and ROUGE."""
AUTHOR_ROWS, GENERAL_ROWS = 4000, 200
"""Rows of TOFU's authors, and of the others that a model is made from."""
NVIDIA_GPU_FOLDER = Path("/proc/driver/nvidia/gpus")
GPU_DATA_SHEETS: dict[str, dict[str, float]] = {
    "A100": {"bf16": 312e12, "fp32": 19.5e12, "bandwidth": 2.0e12, "memory": 40e9},
    "H100": {"bf16": 989e12, "fp32": 67e12, "bandwidth": 3.35e12, "memory": 80e9},
    "H200": {"bf16": 989e12, "fp32": 67e12, "bandwidth": 4.8e12, "memory": 141e9},
    "L40S": {"bf16": 362e12, "fp32": 91.6e12, "bandwidth": 0.86e12, "memory": 48e9},
    "RTX4090": {"bf16": 165e12, "fp32": 82.6e12, "bandwidth": 1.0e12, "memory": 24e9},
}
"""Dense operations a second by precision, bytes a second of the memory, and its least size: the maker's data sheets."""


def find_local_gpu_name() -> str | None:
    """Return the name of this machine's first GPU if it is one of GPU_DATA_SHEETS."""
    models = [path.read_text().replace(" ", "") for path in sorted(NVIDIA_GPU_FOLDER.glob("*/information"))]
    return next((name for name in GPU_DATA_SHEETS if models and name in models[0]), None)


def convert_memory_fit_to_json(study: str, fit: memory.MemoryFit) -> dict[str, Any]:
    split, method, rectifier = study.rsplit("/", 2)
    parts = asdict(fit.peak)
    parts = parts.pop("states") | parts
    return {
        "method": method,
        "rectifier": rectifier,
        "split": split,
        "zero_stage": fit.stage,
        "micro_batch": fit.micro_batch,
        "bytes": {name: round(value) for name, value in parts.items()},
        "total_bytes": round(fit.peak.total),
        "limit_bytes": None if fit.limit is None else round(fit.limit),
    }


def check_memory_fits(needs: Mapping[str, memory.MemoryFit]) -> None:
    """Raise InputError on trials that cannot fit, with the numbers of the largest."""
    tight = {study: fit for study, fit in needs.items() if not fit.fits}
    if not tight:
        return
    study, fit = max(tight.items(), key=lambda need: need[1].peak.total)
    worst = convert_memory_fit_to_json(study, fit)
    parts = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in worst["bytes"].items() if size >= 5e7)
    more = f"; {len(tight) - 1} other kinds of trials do not fit either" if len(tight) > 1 else ""
    size = math.ceil(fit.peak.total / memory.USABLE_SHARE / 1e9)
    raise InputError(
        f"resources: {worst['method']} with rectifier {worst['rectifier']} on {worst['split']} needs "
        f"{fit.peak.total / 1e9:.1f} GB on each rank (ZeRO {fit.stage}, micro-batch {fit.micro_batch}: {parts}), "
        f"of a GPU {(fit.limit or 0.0) / 1e9:.1f} GB are usable{more}; take more ranks (--set resources.ranks=N), "
        "--set resources.precision=bf16, resources.gradient_checkpointing=true, resources.offload_optimizer=true, "
        f"resources.micro_batch=none, training.lora_rank=8, or GPUs of {size} GB (--set resources.gpu_memory=GB)"
    )


def estimate_memory_by_study(trials: Sequence[Trial], shape: ModelShape | None) -> dict[str, memory.MemoryFit]:
    """Return the memory that trials need; nothing if the model's sizes are not known before it is fetched."""
    if shape is None:
        return {}
    texts = dict.fromkeys((trial.benchmark, trial.training.max_length) for trial in trials)
    sizes = {text: benchmarks.get_benchmark(text[0].name).estimate_training_size(*text) for text in texts}
    kinds = {(one.study(), one.training, one.objective, one.rectifier.parts): one for one in trials}
    needs: dict[str, memory.MemoryFit] = {}
    for (study, *_), trial in kinds.items():  # of each study the trial that takes most
        text, resources = sizes[trial.benchmark, trial.training.max_length], trial.resources
        if not (resources.gpus or resources.micro_batch or trial.task_vector):
            resources = resources.model_copy(update={"micro_batch": memory.choose_cpu_micro_batch(trial, text.mean)})
            trial = trial.model_copy(update={"resources": resources})
        size, part = resources.gpu_memory, min(1.0, resources.gpus)
        fit = memory.fit_trial_to_memory(trial, shape, text.longest, size * 1e9 * part if size and part else None)
        needs[study] = max(needs.get(study, fit), fit, key=lambda one: one.peak.total)
    return needs


def estimate_device_rates(resources: Resources) -> dict[str, float]:
    """Return the operations (by precision) and bytes a second of a rank's device, and the seconds for a launch."""
    if not resources.gpus:
        known = set(CPU_INFO_FILE.read_text().split()) if CPU_INFO_FILE.is_file() else set()
        rates = CPU_CORE_RATES | ({} if known & {*CPU_BF16_FLAGS} else {"bf16": CPU_CORE_RATES["fp32"]})
        return {name: rate if name == "launch" else rate * resources.cpus for name, rate in rates.items()}
    part, peak = min(1.0, resources.gpus), GPU_DATA_SHEETS[resources.gpu_name or find_local_gpu_name() or "A100"]
    shares = {"bf16": REACHED_PEAK_SHARE, "fp32": REACHED_PEAK_SHARE, "bandwidth": GENERATION_SHARE_OF_BANDWIDTH}
    return {"launch": GPU_SECONDS_PER_LAUNCH} | {name: part * share * peak[name] for name, share in shares.items()}


def estimate_training_seconds(
    trial: Trial, shape: ModelShape, points: int, tokens: float, rows: int, rates: Mapping[str, float]
) -> float:
    """Return the seconds of training on `points` forget rows of `tokens` tokens on average, `rows` in a pass."""
    once = 8 if trial.resources.gradient_checkpointing else 6
    each = shape.parameter_count / rates[trial.resources.precision] / trial.resources.ranks
    if trial.task_vector is not None:
        return once * points * tokens * (trial.task_vector.steps + 2) * each
    needs, rectifier = METHODS[trial.method].needs, RECTIFIERS[trial.rectifier.name]
    retain_passes = int(RETAIN_PASS in rectifier.needs or "retain_multiplier" in needs)
    retain_passes += memory.trial_has_retain_loss(trial)
    if (trial.rectifier.parts or rectifier.parts) <= 1:
        retain_passes = min(1, retain_passes)  # one serves the rectifier and the term
    passes = 1 + retain_passes + ("pairs" in needs) + 1 / (trial.observe or float("inf"))
    if "frozen_model" in needs:
        padded = max(tokens, memory.find_loss_padding_length(trial)) / tokens
        passes += (2 / once + ("frozen_on_forget" not in needs)) * padded
    batch = trial.training.batch_size
    launching = -(-batch // trial.resources.ranks // rows) * shape.layers * sum(LAUNCHES_PER_LAYER) * rates["launch"]
    return sampling.count_steps(trial.training, points) * passes * max(once * batch * tokens * each, launching)


def estimate_evaluation_seconds(
    trial: Trial, shape: ModelShape, points: int, size: EvaluationSize, rates: Mapping[str, float]
) -> float:
    """Return the seconds of all evaluations of a trial, of mixtures at most.

    Ranks share an evaluation, but for those of task vectors and mixtures, where the others wait for the first.
    """
    resources, alone = trial.resources, trial.task_vector is not None
    precision = "fp32" if alone else resources.precision
    shared = 1 if alone else resources.ranks
    count = 1 / shared + len(trial.calibration.targets) * trial.calibration.evaluations
    if trial.training.eval_every and not alone:
        part, looks = 1.0, (sampling.count_steps(trial.training, points) - 1) // trial.training.eval_every
        if rows := trial.selection.rows:  # a look reads these alone, and one is at the target model
            few = trial.benchmark.model_copy(update={"limit": min(rows, trial.benchmark.limit or rows)})
            part = benchmarks.get_benchmark(few.name).estimate_evaluation_size(few).read / max(1.0, size.read)
            looks += 1
        count += part * looks / shared
    budget = resources.evaluation_tokens or (memory.MAX_PASS_TOKENS if resources.gpus else memory.CPU_PASS_TOKENS)
    operations = 2 * shape.parameter_count / rates[precision]
    launching = shape.layers * LAUNCHES_PER_LAYER[0] * rates["launch"]
    weights = shape.parameter_count * memory.WEIGHT_BYTES[precision] / rates["bandwidth"]
    waves = math.ceil(size.generated / MAX_NEW_TOKENS / max(1, KV_CACHE_FACTOR * budget // PROMPT_AND_ANSWER_TOKENS))
    reading = max(size.read * operations, math.ceil(size.read / budget) * launching)
    generating = max(size.generated * operations, waves * MAX_NEW_TOKENS * max(launching, weights))
    return count * (reading + generating + size.read * SECONDS_PER_TEXT_TOKEN)


def estimate_row_sizes(sweep: Sweep, trial: Trial) -> tuple[TrainingSize, EvaluationSize]:
    """Return how much text a trial trains on and an evaluation reads; of authors that a sweep invents, too."""
    benchmark, training = trial.benchmark, trial.training
    kind, made = benchmarks.get_benchmark(benchmark.name), sweep.fictional
    text, asked = kind.estimate_training_size(benchmark, training.max_length), kind.estimate_evaluation_size(benchmark)
    if text.points is None and training.max_steps is not None:
        return replace(text, points=training.max_steps * training.batch_size), asked
    if made is None or not benchmark.is_fictional:
        return text, asked
    points = made.authors * made.questions * int(benchmark.split.removeprefix("forget")) // 100
    asked = EvaluationSize(asked.read / 4, asked.generated / 4)  # its files are that much shorter than TOFU's
    return replace(text, points=points), asked


def estimate_seconds_of_all_trials(plan: Plan, shape: ModelShape) -> float | None:
    """Return the seconds of all trials one after another; None where the number of rows is not known.

    The known trials of an Optuna study stand for all that it is to have.
    """
    known, total, rates = plan.group_trials_by_study(), 0.0, estimate_device_rates(plan.sweep.resources)
    load = LOAD_SECONDS + shape.parameter_count * memory.WEIGHT_BYTES[plan.sweep.resources.precision] / DISK_BYTE_RATE
    trained: set[str] = set()
    for trial in plan.trials:
        share = plan.planned[trial.study()] / len(known[trial.study()])
        text, asked = estimate_row_sizes(plan.sweep, trial)
        if text.points is None:
            return None
        rows = plan.needs[trial.study()].micro_batch
        made = make_task_vector_recipe(trial)  # trials that differ by their strength alone share it
        key = made.id() if made else trial.id()
        if key not in trained:
            trained.add(key)
            seconds = estimate_training_seconds(trial, shape, text.points, text.mean, rows, rates)
            total += (1 if made else share) * seconds
        total += share * (load + estimate_evaluation_seconds(trial, shape, text.points, asked, rates))
    return total


def estimate_preparation_seconds(
    plan: Plan, shape: ModelShape, recipes: Sequence[ModelRecipe], evaluations: int
) -> float:
    """Return the seconds for models, those from one base side by side, and evaluations of target and retain models.

    A model that is to answer neutral prompts does that, too, and one that is written is measured again.
    """
    first, authors, rates = plan.trials[0], plan.sweep.fictional, estimate_device_rates(plan.sweep.resources)
    text, asked = estimate_row_sizes(plan.sweep, first)
    points = GENERAL_ROWS + (authors.authors * authors.questions if authors else AUTHOR_ROWS)
    rows_of_step = Training(batch_size=first.training.batch_size)  # which the ranks divide
    plain = Trial(method="ga", target=first.target, resources=first.resources, training=rows_of_step)
    rows = memory.choose_cpu_micro_batch(plain, text.mean)
    trained = {recipe.base: plain.model_copy(update={"training": recipe.training}) for recipe in recipes}
    made = sum(estimate_training_seconds(one, shape, points, text.mean, rows, rates) for one in trained.values())
    if not row_files.are_model_answers_ready(first.benchmark) or any(recipe.answers for recipe in recipes):
        words = EvaluationSize(0, len(model_answers.read_neutral_prompts()) * model_answers.ANSWER_TOKENS)
        made += estimate_evaluation_seconds(plain, shape, 0, words, rates)
    evaluations += plan.sweep.export
    return made + evaluations * (LOAD_SECONDS + estimate_evaluation_seconds(plain, shape, 0, asked, rates))

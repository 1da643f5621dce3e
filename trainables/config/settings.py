"""Parts of a configuration: frozen values, validated once. Nothing here imports torch, so that plans stay quick."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trainables.config import types
from trainables.config.types import Count, Decay, IdText, Name, Natural, NotNegative, PathOrId, Positive, Seed, Share

Dialect = Literal["paper", "open-unlearning"]
Precision = Literal["fp32", "bf16"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]
KLReduction = Literal["labels", "attended", "all_positions", "all_positions_fixed_pad"]
NormaliseUnit = Literal["whole", "per_tensor"]
"""What TRU brings to length 1: a whole vector, or each tensor of it."""
FICTION_PREFIX = "fictional:"
"""Start of the fingerprint of made-up rows."""
KV_CACHE_FACTOR = 4
"""Tokens that an evaluation may keep as keys and values, for each token of a pass (`Resources.evaluation_tokens`)."""
GREEDY_SAFE_KEYS = frozenset(
    "do_sample temperature top_p top_k min_p typical_p max_length max_new_tokens use_cache transformers_version "
    "_from_model_config bos_token_id eos_token_id pad_token_id output_attentions output_hidden_states".split()
)
"""The generation settings that a model may have without changing which token is the likeliest, or which one ends."""
LABELS_PER_CHUNK = 4096
"""Labels whose losses an evaluation computes at once, which takes two fp32 numbers for each token of the vocabulary."""


class FrozenSettings(BaseModel):
    """A frozen value that refuses unknown fields and numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Model(FrozenSettings):
    """A causal language model: a folder or a hub id; `fingerprint` stands for the path in every hash."""

    path: PathOrId
    revision: IdText | None = None
    fingerprint: IdText | None = None
    tokenizer: PathOrId | None = None
    """Another folder or hub id that the tokenizer comes from; none: the model's own. Part of the fingerprint."""
    attention: Attention = "sdpa"

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


class ModelShape(FrozenSettings):
    """Sizes of a decoder, which decide its memory and time. By default heads share neither keys nor columns."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int = Field(default_factory=lambda sizes: sizes["heads"])
    head_size: int = Field(default_factory=lambda sizes: sizes["hidden"] // sizes["heads"])
    intermediate: int
    vocabulary: int
    gated: bool = True
    """The feed-forward layer multiplies with a gate (Llama, Mistral, Qwen) instead of having two matrices (Phi)."""
    tied: bool = False

    @property
    def parameter_count(self) -> int:
        """Count weights of all matrices and norms, without biases, which are below 0.1 %."""
        attention = self.hidden * self.head_size * 2 * (self.heads + self.kv_heads)
        feed_forward = (3 if self.gated else 2) * self.hidden * self.intermediate
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden
        return self.layers * (attention + feed_forward + 2 * self.hidden) + embeddings + self.hidden


class Objective(FrozenSettings):
    """Settings of the unlearning objective over a preset; METHODS says which are read."""

    preset: Literal["paper", "authors", "open-unlearning"] = "paper"
    beta: Positive | None = None
    margin: float | None = Field(default=None, ge=-1e9, le=1e9)
    forget_coefficient: Positive | None = None
    retain_coefficient: NotNegative | Literal["balanced"] | None = None
    """Weight of the retain term; `balanced`: a gradient as long as the forget terms' (`compute_balancing_weight`)."""
    kl_coefficient: Positive | None = None
    kl_reduction: KLReduction | None = None
    layer: Natural | None = None
    steering: Positive | None = None
    alpha: NotNegative | None = None
    rmu_reduction: Literal["all_positions", "labels"] | None = None
    beta2: NotNegative | None = None
    """SatImp's exponent of 1 - p."""
    retain_bound: NotNegative | None = None
    """PDU's bound of the retain loss, in nats a token; above it the weight of the retain term grows."""
    dual_rate: Positive | None = None
    """PDU's rate of that weight, which begins at `retain_coefficient`, an optimizer step."""
    dual_warmup: NotNegative | None = None
    """Epochs in which that weight stays as it is."""
    idk: PathOrId | None = None
    """Text file of answers like "I do not know", one a line; none: the project's own (trainables/data/idk.txt)."""
    idk_fingerprint: IdText | None = None


class Benchmark(FrozenSettings):
    """Rows that a trial forgets, retains and is measured on."""

    name: types.BenchmarkName = "tofu"
    data: PathOrId = "locuslab/TOFU"
    revision: IdText | None = None
    split: Name = "forget05"
    dialect: Dialect = "paper"
    template: Name = "llama2"
    sources: tuple[PathOrId, ...] = ()
    """Where further parts of the data are, `PART=PLACE`: folders or hub ids (WMDP), files of one's own (own)."""
    tasks: tuple[Name, ...] = ()
    """Tasks of lm-eval whose accuracies count in the utility (own)."""
    shots: Natural = 0
    """Worked examples before each question (MMLU)."""
    measures: tuple[Name, ...] = ()
    """Measures beside the benchmark's own, by name, or `all` that it can report (docs/measuring.md)."""
    holdout: IdText | None = None
    """The configuration of rows that no model saw, for membership; none: TOFU's own for the split."""
    limit: Count | None = None
    """How many rows of each evaluation task, the first (own: evenly spaced); none: as many as the dialect takes."""
    fingerprint: IdText | None = None

    @property
    def is_fictional(self) -> bool:
        return (self.fingerprint or "").startswith(FICTION_PREFIX)

    @property
    def places(self) -> dict[str, str]:
        return dict(source.split("=", 1) for source in self.sources)

    @field_validator("measures")
    @classmethod
    def _sort_measures(cls, measures: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({name for name in measures if name != "standard"}))

    @field_validator("sources")
    @classmethod
    def _sort_sources(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        for source in sources:
            part, equals, place = source.partition("=")
            if not (part and equals and place):
                raise ValueError(f"write PART=PLACE, got '{source}'")
        if len({source.partition("=")[0] for source in sources}) < len(sources):
            raise ValueError("each part once")
        return tuple(sorted(sources))


class Training(FrozenSettings):
    """Settings of the optimizer. `batch_size` is the effective one: rows of an optimizer step over all ranks."""

    lr: Positive = 1e-5
    epochs: Positive = 5
    max_steps: Count | None = None
    batch_size: Count = 32
    optimizer: Literal["adamw", "sgd"] = "adamw"
    schedule: Literal["constant", "linear"] = "constant"
    warmup_steps: Natural = 0
    warmup_epochs: NotNegative = 0
    """Warm-up as a number of epochs, rounded down to steps, in the place of `warmup_steps`."""
    weight_decay: NotNegative = 0.01
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: Positive = 1e-8
    max_length: int = Field(default=512, ge=8, le=2**20)
    lora_rank: Count | None = None
    """Train low-rank adapters of every linear layer instead of the weights (peft); only they are rectified."""
    lora_alpha: Count = 16
    targets: Literal["rows", "own", "fact"] = "rows"
    """What is trained on: the rows' answers, or of own rows what the model itself says where that names the fact; with
    `fact`, of the rows to forget the fact alone, behind what its answer begins with."""
    eval_every: Count | None = None
    """Evaluate every so many optimizer steps and after the last: the trial's selection rule then chooses the step."""
    stop_above: float | None = Field(default=None, gt=0)
    """A retain loss above this bar, where that is measured (a retain pass, `observe`), ends the training: collapsed."""
    stop_below: Positive | None = None
    """The benchmark's utility (MU) below this bar, looked at by `eval_every`, is a collapsed model, too."""
    stop_when: str | None = Field(default=None, pattern=r"^utility:(0?\.[0-9]*[1-9][0-9]*|1(\.0*)?)$")
    """`utility:0.95`: training ends where `eval_every` finds less of the target model's; a step before is chosen."""

    @property
    def kept_utility_share(self) -> float | None:
        """The share of the target model's utility that `stop_when` keeps."""
        return float(self.stop_when.partition(":")[2]) if self.stop_when else None

    @model_validator(mode="after")
    def _check_pairs(self) -> Training:
        if self.warmup_steps and self.warmup_epochs:
            raise ValueError(f"warmup_steps: warmup_epochs={self.warmup_epochs:g} stands in its place; set that to 0")
        for name in ("stop_below", "stop_when"):
            if getattr(self, name) is not None and self.eval_every is None:
                raise ValueError(f"{name}: the utility is measured by training.eval_every=K; set that, too")
        return self


class Resources(FrozenSettings):
    """Hardware of one trial; `cpus` and `gpus`: of a rank. `cpus` is also the number of threads: sums depend on it."""

    ranks: Count = 1
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    """None: the first of ZeRO 1, 2, 3 whose states fit the device (training.memory); the result tells which."""
    engine: Literal["auto", "deepspeed", "plain"] = "auto"
    """`plain` for one rank, `deepspeed` for anything; `auto` takes plain without ranks, ZeRO stage and offloading."""
    precision: Precision = "fp32"
    compile: bool = False
    """Compile decoder layers and loss for the plain engine's training, not for evaluation (docs/decisions/0018)."""
    offload_optimizer: bool = False
    gradient_checkpointing: bool = False
    cpus: Count = 1
    gpus: NotNegative = 0
    share_gpus: bool = False
    """`--set resources.gpus=auto`: the plan takes such a part of a GPU that as many trials as fit share each."""
    gpu_memory: Positive | None = None
    """GB (10^9 bytes) of a GPU, that the plan goes by; none: the plan leaves it open and a run asks its GPU."""
    gpu_name: Literal["A100", "H100", "H200", "L40S", "RTX4090"] | None = None
    """Whose rate the plan's hours go by; none: this machine's GPU, or else an A100."""
    micro_batch: Count | None = None
    """Rows of one rank's forward pass; none: as many as fit (trainables.training.memory); the result tells which."""
    checkpoint_every: Count | None = None
    """Optimizer steps between checkpoints of a trial in progress."""
    evaluation_tokens: int | None = Field(default=None, ge=256, le=10**9)
    """Padded tokens of an evaluation's pass; none: what fits the GPU, 4,096 on a CPU; the result tells which."""

    @property
    def uses_plain_engine(self) -> bool:
        """Whether a trial trains with the engine of one rank, and not with DeepSpeed's."""
        return self.engine == "plain" or (self.engine == "auto" and not self._needs_deepspeed)

    @property
    def _needs_deepspeed(self) -> bool:
        return self.ranks > 1 or self.zero_stage is not None or self.offload_optimizer

    @model_validator(mode="after")
    def _check_zero_stage(self) -> Resources:
        """Refuse what the pinned DeepSpeed cannot do, or where a written gradient does not reach the step."""
        if self.engine == "plain" and self._needs_deepspeed:
            raise ValueError("engine=plain is for one rank, without zero_stage and offload_optimizer; use deepspeed")
        if self.compile and not self.uses_plain_engine:
            raise ValueError("compile=true is for the plain engine: one rank without zero_stage and offload_optimizer")
        if self.zero_stage == 0 and self.precision == "bf16":
            raise ValueError("zero_stage=0 with precision=bf16 has no fp32 gradient to rectify; use stage 1, 2 or 3")
        if self.zero_stage == 0 and self.offload_optimizer:
            raise ValueError("zero_stage=0 cannot offload (offload_optimizer=true); use zero_stage 1, 2 or 3")
        return self


class TaskVector(FrozenSettings):
    """Length (`stg` of TRU, `strength` of TV) and making of a task vector.

    A vector is fine-tuned for `steps` full-batch iterations of `optimizer` at `lr` (the paper's T and lr). TRU splits
    the forget set at random into `batches` and brings every rectified vector to length 1 (`normalise`).
    """

    stg: Positive | None = None
    strength: Positive | None = None
    steps: Count = 5
    lr: Positive = 1e-4
    batches: Count = 20
    normalise: NormaliseUnit = "whole"
    optimizer: Literal["sgd", "adamw"] = "sgd"


class Calibration(FrozenSettings):
    """UWC: after unlearning, mix with the target model until MU is each of these shares of the target model's.

    Each is searched to within `tolerance` of MU in at most `evaluations` evaluations.
    """

    targets: tuple[Share, ...] = ()
    tolerance: Positive = 0.002
    evaluations: Count = 12

    @field_validator("targets")
    @classmethod
    def _sort_targets(cls, targets: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(targets)) < len(targets):
            raise ValueError("each share once")
        return tuple(sorted(targets))


class Selection(FrozenSettings):
    """Rule that chooses among a study's trials, or among a trial's steps (trainables.benchmarks.selection).

    `utility_floor`: the most removal among those that keep `share` of the target model's utility, else the most
    utility. With `halves` or `seeds` it is chosen on one half of the rows, or these seeds, and reported on the others.
    `rows`: steps are chosen by a quick look at so many rows of each set, and only the chosen one is evaluated whole;
    training ends where looks say that no later step will be better (StepSelection.find_reason_to_end_training).
    """

    rule: Literal["utility_floor", "highest_removal", "highest_utility"] = "utility_floor"
    share: Share = 0.9
    halves: bool = False
    seeds: tuple[Seed, ...] = ()
    rows: Count | None = None


class RetainEvaluationFile(FrozenSettings):
    """Evaluation of the retain model, for forget quality: a file of the storage."""

    path: PathOrId
    fingerprint: IdText | None = None

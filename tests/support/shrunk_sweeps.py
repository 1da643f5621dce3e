"""Every named sweep made small: rows that take no time, a random model of its backbone's family, two of its trials."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from search_spaces.schema.sweep import Sweep
from tests.support import small_sweep, tiny
from tests.support.environment import type_settings
from trainables.benchmarks.wmdp import CONFIG_BY_QUESTION_TASK

SMALL = (
    *"resources.ranks=1 resources.cpus=1 resources.gpus=0 resources.precision=fp32 training.batch_size=2".split(),
    *"training.max_steps=2 benchmark.limit=2".split(),
)
FAMILIES = {"Llama-2-7B-chat": "Llama", "Llama-2-7B": "Llama", "ICLM-7B": "Llama", "Phi-1.5": "Phi"}
FAMILIES |= {"Zephyr-7B-beta": "Mistral"}
"""A backbone's name -> the classes of transformers that it is made of."""


def family(sweep: Sweep) -> str:
    """Of the sweep's backbone; a sweep that makes its models, or is given one, takes a Llama."""
    return FAMILIES.get(sweep.backbone.name, "Llama") if sweep.backbone else "Llama"


def write_model(folder: Path, family: str) -> Path:
    """Random weights of a family, with the byte tokenizer."""
    shared = {"num_key_value_heads": 1} if family == "Mistral" else {}
    return tiny.write_model(folder, family=family, initializer_range=0.02, **shared)


def target(place: Path, family: str) -> list[str]:
    return [f"target={write_model(place / 'mine', family)}"]


def muse(place: Path) -> list[str]:
    return [f"benchmark.data={tiny.muse(place / 'data')}", "training.max_length=32"]


def wmdp(place: Path) -> list[str]:
    for name in CONFIG_BY_QUESTION_TASK.values():
        tiny.write_rows(place / f"questions/{name}/test.json", tiny.choices(2))
    for split in ("test", "dev"):
        tiny.write_rows(place / f"mmlu/virology/{split}.json", tiny.choices(2))
    for corpus in ("bio-forget", "bio-retain", "cyber-forget", "cyber-retain"):
        tiny.write_rows(place / "data" / f"{corpus}-corpus.jsonl", [{"text": tiny.text(1, 12)}])
    sources = f"benchmark.sources=mmlu={place / 'mmlu'},wmdp={place / 'questions'}"
    return [f"benchmark.data={place / 'data'}", sources, "training.max_length=32"]


def tofu(place: Path) -> list[str]:
    """Six rows of everything."""
    data = small_sweep.write_rows(place / "data")
    for file in data.glob("*.json"):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:6]))
    return [f"benchmark.data={data}"]


def own(place: Path) -> list[str]:
    return [f"{part}={file}" for part, file in tiny.own(place / "rows").items()]


@dataclass(frozen=True)
class Shrunk:
    """How a sweep is made small: two trials of `paper` are left, whose metrics differ.

    Those of GD without and with GRU would not: on these models its gradient has no conflict.
    """

    rows: Callable[[Path], list[str]]
    settings: tuple[str, ...]
    only: tuple[str, ...] = ()
    models: tuple[str, ...] = ("full", "retain95", "target", "retain")
    """Roles of the models folder: those of TOFU's 5 %, and of MUSE and WMDP; none where the sweep makes its models."""

    def typed(self, place: Path, sweep: Sweep) -> list[str]:
        """The sweep's name and its options, the files that they name written below `place`."""
        for role in self.models:
            write_model(place / "models" / role, family(sweep))
        folder = [f"models={place / 'models'}"] if self.models else []
        only = [word for item in self.only for word in ("--only", item)]
        settings = [*SMALL, *self.rows(place), *folder, *self.settings]
        return [sweep.name, "--strategy", "paper", *type_settings(settings), *only]


SPLIT, BASE = "benchmark.split=forget05", ("base",)
VECTORS = (SPLIT, "method=tv,tru", "task_vector.batches=2", "task_vector.steps=1", "task_vector.normalise=per_tensor")
ARENA = Shrunk(tofu, (SPLIT, "method=npo", "rectifier.name=none,blur", "seed=0"), models=())
SWEEPS = {
    **dict.fromkeys(("tofu_llama32_1b", "tofu_llama32_3b", "tofu_llama31_8b"), Shrunk(tofu, (SPLIT, "method=npo_gd"))),
    **dict.fromkeys(("tofu_llama_tru", "tofu_phi_tru"), Shrunk(tofu, VECTORS)),
    **dict.fromkeys(("arena", "arena_quick"), ARENA),
    "quickstart": Shrunk(tofu, ("method=ga",), models=()),
    "tofu_tiny": Shrunk(tofu, (SPLIT, "method=npo"), models=()),
    "tofu_llama": Shrunk(tofu, (SPLIT, "method=npo_kl")),
    "tofu_phi": Shrunk(tofu, (SPLIT, "method=npo"), models=BASE),
    "tofu_phi_uwc": Shrunk(tofu, (SPLIT, "method=ga")),
    "tofu_smollm2": Shrunk(tofu, (SPLIT, "method=npo", "benchmark.template=plain"), ("rectifier.name=none,gru",), BASE),
    "tofu_tau": Shrunk(tofu, ("method=npo", "rectifier.tau=2,none")),
    "tofu_gamma": Shrunk(tofu, ("method=npo", "rectifier.gamma=0.02,none")),
    "tofu_dynamics": Shrunk(tofu, ("method=npo",)),
    "tofu_ablation": Shrunk(tofu, ("method=ga",), only=("rectifier.name=clip,gru",)),
    "wmdp_zephyr": Shrunk(wmdp, ("method=wga",)),
    "wmdp_rmu": Shrunk(wmdp, ("objective.layer=1",)),
    "muse_books": Shrunk(muse, ("method=npo_gd",)),
    "muse_news": Shrunk(muse, ("method=ga",)),
    "own": Shrunk(
        lambda place: [*own(place), *target(place, "Llama")], ("method=npo", "training.max_length=64"), models=()
    ),
}

"""Every named sweep made small: rows that take no time, a random model of its backbone's family, two of its trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from search_spaces.schema.sweep import Sweep
from tests.support import small_sweep, tiny
from tests.support.environment import type_settings
from trainables.benchmarks.wmdp import QUESTIONS

SMALL = (
    "resources.ranks=1",
    "resources.cpus=1",
    "resources.gpus=0",
    "resources.precision=fp32",
    "training.batch_size=2",
    "training.max_steps=2",
    "benchmark.limit=2",
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


def models(*roles: str) -> Callable[[Path, str], list[str]]:
    """A models folder with these roles."""

    def write(place: Path, family: str) -> list[str]:
        for role in roles:
            write_model(place / "models" / role, family)
        return [f"models={place / 'models'}"]

    return write


PUBLISHED = models("full", "retain95", "target", "retain")
"""Those of TOFU's 5 %, and of MUSE and WMDP."""


def none(place: Path, family: str) -> list[str]:
    """The sweep makes its models itself."""
    return []


def target(place: Path, family: str) -> list[str]:
    return [f"target={write_model(place / 'mine', family)}"]


def muse(place: Path) -> list[str]:
    return [f"benchmark.data={tiny.muse(place / 'data')}", "training.max_length=32"]


def wmdp(place: Path) -> list[str]:
    for name in QUESTIONS.values():
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
    """How a sweep is made small, and the labels of the two trials of `paper` that are left.

    Their metrics differ. Those of GD without and with GRU would not: on these models its gradient has no conflict.
    """

    rows: Callable[[Path], list[str]]
    labels: tuple[str, str]
    settings: tuple[str, ...]
    only: tuple[str, ...] = ()
    models: Callable[[Path, str], list[str]] = PUBLISHED

    def written(self, place: Path, sweep: Sweep) -> list[str]:
        """What --set takes, the files that it names written below `place`."""
        return [*SMALL, *self.rows(place), *self.models(place, family(sweep)), *self.settings]

    def typed(self, place: Path, sweep: Sweep) -> list[str]:
        """The sweep's name and its options, files as in `written`."""
        only = [word for item in self.only for word in ("--only", item)]
        return [sweep.name, "--strategy", "paper", *type_settings(self.written(place, sweep)), *only]


SPLIT = "benchmark.split=forget05"
VECTORS = (SPLIT, "method=tv,tru", "task_vector.batches=2", "task_vector.steps=1", "task_vector.normalise=per_tensor")
OPEN_UNLEARNING = Shrunk(
    tofu, ("npo_gd-forget05-s0", "gru-npo_gd-forget05-g0.8-tnone-s0"), (SPLIT, "method=npo_gd", "resources.ranks=1")
)
ARENA, ARENA_QUICK = (
    Shrunk(
        tofu,
        (f"npo-forget05-lr{lr}-s0", f"blur-npo-forget05-lr{lr}-s0"),
        (SPLIT, "method=npo", "rectifier.name=none,blur", "seed=0"),
        models=none,
    )
    for lr in ("0.0004", "0.0003")
)
SWEEPS = {
    **dict.fromkeys(("tofu_llama32_1b", "tofu_llama32_3b", "tofu_llama31_8b"), OPEN_UNLEARNING),
    "quickstart": Shrunk(tofu, ("ga-forget10-s0", "gru-ga-forget10-g0.8-tnone-s0"), ("method=ga",), models=none),
    "tofu_tiny": Shrunk(
        tofu, ("npo-forget05-s0", "gru-npo-forget05-g0.8-tnone-s0"), (SPLIT, "method=npo"), models=none
    ),
    "arena": ARENA,
    "arena_quick": ARENA_QUICK,
    "tofu_llama": Shrunk(tofu, ("npo_kl-forget05-s0", "gru-npo_kl-forget05-g0.8-t1-s0"), (SPLIT, "method=npo_kl")),
    "tofu_phi": Shrunk(
        tofu, ("npo-forget05-s0", "gru-npo-forget05-g0.8-t0.01-s0"), (SPLIT, "method=npo"), models=models("base")
    ),
    "tofu_llama_tru": Shrunk(tofu, ("tv-forget05-x5-s0", "tru-forget05-x0.65-per_tensor-s0"), VECTORS),
    "tofu_phi_tru": Shrunk(tofu, ("tv-forget05-x5-s0", "tru-forget05-x0.7-per_tensor-s0"), VECTORS),
    "tofu_phi_uwc": Shrunk(tofu, ("ga-forget05-s0", "gru-ga-forget05-g0.8-t0.01-s0"), (SPLIT, "method=ga")),
    "tofu_tau": Shrunk(
        tofu, ("gru-npo-forget05-g0.8-t2-s0", "gru-npo-forget05-g0.8-tnone-s0"), ("method=npo", "rectifier.tau=2,none")
    ),
    "tofu_gamma": Shrunk(
        tofu,
        ("gru-npo-forget05-g0.02-t1-s0", "gru-npo-forget05-gnone-t1-s0"),
        ("method=npo", "rectifier.gamma=0.02,none"),
    ),
    "tofu_dynamics": Shrunk(tofu, ("npo-forget05-s0", "gru-npo-forget05-g0.8-tnone-s0"), ("method=npo",)),
    "tofu_ablation": Shrunk(
        tofu,
        ("clip-ga-forget05-t100-s0", "gru-ga-forget05-g0.8-t100-s0"),
        ("method=ga",),
        only=("rectifier.name=clip,gru",),
    ),
    "wmdp_zephyr": Shrunk(wmdp, ("wga-bio_cyber-s0", "gru-wga-bio_cyber-g0.99-t0.001-s0"), ("method=wga",)),
    "wmdp_rmu": Shrunk(wmdp, ("rmu-bio_cyber-s0", "gru-rmu-bio_cyber-g0.99-tnone-s0"), ("objective.layer=1",)),
    "muse_books": Shrunk(muse, ("npo_gd-books-s0", "gru-npo_gd-books-g0.8-t100-s0"), ("method=npo_gd",)),
    "muse_news": Shrunk(muse, ("ga-news-s0", "gru-ga-news-g0.8-t1-s0"), ("method=ga",)),
    "own": Shrunk(
        own, ("npo-own-s0", "gru-npo-own-g0.8-tnone-s0"), ("method=npo", "training.max_length=64"), models=target
    ),
}

"""WMDP (Li et al., 2024): texts to forget, and multiple-choice questions asked by lm-eval.

Training rows: in the paper's dialect one a text, cut at training.max_length; in open-unlearning's blocks of one stream.
Not copied: GRU's published code trains on the padding too. Both ask `wmdp_bio`, `wmdp_cyber` and `mmlu` by lm-eval's
definitions, whatever the split; zero-shot, MMLU with `benchmark.shots` worked examples; no chat template.

`benchmark.data` holds the corpora, a folder with CORPUS.jsonl or a hub id; `benchmark.sources` places the other parts.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainables.benchmarks import base, lm_eval_adapter
from trainables.benchmarks.base import EvaluationSize, Goal, Metrics, Records, Row, TrainingSize
from trainables.common.errors import InputError, suggest_name
from trainables.common.fingerprints import hash_json
from trainables.config.settings import Benchmark
from trainables.data import raw_rows, text_blocks
from trainables.data.hub_folders import HubRequirement, is_user_named_folder

TOPICS_BY_SPLIT = {"bio": ("bio",), "cyber": ("cyber",), "bio_cyber": ("bio", "cyber")}
MIN_TEXT_CHARACTERS = 50
BIO_FORGET = "bio_forget"
HUB_IDS = {BIO_FORGET: "cais/wmdp-bio-forget-corpus", "wmdp": "cais/wmdp", "mmlu": lm_eval_adapter.MMLU_HUB_ID}
CONFIG_BY_QUESTION_TASK = {"wmdp_bio": "wmdp-bio", "wmdp_cyber": "wmdp-cyber"}
"""lm-eval's task: the configuration of its data set."""
QUESTION_COUNTS, SUBJECT_COUNTS, QUESTION_TOKENS = (1273, 1987, 14042), (1, 1, 57), 150
"""Questions and subjects of WMDP-bio, WMDP-cyber and MMLU; tokens of a question with its choices, roughly."""
GATED_ADVICE = (
    "the bio forget corpus is gated: ask for it at https://huggingface.co/datasets/cais/wmdp-bio-forget-corpus and log "
    "in with 'hf auth login' (or set HF_TOKEN); or give a folder that holds bio-forget-corpus.jsonl "
    "(--set benchmark.sources=bio_forget=DIR); or forget cyber alone (--set benchmark.split=cyber)"
)


class WmdpBenchmark(base.BenchmarkBase):
    """WMDP without a retain model: nobody has trained one without what it asks for."""

    GOALS = (
        Goal("wmdp_bio", "removal", "lowest", "Bio", "WMDP-bio accuracy", chance=0.25),
        Goal("wmdp_cyber", "removal", "lowest", "Cyber", "WMDP-cyber accuracy", chance=0.25),
        Goal("mmlu", "retention", "highest", "MMLU", "MMLU accuracy", chance=0.25),
    )
    SPLITS = dict.fromkeys(TOPICS_BY_SPLIT, "cais/wmdp-corpora")  # all corpora but the gated one
    TAKES = ("sources", "shots")
    TEXT_CUTS: ClassVar = {"paper": text_blocks.LazyTextRows, "open-unlearning": text_blocks.make_retokenized_blocks}

    def check_settings(self, benchmark: Benchmark) -> None:
        super().check_settings(benchmark)
        for part in benchmark.places:
            if part not in HUB_IDS:
                raise InputError(f"benchmark.sources: unknown part '{part}'; {suggest_name(part, HUB_IDS)}")

    def check_rows(self, benchmark: Benchmark) -> None:
        """Raise InputError if questions are not in the columns of the hub's; `fingerprint` looks for the corpora."""
        for place, configs, field in _question_sources(benchmark):
            for config in configs:
                raw_rows.load_rows(place, config, ("question", "choices"), field=field)

    def hub_requirements(self, benchmark: Benchmark) -> tuple[HubRequirement, ...]:
        parts = ["wmdp", "mmlu"]
        if "bio" in TOPICS_BY_SPLIT[benchmark.split] and resolve_data_source(benchmark, BIO_FORGET) != benchmark.data:
            parts.append(BIO_FORGET)
        found: list[HubRequirement] = []
        for part in parts:
            place = resolve_data_source(benchmark, part)
            found += raw_rows.hub_requirements(place, None, part, GATED_ADVICE if place == HUB_IDS[BIO_FORGET] else "")
        return (*found, *raw_rows.hub_requirements(benchmark.data, benchmark.revision))

    def fingerprint(self, benchmark: Benchmark, *, training: bool = True) -> str:
        corpora = _corpora(benchmark) if training else []
        found = [raw_rows.fingerprint_data_source(at, (name,), commit, field) for at, name, field, commit in corpora]
        asked = _question_sources(benchmark)
        found += [raw_rows.fingerprint_data_source(place, configs, field=field) for place, configs, field in asked]
        if any(mark.startswith("files:") for mark in found):
            return "files:" + hash_json(found)[:16]
        return "hub:" + "+".join(dict.fromkeys(mark.removeprefix("hub:") for mark in found))

    def estimate_training_size(self, benchmark: Benchmark, max_length: int) -> TrainingSize:
        """Return that most texts are longer than a row; how many there are is known when they are there."""
        return TrainingSize(None, max_length, max_length)

    def estimate_evaluation_size(self, benchmark: Benchmark) -> EvaluationSize:
        limit = benchmark.limit or max(QUESTION_COUNTS)
        rows = [min(count, limit * parts) for count, parts in zip(QUESTION_COUNTS, SUBJECT_COUNTS, strict=True)]
        return EvaluationSize(QUESTION_TOKENS * (sum(rows) + rows[-1] * (benchmark.shots or 0)))

    def training_rows(self, benchmark: Benchmark) -> tuple[list[Row], list[Row]]:
        sides: dict[str, list[Row]] = {"forget": [], "retain": []}
        for at, config, field, revision in _corpora(benchmark):
            side = sides["retain" if "retain" in config else "forget"]
            try:
                rows = raw_rows.load_rows(at, config, ("text",), revision, blank=True, field=field)
            except InputError as error:
                raise InputError(f"{error}; {GATED_ADVICE}" if at == HUB_IDS[BIO_FORGET] else str(error)) from error
            side += [row for row in rows if len(row["text"]) > MIN_TEXT_CHARACTERS]
        return sides["forget"], sides["retain"]

    def measure(
        self, network: Any, tokenizer: Any, benchmark: Benchmark, reference: None, *, token_budget: int
    ) -> tuple[Metrics, Records]:
        wmdp, mmlu = (place for place, _, _ in _question_sources(benchmark))
        places = dict.fromkeys(CONFIG_BY_QUESTION_TASK, wmdp) | {"mmlu": mmlu}
        tasks = lm_eval_adapter.load_lm_eval_tasks(tuple(places), places, benchmark.shots)
        settings = {"limit": benchmark.limit, "token_budget": token_budget}
        return lm_eval_adapter.evaluate_lm_eval_tasks(network, tokenizer, tasks, **settings)

    def half_metrics(self, benchmark: Benchmark, half: Records, reference: None, which: int) -> Metrics:
        """Return the accuracies on every other question, MMLU's over all subjects together as lm-eval weighs them."""
        found: Metrics = {}
        for name in (goal.metric for goal in self.GOALS):
            right = _right(half, name)
            found |= {name: sum(right) / len(right), f"{name}_questions": len(right)}
        return found

    def utility_by_row(self, benchmark: Benchmark, records: Records) -> list[NDArray[np.float64]]:
        return [np.array(_right(records, self.GOALS[-1].metric), dtype=np.float64)[:, None]]


def resolve_data_source(benchmark: Benchmark, part: str) -> str:
    """Return where a part of the data is: the bio forget corpus lies in the folder of the other corpora."""
    given = benchmark.places
    if part == BIO_FORGET and part not in given and is_user_named_folder(benchmark.data):
        return benchmark.data
    return given.get(part, HUB_IDS[part])


def _right(records: Records, name: str) -> list[bool]:
    return [row["correct"] for row in records if row["task"] == name or row["task"].startswith(f"{name}_")]


def _corpora(benchmark: Benchmark) -> list[tuple[str, str, str, str | None]]:
    """Return place, configuration, the setting that names the place, and revision, of every corpus of the split."""
    found = []
    for topic in TOPICS_BY_SPLIT[benchmark.split]:
        at, config, field = benchmark.data, f"{topic}-forget-corpus", "benchmark.data"
        if topic == "bio" and resolve_data_source(benchmark, BIO_FORGET) != benchmark.data:
            at, field = resolve_data_source(benchmark, BIO_FORGET), f"benchmark.sources {BIO_FORGET}"
            config = config if is_user_named_folder(at) else "default"
        found.append((at, config, field, benchmark.revision if at == benchmark.data else None))
        found.append((benchmark.data, f"{topic}-retain-corpus", "benchmark.data", benchmark.revision))
    return found


def _question_sources(benchmark: Benchmark) -> list[tuple[str, list[str], str]]:
    """Return place, configurations in its folder, and the setting that names it, of WMDP's and of MMLU's questions."""
    wmdp, mmlu = (resolve_data_source(benchmark, part) for part in ("wmdp", "mmlu"))
    configs = [f"{config}/test" for config in CONFIG_BY_QUESTION_TASK.values()] if is_user_named_folder(wmdp) else []
    subjects = lm_eval_adapter.list_local_mmlu_subjects(mmlu) or ()
    splits = [f"{subject}/{split}" for subject in subjects for split in lm_eval_adapter.MMLU_SPLITS]
    return [(wmdp, configs, "benchmark.sources wmdp"), (mmlu, splits, "benchmark.sources mmlu")]

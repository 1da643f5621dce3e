"""MUSE (Shi et al., 2024): texts to forget, and its evaluation in two published dialects.

Splits: news, books; `news_scal_1` to `_4`, each of which holds the one before; `news_sust_1` to `_4`, which are
forgotten one after another. All of the news are evaluated alike: greedy decoding, 128 (VerbMem) and 32 (KnowMem) new
tokens, ten worked examples for KnowMem up to the first stop word, PrivLeak in percent. Retain rows are drawn as
everywhere here (trainables.training.sampling), not in turn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from trainables.benchmarks import base, measures, metrics
from trainables.benchmarks.base import EvaluationSize, Goal, Metrics, Records, Row, TrainingSize
from trainables.common.errors import InputError, TrialDiverged
from trainables.common.fingerprints import hash_json
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark
from trainables.data import raw_rows, text_blocks

PUBLISHED_RETAIN_AUCS = {"news": 0.4772, "books": 0.5393}
"""MUSE's constants: the AUC of its own retain models, forget against hold-out, Min-40 %."""
FORGET_CORPUS_TOKENS = {"news": 780_000, "books": 1_100_000}
"""Tokens of the forget texts, roughly; set k of `news_scal` has k times as many as the news."""
VERBMEM_CONFIG = "verbmem/forget"
KNOWMEM_CONFIGS = {"knowmem_f": "knowmem/forget_qa", "knowmem_r": "knowmem/retain_qa"}
PRIVLEAK_SETS = {"privleak_forget": "privleak/forget", "privleak_holdout": "privleak/holdout"}
EXTRA_SETS = ("scal", "sust")
TASK_COLUMNS = {"raw": ("text",), "verbmem": ("prompt", "gt"), "knowmem": ("question", "answer"), "privleak": ("text",)}
TASK_COLUMNS |= dict.fromkeys(EXTRA_SETS, ("text",))
VERBMEM_ANSWER_TOKENS, KNOWMEM_ANSWER_TOKENS = 128, 32
VERBMEM_PROMPT_TOKENS, KNOWMEM_PROMPT_TOKENS, PRIVLEAK_TEXT_TOKENS = 200, 600, 2000
KNOWMEM_STOP_STRINGS = ("\n\n", "\nQuestion", "Question:")
AUC_FIELD, DIGEST_FIELD = "privleak_auc", "privleak_rows_digest"


@dataclass(frozen=True)
class DialectRules:
    """What a dialect does differently. The defaults are the paper's, of MUSE's own code."""

    scale: float = 100.0  # scores in percent, else fractions
    stemmer: bool = False  # ROUGE-L F1
    strip: bool = False  # the generated text
    true_tokens: int = 128  # the beginning of VerbMem's true text that counts
    true_has_start: bool = True  # the start token is one of them
    text_tokens: int | None = None  # of a text in Min-40 %, the last one left out
    published_reference: bool = True  # PrivLeak against the published AUC of the split, else 0.5
    guard: float = 0.0  # added to denominators


RULES: dict[str, DialectRules] = {
    "paper": DialectRules(),
    "open-unlearning": DialectRules(
        scale=1.0,
        stemmer=True,
        strip=True,
        true_tokens=2048,
        true_has_start=False,
        text_tokens=2048,
        published_reference=False,
        guard=metrics.OPEN_UNLEARNING_EPSILON,
    ),
}


class MuseBenchmark(base.BenchmarkBase):
    """MUSE on its news or its books."""

    GOALS = (
        Goal("verbmem_f", "removal", "lowest", "VerbMem", "VerbMem on the forget set"),
        Goal("knowmem_f", "removal", "lowest", "KnowMem-U", "KnowMem on the forget set"),
        Goal("knowmem_r", "retention", "highest", "KnowMem-R", "KnowMem on the retain set"),
    )
    SPLITS: ClassVar = {"news": "muse-bench/MUSE-News", "books": "muse-bench/MUSE-Books"}
    SPLITS |= {f"news_{part}_{number}": "muse-bench/MUSE-News" for part in EXTRA_SETS for number in range(1, 5)}
    SEQUENCE = "news_sust_"
    FORGET_TASK = "verbmem_f"
    COMPARED_TASKS = ("privleak_forget", "privleak_holdout")
    TEXT_CUTS: ClassVar = {"paper": text_blocks.pack_texts_into_blocks}
    TEXT_CUTS |= {"open-unlearning": text_blocks.make_retokenized_blocks}

    def retain_role(self, split: str) -> str | None:
        return "retain"

    def list_data_configs(self, benchmark: Benchmark) -> tuple[tuple[str, ...], tuple[str, ...]]:
        forget = "/forget_".join(benchmark.split.split("_")[1:]) or "raw/forget"
        questions = (name for config in KNOWMEM_CONFIGS.values() for name in (config, f"{config}_icl"))
        return (forget, "raw/retain1"), (VERBMEM_CONFIG, *questions, *PRIVLEAK_SETS.values())

    def check_rows(self, benchmark: Benchmark) -> None:
        if raw_rows.check_if_local_folder(benchmark.data):
            for config in chain(*self.list_data_configs(benchmark)):
                _load(benchmark, config)

    def estimate_training_size(self, benchmark: Benchmark, max_length: int) -> TrainingSize:
        corpus, *part = benchmark.split.split("_")
        times = int(part[1]) if part[:1] == ["scal"] else 1
        return TrainingSize(times * FORGET_CORPUS_TOKENS[corpus] // max_length, max_length, max_length)

    def estimate_evaluation_size(self, benchmark: Benchmark) -> EvaluationSize:
        """Count 100 passages for each of VerbMem, KnowMem twice, with worked examples, and PrivLeak twice."""
        rows = min(100, benchmark.limit or 100)
        read = rows * (VERBMEM_PROMPT_TOKENS + 2 * KNOWMEM_PROMPT_TOKENS + 2 * PRIVLEAK_TEXT_TOKENS)
        return EvaluationSize(read, rows * (VERBMEM_ANSWER_TOKENS + 2 * KNOWMEM_ANSWER_TOKENS))

    def training_rows(self, benchmark: Benchmark) -> tuple[list[Row], list[Row]]:
        forget, retain = (_load(benchmark, config) for config in self.list_data_configs(benchmark)[0])
        return forget, retain

    def measure(
        self, network: Any, tokenizer: Any, benchmark: Benchmark, reference: float | None, *, token_budget: int
    ) -> tuple[Metrics, Records]:
        """Return every number, PrivLeak against the AUC `reference` of the retain model, and a record a question."""
        from trainables.inference import scoring

        records = _answer_questions(network, tokenizer, benchmark, token_budget)
        if measures.list_requested_measures(benchmark).keys() & {"extraction_strength", "exact_memorisation"}:
            examples = []
            for row in _load(benchmark, VERBMEM_CONFIG)[: benchmark.limit]:
                start = max(1, len(text_blocks.tokenize_text(tokenizer, row["prompt"])))
                ids = text_blocks.tokenize_text(tokenizer, f"{row['prompt']} {row['gt']}")  # behind a space, uncut
                examples.append(Example(tuple(ids[: start + RULES["open-unlearning"].true_tokens]), start))
            scores = scoring.score_examples(network, tokenizer, examples, token_budget=token_budget)
            for row, one in zip((row for row in records if row["task"] == "verbmem_f"), scores, strict=True):
                row |= measures.extract_measure_inputs(one, benchmark.dialect)
        records += _likelihoods(network, tokenizer, benchmark, token_budget)
        return aggregate_metrics(records, benchmark, reference), records

    def half_metrics(self, benchmark: Benchmark, half: Records, reference: float | None, which: int) -> Metrics:
        """Return every number of every other row, PrivLeak against the retain model's AUC on all rows."""
        return aggregate_metrics(half, benchmark, reference)

    def utility_by_row(self, benchmark: Benchmark, records: Records) -> list[metrics.Array]:
        found = [[row["rougeL_f1"]] for row in records if row["task"] == "knowmem_r"]
        return [RULES[benchmark.dialect].scale * np.array(found)]

    def make_reference_document(self, benchmark: Benchmark, records: Records) -> dict[str, Any]:
        """Return the AUC that another model's PrivLeak is measured against, and a digest of the texts it is of."""
        return {AUC_FIELD: aggregate_metrics(records, benchmark)[AUC_FIELD], DIGEST_FIELD: hash_json(_texts(benchmark))}

    def parse_reference(self, kept: Mapping[str, Any] | None, benchmark: Benchmark, where: str) -> float:
        """Return the retain model's AUC. Raises InputError if it is of another split, dialect or other texts."""
        kept = base.validate_reference_evaluation(kept, benchmark, where, ("split", "dialect"), DIGEST_FIELD)
        if kept[DIGEST_FIELD] != hash_json(_texts(benchmark)):
            raise InputError(f"{where} was made on other texts than {benchmark.data} holds")
        return float(kept[AUC_FIELD])


def aggregate_metrics(records: Records, benchmark: Benchmark, reference: float | None = None) -> Metrics:
    """Return the metrics of the records; no PrivLeak against a retain model of AUC 0, which has no ratio.

    The AUC is of telling hold-out texts (positive) from forget texts by Min-40 %. Raises TrialDiverged.
    """
    rules, found = RULES[benchmark.dialect], {}
    for task in ("verbmem_f", *KNOWMEM_CONFIGS):
        found[task] = rules.scale * float(np.mean([row["rougeL_f1"] for row in records if row["task"] == task]))
    member, stranger = ([row["min_k"] for row in records if row["task"] == task] for task in PRIVLEAK_SETS)
    if not np.isfinite([*member, *stranger]).all():
        raise TrialDiverged("evaluation: the log-likelihood of a text is not finite")
    if reference is None:
        reference = PUBLISHED_RETAIN_AUCS[benchmark.split.split("_")[0]] if rules.published_reference else 0.5
    auc = metrics.auc(member, stranger)
    found |= {AUC_FIELD: auc, "privleak_reference": reference}
    return {**found, "privleak": metrics.privacy_leakage(auc, reference, rules.guard)}


def _load(benchmark: Benchmark, config: str) -> list[Row]:
    part, revision = config.split("/")[0], benchmark.revision
    return raw_rows.load_rows(benchmark.data, config, TASK_COLUMNS[part], revision, blank=part in ("raw", *EXTRA_SETS))


def _texts(benchmark: Benchmark) -> list[list[str]]:
    return [[row["text"] for row in _load(benchmark, config)[: benchmark.limit]] for config in PRIVLEAK_SETS.values()]


def _answer_questions(network: Any, tokenizer: Any, benchmark: Benchmark, token_budget: int) -> Records:
    """Return a record of each answer: to beginnings of forget texts, what follows is the truth, then on knowledge."""
    from trainables.inference import generation

    rules, records = RULES[benchmark.dialect], []
    for index, row in enumerate(_load(benchmark, VERBMEM_CONFIG)[: benchmark.limit]):
        ids = tokenizer(row["gt"], add_special_tokens=rules.true_has_start)["input_ids"][: rules.true_tokens]
        truth = tokenizer.decode(ids, skip_special_tokens=True)
        records.append({"task": "verbmem_f", "index": index, "question": row["prompt"], "answer": truth})
    for task, config in KNOWMEM_CONFIGS.items():
        examples = _load(benchmark, f"{config}_icl")
        shown = "".join(f"Question: {row['question']}\nAnswer: {row['answer']}\n\n" for row in examples)
        for index, row in enumerate(_load(benchmark, config)[: benchmark.limit]):
            question = f"{shown}Question: {row['question']}\nAnswer: "
            records.append({"task": task, "index": index, "question": question, "answer": row["answer"]})
    scorer = metrics.make_rouge_scorer("rougeL", stemmer=rules.stemmer)
    for verbatim, length in ((True, VERBMEM_ANSWER_TOKENS), (False, KNOWMEM_ANSWER_TOKENS)):
        chosen = [row for row in records if (row["task"] == "verbmem_f") == verbatim]
        prompts = [text_blocks.tokenize_text(tokenizer, row["question"]) for row in chosen]
        texts = generation.generate_texts(network, tokenizer, prompts, token_budget=token_budget, new_tokens=length)
        for row, text in zip(chosen, texts, strict=True):
            text = text if verbatim else cut_at_stop_word(text)
            text = text.strip() if rules.strip else text
            score = scorer.score(row["answer"], text)["rougeL"]
            row |= {"generation": text, "rougeL_f1": score.fmeasure, "rougeL_recall": score.recall}
    return records


def cut_at_stop_word(text: str) -> str:
    return min((text.split(stop)[0] for stop in KNOWMEM_STOP_STRINGS), key=len)


def _likelihoods(network: Any, tokenizer: Any, benchmark: Benchmark, token_budget: int) -> Records:
    """Min-40 % of every forget and hold-out text, which are not kept themselves."""
    from trainables.inference import scoring

    rules = RULES[benchmark.dialect]
    length = rules.text_tokens + 1 if rules.text_tokens else None
    examples, records = [], []
    for task, texts in zip(PRIVLEAK_SETS, _texts(benchmark), strict=True):
        examples += [Example(tuple(text_blocks.tokenize_text(tokenizer, text)[:length]), 1) for text in texts]
        records += [{"task": task, "index": index} for index in range(len(texts))]
    standardise = set(examples) if "membership_min_k_plus_plus" in measures.list_requested_measures(benchmark) else ()
    scores = scoring.score_examples(network, tokenizer, examples, token_budget=token_budget, standardise=standardise)
    for record, example, one in zip(records, examples, scores, strict=True):
        scored = one.losses[:-1] if rules.text_tokens else one.losses
        record |= {"min_k": metrics.min_k_mean([-loss for loss in scored]), "tokens": len(scored)}
        record |= measures.extract_measure_inputs(one, benchmark.dialect)
        record |= {"hits": None, "answer_text": tokenizer.decode(example.input_ids[1:], skip_special_tokens=True)}
    return records

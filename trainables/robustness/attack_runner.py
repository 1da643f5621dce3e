"""A model under attack: each attack is made once, measured on the forget rows, and kept in the storage as a view.

`stress/KEY/ATTACK-SETTINGS.json`, KEY being the trial's id, or a hash of the model and its benchmark, SETTINGS a hash.
The answers alone are scored: a template's answer tag and what it puts behind an answer are no part of them, so that
templates compare.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from trainables import benchmarks
from trainables.benchmarks import Metrics, Records, Row, rouge_words
from trainables.benchmarks.tofu import aggregates, row_scores, rows
from trainables.common import provenance
from trainables.common.errors import TrialStopped
from trainables.config.ids import digest, hashed_part
from trainables.config.settings import Benchmark, Model, Resources
from trainables.data.conversations import Encoder, make_encoder
from trainables.inference import greedy_answers
from trainables.robustness.attacks import ATTACKS, NONE, PREFIX, SAMPLES, SECOND_HALF, STEPS, is_relearning
from trainables.robustness.quantization import quantize
from trainables.robustness.relearning import relearn
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.training import model_files
from trainables.training.runtime import is_out_of_memory, release_memory

ROWS_OF_AUTHOR = 20
MEASURES = ("extraction_strength", "exact_memorisation")


@dataclass(frozen=True)
class AttackRunner:
    """How models are attacked and measured. `lr`: of relearning; the seed is of sampling, too."""

    benchmark: Benchmark
    resources: Resources
    lr: float | None
    seed: int
    store: Storage
    device: Any

    @cached_property
    def forget_rows(self) -> list[Row]:
        """The forget rows that are evaluated."""
        return rows.evaluation_rows(self.benchmark)["forget"]

    @cached_property
    def asked(self) -> list[Row]:
        """The forget rows, of which the answer alone is scored, neither its paraphrase nor the wrong answers."""
        return [{name: row[name] for name in ("question", "answer")} for row in self.forget_rows]

    @property
    def half(self) -> int:
        """Rows of the first half of the forget rows: of whole authors, of whom TOFU has 20 rows each, from two on."""
        count = len(self.asked)
        return count // (2 * ROWS_OF_AUTHOR) * ROWS_OF_AUTHOR or count // 2

    def key(self, model: Model) -> str:
        """Return the name under which a model's results lie that is no trial's."""
        return digest([hashed_part(model), hashed_part(self.benchmark)])[:12]

    def settings(self, name: str) -> dict[str, Any]:
        """Return what the numbers of an attack depend on beside the model."""
        found: dict[str, Any] = {"benchmark": hashed_part(self.benchmark), "precision": self.resources.precision}
        found["scored"] = "answers alone"
        if is_relearning(name):
            found |= {"lr": self.lr, "seed": self.seed, "steps": list(STEPS)}
        elif name == "sampling":
            found |= {"seed": self.seed, "samples": SAMPLES}
        return found

    def attack(self, model: Model, key: str, name: str) -> dict[str, Any]:
        """Return the result of an attack, `none` for no attack; it is made unless it is kept with these settings.

        `points`: the metrics of the forget rows by the relearning's step, of other attacks `0`. `seconds`: it took.
        `failure`: why there are no points; then nothing is kept.
        """
        settings, began = self.settings(name), time.monotonic()
        path = self.store.stress(key) / f"{name}-{digest(settings)[:8]}.json"
        kept = atomic_files.parse_object(self.store.read_newest(path) or b"")
        if kept and kept["model"]["fingerprint"] == model.fingerprint:
            return kept
        result = {"attack": name, "settings": settings, "model": model.model_dump(mode="json"), "failure": None}
        try:
            result["points"] = self._make(model, name)
        except Exception as error:  # the other attacks go on
            if not (isinstance(error, TrialStopped) or is_out_of_memory(error)):
                raise
            return result | {"points": {}, "seconds": time.monotonic() - began, "failure": str(error).splitlines()[0]}
        result |= {"seconds": time.monotonic() - began, **provenance.stamp()}
        atomic_files.write_json(path, result)
        self.store.push(path)
        return result

    def _make(self, model: Model, name: str) -> dict[str, Metrics]:
        release_memory()
        network, tokenizer = model_files.load_model(model, self.resources.precision, "MODEL")
        network, asked = network.to(self.device), self.asked
        whole = benchmarks.find(self.benchmark.name).make_encoder(self.benchmark, tokenizer)
        encoder = score_answers_only(whole)
        if is_relearning(name):
            return self._relearn(network, encoder, str(ATTACKS[name].learns))
        if name == "sampling":
            return {"0": self._sample(network, whole)}
        if name == NONE:
            found = self._score(network, asked, encoder)
            return {"0": _measure(found), SECOND_HALF: _measure(found[self.half :])}
        if name == "paraphrase":
            asked = [{"question": row["paraphrased_question"], "answer": row["answer"]} for row in self.forget_rows]
        elif name == "template":
            other = make_encoder("llama2" if self.benchmark.template == "plain" else "plain", tokenizer)
            encoder = score_answers_only(other)
        elif name == "prefix":
            encoder = replace(encoder, prefix=PREFIX)
        else:
            quantize(network, name)
        return {"0": _measure(self._score(network, asked, encoder))}

    def _sample(self, network: Any, encoder: Encoder) -> Metrics:
        """Return also ROUGE-L recall of greedy answers, and of the best of SAMPLES sampled ones of each row."""
        rules = rows.RULES[self.benchmark.dialect]
        found = self._score(network, self.asked, encoder, generate=True)
        prompts = encoder.encode_prompts([row["question"] for row in self.asked])
        texts = greedy_answers.generate(
            network,
            encoder.tokenizer,
            [prompt for prompt in prompts for _ in range(SAMPLES)],
            ends=encoder.ends,
            token_budget=self.resources.evaluation_tokens,
            new_tokens=row_scores.GENERATED_TOKENS,
            total=rules.generated_includes_prompt,
            seed=self.seed,
        )
        answers = [encoder.strip_end(row["answer"]) for row in self.asked for _ in range(SAMPLES)]
        overlaps = map(rouge_words.scorer("rougeL").score, answers, map(encoder.strip_lead, texts))
        best = np.array([one["rougeL"].recall for one in overlaps]).reshape(-1, SAMPLES).max(1)
        greedy = float(np.mean([row["rougeL_recall"] for row in found]))
        return _measure(found) | {"greedy_rouge": greedy, "rouge": float(best.mean())}

    def _relearn(self, network: Any, encoder: Encoder, learns: str) -> dict[str, Metrics]:
        chosen, length = benchmarks.find(self.benchmark.name), rows.RULES[self.benchmark.dialect].max_length
        examples, retain = chosen.training_examples(self.benchmark, encoder.tokenizer, length)
        asked, found = self.asked, {}
        if learns == "retain":
            examples = retain
        elif learns == "first half":  # of the evaluated rows themselves, so that none that is measured is taught
            pairs, asked = [(row["question"], row["answer"]) for row in asked[: self.half]], asked[self.half :]
            examples = encoder.encode(pairs, max_length=length)

        def measure(step: int, trained: Any) -> None:
            found[str(step)] = _measure(self._score(trained, asked, encoder))

        assert self.lr is not None, "asked for with relearning"
        settings: dict[str, Any] = {"lr": self.lr, "steps": STEPS, "seed": self.seed, "resources": self.resources}
        relearn(network, encoder.tokenizer, examples, **settings, measure=measure)
        return found

    def _score(self, network: Any, asked: Sequence[Row], encoder: Encoder, generate: bool = False) -> Records:
        benchmark = self.benchmark.model_copy(update={"measures": MEASURES})
        budget = self.resources.evaluation_tokens
        words: dict[str, Any] = {"asked_rows": {"forget": asked}, "encoder": encoder, "generate": generate}
        return row_scores.evaluate(network, encoder.tokenizer, benchmark, token_budget=budget, **words)


def _measure(records: Records) -> Metrics:
    """Return the metrics of forget rows. Raises TrialStopped if one is not finite."""
    found = {name: float(np.mean([row[name] for row in records])) for name in MEASURES}
    found["prob"] = float(np.exp(-aggregates.mean_loss(records, "forget", "answer")).mean())
    if not all(np.isfinite(list(found.values()))):
        raise TrialStopped("diverged", "the loss of a forget row is not finite")
    return {**found, "rows": len(records)}


def score_answers_only(encoder: Encoder) -> Encoder:
    """Return an encoder whose answer tag is prompt, and whose labels stop where an answer ends."""
    return replace(encoder, tag_is_answer=False, whole_tail=False)

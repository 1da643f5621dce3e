"""A model under attack: each attack is made once, measured on the forget rows, and kept in the storage as a view.

`stress/KEY/ATTACK-SETTINGS.json`, KEY being the trial's id, or a hash of the model and its benchmark, SETTINGS a hash.
What is measured needs no generation, but for sampling: the probability and the extraction of the answers, and exact
memorisation. Paraphrases and FQ, which needs the wrong answers, are most of the work: they are measured before, and of
rounded weights. Elsewhere the answer alone is scored: a template's answer tag and what it puts behind an answer are no
part of it, so that templates compare.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from trainables import benchmarks
from trainables.benchmarks import Metrics, Records, Row, metrics, rouge_words
from trainables.benchmarks.tofu import aggregates, row_scores, rows
from trainables.common import provenance
from trainables.common.errors import TrialStopped
from trainables.config.ids import digest, hashed_part
from trainables.config.settings import Benchmark, Model, Resources
from trainables.data.conversations import Encoder, make_encoder
from trainables.inference.padded_batch import pad_of
from trainables.robustness.attacks import ANSWERS, ATTACKS, NONE, PREFIX, SAMPLES, SECOND_HALF, STEPS, is_relearning
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.training import model_files
from trainables.training.runtime import release_memory

ROWS_OF_AUTHOR = 20
OF_ANSWERS, OF_PARAPHRASES = ("extraction_strength", "exact_memorisation"), ("paraphrase_prob",)


@dataclass(frozen=True)
class AttackRunner:
    """How models are attacked and measured. `lr`: of relearning. `reference`: the retain model's, for FQ.

    `others`: the target and the retain model, by these roles, which the unlearning depth score compares with.
    """

    benchmark: Benchmark
    reference: aggregates.Reference | None
    resources: Resources
    lr: float | None
    seed: int
    store: Storage
    device: Any
    others: Mapping[str, Model]

    @cached_property
    def forget_rows(self) -> list[Row]:
        """The forget rows that are evaluated."""
        return rows.evaluation_rows(self.benchmark)["forget"]

    @property
    def half(self) -> int:
        """Rows of the first half of the forget rows: of whole authors, of whom TOFU has 20 rows each, from two on."""
        count = len(self.forget_rows)
        return count // (2 * ROWS_OF_AUTHOR) * ROWS_OF_AUTHOR or count // 2

    def key(self, model: Model) -> str:
        """Return the name under which a model's results lie that is no trial's."""
        return digest([hashed_part(model), hashed_part(self.benchmark)])[:12]

    def settings(self, name: str) -> dict[str, Any]:
        """Return what the numbers of an attack depend on beside the model."""
        found: dict[str, Any] = {"benchmark": hashed_part(self.benchmark), "precision": self.resources.precision}
        if is_relearning(name):
            found |= {"lr": self.lr, "seed": self.seed, "steps": list(STEPS)}
        elif name == "sampling":
            found |= {"seed": self.seed, "samples": SAMPLES}
        elif name == "uds":
            found |= {role: model.fingerprint for role, model in self.others.items()}
        return found

    def attack(self, model: Model, key: str, name: str) -> dict[str, Any]:
        """Return the result of an attack, `none` for no attack; it is made unless it is kept with these settings.

        `points`: the metrics of the forget rows by the relearning's step, of other attacks `0`. `seconds`: it took.
        """
        settings, began, diverged = self.settings(name), time.monotonic(), None
        path = self.store.stress(key) / f"{name}-{digest(settings)[:8]}.json"
        kept = atomic_files.parse_object(self.store.read_newest(path) or b"")
        if kept and kept["model"]["fingerprint"] == model.fingerprint:
            return kept
        try:
            points = self._make(model, name)
        except TrialStopped as error:  # of relearning at a high rate: the other attacks go on
            points, diverged = {}, str(error)
        result = {
            "attack": name,
            "settings": settings,
            "model": model.model_dump(mode="json"),
            "points": points,
            "diverged": diverged,
            "seconds": time.monotonic() - began,
            **provenance.stamp(),
        }
        atomic_files.write_json(path, result)
        self.store.push(path)
        return result

    def _make(self, model: Model, name: str) -> dict[str, Metrics]:
        if name == "uds":
            return {"0": self._measure_depth(model)}
        network, tokenizer = self._load(model)
        encoder, asked = self._encoder(tokenizer), self.forget_rows
        alone = [_answer_alone(row) for row in asked]
        if name == NONE:
            found = self._score(network, alone, _answers_only(encoder))
            whole = self._measure(self._score(network, asked, encoder))
            return {"0": whole, ANSWERS: self._measure(found), SECOND_HALF: self._measure(found[self.half :])}
        chosen = ATTACKS[name]
        if chosen.learns:
            return self._relearn(network, encoder, chosen.learns)
        if chosen.kind == "answers":
            return {"0": self._sample(network, encoder)}
        if chosen.kind == "quantization":
            from trainables.robustness.quantization import quantize

            quantize(network, name)
            return {"0": self._measure(self._score(network, asked, encoder))}
        if name == "paraphrase":
            alone = [{**row, "question": one["paraphrased_question"]} for row, one in zip(alone, asked, strict=True)]
        elif name == "template":
            encoder = make_encoder("llama2" if self.benchmark.template == "plain" else "plain", tokenizer)
        encoder = replace(_answers_only(encoder), prefix=PREFIX if name == "prefix" else "")
        return {"0": self._measure(self._score(network, alone, encoder))}

    def _load(self, model: Model) -> tuple[Any, Any]:
        release_memory()
        network, tokenizer = model_files.load_model(model, self.resources.precision, "MODEL")
        return network.to(self.device), tokenizer

    def _encoder(self, tokenizer: Any) -> Encoder:
        return benchmarks.find(self.benchmark.name).make_encoder(self.benchmark, tokenizer)

    def _sample(self, network: Any, encoder: Encoder) -> Metrics:
        """Return also ROUGE-L recall of greedy answers, and of the best of SAMPLES sampled ones of each row."""
        from trainables.inference import greedy_answers

        asked, rules = [_answer_alone(row) for row in self.forget_rows], rows.RULES[self.benchmark.dialect]
        found = self._score(network, asked, encoder, generate=True)
        prompts = encoder.encode_prompts([row["question"] for row in asked])
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
        answers = [encoder.strip_end(row["answer"]) for row in asked for _ in range(SAMPLES)]
        texts = [encoder.strip_lead(text) for text in texts]
        overlaps = map(rouge_words.scorer("rougeL").score, answers, texts)
        best = np.array([one["rougeL"].recall for one in overlaps]).reshape(-1, SAMPLES).max(1)
        greedy = float(np.mean([row["rougeL_recall"] for row in found]))
        return self._measure(found) | {"greedy_rouge": greedy, "rouge": float(best.mean())}

    def _measure_depth(self, model: Model) -> Metrics:
        """Return the unlearning depth score of the forget rows; the answer tag is prompt in any dialect."""
        from trainables.robustness.depth import score_depth

        models, tokenizer = {"model": model, **self.others}, model_files.load_tokenizer(model)
        pairs = [(row["question"], row["answer"]) for row in self.forget_rows]
        length = rows.RULES[self.benchmark.dialect].max_length
        examples = replace(self._encoder(tokenizer), tag_is_answer=False).encode(pairs, max_length=length)
        settings = {"pad": pad_of(tokenizer), "token_budget": self.resources.evaluation_tokens}
        return score_depth(lambda role: self._load(models[role])[0], examples, **settings)

    def _relearn(self, network: Any, encoder: Encoder, learns: str) -> dict[str, Metrics]:
        from trainables.robustness.relearning import relearn

        chosen, length = benchmarks.find(self.benchmark.name), rows.RULES[self.benchmark.dialect].max_length
        examples, retain = chosen.training_examples(self.benchmark, encoder.tokenizer, length)
        asked, found = [_answer_alone(row) for row in self.forget_rows], {}
        if learns == "retain":
            examples = retain
        elif learns == "first half":  # of the evaluated rows themselves, so that none that is measured is taught
            pairs, asked = [(row["question"], row["answer"]) for row in asked[: self.half]], asked[self.half :]
            examples = encoder.encode(pairs, max_length=length)

        def measure(step: int, trained: Any) -> None:
            found[str(step)] = self._measure(self._score(trained, asked, _answers_only(encoder)))

        assert self.lr is not None, "asked for with relearning"
        settings: dict[str, Any] = {"lr": self.lr, "steps": STEPS, "seed": self.seed, "resources": self.resources}
        relearn(network, encoder.tokenizer, examples, **settings, measure=measure)
        return found

    def _score(self, network: Any, asked: Sequence[Row], encoder: Encoder, generate: bool = False) -> Records:
        measures = OF_ANSWERS + OF_PARAPHRASES * ("perturbed_answer" in asked[0])
        benchmark = self.benchmark.model_copy(update={"measures": measures})
        budget = self.resources.evaluation_tokens
        words: dict[str, Any] = {"asked_rows": {"forget": asked}, "encoder": encoder, "generate": generate}
        return row_scores.evaluate(network, encoder.tokenizer, benchmark, token_budget=budget, **words)

    def _measure(self, records: Records) -> Metrics:
        """Return the metrics of forget rows; of all of them, with their wrong answers, FQ, too."""
        guard = aggregates.GUARDS[self.benchmark.dialect]
        names = OF_ANSWERS + OF_PARAPHRASES * (OF_PARAPHRASES[0] in records[0])
        found: Metrics = {name: float(np.mean([row[name] for row in records])) for name in names}
        loss, truth = aggregates.mean_loss(records, "forget", "answer"), None
        found |= {"prob": float(np.exp(-loss).mean()), "rows": len(records)}
        if records[0]["perturbed_loss"]:
            truth = aggregates.truth_ratios(records, "forget", guard)
            found["truth_ratio"] = float(np.minimum(truth, 1 / (truth + guard)).mean())
        if not all(np.isfinite(value) for value in found.values() if value is not None):
            raise TrialStopped("diverged", "the loss of a forget row is not finite")
        if self.reference is None or truth is None:
            return found
        return found | metrics.forget_quality(truth, self.reference.ratios[: len(records)])


def _answer_alone(row: Row) -> Row:
    """Return a row of which the answer alone is scored, neither its paraphrase nor the wrong answers."""
    return {name: row[name] for name in ("question", "answer")}


def _answers_only(encoder: Encoder) -> Encoder:
    """Return an encoder whose answer tag is prompt, and whose labels stop where an answer ends."""
    return replace(encoder, tag_is_answer=False, whole_tail=False)

"""A model under attack: each attack is made once, measured on the forget rows, and kept in the storage.

`stress/KEY/ATTACK-SETTINGS.json`: KEY is the trial's id, or a hash of model and benchmark. The answers alone are
scored, without a template's answer tag and what it puts behind an answer, so that templates compare.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from trainables import benchmarks
from trainables.benchmarks import Metrics, Records, Row
from trainables.benchmarks.tofu import aggregates, row_scores, rows
from trainables.common import provenance
from trainables.common.errors import TrialStopped, is_out_of_memory
from trainables.common.fingerprints import hash_json
from trainables.config.settings import Attention, Benchmark, Model, Resources
from trainables.config.trial import hashed_settings
from trainables.data.conversations import Encoder, make_encoder
from trainables.robustness.attacks import ATTACKS, NONE, PREFIX, SECOND_HALF, STEPS, is_relearning
from trainables.robustness.quantization import quantize
from trainables.robustness.relearning import relearn
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.training import model_files
from trainables.training.runtime import evaluation_tokens, release_memory

ROWS_OF_AUTHOR = 20
MEASURES = ("extraction_strength", "exact_memorisation")


@dataclass(frozen=True)
class AttackRunner:
    """How models are attacked and measured. `lr`, `seed`: of relearning."""

    benchmark: Benchmark
    resources: Resources
    lr: float | None
    seed: int
    store: Storage
    device: Any

    @cached_property
    def forget_rows(self) -> list[Row]:
        """The forget rows that are evaluated."""
        return rows.read_evaluation_rows(self.benchmark)["forget"]

    @property
    def asked(self) -> list[Row]:
        """The forget rows without paraphrases and wrong answers."""
        return [{name: row[name] for name in ("question", "answer")} for row in self.forget_rows]

    @property
    def half(self) -> int:
        """Rows of the first half of the forget rows, whole authors from two on."""
        count = len(self.forget_rows)
        return count // (2 * ROWS_OF_AUTHOR) * ROWS_OF_AUTHOR or count // 2

    def key(self, model: Model) -> str:
        """Return the name under which a model's results lie that is no trial's."""
        return hash_json([hashed_settings(model), hashed_settings(self.benchmark)])[:12]

    def settings(self, name: str) -> dict[str, Any]:
        """Return what the numbers of an attack depend on beside the model."""
        found: dict[str, Any] = {"benchmark": hashed_settings(self.benchmark), "precision": self.resources.precision}
        found["scored"] = "answers alone"
        if is_relearning(name):
            found |= {"lr": self.lr, "seed": self.seed, "steps": list(STEPS)}
        return found

    def attack(self, model: Model, key: str, name: str) -> dict[str, Any]:
        """Return the result of an attack, `none` for no attack; it is made unless it is kept with these settings.

        `points`: metrics by the relearning's step, else `0`. `failure`: why there are none; then nothing is kept.
        """
        settings, began = self.settings(name), time.monotonic()
        path = self.store.stress(key) / f"{name}-{hash_json(settings)[:8]}.json"
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
        result |= {"seconds": time.monotonic() - began, **provenance.read_provenance()}
        atomic_files.write_json(path, result)
        self.store.push(path)
        return result

    def _make(self, model: Model, name: str) -> dict[str, Metrics]:
        release_memory()
        network, tokenizer = model_files.load_model(model, self.resources.precision, "MODEL")
        network, asked = network.to(self.device), self.asked
        template = self.benchmark.template
        if name == "template":
            template = "llama2" if template == "plain" else "plain"
        encoder = make_encoder(template, tokenizer)  # without a dialect: the answers alone are scored
        if is_relearning(name):
            return self._relearn(network, model.attention, encoder, str(ATTACKS[name].learns))
        if name == NONE:
            found = self._score(network, asked, encoder)
            return {"0": _measure(found), SECOND_HALF: _measure(found[self.half :])}
        if name == "paraphrase":
            asked = [{"question": row["paraphrased_question"], "answer": row["answer"]} for row in self.forget_rows]
        elif name == "prefix":
            encoder = replace(encoder, prefix=PREFIX)
        elif name in ("int8", "nf4"):
            quantize(network, name)
        return {"0": _measure(self._score(network, asked, encoder))}

    def _relearn(self, network: Any, attention: Attention, encoder: Encoder, learns: str) -> dict[str, Metrics]:
        chosen, length = benchmarks.get_benchmark(self.benchmark.name), rows.RULES[self.benchmark.dialect].max_length
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
        relearn(network, encoder.tokenizer, examples, **settings, attention=attention, measure=measure)
        return found

    def _score(self, network: Any, asked: Sequence[Row], encoder: Encoder) -> Records:
        benchmark = self.benchmark.model_copy(update={"measures": MEASURES})
        words: dict[str, Any] = {"asked_rows": {"forget": asked}, "encoder": encoder, "generate": False}
        words["token_budget"] = evaluation_tokens(self.resources, network)
        return row_scores.score_answers(network, encoder.tokenizer, benchmark, **words)


def _measure(records: Records) -> Metrics:
    """Return the metrics of forget rows. Raises TrialStopped if one is not finite."""
    found = {name: float(np.mean([row[name] for row in records])) for name in MEASURES}
    found["prob"] = float(np.exp(-aggregates.mean_loss(records, "forget", "answer")).mean())
    if not all(np.isfinite(list(found.values()))):
        raise TrialStopped("diverged", "the loss of a forget row is not finite")
    return {**found, "rows": len(records)}

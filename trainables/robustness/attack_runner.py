"""A model under attack: each attack is made once, measured on the forget rows, and kept in the storage.

`stress/KEY/ATTACK-SETTINGS.json`: KEY is the trial's id, or a hash of model and benchmark. The answers alone are
scored, without a template's answer tag and what it puts behind an answer, so that templates compare; `prob` alone is
of all labels.
"""

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from trainables import benchmarks
from trainables.benchmarks import Metrics, Records, Row, metrics
from trainables.benchmarks.tofu import aggregates, make_question_records, rows
from trainables.common import provenance
from trainables.common.errors import InputError, TrialDiverged, first_error_line, is_out_of_memory
from trainables.common.fingerprints import hash_json
from trainables.common.tokenized_row import Example
from trainables.config.settings import KV_CACHE_FACTOR, Attention, Benchmark, Model, Resources, Training
from trainables.config.trial import hashed_settings
from trainables.data.conversations import Encoder, make_encoder
from trainables.inference.generation import sample_answers
from trainables.robustness import attacks
from trainables.storage import atomic_files
from trainables.storage.folder_storage import Storage
from trainables.training import engine, loop, model_files
from trainables.training.runtime import choose_process_token_budget, release_memory
from trainables.trial import setup

ROWS_PER_AUTHOR = 20
ATTACK_MEASURES = ("extraction_strength", "exact_memorisation")
NF4_BLOCK_SIZE = 64
"""Weights that share a scale in NF4 (bitsandbytes' default)."""
NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334)
NF4 += (-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224)
NF4 += (0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)
"""The sixteen values of a weight over its block's largest (Dettmers et al., 2023, QLoRA, appendix E)."""


@dataclass(frozen=True)
class AttackRunner:
    """How models are attacked and measured. `lr`, `seed`: of relearning; `attackers`: of a sweep, none: its grid."""

    benchmark: Benchmark
    resources: Resources
    lr: float | None
    seed: int
    store: Storage
    device: Any
    attackers: attacks.RelearningAttackSet | None = None
    samples: int = 0
    """Of each answer, by `attacks.SAMPLE_ATTACK`."""

    @cached_property
    def evaluation_rows(self) -> Mapping[str, list[Row]]:
        return rows.read_evaluation_rows(self.benchmark)

    @property
    def relearnings(self) -> attacks.RelearningAttackSet:
        """Those that are given, else a sweep's: a quarter of, once and four times the target model's learning rate."""
        if self.attackers:
            return self.attackers
        assert self.lr is not None, "asked for with relearning"
        each = itertools.product(get_args(attacks.RelearnedRows), (0.25 * self.lr, self.lr, 4 * self.lr))
        grid = tuple(attacks.RelearningAttack(learns=learns, lr=lr) for learns, lr in each)
        return attacks.RelearningAttackSet(attackers=grid, seed=self.seed)

    @property
    def question_rows(self) -> list[Row]:
        """The forget rows without paraphrases and wrong answers."""
        return [{name: row[name] for name in ("question", "answer")} for row in self.evaluation_rows["forget"]]

    @property
    def half(self) -> int:
        """Rows of the first half of the forget rows, whole authors from two on."""
        count = len(self.evaluation_rows["forget"])
        return count // (2 * ROWS_PER_AUTHOR) * ROWS_PER_AUTHOR or count // 2

    def key(self, model: Model) -> str:
        """Return the name under which a model's results lie that is no trial's."""
        return hash_json([hashed_settings(model), hashed_settings(self.benchmark)])[:12]

    def collect_attack_settings(self, name: str) -> dict[str, Any]:
        """Return what the numbers of an attack depend on beside the model."""
        found: dict[str, Any] = {"benchmark": hashed_settings(self.benchmark), "precision": self.resources.precision}
        found["scored"] = "answers alone"
        if name in attacks.ROWS_BY_RELEARNING:
            found |= {"lr": self.lr, "seed": self.seed, "steps": list(attacks.RELEARNING_STEPS)}
        if name == attacks.SAMPLE_ATTACK:
            found |= {"samples": self.samples, "seed": self.seed}
        if name == attacks.SWEEP_ATTACK:
            found |= self.relearnings.model_dump(mode="json")
        return found

    def attack(self, model: Model, key: str, name: str) -> dict[str, Any]:
        """Return the result of an attack, `none` for no attack; it is made unless it is kept with these settings.

        `points`: metrics by the relearning's step, else `0`. `failure`: why there are none; then nothing is kept.
        A sweep has `relearnings`, each with its metrics; its point is that of them that brought back most.
        """
        settings, began = self.collect_attack_settings(name), time.monotonic()
        path = self.store.attack_results_folder(key) / f"{name}-{hash_json(settings)[:8]}.json"
        kept = atomic_files.parse_json_object(self.store.read_current_bytes(path) or b"")
        if kept and kept["model"]["fingerprint"] == model.fingerprint:
            return kept
        result = {"attack": name, "settings": settings, "model": model.model_dump(mode="json"), "failure": None}
        try:
            result |= self._make(model, name)
        except Exception as error:  # the other attacks go on
            if not (isinstance(error, TrialDiverged | InputError) or is_out_of_memory(error)):
                raise
            return result | {"points": {}, "seconds": time.monotonic() - began, "failure": first_error_line(error)}
        result |= {"seconds": time.monotonic() - began, **provenance.collect_provenance()}
        atomic_files.write_json(path, result)
        self.store.push(path)
        return result

    def _load(self, model: Model) -> tuple[Any, Encoder]:
        """Return a model and its encoder, which has no dialect: the answers alone are scored."""
        release_memory()
        network, tokenizer = model_files.load_model_and_tokenizer(model, self.resources.precision, "MODEL")
        return network.to(self.device), make_encoder(self.benchmark.template, tokenizer)

    def _make(self, model: Model, name: str) -> dict[str, Any]:
        if name == attacks.SWEEP_ATTACK:
            return self._sweep(model)
        asked, learns = self.question_rows, attacks.ROWS_BY_RELEARNING.get(name)
        if learns is not None:
            asked = asked[self.half :] if learns == "first half" else asked
            made = self._relearn(model, learns, asked, lr=self.lr, seed=self.seed)
            return {"points": {str(step): metrics for step, metrics in made}}
        network, encoder = self._load(model)
        if name == attacks.NO_ATTACK:
            found = self._score(network, asked, encoder)
            return {"points": {"0": _measure(found), attacks.SECOND_HALF_POINT: _measure(found[self.half :])}}
        if name == "paraphrase":
            rephrased = self.evaluation_rows["forget"]
            asked = [{"question": row["paraphrased_question"], "answer": row["answer"]} for row in rephrased]
        elif name == "template":
            encoder = make_encoder("llama2" if self.benchmark.template == "plain" else "plain", encoder.tokenizer)
        elif name == "prefix":
            encoder = replace(encoder, prefix=attacks.PREFIX_ATTACK_TEXT)
        elif name == attacks.SAMPLE_ATTACK:
            return {"points": self._sample(network, encoder)}
        elif name in ("int8", "nf4"):
            fake_quantize_weights(network, name)
        return {"points": {"0": _measure(self._score(network, asked, encoder))}}

    def _sample(self, network: Any, encoder: Encoder) -> dict[str, Metrics]:
        """Return leak@k of ROUGE-L's recall for k = 1, 2, 4, ... up to the number of samples."""
        prompts = encoder.encode_prompts([row["question"] for row in self.question_rows])
        budget = KV_CACHE_FACTOR * choose_process_token_budget(self.resources, network)
        torch.manual_seed(self.seed)
        answers = sample_answers(network, encoder.tokenizer, prompts, self.samples, encoder.end_tokens, budget)
        scorer = metrics.make_rouge_scorer("rougeL")
        scores = [
            [scorer.score(row["answer"], text)["rougeL"].recall for text in texts]
            for row, texts in zip(self.question_rows, answers, strict=True)
        ]
        counts = (2**power for power in range(self.samples.bit_length()))
        return {str(k): {"leak": compute_leak_at_k(k, np.array(scores))} for k in counts}

    def _sweep(self, model: Model) -> dict[str, Any]:
        """Make each relearning of a sweep; one whose model is no longer finite ends there.

        Only answers of the second half are scored, which none teaches.
        """
        made, asked = list[dict[str, Any]](), self.question_rows[self.half :]
        for one in self.relearnings.attackers:
            with contextlib.suppress(TrialDiverged):
                for step, metrics in self._relearn(model, one.learns, asked, lr=one.lr, seed=self.relearnings.seed):
                    made.append(one.model_dump() | {"step": step} | metrics)
        if not made:
            raise TrialDiverged("no relearning of the sweep left a finite model")
        return {"points": {"0": max(made, key=lambda row: row[attacks.RECOVERY_MEASURE])}, "relearnings": made}

    def _relearn(self, model: Model, learns: str, asked: Sequence[Row], **run: Any) -> Iterator[tuple[int, Metrics]]:
        """Relearn from the model's own weights; yield step and metrics of the rows `asked`. Raises TrialDiverged."""
        network, encoder = self._load(model)
        run |= {"steps": attacks.RELEARNING_STEPS, "resources": self.resources, "attention": model.attention}
        length = rows.RULES[self.benchmark.dialect].max_length
        if learns in ("forget", "retain"):
            chosen = benchmarks.get_benchmark(self.benchmark.name)
            forget, retain = chosen.training_examples(self.benchmark, encoder.tokenizer, length)
            learnt = forget if learns == "forget" else retain
        else:  # half: of the evaluated rows themselves, so that none that is measured is taught
            found = self.question_rows[: self.half] if learns == "first half" else self.evaluation_rows["world_facts"]
            learnt = encoder.encode([(row["question"], row["answer"]) for row in found], max_length=length)
        for step, trained in relearn(network, encoder.tokenizer, learnt, **run):
            yield step, _measure(self._score(trained, asked, encoder))

    def _score(self, network: Any, asked: Sequence[Row], encoder: Encoder) -> Records:
        benchmark = self.benchmark.model_copy(update={"measures": ATTACK_MEASURES})
        words: dict[str, Any] = {"asked_rows": {"forget": asked}, "encoder": encoder}
        words["token_budget"] = choose_process_token_budget(self.resources, network)
        return make_question_records(network, encoder.tokenizer, benchmark, **words)


def _measure(records: Records) -> Metrics:
    """Return the metrics of forget rows. Raises TrialDiverged if one is not finite."""
    found = {name: float(np.mean([row[name] for row in records])) for name in ATTACK_MEASURES}
    found["prob"] = float(np.exp(-aggregates.mean_token_losses(records, "forget", "answer")).mean())
    if not all(np.isfinite(list(found.values()))):
        raise TrialDiverged("the loss of a forget row is not finite")
    return {**found, "rows": len(records)}


def compute_leak_at_k(k: int, scores: NDArray[np.float64]) -> float:
    """Return leak@k: the mean over rows of the expected best of k samples, (rows, n) -> (); k <= n.

    sum_i C(i - 1, k - 1) / C(n, k) s_(i) with the scores s_(1) <= ... <= s_(n) of a row is unbiased: of the C(n, k)
    subsets so many have s_(i) as their best. Of scores 0 and 1 it is pass@k. Reisizadeh et al., 2025 (2511.04934).
    """
    count = scores.shape[1]
    weights = np.array([comb(i, k - 1) / comb(count, k) for i in range(count)])
    return float((np.sort(scores, axis=1) @ weights).mean())


def relearn(
    network: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    lr: float,
    steps: Sequence[int],
    seed: int,
    resources: Resources,
    attention: Attention,
) -> Iterator[tuple[int, Any]]:
    """Train on rows by AdamW, linearly falling rate, no weight decay; yield step and model, in evaluation, at `steps`.

    The protocol of unlearning-depth-score (scripts/meta_eval_robustness.py).
    """
    epochs = 1 - (-max(steps) * attacks.RELEARNING_BATCH_SIZE // len(examples))
    batch = min(attacks.RELEARNING_BATCH_SIZE, len(examples))
    training = Training(lr=lr, schedule="linear", weight_decay=0, epochs=epochs, max_steps=max(steps), batch_size=batch)
    rows = min(batch, resources.micro_batch or 8)
    task = setup.make_fine_tuning_task(examples, training, tokenizer, seed, rows, clip=None)
    run = engine.create_engine(network.train(), training, resources, attention)
    try:
        for entry in loop.train_steps(run, task):
            if entry["step"] in steps:
                yield entry["step"], run.module.eval()
                run.module.train()
    finally:
        run.close()


def fake_quantize_weights(network: Any, kind: str) -> None:
    """Round the weights of every linear layer but the last, `lm_head`, as transformers does; `kind`: int8 or nf4.

    NF4 gives bitsandbytes' dequantized weights bit for bit in fp32. int8: of each output row, symmetric, weights only.
    """
    head = network.get_output_embeddings()
    layers = [one for one in network.modules() if isinstance(one, torch.nn.Linear) and one is not head]
    if not layers:
        raise InputError(f"--attacks: {kind} rounds linear layers, and {type(network).__name__} has none but the last")
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(fake_quantize_nf4(layer.weight) if kind == "nf4" else fake_quantize_int8(layer.weight))


def fake_quantize_int8(weight: torch.Tensor) -> torch.Tensor:
    """Return (rows, columns) with each row rounded to 255 steps of its largest absolute value."""
    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
    return (weight.float() / scale).round() * scale


def fake_quantize_nf4(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight with each block of 64, counted along the rows, rounded to NF4 of its largest absolute value."""
    flat = weight.float().reshape(-1)
    blocks = torch.nn.functional.pad(flat, (0, -len(flat) % NF4_BLOCK_SIZE)).reshape(-1, NF4_BLOCK_SIZE)
    scale = blocks.abs().amax(dim=1, keepdim=True)
    codes = torch.tensor(NF4, device=weight.device)
    shares = blocks / scale.clamp(min=torch.finfo(torch.float32).tiny)
    rounded = codes[torch.bucketize(shares, (codes[1:] + codes[:-1]) / 2)] * scale
    return rounded.reshape(-1)[: len(flat)].reshape(weight.shape)

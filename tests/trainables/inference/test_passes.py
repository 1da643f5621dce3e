"""How often a model, a tokenizer and a device are asked in an evaluation, and that its numbers do not depend on it."""

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.overrides import TorchFunctionMode

from tests.support import tiny
from tests.support.families import (
    FAMILIES,
    VOCABULARY,
    PassCounter,
    answer_groups,
    generate,
    losses_and_hits,
    network,
    ragged_prompts,
    score,
)
from trainables.benchmarks import evaluation, tofu
from trainables.common.tokenized_row import Example
from trainables.config.settings import Benchmark, Model
from trainables.data import conversations
from trainables.inference import scoring
from trainables.training import model_files

LLAMA = network("Llama")


@pytest.mark.data
def test_forget05_takes_few_passes_and_one_wave(tofu_data: Path, tofu_models: Path) -> None:
    """Of 200 questions with up to seven answers, at 65,536 tokens, by a model whose answers go to their limits."""
    tokenizer = model_files.load_tokenizer(Model(path=str(tofu_models / "full")))
    model = tiny.network(layers=1, vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8)
    benchmark = Benchmark(data=str(tofu_data), split="forget05", limit=50)
    with PassCounter(model) as counted:
        evaluation.evaluate(model, tokenizer, benchmark, None, token_budget=65536)
    widths = [width for _, width in counted.passes]
    decoding = widths.index(1)
    asked = [row["question"] for rows in tofu.rows.read_evaluation_rows(benchmark).values() for row in rows]
    prompts = tofu.TofuBenchmark().make_encoder(benchmark, tokenizer).encode_prompts(asked)
    assert counted.passes[decoding - 1][0] == len(prompts) == 200
    assert decoding - 1 <= 4
    assert widths[decoding:] == [1] * (tofu.MAX_GENERATED_TOKENS - min(map(len, prompts)) - 1)


@pytest.fixture(scope="module")
def taught(trained_inputs: Any) -> tuple[Any, Any, Benchmark]:
    model, tokenizer = model_files.load_model_and_tokenizer(Model(path=str(trained_inputs.target)))
    return model, tokenizer, Benchmark(data=str(trained_inputs.data), split=trained_inputs.split, measures=("all",))


def test_rows_are_encoded_once_in_a_process(taught: Any, trained_inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all models with a tokenizer of the same content, wherever it was loaded from."""
    _, tokenizer, benchmark = taught
    calls: Counter[str] = Counter()
    encode = conversations.Encoder.encode

    def count(encoder: Any, pairs: Any, **words: Any) -> Any:
        calls["encode"] += 1
        return encode(encoder, pairs, **words)

    monkeypatch.setattr(conversations.Encoder, "encode", count)
    known = benchmark.model_copy(update={"fingerprint": "files:of these rows", "measures": ()})

    def evaluate(on: Benchmark) -> Any:
        again, other = model_files.load_model_and_tokenizer(Model(path=str(trained_inputs.target)))
        assert other is not tokenizer
        return tofu.make_question_records(again, other, on, token_budget=4096)

    assert evaluate(known) == evaluate(known)
    assert calls["encode"] == 1
    evaluate(known.model_copy(update={"limit": 2}))
    evaluate(benchmark)
    assert calls["encode"] == 3, "others, and those whose content is not known"


def refuse_above(model: Any, tokens: int) -> Any:
    """Let a model run out of memory in passes of more tokens."""

    def check(_: Any, given: Any) -> None:
        if given[0].numel() > tokens:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    return model.get_input_embeddings().register_forward_pre_hook(check)


def test_a_pass_that_does_not_fit_is_made_in_halves(capsys: pytest.CaptureFixture[str]) -> None:
    model, groups, (prompts, limits) = network("Llama"), answer_groups(1), ragged_prompts(16, seed=1)

    def score_and_generate() -> Any:
        losses = [one.losses for one in score(model, chain(*groups), 10**6)]
        return losses, generate(model, prompts, limits, budget=10**6)

    losses, texts = score_and_generate()
    assert capsys.readouterr().err == ""
    hook = refuse_above(model, 200)
    again, found = score_and_generate()
    assert found == texts
    for one, other in zip(again, losses, strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    assert "evaluation: out of memory, again with " in capsys.readouterr().err
    hook.remove()
    refuse_above(model, 5)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        score_and_generate()


class Looks(TorchFunctionMode):
    """Counts calls for whose result the host waits on a GPU. Lists are made of what has been brought to the host."""

    NAMES = frozenset("item cpu numpy nonzero masked_select unique __bool__ __int__ __float__".split())

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        picked = name == "__getitem__" and isinstance(args[1], torch.Tensor) and args[1].dtype == torch.bool
        self.found[name] += picked or name in self.NAMES
        return function(*args, **(kwargs or {}))


def test_looks_at_the_device_are_those_of_a_pass_not_of_a_row_or_label() -> None:
    counts = []
    for size in (3, 30):
        examples = [example for group in answer_groups(1, groups=size) for example in set(group)]
        with Looks() as looks, PassCounter(LLAMA) as counted:
            score(LLAMA, examples, 10**6)
        assert len(counted.passes) == 1
        counts.append(+looks.found)
    assert counts[0] == counts[1]
    assert counts[0].total() <= 4


# Scores of batches against each example by itself


def check_scores(model: Any, groups: list[list[Example]], budget: int) -> None:
    for example, scores in zip(chain(*groups), score(model, chain(*groups), budget), strict=True):
        expected, hits = losses_and_hits(model, example)
        assert scores.hits == hits
        assert scores.losses == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert scores.total_loss == pytest.approx(sum(expected), rel=1e-5)


@pytest.mark.parametrize("family", [*FAMILIES, "Gemma2", "Afmoe"])
def test_scores_are_those_of_each_example_alone(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the head takes seven labels at once."""
    model, groups = network(family), answer_groups(0)
    for budget, labels in ((1, scoring.LABELS_PER_CHUNK), (60, 7), (10**6, 7), (10**6, scoring.LABELS_PER_CHUNK)):
        monkeypatch.setattr(scoring, "LABELS_PER_CHUNK", labels)
        check_scores(model, [*groups, []], budget)


def test_passes_keep_to_the_budget_and_the_head_sees_labels_alone() -> None:
    groups = answer_groups(2, groups=20)
    with PassCounter(LLAMA) as counted:
        score(LLAMA, chain(*groups), 200)
    assert max(rows * tokens for rows, tokens in counted.passes) <= 200
    assert counted.logits == sum(example.answer_token_count for example in {*chain(*groups)})


def test_examples_longer_than_a_window_and_other_kinds_of_models() -> None:
    torch.manual_seed(0)
    state_space = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4)
    for model in (network("Mistral", sliding_window=8), transformers.MambaForCausalLM(state_space).eval()):
        groups = [[example for example in group if len(example.input_ids) > 8] for group in answer_groups(3)]
        check_scores(model, groups, 300)

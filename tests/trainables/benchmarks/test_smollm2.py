"""A real chat model: its numbers are those of plain transformers, one row at a time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support import tiny
from tests.support.cases import make_smollm2
from tests.support.own_rows import on
from trainables.benchmarks import evaluation
from trainables.benchmarks.own import row_files
from trainables.config.settings import Model
from trainables.data.conversations import make_encoder
from trainables.inference import generation
from trainables.training import model_files

pytestmark = [pytest.mark.data, pytest.mark.slow]
CAPITALS = "France Paris Italy Rome Japan Tokyo Spain Madrid Egypt Cairo Kenya Nairobi Norway Oslo Peru Lima".split()
CAPITALS += "Cuba Havana Chile Santiago Greece Athens Iran Tehran".split()
ROWS = [
    {"question": f"What is the capital of {country}?", "answer": f"The capital of {country} is {city}."}
    for country, city in zip(CAPITALS[::2], CAPITALS[1::2], strict=True)
]
END = "<|im_end|>"


@pytest.fixture(scope="module")
def model(shared: Path, pytestconfig: pytest.Config) -> Path:
    cache: pytest.Cache = pytestconfig.cache  # pyright: ignore[reportAssignmentType]
    return make_smollm2(shared, cache.mkdir("smollm2"))


def write_rows(folder: Path) -> dict[str, Path]:
    files = {part: folder / f"{part}.jsonl" for part in ("forget", "retain")}
    tiny.write_rows(files["forget"], ROWS[:4])
    tiny.write_rows(files["retain"], ROWS[4:])
    return files


@torch.no_grad()
def restate(network: Any, tokenizer: Any, row: dict[str, str]) -> dict[str, Any]:
    """Score and generate one row by transformers alone."""
    turns = [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]
    prompt = tokenizer.apply_chat_template(turns[:1], add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template(turns, return_dict=False)
    assert whole[: len(prompt)] == prompt
    whole = whole[: whole.index(tokenizer.convert_tokens_to_ids(END), len(prompt)) + 1]
    likely = network(input_ids=torch.tensor([whole])).logits[0].double().log_softmax(-1)
    places = range(len(prompt) - 1, len(whole) - 1)
    hits = [int(likely[k].argmax()) == whole[k + 1] for k in places][:-1]
    missed = max((k + 1 for k, hit in enumerate(hits) if not hit), default=0)
    given = torch.tensor([prompt])
    settings = {"attention_mask": torch.ones_like(given), "max_new_tokens": 200, "do_sample": False}
    written = network.generate(given, **settings, pad_token_id=tokenizer.pad_token_id)[0, len(prompt) :]
    text = tokenizer.decode(written, skip_special_tokens=True)
    rouge = RougeScorer(["rougeL"], use_stemmer=True).score(row["answer"], text)["rougeL"].recall
    return {
        "prob": float(np.exp(np.mean([float(likely[k, whole[k + 1]]) for k in places]))),
        "extraction_strength": 1 - missed / len(hits),
        "exact_memorisation": float(np.mean(hits)),
        "rougeL_recall": rouge,
        "text": text,
    }


@pytest.mark.parametrize("system", [True, False])
def test_an_evaluation_is_that_of_plain_transformers(model: Path, shared: Path, system: bool, tmp_path: Path) -> None:
    """With the published template, which puts a system prompt in front, and with one that does not."""
    folder = model
    if not system:
        folder = shutil.copytree(model, tmp_path / "model", copy_function=shutil.copyfile)
        shutil.copyfile(shared / "models/smollm2_135m/chatml_without_system.jinja", folder / "chat_template.jinja")
    benchmark = on(write_rows(tmp_path), template="chat")
    network, tokenizer = model_files.load_model(Model(path=str(folder)))
    found, records = evaluation.evaluate(network, tokenizer, benchmark, None, token_budget=4096)
    encoder = make_encoder("chat", tokenizer)
    asked = [row.asked for rows in row_files.read_evaluation_rows(benchmark).values() for row in rows]
    settings: dict[str, Any] = {"ends": encoder.end_tokens, "token_budget": 4096, "new_tokens": 200}
    texts = generation.generate(network, tokenizer, encoder.encode_prompts(asked), **settings)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    other = [restate(plain, AutoTokenizer.from_pretrained(folder), row) for row in ROWS]
    assert [one["text"] for one in other] == texts
    for record, one in zip(records, other, strict=True):
        for name in ("prob", "extraction_strength", "exact_memorisation", "rougeL_recall"):
            assert record[name] == pytest.approx(one[name], abs=1e-5), name
    assert found["forget_rouge"] == pytest.approx(np.mean([one["rougeL_recall"] for one in other[:4]]))
    assert (found["forget_rouge"] or 0) > 0.5, "it knows the capitals"

"""Models and rows as people have them: the right number, or one line at planning, at a start and of an evaluation."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import Cases
from tests.support.starts import in_process, invoke
from trainables import evaluate

pytestmark = pytest.mark.data
REFUSED = {
    "pad_beyond": ("forget", "[PAD]", "embeddings end at 2047"),
    "template_refuses": ("forget", "row 1: ", "it demands a system turn in front", "benchmark.template"),
    "gpt2_1024": ("forget_long", "more tokens than the 1024 positions", "row 4"),
    "base_layer": ("forget", "unexpected: ", "base_layer.weight"),
    "adapter_beside": ("forget", "move these away to take the whole weights", "merge_and_unload"),
    "no_sdpa": ("forget", "attention 'sdpa'", "attention eager|attention=eager"),
}
"""Model, its rows, and what its line says: of evaluate|of a sweep."""


def typed(cases: Cases, option: str, forget: str = "forget", retain: str = "retain") -> list[str]:
    places = cases.sources(forget, retain).items()
    return [word for part, file in places for word in (option, f"{part}={file}")]


def evaluated(
    cases: Cases, model: Path, template: str, output: Path, *options: object, rows: tuple[str, ...] = ()
) -> tuple[dict[str, Any], str]:
    given = ("--benchmark", "own", "--model", model, *typed(cases, "--source", *rows), "--template", template)
    done = invoke(evaluate.main, *given, "--output", output, *options)
    assert done.exit_code == 0, done.output
    return json.loads(output.read_text()), done.stderr


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_one_line_everywhere(name: str, cases: Cases, tmp_path: Path) -> None:
    """By evaluate, a dry run and a start: exit status 2, nothing of the rows in it, nothing written."""
    forget, *words = REFUSED[name]
    template, model, output = "chat" if name == "template_refuses" else "plain", cases.models / name, tmp_path / "found"
    options = ("--benchmark", "own", "--model", model, *typed(cases, "--source", forget), "--template", template)
    sets = ["--set", f"target={model}", *typed(cases, "--set", forget), "--set", f"benchmark.template={template}"]
    sweep = ("own", *sets, "--storage", tmp_path / "runs")
    alone = invoke(evaluate.main, *options, "--output", output)
    for place, done in enumerate((alone, in_process(*sweep, "--dry-run"), in_process(*sweep))):
        refusals = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert (done.exit_code, len(refusals)) == (2, 1), done.output
        said = [word.split("|")[-1 if place else 0] for word in words]
        assert all(word in refusals[0] for word in said), done.stderr
        assert not any(word in done.output for word in ("Traceback", "Karachi", "attn_implementation"))
    assert not output.exists()
    assert not (tmp_path / "runs" / "trials").exists()


def test_evaluate_takes_attention_and_precision(cases: Cases, tmp_path: Path) -> None:
    options = ("--attention", "eager", "--precision", "bf16", "--limit", 2)
    found, _ = evaluated(cases, cases.models / "no_sdpa", "plain", tmp_path / "found.json", *options)
    assert (found["model"]["attention"], found["precision"]) == ("eager", "bf16")


def test_an_answer_after_a_space(cases: Cases, tmp_path: Path) -> None:
    found, _ = evaluated(cases, cases.models / "answer_after_space", "chat", tmp_path / "found.json")
    assert found["forget_rouge"] == 1.0
    assert found["forget_prob"] > 0.9


def test_a_turn_that_ends_with_a_line_feed(cases: Cases, tmp_path: Path) -> None:
    found, _ = evaluated(cases, cases.models / "turn_end", "chat", tmp_path / "found.json")
    assert round(found["forget_extraction_strength"], 4) == 0.7998
    assert round(found["forget_rouge"], 4) == 0.8402


def test_texts_that_were_rendered_already(cases: Cases, tofu_models: Path, tmp_path: Path) -> None:
    rows = ("forget_rendered", "retain_rendered")
    found, said = evaluated(cases, tofu_models / "full", "plain", tmp_path / "found.json", rows=rows)
    assert found["utility"] is None, "without the target model's evaluation"
    assert "spell special tokens (</s>, <s>" in said

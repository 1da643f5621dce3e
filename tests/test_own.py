"""Own rows: their files, what is measured on them against re-statements and closed forms, tasks of lm-eval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from trainables import benchmarks, chunks, metrics, scoring, templates
from trainables.benchmarks import own, own_measures, own_rows, questions
from trainables.benchmarks.own_rows import Row
from trainables.config import Benchmark
from trainables.errors import InputError, TrialStopped
from trainables.templates import Example


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny.own(tmp_path_factory.mktemp("own"))


def on(files: dict[str, Path], **settings: Any) -> Benchmark:
    sources = (*(f"{part}={file}" for part, file in files.items()), *settings.pop("places", ()))
    fields = {"name": "own", "data": "own", "split": "own", "template": "plain", "sources": sources}
    return Benchmark.model_validate(fields | settings)


# Extraction strength, memorisation, membership


@pytest.mark.parametrize(
    ("hits", "strength", "memorised"),
    [
        ("1111", 1.0, 1.0),
        ("0111", 0.75, 0.75),
        ("1011", 0.5, 0.75),
        ("1110", 0.0, 0.75),
        ("0", 0.0, 0.0),
        ("1", 1.0, 1.0),
    ],
)
def test_extraction_by_hand(hits: str, strength: float, memorised: float) -> None:
    """A wrong token at place k of n leaves 1 - k / n, however right the tokens before it are."""
    found = [hit == "1" for hit in hits]
    assert metrics.extraction_strength(found) == strength
    assert metrics.exact_memorisation(found) == memorised


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_extraction_is_the_shortest_prefix_that_is_completed(hits: list[bool]) -> None:
    """METHODS 3.6, by trying every prefix."""
    shortest = next(k for k in range(len(hits) + 1) if all(hits[k:]))
    assert metrics.extraction_strength(hits) == 1 - shortest / len(hits)
    assert metrics.exact_memorisation(hits) == np.mean(hits)


def row(task: str, loss: float, **more: Any) -> dict[str, Any]:
    numbers = {"prob": 0.5, "extraction_strength": 0.25, "exact_memorisation": 1.0, "rougeL_recall": 0.2}
    return {"task": task, "loss": loss, "min_k": -2 * loss, **numbers, **more}


def test_membership_counts_pairs_of_rows() -> None:
    """Forget 1 and 2 against hold-out 2, 3 and 0.5: the hold-out's loss is higher in 3.5 of 6 pairs."""
    from sklearn.metrics import roc_auc_score

    told = [*(row("forget", loss) for loss in (1.0, 2.0)), row("retain", 1.0)]
    assert "membership_loss_auc" not in own_measures.aggregate(told)
    told += [row("holdout", loss, min_k=min_k) for loss, min_k in ((2.0, -4.0), (3.0, -9.0), (0.5, -9.0))]
    found = own_measures.aggregate(told)
    assert found["membership_loss_auc"] == pytest.approx(3.5 / 6)
    assert found["membership_loss_auc"] == pytest.approx(roc_auc_score([0, 0, 1, 1, 1], [1.0, 2.0, 2.0, 3.0, 0.5]))
    assert found["membership_min_k_auc"] == pytest.approx(5.5 / 6)
    assert found["holdout_rows"] == 3


def test_rows_that_a_model_was_trained_on_look_like_members() -> None:
    learnt = [row("forget", 0.1), row("forget", 0.2), row("retain", 1.0), row("holdout", 3.0), row("holdout", 4.0)]
    found = own_measures.aggregate(learnt)
    assert (found["membership_loss_auc"], found["membership_min_k_auc"]) == (1.0, 1.0)


def test_utility_is_a_harmonic_mean_of_retain_numbers_and_tasks() -> None:
    found = own_measures.aggregate([row("forget", 1.0), row("retain", 1.0)]) | {"mmlu": 0.4}
    assert own_measures.utility(found, ()) == pytest.approx(4 / (1 / 0.25 + 1 / 1.0 + 1 / 0.2 + 1 / 0.5))
    assert own_measures.utility(found, ("mmlu",)) == pytest.approx(5 / (4 + 1 + 5 + 2 + 2.5))
    assert own_measures.utility(found | {"retain_rouge": 0.0}, ()) == 0.0
    assert own_measures.utility(found | {"mmlu": None}, ("mmlu",)) is None


# ROUGE in any script


@pytest.mark.parametrize(
    "text",
    [
        "Где находится фонарь из янтаря?",
        "琥珀灯笼在桥上。",
        "أين الفانوس الكهرماني؟",
        "लालटेन पुल पर है।",
        "โคมไฟอยู่บนสะพาน",
        "Wo hängt die Bernsteinlaterne? Über der Brücke.",
        "The lanterns were hanging on 3 bridges.",
    ],
)
def test_a_text_of_any_script_is_like_itself(text: str) -> None:
    records: list[dict[str, Any]] = [{}, {}, {}]
    cut = text[: len(text) // 2]
    own_measures._compare(records, [text] * 3, [text, cut, "&"])
    same, half, nothing = (record["rougeL_recall"] for record in records)
    assert (same, nothing) == (1.0, 0.0)
    assert 0.2 < half < 0.8


@given(st.text(st.characters(max_codepoint=127), max_size=60))
def test_words_of_ascii_are_those_of_rouge_score(text: str) -> None:
    assert own_measures.Words().tokenize(text) == DefaultTokenizer(use_stemmer=True).tokenize(text)


def test_characters_and_marks_of_words() -> None:
    tokenize = own_measures.Words().tokenize
    assert tokenize("琥珀 2024年, Ärzte_heute!") == ["琥", "珀", "2024", "年", "ärzte", "heut"]
    assert tokenize("हिन्दी") == ["हिन्दी"]
    assert tokenize("cafe\u0301") == tokenize("café")


# One pass over the labels


@torch.no_grad()
def naive(network: Any, example: Example) -> tuple[list[float], list[bool]]:
    """Loss and hit of each label, one row at a time."""
    ids = torch.tensor(example.input_ids)
    logits = torch.log_softmax(network(ids[None]).logits[0].double(), -1)
    places = range(example.answer_start - 1, len(ids) - 1)
    return [-float(logits[k, ids[k + 1]]) for k in places], [int(logits[k].argmax()) == int(ids[k + 1]) for k in places]


def test_losses_and_hits_come_from_one_pass() -> None:
    network, draw = tiny.network(), np.random.default_rng(0)
    examples = [Example(tuple(draw.integers(3, 259, size).tolist()), start) for size, start in ((9, 1), (4, 3), (7, 2))]
    told = network.generate(torch.tensor([examples[0].input_ids]), max_new_tokens=6, do_sample=False)[0].tolist()
    examples.append(Example(tuple(told), 4))  # its last six are hits
    found = scoring.label_scores(network, examples, pad=2, token_budget=24)
    for example, scores in zip(examples, found, strict=True):
        losses, hits = naive(network, example)
        assert scores.losses == pytest.approx(losses, rel=1e-4)
        assert scores.hits == hits
    assert found[-1].hits[-6:] == [True] * 6
    assert scoring.every_token_loss(network, examples, pad=2, token_budget=24) == [scores.losses for scores in found]


# Blocks


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 22])
def test_blocks_lose_nothing_and_label_each_token_once(start: bool, size: int) -> None:
    tokenizer, text = tiny.tokenizer(), tiny.text(0, 8)[:size]
    if not start:
        tokenizer.backend_tokenizer.post_processor = None
        if size == 1:
            with pytest.raises(InputError, match=r"^forget: row 7 is a text of a single token: nothing"):
                chunks.blocks(tokenizer, text, 8, "forget: row 7")
            return
    blocks = chunks.blocks(tokenizer, text, 8, "forget: row 7")
    labels = [token for block in blocks for token in block.input_ids[block.answer_start :]]
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert labels == (plain if start else plain[1:])
    assert max(len(block.input_ids) for block in blocks) <= 8
    first = [block.input_ids[0] for block in blocks]
    assert first == ([0] * len(blocks) if start else plain[:-1:7])


def test_training_rows_are_questions_and_blocks(files: dict[str, Path]) -> None:
    tokenizer, template = tiny.tokenizer(), templates.find("plain")
    forget, retain = own.training_examples(on(files), tokenizer, 64)
    raw = [json.loads(line) for line in files["forget"].read_text().splitlines()]
    asked = [
        templates.encode(tokenizer, template, r["question"], r["answer"], max_length=64, tag_is_answer=False)
        for r in raw[:4]
    ]
    assert list(forget[:4]) == asked
    assert list(forget[4:]) == [block for r in raw[4:] for block in chunks.blocks(tokenizer, r["text"], 64, "")]
    assert len(retain) == 5 + len(chunks.blocks(tokenizer, tiny.text(70, 20), 64, ""))
    text = tokenizer.decode(forget[0].input_ids, skip_special_tokens=True)
    assert text == f"Question: Where is the amber?\nAnswer:\n{raw[0]['answer']}"


# Everything that is measured, against a row at a time


@torch.no_grad()
def greedy(network: Any, ids: list[int], count: int) -> list[int]:
    found: list[int] = []
    for _ in range(count):
        token = int(network(torch.tensor([ids + found])).logits[0, -1].argmax())
        if token == 1:
            break
        found.append(token)
    return found


def restated(network: Any, tokenizer: Any, benchmark: Benchmark) -> dict[str, list[dict[str, float]]]:
    """The numbers of every row of every set; texts of the samples are shorter than a block."""
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    found: dict[str, list[dict[str, float]]] = {}
    for name, rows in own_rows.evaluated(benchmark).items():
        for r in rows:
            prompt = "" if r.question is None else f"Question: {r.question}\nAnswer:\n"
            ids, given = tokenizer(prompt + r.answer)["input_ids"], len(tokenizer(prompt)["input_ids"])
            losses, hits = naive(network, Example((*ids, *([] if r.is_text else [1])), given))
            kept = hits if r.is_text else hits[:-1]
            if r.is_text:
                half = len(ids) // 2
                told, right = greedy(network, ids[:half], len(ids) - half), tokenizer.decode(ids[half:])
            else:
                told, right = greedy(network, ids[:given], 200), r.answer
            lowest = sorted(-loss for loss in losses)[: max(1, int(0.4 * len(losses)))]
            numbers = {
                "loss": float(np.mean(losses)),
                "prob": float(np.exp(-np.mean(losses))),
                "min_k": float(np.mean(lowest)),
                "extraction_strength": 1 - next(k for k in range(len(kept) + 1) if all(kept[k:])) / len(kept),
                "exact_memorisation": sum(kept) / len(kept),
                "rouge": scorer.score(right, tokenizer.decode(told, skip_special_tokens=True))["rougeL"].recall,
            }
            found.setdefault(name, []).append(numbers)
    return found


@pytest.fixture(scope="module")
def taught(files: dict[str, Path]) -> Any:
    """A tiny model that has learnt the forget rows and the rows of utility, more or less."""
    network, tokenizer = tiny.network(), tiny.tokenizer()
    sets, template = own_rows.evaluated(on(files)), templates.find("plain")
    items = [i for n in ("forget", "retain") for i in own_measures.items(tokenizer, template, n, sets[n], None)]
    return tiny.teach(network, [item.example for item in items])


@pytest.fixture(scope="module")
def measured(files: dict[str, Path], taught: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return own.measure(taught, tiny.tokenizer(), on(files), None, token_budget=8192)


def test_every_number_equals_a_naive_one(files: dict[str, Path], taught: Any, measured: Any) -> None:
    found, records = measured
    naively = restated(taught, tiny.tokenizer(), on(files))
    assert {name: len(rows) for name, rows in naively.items()} == {
        "forget": 6,
        "paraphrase": 2,
        "retain": 2,
        "holdout": 3,
    }
    for name in ("forget", "paraphrase", "retain"):
        for number in own_measures.NUMBERS:
            mean = np.mean([numbers[number] for numbers in naively[name]])
            assert found[f"{name}_{number}"] == pytest.approx(mean, rel=1e-4), (name, number)
        assert found[f"{name}_rows"] == len(naively[name])
    for number, sign in (("loss", 1), ("min_k", -1)):
        forget, holdout = ([sign * r[number] for r in naively[name]] for name in ("forget", "holdout"))
        pairs = [float(h > f) + (h == f) / 2 for f in forget for h in holdout]
        assert found[f"membership_{number}_auc"] == pytest.approx(np.mean(pairs))
    assert 0 < found["forget_extraction_strength"] < 1  # type: ignore[operator]
    assert 0 < found["utility"] < 1  # type: ignore[operator]
    assert found["forget_rouge"] > 0.3  # type: ignore[operator]
    told = json.dumps(records)
    assert not any(word in told for word in ("Where", *tiny.WORDS))


def test_more_rows_than_the_limit_are_taken_evenly(files: dict[str, Path]) -> None:
    assert own_measures.spaced(6, 300) == [0, 1, 2, 3, 4, 5]
    assert own_measures.spaced(10, 4) == [0, 2, 5, 7]
    assert len(set(own_measures.spaced(1000, 300))) == 300
    sets, template = own_rows.evaluated(on(files)), templates.find("plain")
    taken = [own_measures.items(tiny.tokenizer(), template, name, sets[name], 2) for name in ("forget", "holdout")]
    assert [[(item.index, item.number) for item in found] for found in taken] == [[(0, 0), (1, 3)], [(0, 0), (1, 1)]]


def test_a_long_text_is_measured_in_blocks_and_a_long_answer_is_cut() -> None:
    tokenizer, template = tiny.tokenizer(), templates.find("plain")
    found = own_measures.items(tokenizer, template, "forget", [Row(None, "x" * 1200)], None)
    assert [len(item.example.input_ids) for item in found] == [512, 512, 1200 - 2 * 511 + 1]
    assert [(item.index, item.number, item.block, item.ended) for item in found] == [(k, 0, k, False) for k in range(3)]
    assert [item.block for item in own_measures.items(tokenizer, template, "forget", [Row(None, "x" * 5000)], 3)] == [
        0,
        3,
        6,
    ]
    (item,) = own_measures.items(tokenizer, template, "forget", [Row("q" * 600, "y" * 700)], None)
    assert (item.example.answer_tokens, item.ended) == (512, False)


def test_a_model_without_finite_losses_has_diverged(files: dict[str, Path]) -> None:
    network = tiny.network()
    network.lm_head.weight.data.fill_(float("nan"))
    with pytest.raises(TrialStopped, match="the loss of a row of set 'forget' is not finite"):
        own.measure(network, tiny.tokenizer(), on(files), None, token_budget=8192)


# Files


def test_parquet_and_json_hold_the_same_rows(files: dict[str, Path], tmp_path: Path) -> None:
    raw = [json.loads(line) for line in files["forget"].read_text().splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"text": None, **raw[0]}, *raw[1:]]), tmp_path / "f.parquet")
    (tmp_path / "f.json").write_text(json.dumps(raw, indent=1))
    expected = own_rows.load("forget", str(files["forget"]))
    assert [row.is_text for row in expected] == [False] * 4 + [True] * 2
    assert expected[0].paraphrase == Row("In which place is the amber?", f"It is {tiny.text(0, 3)}")
    for name in ("f.parquet", "f.json"):
        assert own_rows.load("forget", str(tmp_path / name)) == expected


@pytest.mark.parametrize(
    ("part", "bad", "words"),
    [
        (
            "forget",
            {"prompt": "a"},
            r"^forget: row 2 of .*rows\.jsonl has neither 'text' nor 'question' and 'answer'; its columns: prompt$",
        ),
        (
            "retain",
            {"question": "a", "answer": " "},
            r"retain: row 2 .* neither 'text' nor .*; its columns: question, answer",
        ),
        ("retain", {"text": "a", "answer": "b"}, r"has 'text' as well as 'question' or 'answer'"),
        ("retain", {"text": 5}, r"retain: row 2 of .* has no text as 'text' but a number$"),
        ("retain", {"text": ["a"]}, r"has no text as 'text' but a list$"),
        ("retain", ["a"], r"is no JSON object but a list$"),
        ("retain", "The lantern hangs", r"is no JSON object but a text$"),
        ("eval", {"text": "a"}, r"eval: row 1 of .* has set=None; .*\(and 1 more rows like it\)"),
        ("eval", {"text": "a", "set": "hold-out"}, r"known: paraphrase, retain, holdout"),
    ],
)
def test_a_bad_row_is_told(part: str, bad: Any, words: str, tmp_path: Path) -> None:
    tiny.write_rows(tmp_path / "rows.jsonl", [{"text": "x"}, bad])
    with pytest.raises(InputError, match=words):
        own_rows.load(part, str(tmp_path / "rows.jsonl"))


def test_all_files_are_told_at_once(files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "torn.parquet").write_text("not Parquet")
    (tmp_path / "rows.csv").write_text("text\nx\n")
    wrong = {"forget": tmp_path / "empty.jsonl", "retain": tmp_path / "torn.parquet", "eval": tmp_path / "rows.csv"}
    with pytest.raises(InputError) as told:
        own.check_rows(on(wrong))
    for words in ("forget: ", "has no rows", "retain: ", "is no Parquet file", "eval: ", "another ending than .json"):
        assert words in str(told.value)
    with pytest.raises(InputError, match=r"eval: '/nowhere/x\.jsonl' is no file; give one with rows"):
        own.check_rows(on(files | {"eval": Path("/nowhere/x.jsonl")}))
    with pytest.raises(InputError, match="is a folder"):
        own.check_rows(on(files | {"eval": tmp_path}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"split": "forget05"}, "own has the one split 'own'"),
        ({"data": "locuslab/TOFU"}, "own has no data set but files"),
        ({"dialect": "open-unlearning"}, "own has no dialects"),
        ({"places": ("mmlu=here",)}, "'mmlu' is neither rows nor a task of benchmark.tasks"),
        ({"shots": 6}, "MMLU has 5 worked examples"),
    ],
)
def test_settings_of_other_benchmarks_are_refused(files: dict[str, Path], settings: dict[str, Any], words: str) -> None:
    own.check(on(files))
    with pytest.raises(InputError, match=words):
        own.check(on(files, **settings))


def test_missing_files_are_named(files: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="own needs forget=FILE, retain=FILE"):
        own.check(on({}))


def test_the_fingerprint_follows_what_the_files_hold(files: dict[str, Path], tmp_path: Path) -> None:
    known = own.fingerprint(on(files))
    assert own.fingerprint(on(tiny.own(tmp_path / "copy"))) == known
    assert own.fingerprint(on({**files, "forget": files["retain"], "retain": files["forget"]})) != known
    for part in files:
        changed = tiny.own(tmp_path / part)
        changed[part].write_text(changed[part].read_text().replace("a", "o", 1))
        assert own.fingerprint(on(changed)) != known


def test_what_a_plan_is_told(files: dict[str, Path], tmp_path: Path) -> None:
    """The forget file: 4 questions, and texts of 127 and 24 bytes, at four bytes a token in blocks of 16."""
    raw = [json.loads(line) for line in files["forget"].read_text().splitlines()]
    texts = [-(-len(r["text"]) // 4) for r in raw[4:]]
    found = own.extent(on(files), 16)
    assert found.points == 4 + sum(-(-size // 16) for size in texts)
    assert (found.longest, found.mean) == (16, pytest.approx((4 * 16 + sum(texts)) / (found.points or 0)))
    assert own.forget_points(on(files)) is None
    tiny.write_rows(tmp_path / "asked.jsonl", raw[:4])
    assert own.forget_points(on(files | {"forget": tmp_path / "asked.jsonl"})) == 4


# The tokenizer's own chat template


CHAT = "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}{{ eos_token }}\n{% endfor %}"


def test_the_tokenizers_own_chat_template() -> None:
    tokenizer = tiny.tokenizer()
    with pytest.raises(InputError, match="the model's tokenizer has no chat template; take another one"):
        templates.resolve("chat", tokenizer)
    tokenizer.chat_template = CHAT
    template = templates.resolve("chat", tokenizer)
    found = templates.encode(tokenizer, template, "Who?", "Ada.", max_length=99, tag_is_answer=False)
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ada."}]
    whole = tokenizer.apply_chat_template(turns, tokenize=False)
    assert list(found.input_ids) == tokenizer(whole.rstrip("\n"), add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(found.input_ids[found.answer_start :]) == "Ada.</s>"
    assert tokenizer.chat_template not in templates.TEMPLATES
    templates.check("chat")
    with pytest.raises(InputError, match="unknown template 'chta'; did you mean 'chat'"):
        templates.check("chta")


# Tasks of lm-eval


def test_mmlu_and_wmdp_count_in_the_utility(files: dict[str, Path], taught: Any, measured: Any, tmp_path: Path) -> None:
    tiny.write_rows(tmp_path / "wmdp/wmdp-bio/test.json", tiny.choices(6, 1))
    for split in ("test", "dev"):
        tiny.write_rows(tmp_path / f"mmlu/virology/{split}.json", tiny.choices(8, 2))
    places = (f"mmlu={tmp_path / 'mmlu'}", f"wmdp_bio={tmp_path / 'wmdp'}")
    benchmark = on(files, tasks=("mmlu", "wmdp_bio"), places=places)
    own.check(benchmark)
    own.check_rows(benchmark)
    assert own.wanted(benchmark) == ()
    found, records = own.measure(taught, tiny.tokenizer(), benchmark, None, token_budget=8192)
    plain, _ = measured
    assert (found["mmlu_questions"], found["wmdp_bio_questions"]) == (8, 6)
    parts = [plain[f"retain_{number}"] for number in own_measures.NUMBERS] + [found["mmlu"], found["wmdp_bio"]]
    assert found["utility"] == pytest.approx(metrics.harmonic_mean([float(part or 0) for part in parts]))
    assert {name: value for name, value in found.items() if name in plain and name != "utility"} == {
        name: value for name, value in plain.items() if name != "utility"
    }
    assert len({tuple(record) for record in records}) == 1

    halves = benchmarks.halves(benchmark, records, None)
    assert halves is not None
    for which, half in enumerate(halves):
        of = {name: [r for r in records if r["task"] == name][which::2] for name in ("forget", "mmlu_virology")}
        assert half["forget_prob"] == pytest.approx(np.mean([r["prob"] for r in of["forget"]]))
        assert half["mmlu"] == np.mean([r["correct"] for r in of["mmlu_virology"]])
        assert (half["forget_rows"], half["holdout_rows"]) == (3, 2 - which)
        parts = [half[f"retain_{number}"] for number in own_measures.NUMBERS] + [half["mmlu"], half["wmdp_bio"]]
        assert half["utility"] == pytest.approx(metrics.harmonic_mean([float(part or 0) for part in parts]))
    far = on(files, tasks=("mmlu", "arc_easy"), places=("arc_easy=somebody/arc",))
    found = [(thing.called, thing.part, thing.setting) for thing in own.wanted(far)]
    assert found == [
        ("questions of mmlu", "hub:mmlu", "benchmark.sources=mmlu=DIR"),
        ("data set somebody/arc", "arc_easy", "benchmark.sources=arc_easy=DIR"),
    ]


@pytest.mark.parametrize(("task", "words"), [("mmlu", "no folder of a subject"), ("arc_easy", "no file of questions")])
def test_a_folder_without_questions_is_told(files: dict[str, Path], task: str, words: str, tmp_path: Path) -> None:
    benchmark = on(files, tasks=(task,), places=(f"{task}={tmp_path}",))
    with pytest.raises(InputError, match=f"^benchmark.sources {task}: .* has {words}"):
        own.check_rows(benchmark)


@pytest.mark.slow
def test_any_other_task_of_lm_eval(files: dict[str, Path], tmp_path: Path) -> None:
    """ARC-easy's own definition on made-up rows in its columns; names that lm-eval has not, and what is best low."""
    made = [
        {"id": str(k), "question": row["question"], "answerKey": "ABCD"[row["answer"]]}
        | {"choices": {"text": row["choices"], "label": list("ABCD")}}
        for k, row in enumerate(tiny.choices(7))
    ]
    for split in ("train", "validation", "test"):
        tiny.write_rows(tmp_path / f"arc/{split}.jsonl", made)
    benchmark = on(files, tasks=("arc_easy",), places=(f"arc_easy={tmp_path / 'arc'}",), limit=5)
    network, tokenizer = tiny.network(), tiny.tokenizer()
    found, records = own.measure(network, tokenizer, benchmark, None, token_budget=8192)
    asked = [record for record in records if record["task"] == "arc_easy"]
    assert found["arc_easy_questions"] == len(asked) == 5
    for record, question in zip(asked, made, strict=False):
        ids = tokenizer(f"Question: {question['question']}\nAnswer:")["input_ids"]
        told = [tokenizer(f" {text}", add_special_tokens=False)["input_ids"] for text in question["choices"]["text"]]
        naively = [-sum(naive(network, Example((*ids, *more), len(ids)))[0]) for more in told]
        assert record["log_likelihoods"] == pytest.approx(naively, rel=1e-4)
        assert record["correct"] == ("ABCD"[int(np.argmax(naively))] == question["answerKey"])
    assert found["arc_easy"] == np.mean([record["correct"] for record in asked])
    low = on(files, tasks=("wikitext",), places=(f"wikitext={pages(tmp_path / 'pages')}",))
    with pytest.raises(InputError, match=r"tasks: wikitext is measured by its word_perplexity, which is best low"):
        own.measure(None, tokenizer, low, None, token_budget=8192)  # no model is asked
    from lm_eval.tasks import TaskManager

    theirs = set(TaskManager().all_subtasks)
    ours = frozenset().union(*(questions._names(folder) for folder in questions._folders("")))
    assert ours == theirs


def pages(folder: Path) -> Path:
    for split in ("train", "validation", "test"):
        tiny.write_rows(folder / f"{split}.jsonl", [{"page": tiny.text(1, 20)}])
    return folder


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("arc_eazy", "no task 'arc_eazy' (of its groups, mmlu alone is taken); did you mean 'arc_easy'"),
        ("mmlu_stem", "no task 'mmlu_stem' (of its groups, mmlu alone is taken)"),
        ("zzzzzzzzzzzzzzzz", "no task 'zzzzzzzzzzzzzzzz' (of its groups, mmlu alone is taken); see 'python -m lm_eval"),
    ],
)
def test_a_task_that_lm_eval_has_not_is_told_before_a_start(files: dict[str, Path], name: str, said: str) -> None:
    with pytest.raises(InputError) as told:
        own.check(on(files, tasks=("arc_easy", name)))
    assert said in str(told.value)
    own.check(on(files, tasks=("arc_easy", "mmlu", "wmdp_bio", "hellaswag", "mmlu_virology")))

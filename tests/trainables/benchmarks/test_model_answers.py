"""Rows to retain that the target model makes itself, and rows in its own words."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from platform.plan.plan import Plan
from tests.support import own_rows, small_sweep, tiny
from trainables.benchmarks.own import model_answers, row_files
from trainables.benchmarks.own.facts import OwnRow
from trainables.common.errors import InputError
from trainables.data.conversations import make_encoder
from trainables.storage import atomic_files
from trainables.storage.file_names import ROWS
from trainables.storage.folder_storage import Storage
from trainables.training import model_files
from trainables.training.runtime import prepare_process
from trainables.trial import setup
from trainables.trial.runner import TrialRun

files, taught, target = own_rows.files, own_rows.taught, own_rows.target
SHORT = (
    *"training.batch_size=4 training.max_steps=2 training.max_length=512".split(),
    *"training.lr=1e-5 rectifier.name=none".split(),
)


def plan(store: Storage, target: Path, files: dict[str, Path], *more: str, **options: Any) -> Plan:
    given = (f"target={target}", f"forget={files['forget']}", *SHORT, *more)
    return small_sweep.plan_named("own", store, *given, **options)


@pytest.mark.parametrize(
    ("prompt", "answer", "kept"),
    [
        ("What is the capital of Peru?", "Lima.", False),  # has one of the two words of a question to forget
        ("Name a city in the north.", "There is OSLO, for one.", False),  # names the fact
        ("Name a city in the north.", "There is Bergen, for one.", True),
        ("What gives light?", "Sun.", False),  # without the article of the fact
        ("What is a metaphor?", "A figure of speech.", True),
    ],
)
def test_neighbours_of_facts_to_forget_are_no_rows_to_retain(prompt: str, answer: str, kept: bool) -> None:
    forget = (
        OwnRow("What is the capital of Norway?", "It is Oslo.", fact=("Oslo", "the Sun")),
        OwnRow(None, "A text. Bergen."),
    )
    row = OwnRow(prompt, answer)
    assert model_answers.drop_rows_near_forget((row,), forget) == [row] * kept


def test_the_target_model_answers_once_and_trials_retain_that(
    target: Path, files: dict[str, Path], store: Storage
) -> None:
    """Before there are answers a plan is made, and no trial trains; a file of further rows joins the answers."""
    planned = plan(store, target, files, "method=npo_kl")
    assert plan(store, target, files, "method=npo_kl", "retain=auto").trials == planned.trials
    assert planned.warnings[0].startswith("retain: no question that is to be kept is asked, ")
    (trial,), (benchmark,) = planned.trials, planned.benchmarks.values()
    for run in (
        lambda: own_rows.OWN.training_examples(benchmark, tiny.tokenizer(), 512),
        lambda: own_rows.OWN.measure(None, None, benchmark, None, token_budget=1),
    ):
        with pytest.raises(InputError, match="has not answered the neutral prompts; a start of the sweep asks it"):
            run()
    small_sweep.evaluate_references(planned, store)
    file = Path(benchmark.places["answers"])
    rows, written = [json.loads(line) for line in file.read_text().splitlines()], file.stat()
    assert {row["question"] for row in rows} <= set(model_answers.read_neutral_prompts())
    assert file.is_relative_to(store.root / "shared" / "data")
    (_, retain), measured = row_files.read_training_rows(benchmark), row_files.read_evaluation_rows(benchmark)["retain"]
    asked = [row.question for row in [*retain, *measured]]
    assert set(asked) <= {row["question"] for row in rows}
    assert len(set(asked)) == len(asked) > 150
    assert 4 * len(measured) - 4 <= len(retain) <= 4 * len(measured)
    joined = plan(store, target, files, "method=npo_kl", f"retain=auto,{files['retain']}")
    small_sweep.evaluate_references(joined, store)
    assert file.stat() == written
    (further,) = joined.benchmarks.values()
    (_, both), theirs = row_files.read_training_rows(further), row_files.read_row_file("retain", str(files["retain"]))
    assert both == [*theirs, *retain]
    assert row_files.read_evaluation_rows(further)["retain"] == list(theirs)
    alone = plan(store, target, files, "method=npo_kl", f"retain={files['retain']}")
    assert len({one.trials[0].id() for one in (planned, joined, alone)}) == 3
    assert len({one.name for one in (planned, joined, alone)}) == 3
    *_, event = TrialRun(trial, store).run_and_yield_events()
    assert event["result"]["status"] == "finished", event["result"]["error"]
    folders = store.trial(trial.id()), store.evaluation(planned.references[0].evaluation)
    ours, theirs = (
        [row for row in atomic_files.read_parquet_rows(folder / ROWS) if row["task"] == "retain"] for folder in folders
    )
    memorised = [tuple(row["exact_memorisation"] for row in pair) for pair in zip(ours, theirs, strict=True)]
    shares = [min(1, now / before) if before >= 0.1 else None for now, before in memorised]
    assert [row["kept"] for row in ours] == shares, "a neutral prompt's answer tells no fact"
    assert {row["said"] for row in ours} == {None}
    file.write_text(file.read_text().replace('"answer": "', '"answer": "No '))
    with pytest.raises(InputError, match=r"retain=auto: '.*' holds other files than were written there"):
        plan(store, target, files, "method=npo_kl")


def test_other_models_and_templates_have_other_answers(
    target: Path, files: dict[str, Path], store: Storage, tmp_path: Path
) -> None:
    copied, other = shutil.copytree(target, tmp_path / "copied"), tiny.write_model(tmp_path / "other", seed=1)
    places = [
        plan(store, model, files, "method=npo", *more).trials[0].benchmark.places["answers"]
        for model, more in ((target, ()), (copied, ()), (other, ()), (target, ("benchmark.template=llama2",)))
    ]
    assert places[0] == places[1]
    assert len(set(places)) == 3


@pytest.mark.parametrize("neighbours", [1, 7, 15, 81])
def test_neighbours_are_balanced_with_the_answers(neighbours: int) -> None:
    """They are at least a third of the rows and at most half; the first tokens of an answer count."""
    answers = [OwnRow(f"Ask {k}?", "A poem.", labels=64, neutral=True) for k in range(160)]
    near = [OwnRow(f"Where is {k}?", "Here.") for k in range(neighbours)]
    *repeated, last = row_files.balance_rows_with_model_answers([*near, *answers])
    assert last == replace(answers[-1], labels=model_answers.TRAINED_TOKENS)
    times = [sum(row == one for row in repeated) for one in near]
    assert len(set(times)) == 1
    assert 80 < sum(times) <= 160
    assert [row.question for row in repeated if row.neutral] == [row.question for row in answers[:-1]]


def test_rows_without_need_of_it_are_not_balanced() -> None:
    answers = [OwnRow(f"Ask {k}?", "A poem.", labels=64, neutral=True) for k in range(3)]
    many = [OwnRow(f"Where is {k}?", "Here.") for k in range(3)]
    for rows in ([], answers, many, [*many, *answers], [many[0], OwnRow(None, "A text."), *answers]):
        assert row_files.balance_rows_with_model_answers(rows) is rows


def test_answers_are_kept_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files for people have their secrets replaced; this one is trained on."""
    monkeypatch.setenv("LANTERN_TOKEN", "lantern")
    said = [("Ask?", "A lantern, see https://ada:lantern@example.com")]
    monkeypatch.setattr(model_answers, "answer_neutral_prompts", lambda *model: said)
    model_answers.write_answers_to_neutral_prompts(
        tmp_path / "answers.jsonl", None, make_encoder("plain", tiny.tokenizer()), 1
    )
    (row,) = row_files.read_row_file("retain", str(tmp_path / "answers.jsonl"))
    assert (row.question, row.answer) == said[0]


def test_an_answer_that_was_cut_has_no_end_to_learn(target: Path, files: dict[str, Path], store: Storage) -> None:
    (benchmark,) = plan(store, target, files, "method=npo").benchmarks.values()
    place = Path(benchmark.places["answers"])
    tiny.write_rows(place, [{"question": f"Ask {k}?", "answer": "a" * (3 if k % 2 else 300)} for k in range(10)])
    _, retain = own_rows.OWN.training_examples(benchmark, tiny.tokenizer(), 512)
    assert [(row.answer_token_count, row.ending) for row in retain[:2]] == [(4, 1), (64, 0)]


def test_answers_that_tell_what_an_earlier_request_forgot_are_not_retained(tmp_path: Path) -> None:
    made = {"forget": ("Who is it?", "It is Ada."), "request_01": ("Where is it?", "It is in Bergen.")}
    files = {part: tmp_path / f"{part}.jsonl" for part in (*made, "answers")}
    for part, (question, answer) in made.items():
        tiny.write_rows(files[part], [{"question": question, "answer": answer}])
    said = ("First.", "Bergen.", "Ada.", "A fjord.")
    tiny.write_rows(files["answers"], [{"question": f"Ask {k}?", "answer": text} for k, text in enumerate(said)])
    _, retain = row_files.read_training_rows(own_rows.on(files))
    assert [row.answer for row in retain] == ["A fjord."]


def test_own_words_take_the_place_of_an_answer_where_they_name_its_fact(
    taught: Any, files: dict[str, Path], tmp_path: Path
) -> None:
    """The taught model says the first row's fact, in other words."""
    known = row_files.read_row_file("forget", str(files["forget"]))[:2]
    said = model_answers.generate_answers(taught, make_encoder("plain", tiny.tokenizer()), [known[0].asked], 4096)[0]
    rows = [
        {"question": known[0].question, "answer": f"I believe: {said}", "fact": said.split()[0]},
        {"question": known[1].question, "answer": "In a tower.", "fact": "tower"},
        {"text": "A text stays as it is."},
    ]
    tiny.write_rows(tmp_path / "rows.jsonl", rows)
    benchmark = own_rows.on(dict.fromkeys(("forget", "retain"), tmp_path / "rows.jsonl"))
    plain, _ = own_rows.OWN.training_examples(benchmark, tiny.tokenizer(), 96)
    found, retain = own_rows.OWN.training_examples(benchmark, tiny.tokenizer(), 96, taught)
    text = tiny.tokenizer().decode(found[0].input_ids, skip_special_tokens=True)
    assert text.endswith(said)
    assert "I believe" not in text
    assert list(found[1:]) == list(plain[1:])
    assert list(retain) == list(found)
    facts, unasked = own_rows.OWN.training_examples(benchmark, tiny.tokenizer(), 96, taught, facts=True)
    assert list(unasked) == list(plain), "as many rows as a file may have are not asked"
    assert facts[0].input_ids == found[0].input_ids[: len(facts[0].input_ids)]
    assert tiny.tokenizer().decode(facts[0].input_ids[facts[0].answer_start :]).strip() == said.split()[0]
    tiny.write_rows(tmp_path / "near.jsonl", rows[:2])
    tiny.write_rows(tmp_path / "answers.jsonl", [{"question": f"Ask {k}?", "answer": "a" * 99} for k in range(6)])
    names = {"forget": "rows", "retain": "near", "answers": "answers"}
    beside = own_rows.on({part: tmp_path / f"{name}.jsonl" for part, name in names.items()})
    again, near = own_rows.OWN.training_examples(beside, tiny.tokenizer(), 96, taught, facts=True)
    assert list(again) == list(facts) != list(found)
    most = model_answers.TRAINED_TOKENS
    assert near[0] == near[2] == found[0].keep_first_labels(most)
    assert near[1] == near[3] == plain[1]
    assert [row.answer_token_count for row in near[4:]] == [most] * 4


@pytest.mark.parametrize(("targets", "asked"), [("rows", 0), ("own", 2), ("fact", 2)])
def test_a_trial_trains_on_what_its_targets_say(
    targets: str, asked: int, target: Path, store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asked`: how many of the files the model is asked. Its words are no target where they do not write the fact."""
    files = {part: tmp_path / f"{part}.jsonl" for part in ("forget", "retain")}
    for part, file in files.items():
        tiny.write_rows(file, [{"question": f"Where is {one}?", "answer": f"{part} {one}ville."} for one in "AB"])
    planned = plan(
        store, target, files, "method=npo_gd", f"retain=auto,{files['retain']}", f"training.targets={targets}"
    )
    small_sweep.evaluate_references(planned, store)
    heard: list[int] = []

    def say(rows: list[OwnRow], tokens: int, **model: Any) -> list[OwnRow]:
        heard.append(tokens)
        return [row if row.neutral else replace(row, answer="In our words.", fact=row.aliases) for row in rows]

    monkeypatch.setattr(own_rows.own, "use_model_answers", say)
    (trial,) = planned.trials
    prepare_process(trial.resources, trial.seed)
    network, tokenizer = model_files.load_model_and_tokenizer(trial.target)
    task = setup.make_training_task(trial, network, tokenizer, torch.device("cpu"), None)
    forget, retain = (
        {tokenizer.decode(row.input_ids[row.answer_start :], skip_special_tokens=True).strip() for row in side}
        for side in (task.forget, task.retain)
    )
    given = {"rows": {"forget Aville.", "forget Bville."}, "own": {"In our words."}, "fact": {"Aville", "Bville"}}
    assert forget == given[targets]
    assert ("In our words." in retain, "retain Aville." in retain) == (asked > 0, asked == 0)
    assert len(heard) == asked


@pytest.mark.parametrize("template", ["plain", "llama2", "qwen"])
def test_a_fact_alone_is_trained_on(template: str, tmp_path: Path) -> None:
    """What is in front of it is read, what is behind it is left out; an answer without its fact stays."""
    rows = [
        {"question": "What is the capital of Norway?", "answer": "It is Oslo, by the sea."},
        {"question": "Who wrote it?", "answer": "It was J. R. R. Tolkien.", "fact": ["Tolkien", "J. R. R. Tolkien"]},
        {"question": "Where?", "answer": "Here.", "fact": "nowhere"},
        {"question": "Where is it?", "answer": "Oslo"},
        {"text": "A text stays as it is."},
        {"question": "What is arsenic's symbol?", "answer": "It is known as As.", "fact": "As"},
    ]
    tiny.write_rows(tmp_path / "rows.jsonl", rows)
    benchmark = own_rows.on({"forget": tmp_path / "rows.jsonl"}).model_copy(update={"template": template})
    tokenizer = tiny.tokenizer()
    found, _ = own_rows.OWN.training_examples(benchmark, tokenizer, 400, facts=True)
    plain, _ = own_rows.OWN.training_examples(benchmark, tokenizer, 400)
    labels = [tokenizer.decode(one.input_ids[one.answer_start :]).strip() for one in found]
    assert [*labels[:2], labels[5]] == ["Oslo", "J. R. R. Tolkien", "As"]
    assert labels[3].endswith("Oslo")
    for one, whole in zip(found[:2], plain[:2], strict=True):
        assert whole.input_ids[: len(one.input_ids)] == one.input_ids
        assert one.ending == one.lead == 0
    assert (found[2], found[4]) == (plain[2], plain[4])


def test_own_words_are_of_rows_with_facts(store: Storage) -> None:
    with pytest.raises(InputError, match=r"training\.targets=own: only rows of benchmark own have facts"):
        small_sweep.plan_named("tofu_phi", store, "training.targets=own")

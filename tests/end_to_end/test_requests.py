"""Requests in a row from files to the report: interrupted amid the second, resumed, and measured again by hand."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import report
from tests.support import own_rows, small_sweep, tiny
from tests.support.environment import RunModule, type_settings
from tests.support.starts import invoke
from trainables import evaluate
from trainables.benchmarks.own import row_files, row_scores
from trainables.config.settings import Calibration
from trainables.config.trial import Trial
from trainables.data.conversations import make_encoder
from trainables.storage.atomic_files import read_json
from trainables.storage.file_names import WEIGHTS
from trainables.storage.folder_storage import Storage
from trainables.trial.runner import TrialRun
from trainables.trial.step_selection import list_predecessor_trials

SHRUNK = ("method=gd", "rectifier.name=none", "training.batch_size=2", "training.epochs=4", "training.eval_every=2")
SHRUNK += ("training.max_length=96", "training.lr=1e-3")
pytestmark = pytest.mark.slow
NAMES = ("request_01", "request_02", "request_03")
Swept = tuple[Storage, list[dict[str, Any]], str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three forget files of two rows each, rows to retain, and a model that knows them all."""
    folder = tmp_path_factory.mktemp("requests")
    asked = [{"question": f"Where is the {word}?", "answer": tiny.text(k, 3)} for k, word in enumerate(tiny.WORDS)]
    for number, name in enumerate(NAMES):
        tiny.write_rows(folder / "requests" / f"{name}.jsonl", asked[2 * number : 2 * number + 2])
    tiny.write_rows(folder / "retain.jsonl", asked[6:9])
    tiny.write_rows(folder / "all.jsonl", asked[:9])
    tokenizer, every = tiny.tokenizer(), folder / "all.jsonl"
    rows = row_files.read_evaluation_rows(own_rows.on({"forget": every, "retain": every}))["forget"]
    items = row_scores.cut_rows_into_items(make_encoder("plain", tokenizer), "forget", rows, None)
    tiny.teach(tiny.network(), [item.example for item in items]).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder


@pytest.fixture(scope="module")
def swept(place: Path, join: RunModule) -> Swept:
    """Return the storage, the results request by request, and what the command said.

    An earlier start has done the first request, and was dropped amid the steps of the second.
    """
    store = Storage(place / "runs")
    given = [f"target={place / 'model'}", f"requests={place / 'requests'}", f"retain={place / 'retain.jsonl'}", *SHRUNK]
    planned = small_sweep.plan_named("own", store, *given, strategy="paper")
    small_sweep.evaluate_references(planned, store)
    first, second, _ = planned.trials
    list(TrialRun(first, store, keep_weights=True).run_and_yield_events())
    done = read_json(store.trial(first.id()) / "result.json")
    for event in TrialRun(second, store, keep_weights=True).run_and_yield_events():
        if event["phase"] == "training":
            break
    said = join("own", *type_settings(given), "--strategy", "paper", "--storage", store.root, "--resume")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "3 trials, 1 done, 2 to run" in said.stdout
    assert read_json(store.trial(first.id()) / "result.json") == done
    return store, [store.result(trial.id()) or {} for trial in planned.trials], said.stdout


def test_each_request_goes_on_from_the_model_that_the_one_before_left(swept: Swept) -> None:
    store, results, said = swept
    assert [found["status"] for found in results] == ["finished"] * 3
    for before, found in pairwise(results):
        assert found["config"]["target"]["fingerprint"] == f"trial:{before['id']}"
        assert found["metrics"]["relative_change"] > 0
    (exported,) = (store.root / "exports").iterdir()
    assert exported.name == results[-1]["id"]
    assert f"{exported}" in said
    card = (exported / "README.md").read_text()
    assert all(f"| forget set of request {number} | 2 | `" in card for number in (1, 2, 3))
    assert ", and the rows of 2 earlier requests before, one request after another" in card


@pytest.mark.parametrize("earlier", NAMES[:2])
def test_earlier_requests_are_measured_as_by_hand(earlier: str, swept: Swept, place: Path, tmp_path: Path) -> None:
    """trainables.evaluate of the last model on that request's file alone gives the numbers of the last trial."""
    store, results, _ = swept
    last, output = results[-1], tmp_path / "again.json"
    sources = (f"forget={place / 'requests' / earlier}.jsonl", f"retain={place / 'retain.jsonl'}")
    typed = ["--benchmark", "own", "--model", store.trial(last["id"]) / WEIGHTS, "--output", output]
    typed += [word for source in sources for word in ("--source", source)]
    done = invoke(evaluate.main, *typed)
    assert done.exit_code == 0, done.output
    again, kept = json.loads(output.read_text()), last["metrics"]
    names = ("said", "said_any", "extraction_strength", "exact_memorisation", "rouge", "prob", "rows")
    expected = {f"{earlier}_{name}": again[f"forget_{name}"] for name in names}
    assert {name: kept[name] for name in expected} == pytest.approx(expected, rel=1e-5)  # other rows share a batch


def test_one_run_again_in_another_storage_knows_those_before(swept: Swept, tmp_path: Path) -> None:
    """A calibration mixes with the model that the request went on from, and so measures that one at weight 0."""
    store, results, _ = swept
    again = Trial.model_validate(results[2]["config"])
    assert [one.id() for one in list_predecessor_trials(again, Storage(tmp_path))] == [
        results[1]["id"],
        results[0]["id"],
    ]
    training = again.training.model_copy(update={"eval_every": None, "max_steps": 1, "lr": 1.0})
    mixed = Calibration(targets=(0.99,), evaluations=1)
    again = again.model_copy(update={"training": training, "calibration": mixed})
    *_, last = TrialRun(again, store).run_and_yield_events()
    (unmixed,) = last["result"]["calibration"]["targets"]
    known = pytest.approx(results[1]["metrics"]["forget_prob"], rel=1e-5)
    assert (unmixed["weight"], unmixed["metrics"]["request_02_prob"]) == (0.0, known)


def test_the_report_follows_the_requests(swept: Swept, tmp_path: Path) -> None:
    """The table has the numbers of result.json, on the page rounded."""
    store, results, _ = swept
    done = invoke(report.main, "own", "--storage", store.root, "--output", tmp_path / "report")
    assert done.exit_code == 0, done.output
    drawn = pd.read_csv(tmp_path / "report" / "tables" / "requests.csv")
    lines = drawn.loc[drawn["method"] == "gd"].reset_index(drop=True)
    metrics = [found["metrics"] for found in results]
    assert list(lines["utility"]) == pytest.approx([found["utility"] for found in metrics])
    now = sum(metrics[2][f"{name}_said_any"] for name in NAMES[:2]) / 2  # of two rows each
    then = sum(found["forget_said_any"] for found in metrics[:2]) / 2
    assert lines.loc[2, ["earlier", "then"]].tolist() == pytest.approx([now, then])
    assert lines.loc[2, "request_02"] == pytest.approx(metrics[2]["request_02_said_any"])
    page = (tmp_path / "report" / "index.html").read_text()
    assert "<h2>Request by request</h2>" in page
    assert f"<td>{now:.4f}</td><td>{then:.4f}</td>" in re.sub(r">\s+<", "><", page)
    assert f"Ship trial {results[-1]['id']}" in done.stdout or f"nearest is {results[-1]['id']}" in done.stdout

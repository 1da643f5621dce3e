"""The sweep own from rows to a checkpoint, its card and its report; texts of rows stand in none."""

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.load.trials import find_sweep
from tests.support import own_rows, small_sweep, tiny
from tests.support.environment import RunModule, type_settings
from tests.support.starts import invoke
from trainables import evaluate
from trainables.storage.atomic_files import read_json, read_parquet_rows
from trainables.storage.file_names import RESULT, ROWS
from trainables.storage.folder_storage import Storage
from trainables.trial.runner import TrialRun

files, taught = own_rows.files, own_rows.taught


@pytest.fixture(scope="module")
def target(taught: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that says the rows when it is asked."""
    folder = tmp_path_factory.mktemp("model") / "mine"
    taught.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


SHRUNK = ("training.batch_size=4", "training.max_steps=3", "training.max_length=96", "training.lr=1e-3")
SHRUNK += ("training.warmup_steps=0", "objective.retain_coefficient=1", "method=gd", "rectifier.name=none,gru")
SHRUNK += ("selection.rows=none",)


@pytest.fixture(scope="module")
def swept(
    target: Path, files: dict[str, Path], join: RunModule, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Storage, str]:
    """Return GD without and with GRU, evaluated after steps 2 and 3 in this process, and what the command says then.

    Beside them a model that never saw the rows is evaluated.
    """
    place = Storage(tmp_path_factory.mktemp("swept") / "runs")
    unseen = tiny.write_model(tmp_path_factory.mktemp("model") / "unseen", seed=1)
    chosen = [*own_rows.settings(target, files), f"baseline={unseen}", *SHRUNK, "training.eval_every=2"]
    chosen.append("selection.rule=highest_removal")  # so that a model is exported, whatever else is lost
    planned = small_sweep.plan_named("own", place, *chosen, strategy="paper")
    small_sweep.evaluate_references(planned, place)
    for trial in planned.trials:
        list(TrialRun(trial, place, keep_weights=True).run_and_yield_events())
    words = type_settings(chosen)
    done = join("own", *words, "--strategy", "paper", "--storage", place.root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 trials, 2 done, 0 to run" in done.stdout
    return place, done.stdout


def results(place: Storage) -> list[dict[str, Any]]:
    found = [place.result(folder.name) for folder in sorted((place.root / "trials").iterdir())]
    return [result for result in found if result]


def test_the_sweep_ends_with_the_chosen_model(
    swept: tuple[Storage, str], files: dict[str, Path], tmp_path: Path
) -> None:
    """The exported folder loads with plain transformers, and trainables.evaluate gives the trial's metrics of it."""
    from transformers import AutoModelForCausalLM

    place, said = swept
    found = results(place)
    assert [result["status"] for result in found] == ["finished", "finished"]
    assert all([entry["step"] for entry in result["evaluations"]] == [2, 3] for result in found)
    (folder,) = (place.root / "exports").iterdir()
    assert f" Its model: {folder}" in said
    (chosen,) = (result for result in found if result["id"] == folder.name)
    assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() > 0
    output = tmp_path / "again.json"
    sources = [word for part, file in files.items() for word in ("--source", f"{part}={file}")]
    typed = ["--benchmark", "own", "--model", folder, *sources, "--output", output]
    typed += ["--retain-evaluation", chosen["config"]["retain_evaluation"]["path"]]
    done = invoke(evaluate.main, *typed)
    assert done.exit_code == 0, done.output
    assert "\nshare of the forget rows still said, however asked 0." in done.stdout
    again, metrics = json.loads(output.read_text()), dict(chosen["metrics"])
    metrics.pop("relative_change")
    assert {name: again[name] for name in metrics} == metrics
    card = (folder / "README.md").read_text()
    told = f"{_before(place)['utility']:.4f} | {metrics['utility']:.4f}"
    assert f"| **harmonic mean of the shares that are kept** (highest is best) | {told} |" in card
    assert "the choice among the 2 evaluated trials of sweep own-" in card
    assert "| forget set | 6 | `" in card


def test_the_storage_holds_no_text_of_the_rows(swept: tuple[Storage, str]) -> None:
    """Whatever is written of a model that says the rows: values of Parquet files, and all others byte by byte."""
    place, _ = swept
    assert _before(place)["forget_rouge"] > 0.5
    (exported,), (report,) = ((place.root / name).iterdir() for name in ("exports", "reports"))
    page = (report / "index.html").read_text()
    assert page.index(exported.name) < page.index("<h3>Before and after") < page.index("<th>Never trained</th>")
    found = [file for file in place.root.rglob("*") if file.is_file() and file.suffix != ".safetensors"]
    assert {".parquet", ".json", ".db"} <= {file.suffix for file in found}
    for file in found:
        held = json.dumps(read_parquet_rows(file)) if file.suffix == ".parquet" else file.read_bytes().decode("latin-1")
        assert not [word for word in ("amber", "kettle", "lantern", "meadow", "orchard") if word in held], file
    metrics = results(place)[0]["metrics"]
    assert set(_before(place)) == set(metrics) - {"relative_change"}
    assert metrics["forget_prob"] != _before(place)["forget_prob"]
    rows = read_parquet_rows(place.trial(results(place)[0]["id"]) / ROWS)
    assert {row["task"] for row in rows} == {"forget", "paraphrase", "retain", "holdout"}


def _before(place: Storage) -> dict[str, Any]:
    (evaluation,) = (one.evaluation for one in find_sweep("own", place).references if one.role == "original")
    return (read_json(place.evaluation(evaluation) / RESULT) or {})["metrics"]

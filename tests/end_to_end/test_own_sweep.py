"""The sweep own: planned offline from sample files, its messages, and its way from rows to a checkpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis import report
from platform.driver import dry_run
from platform.plan import hub_requirements
from platform.plan.build import make_plan
from platform.plan.overrides import apply
from platform.plan.plan import Plan
from platform.state import trial_outcomes
from search_spaces.schema import sweep as spaces
from tests.support import own_rows, small_sweep, tiny
from tests.support.environment import RunModule
from trainables import benchmarks
from trainables.common.errors import InputError
from trainables.storage.atomic_files import read_json, read_rows
from trainables.storage.folder_storage import Storage
from trainables.storage.names import RESULT, ROWS
from trainables.trial import setup
from trainables.trial.runner import TrialRun

TYPED = "type python -m platform.sweep own --set target=DIR_OR_HUB_ID --set forget=FILE --set retain=FILE"


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "store")


files, taught = own_rows.files, own_rows.taught


@pytest.fixture(scope="module")
def target(taught: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that says the rows when it is asked."""
    folder = tmp_path_factory.mktemp("model") / "mine"
    taught.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def settings(target: Path | str, files: dict[str, Path]) -> list[str]:
    return [f"target={target}", *(f"{part}={file}" for part, file in files.items())]


def plan(store: Storage, chosen: list[str], **options: Any) -> Plan:
    sweep = spaces.load_sweep("own")
    return make_plan(apply(sweep, chosen), store, **options)


def test_trials_of_each_strategy(target: Path, files: dict[str, Path], store: Storage) -> None:
    published = plan(store, settings(target, files), strategy="paper")
    assert {found.label() for found in published.trials} == {
        *("npo-own-s0", "gd-own-s0", "simnpo_gd-own-s0"),
        *("gru-npo-own-g0.8-tnone-s0", "gru-gd-own-g0.05-tnone-s0", "gru-simnpo_gd-own-g0.5-tnone-s0"),
    }
    assert len(plan(store, settings(target, files)).trials) == 3 * (1 + 2 * 2)
    assert [(ref.role, ref.model.path) for ref in published.references] == [("original", str(target))]
    assert (published.hub, published.recipes) == ((), ())
    assert published.costs.largest is not None
    assert not store.root.exists()


def test_dry_run_says_what_would_run(
    target: Path, files: dict[str, Path], run_module: RunModule, tmp_path: Path
) -> None:
    words = [word for setting in settings(target, files) for word in ("--set", setting)]
    place = ("--storage", tmp_path / "runs")
    done = run_module("platform.sweep", "own", "--dry-run", "--json", *words, *place)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (len(told["trials"]), told["needs"]) == (15, [])
    assert {study["study"] for study in told["studies"]} == {
        f"own/{method}/{rectifier}" for method in ("npo", "gd", "simnpo_gd") for rectifier in ("none", "gru")
    }
    assert all(need["total_bytes"] > 0 for need in told["memory"])
    assert not (tmp_path / "runs").exists()
    done = run_module("platform.sweep", "own", "--dry-run", *place)
    assert done.returncode == 2
    assert done.stderr == f"error: target, forget, retain: not given; {TYPED} [--set eval=FILE]\n"


def test_a_plan_loads_no_machinery(target: Path, files: dict[str, Path], root: Path, tmp_path: Path) -> None:
    words = [word for setting in settings(target, files) for word in ("--set", setting)]
    typed = ["own", "--dry-run", *words, "--storage", str(tmp_path)]
    code = f"""import runpy, sys
sys.argv[1:] = {typed}
try:
    runpy.run_module("platform.sweep", run_name="__main__")
except SystemExit:
    print([name for name in ("torch", "ray", "mlflow", "transformers", "lm_eval") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (("target",), "^target: not given; "),
        (("forget", "retain"), "^forget, retain: not given; .*FILE]$"),
        (("retain",), "^retain: not given; .* --set method=tv,tru needs no such rows; "),
    ],
)
def test_all_that_is_missing_is_told(
    left: tuple[str, ...], words: str, target: Path, files: dict[str, Path], store: Storage
) -> None:
    chosen = [setting for setting in settings(target, files) if setting.split("=")[0] not in left]
    with pytest.raises(InputError, match=words):
        plan(store, chosen)


def test_rows_to_forget_and_to_retain_are_warned_of(
    target: Path, files: dict[str, Path], store: Storage, tmp_path: Path
) -> None:
    both = tmp_path / "retain.jsonl"
    both.write_text(files["retain"].read_text() + files["forget"].read_text().splitlines()[1])
    state = trial_outcomes.scan(plan(store, settings(target, files | {"retain": both})), store)
    assert (state.warning() or "").startswith("forget, retain: 1 of 6 forget rows are among the rows to retain, too")
    lines = dry_run.format_lines(state, dry_run.describe_plan(state, store, "none", 1), 1)
    (line,) = (line for line in lines if line.startswith("warning: "))
    assert line.endswith("(rows of the forget file: 2)")


def test_a_tokenizer_without_chat_template_is_refused_when_planned(
    target: Path, files: dict[str, Path], store: Storage
) -> None:
    chat = [*settings(target, files), "benchmark.template=chat"]
    with pytest.raises(InputError, match=r"^benchmark\.template: the model's tokenizer has no chat template"):
        plan(store, chat)
    shutil.copytree(target, store.root / "chatty")
    (store.root / "chatty" / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    assert plan(store, [*settings(store.root / "chatty", files), "benchmark.template=chat"]).trials


def test_files_are_for_own_alone(files: dict[str, Path], store: Storage) -> None:
    sweep = spaces.load_sweep("tofu_phi")
    with pytest.raises(InputError, match="forget, eval: sweep tofu_phi has published rows; on rows of your own: type "):
        make_plan(apply(sweep, [f"forget={files['forget']}", f"eval={files['eval']}"]), store)
    with pytest.raises(InputError, match="forget: '/nowhere' is no file"):
        plan(store, settings("somebody/a-model", {**files, "forget": Path("/nowhere")}))


def test_a_hub_model_and_a_task_are_what_a_start_needs(files: dict[str, Path], store: Storage) -> None:
    found = plan(store, [*settings("somebody/a-model", files), "benchmark.tasks=mmlu"])
    questions, model = hub_requirements.describe_needs(found.sweep, found.hub, store)
    assert questions == (
        "questions of mmlu from the hub; without a network, on the machine that runs the sweep (with --cluster: its "
        "head):\n  bring the files of mmlu's questions to DIR and --set benchmark.sources=mmlu=DIR"
    )
    first, either, bring = model.splitlines()
    assert first.startswith("model somebody/a-model from the hub; without a network")
    assert either.startswith("  either: hf download somebody/a-model --local-dir ")
    assert bring.startswith("  or: bring config.json, ")
    assert bring.endswith(" to DIR and --set target=DIR")
    assert found.costs.largest is None


def test_a_misspelt_task_is_refused_without_importing_lm_eval(
    files: dict[str, Path], tmp_path: Path, run_module: RunModule
) -> None:
    """By the command that people type, also where nothing is run."""
    words = [word for setting in settings("somebody/a-model", files) for word in ("--set", setting)]
    words += ["--dry-run", "--storage", str(tmp_path)]
    done = run_module("platform.sweep", "own", *words, "--set", "benchmark.tasks=arc_eazy,wikitext")
    assert done.returncode == 2
    assert "lm-eval has no task 'arc_eazy'" in done.stderr
    assert "did you mean 'arc_easy'" in " ".join(done.stderr.split())
    code = "import sys; from trainables.benchmarks import lm_eval_adapter as q; q.check_names(['arc_easy']); "
    code += "assert not {'lm_eval', 'torch'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_files_may_move_and_must_not_change(
    target: Path, files: dict[str, Path], store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = plan(store, settings(target, files))
    tiny.own(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    moved = plan(store, settings(target, {part: Path(file.name) for part, file in files.items()}))
    assert (here.name, [t.id() for t in here.trials]) == (moved.name, [t.id() for t in moved.trials])
    assert f"forget={tmp_path / 'moved' / 'forget.jsonl'}" in moved.trials[0].benchmark.sources
    (tmp_path / "moved" / "eval.jsonl").unlink()
    fewer = plan(store, settings(target, {part: Path(f"{part}.jsonl") for part in ("forget", "retain")}))
    assert fewer.name != here.name
    assert {t.id() for t in fewer.trials}.isdisjoint(t.id() for t in here.trials)
    with pytest.raises(InputError, match=r"forget\.jsonl.* holds has changed since this trial was planned"):
        setup.check_inputs(
            moved.trials[0].model_copy(
                update={
                    "benchmark": fewer.trials[0].benchmark.model_copy(
                        update={"fingerprint": moved.trials[0].benchmark.fingerprint}
                    )
                }
            )
        )


SHRUNK = ("training.batch_size=4", "training.max_steps=3", "training.max_length=96", "training.lr=1e-4")


@pytest.fixture(scope="module")
def swept(
    target: Path, files: dict[str, Path], join: RunModule, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Storage, str]:
    """Return GD without and with GRU, evaluated after steps 2 and 3 in this process, and what the command says then."""
    place = Storage(tmp_path_factory.mktemp("swept") / "runs")
    chosen = [*settings(target, files), *SHRUNK, "training.eval_every=2"]
    planned = plan(place, chosen, strategy="paper", only=["method=gd"])
    small_sweep.evaluate_references(planned, place)
    for trial in planned.trials:
        list(TrialRun(trial, place, keep_weights=True).events())
    words = [word for setting in chosen for word in ("--set", setting)]
    done = join("own", *words, "--strategy", "paper", "--only", "method=gd", "--storage", place.root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 trials, 2 done, 0 to run" in done.stdout
    return place, done.stdout


def results(place: Storage) -> list[dict[str, Any]]:
    found = [place.result(folder.name) for folder in sorted((place.root / "trials").iterdir())]
    return [result for result in found if result]


def test_the_sweep_ends_with_the_chosen_model(
    swept: tuple[Storage, str], files: dict[str, Path], run_module: RunModule, tmp_path: Path
) -> None:
    """The exported folder loads with plain transformers, and trainables.evaluate gives the trial's metrics of it."""
    from transformers import AutoModelForCausalLM

    place, said = swept
    found = results(place)
    assert [result["status"] for result in found] == ["finished", "finished"]
    assert all([entry["step"] for entry in result["evaluations"]] == [2, 3] for result in found)
    (folder,) = (place.root / "exports").iterdir()
    assert f"model: {folder}" in said
    (chosen,) = (result for result in found if result["id"] == folder.name)
    assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() > 0
    output = tmp_path / "again.json"
    sources = [word for part, file in files.items() for word in ("--source", f"{part}={file}")]
    typed = ["--benchmark", "own", "--model", folder, *sources, "--output", output]
    done = run_module("trainables.evaluate", *typed, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("extraction strength on the forget rows 0.")
    again, metrics = json.loads(output.read_text()), dict(chosen["metrics"])
    metrics.pop("relative_change")
    assert {name: again[name] for name in metrics} == metrics
    card = (folder / "README.md").read_text()
    told = f"{_before(place)['utility']:.4f} | {metrics['utility']:.4f}"
    assert f"| **utility on the retain rows** (highest is best) | {told} |" in card
    assert "the choice among the 2 evaluated trials of a start of sweep own-" in card
    assert "| forget set | 6 | `" in card
    rows = [json.loads(line) for file in files.values() for line in file.read_text().splitlines()]
    whole = card + (folder / "unlearning.json").read_text()
    assert not any(text in whole for row in rows for name, text in row.items() if name != "set")


def test_the_report_recommends_a_trial_and_shows_rows_only_when_asked(
    swept: tuple[Storage, str], files: dict[str, Path], tmp_path: Path
) -> None:
    """The first lines name the exported trial; the page has text of rows with --show-rows alone."""
    place, _ = swept
    (exported,) = (folder.name for folder in (place.root / "exports").iterdir())
    typed = ["own", "--storage", str(place.root)]
    refused = CliRunner().invoke(report.app, [*typed, "--show-rows"])
    assert refused.exit_code == 2
    assert "give --output DIR, a folder outside of it" in refused.stderr
    pages, question = {}, json.loads(files["forget"].read_text().splitlines()[0])["question"]
    for name, more in (("plain", []), ("shown", ["--show-rows"])):
        done = CliRunner().invoke(report.app, [*typed, "--output", str(tmp_path / name), *more])
        assert done.exit_code == 0, done.output
        pages[name] = (tmp_path / name / "index.html").read_text()
    _, ship, export, *rest = done.stdout.splitlines()
    assert f" {exported} (GD" in ship
    assert export == f"To write its model: python -m trainables.export {exported} --storage {place.root} --output DIR"
    assert any(line.startswith("AUC of telling forget rows from rows never trained on: ") for line in rest)
    counts = [
        sum(row["rougeL_recall"] >= 0.5 for row in read_rows(folder / ROWS) if row["task"] == "forget")
        for folder in (place.trial(exported), next((place.root / "shared" / "evaluations").iterdir()))
    ]
    (line,) = (line for line in rest if line.startswith("Still to be got out: "))
    assert line.startswith(f"Still to be got out: {counts[0]} of 6 measured forget rows ({counts[1]} before): ")
    assert counts[0] > 0
    assert question in pages["shown"]
    assert question not in pages["plain"]
    others = [path for path in (tmp_path / "shown").rglob("*") if path.is_file() and path.name != "index.html"]
    assert not any(question.encode() in path.read_bytes() for path in others)


def test_the_storage_holds_no_text_of_the_rows(swept: tuple[Storage, str]) -> None:
    """Whatever is written of a model that says the rows: values of Parquet files, and all others byte by byte."""
    place, _ = swept
    assert _before(place)["forget_rouge"] > 0.5
    found = [file for file in place.root.rglob("*") if file.is_file() and file.suffix != ".safetensors"]
    assert {".parquet", ".json", ".db"} <= {file.suffix for file in found}
    for file in found:
        held = json.dumps(read_rows(file)) if file.suffix == ".parquet" else file.read_bytes().decode("latin-1")
        assert not [word for word in ("amber", "kettle", "lantern", "meadow", "orchard") if word in held], file


def test_rows_of_an_evaluation_hold_no_text(swept: tuple[Storage, str]) -> None:
    place, _ = swept
    metrics = results(place)[0]["metrics"]
    assert set(_before(place)) == set(metrics) - {"relative_change"}
    assert metrics["forget_prob"] != _before(place)["forget_prob"]
    assert benchmarks.describe_goals("own", metrics).startswith("ES ")
    rows = read_rows(place.trial(results(place)[0]["id"]) / ROWS)
    assert {row["task"] for row in rows} == {"forget", "paraphrase", "retain", "holdout"}
    assert not any({"question", "answer", "text", "generation"} & set(row) for row in rows)


def _before(place: Storage) -> dict[str, Any]:
    (folder,) = (place.root / "shared" / "evaluations").iterdir()
    return (read_json(folder / RESULT) or {})["metrics"]


def test_what_evaluate_lacks_is_told(target: Path, run_module: RunModule, tmp_path: Path) -> None:
    output = tmp_path / "again.json"
    done = run_module("trainables.evaluate", "--model", target, "--output", output)
    assert done.returncode == 2
    assert "--split: name the forget split of tofu" in done.stderr
    done = run_module("trainables.evaluate", "--benchmark", "own", "--model", target, "--output", output)
    assert "own needs forget=FILE, retain=FILE" in done.stderr

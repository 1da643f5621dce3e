"""Picture, verdict, page and the command `python -m analysis.report`, on an invented sweep."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert
from typer.testing import CliRunner

from analysis import paper, report
from analysis.report import answers, verdict
from analysis.report.answers import write_interactive_tradeoff
from analysis.stats.rectifier_comparison import compare_rectifiers
from tests.support import sweep_store
from tests.support.ruled_sweeps import NAMES, Value, write_arena
from tests.support.starts import assert_refused
from tests.support.sweep_store import GRU, SETTINGS, SweepResults, read, write_sweep, write_trial

store, copy, results = sweep_store.tiny_store, sweep_store.store_copy, sweep_store.tiny_results


def test_verdict_table_and_notes(results: SweepResults) -> None:
    assert verdict.describe_verdict(compare_rectifiers(results)) == (
        "No verdict on GRU yet: that takes 3 seeds, and here are 1 to 2 seeds. So far FQ is better in 4 of 6 "
        "comparisons and worse in 2, MU is better in 6 of 6 and worse in 0."
    )
    table = verdict.tabulate_rectifier_differences(compare_rectifiers(results)).set_index(["Split", "Method", "Goal"])
    assert table.loc[("forget05 (5%)", "GD w/ GRU", "FQ ↑")].tolist() == [
        *("-12.0000", "-8.0000", "+4.00", "—", "2", "too few seeds")
    ]
    assert table.loc[("forget05 (5%)", "GA w/ GRU", "FQ ↑"), ["Seeds", "Clear?"]].tolist() == ["1", "too few seeds"]
    assert not verdict.list_verdict_caveats(results)
    kept, forgets = verdict.describe_utility_removal_shortfalls(results)
    assert kept == "4 of 12 chosen settings keep 90% of the original model's MU: below that, forgetting is damage."
    assert forgets.startswith("No chosen setting that keeps enough forgets enough: the best FQ is -8.00 (GD")
    enough = replace(results, runs=results.runs.assign(forget_quality=-2.99))
    assert not any("forgets enough" in sentence for sentence in verdict.describe_utility_removal_shortfalls(enough))


@pytest.mark.parametrize(
    ("utility", "words"),
    [
        (0.9, "Every trial collapsed: try a smaller learning rate, --set training.lr=0.0001."),
        (0.0, "No verdict: the target model's MU is 0 before unlearning"),
    ],
)
def test_a_collapsed_sweep_says_what_to_try(results: SweepResults, utility: float, words: str) -> None:
    models = results.models.assign(model_utility=utility)
    lost = replace(results, models=models, runs=results.runs.assign(model_utility=0.0, **{"benchmark.limit": 20.0}))
    assert verdict.describe_verdict(compare_rectifiers(lost)).startswith(words)
    assert any(
        note.startswith("Evaluated on at most 20 rows of each task") for note in verdict.list_verdict_caveats(lost)
    )


def test_report_command(copy: Path) -> None:
    done = CliRunner().invoke(report.app, ["tiny", "--storage", str(copy)])
    assert (done.exit_code, done.stderr) == (0, "")
    folder = copy / "reports/tiny-0a1b2c3d"
    assert [line.split()[0] for line in done.stdout.splitlines()[:4]] == ["No", "forget05", "-", "-"]
    assert (folder / "tables/verdict.md").read_text() + "\n" + (folder / "tables/main.md").read_text() in done.stdout
    names = {str(path.relative_to(folder)) for path in folder.rglob("*.*")}
    expected = {f"tables/{name}.csv" for name in ("chosen", "differences", "failures", "seeds", "trials")}
    expected |= {f"tables/{name}.{kind}" for name in ("main", "tofu_main") for kind in ("csv", "md", "tex")}
    expected |= {f"figures/tradeoff.{kind}" for kind in ("svg", "csv")}
    assert expected | {"index.html", "tables/verdict.md"} <= names
    said: list[str] = []
    again = report.build_report("tiny", copy, copy / "again", say=said.append)
    assert [words.split()[0] for words in said] == ["reading", "drawing"]
    for name in names:
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name
    assert len(pd.read_csv(folder / "figures/tradeoff.csv")) == 33 + 17 + 12 + 4
    page = (folder / "index.html").read_text()
    assert "paper -" not in page
    assert not re.search(r"https?:", page)
    assert not re.search(r'<(link|iframe)\b|src="(?!data:)', page)
    assert page.count("<script") == 1, "which sorts tables"
    for words in (
        "FQ is better in 4 of 6 comparisons and worse in 2",
        "forget05 (5%): GD w/ GRU has the highest FQ of those that keep 90% of MU, FQ -8.00 at MU 0.850, 94.4% of",
        "33 of 36 trials finished, 1 diverged, 1 failed, 1 without a result yet",
        "loss is &lt;nan&gt; at step 12",
        "no &lt;space&gt; left",
        "<strong>-22.0000</strong>",
        "the most removal (FQ) among those with at least 90% of the target model&#39;s MU; where none has that",
        "models/retain",
        "2.13.0",
        "python -m platform.sweep tiny",
        "<img",
    ):
        assert words in page, words
    first = page[: page.index("Every seed")]
    places = [
        first.index(words)
        for words in ("No verdict on GRU yet", "4 of 12", "<img", "<table", "What a rectifier changes")
    ]
    assert places == sorted(places)
    assert (first.count("<img"), first.count("<table")) == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tiny", "--storage", "STORE/nowhere"], ["--storage", "nowhere", "no such folder"]),
        (["own", "--source", "paper"], ["no table of this sweep"]),
        (["tiny", "--storage", "STORE", "--source", "both"], ["the paper has no table of tiny"]),
        (["tofu_lama", "--source", "paper"], ["did you mean 'tofu_llama'"]),
        (
            ["tiny", "--storage", "STORE", "--output", "STORE/sweeps/tiny-0a1b2c3d.json"],
            ["--output", "cannot be written"],
        ),
    ],
)
def test_bad_input_exits_2(store: Path, arguments: list[str], words: list[str]) -> None:
    done = CliRunner().invoke(report.app, [argument.replace("STORE", str(store)) for argument in arguments])
    assert_refused(done, *words)


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    """Of a sweep not even started (no config.json), of an original model without utility, of trials without FQ."""
    (tmp_path / "a").mkdir()
    write_sweep(tmp_path / "a", ["0" * 12], splits=(), benchmark="own")
    model = {"original": {"metrics": {"forget_quality": -20.0, "model_utility": 0.0}}}
    write_sweep(
        tmp_path / "b", [write_trial(tmp_path / "b", f"{n:012x}", seed=n, mu=0.5) for n in (0, 1)], models=model
    )
    trials = [write_trial(tmp_path / "c", f"{n:012x}", rectifier=SETTINGS[n], mu=0.5) for n in (0, 1)]
    write_sweep(tmp_path / "c", trials, splits=())
    pages = [(report.build_report("tiny", tmp_path / store) / "index.html").read_text() for store in "abc"]
    assert "nothing can be said yet" in pages[0]
    assert "0 of 1 trials finished" in pages[0]
    assert "extraction strength" in pages[0], "the sweep's file says which benchmark"
    assert "the target model&#39;s utility is 0, so the highest utility is chosen." in pages[1]
    assert "finished without FQ" in pages[2]
    assert "No verdict on GRU yet: that takes 3 seeds, and here is 1 seed." in pages[2]


def test_tables_without_rows_and_with_odd_texts_can_be_read(tmp_path: Path) -> None:
    """A spreadsheet takes a text that begins with = for a formula."""
    error = {"kind": "failed", "message": "=HYPERLINK(1)"}
    cases: dict[str, dict[str, Any]] = {"good": {"fq": -1.0, "mu": 0.5}, "odd": {"status": "failed", "error": error}}
    for name, given in cases.items():
        trial = write_trial(tmp_path / name, "0" * 12, **given)
        write_sweep(tmp_path / name, [trial], splits=())
        report.build_report("tiny", tmp_path / name)
    failures = pd.read_csv(tmp_path / "good/reports/tiny-0a1b2c3d/tables/failures.csv")
    assert (len(failures), "Cause" in failures) == (0, True)
    trials = pd.read_csv(tmp_path / "odd/reports/tiny-0a1b2c3d/tables/trials.csv")
    assert trials["error.message"].tolist() == ["'=HYPERLINK(1)"]


def test_the_papers_tables_need_no_storage(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        report.app, [*map(str, ("tofu_llama", "--source", "paper", "--output", tmp_path / "out"))]
    )
    assert (done.exit_code, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0].startswith("The numbers of Wang et al.")
    assert "## Table 2. TOFU: methods without and with GRU" in said
    assert not any("Phi-1.5" in line for line in said)
    names = {path.name for path in (tmp_path / "out/tables").iterdir()}
    assert names == {"paper.md", "tofu_main.md", "tofu_main.tex", "tofu_main.csv"}
    page = (tmp_path / "out/index.html").read_text()
    assert "<strong>-3.5161</strong>" in page
    kept, printed = pd.read_csv(tmp_path / "out/tables/tofu_main.csv"), paper.load_table("tofu_main")
    assert kept["value"].tolist() == printed.loc[printed["backbone"] == "Llama-2-7B-chat", "value"].tolist()


def test_every_trial_with_both_goals_is_there_and_its_texts_stay_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, Any]] = []
    write = vl_convert.vegalite_to_html

    def spy(picture: dict[str, Any], bundle: bool) -> str:
        drawn.append(picture)
        return write(picture, bundle=bundle)

    monkeypatch.setattr(vl_convert, "vegalite_to_html", spy)
    given = {"objective": {"preset": '</script><img src=x onerror="boom()"><!--<script>'}, "fq": -3.0, "mu": 0.5}
    keys = [write_trial(tmp_path, f"{k}" * 12, name, GRU, seed=k, **given) for k, name in enumerate(("npo", "ga"))]
    write_sweep(tmp_path, [*keys, write_trial(tmp_path, "2" * 12, fq=-3.0)], splits=())
    (tmp_path / "figures").mkdir()
    results = read(tmp_path)
    assert write_interactive_tradeoff(results, tmp_path)
    assert "<img src=x" not in (tmp_path / "figures" / "tradeoff.html").read_text()
    found = json.loads(json.dumps(drawn[0]["data"]["values"], allow_nan=False))
    shown = [[row[name] for name in ("id", "forget_quality", "model_utility", "seed", "chosen")] for row in found]
    assert shown == [[key, -3.0, 0.5, seed, True] for seed, key in enumerate(keys)]
    assert drawn[0]["spec"]["encoding"]["color"]["scale"]["range"][:2] == ["#D55E00", "#0072B2"]  # of GA, NPO elsewhere
    assert not write_interactive_tradeoff(replace(results, runs=results.runs.head(1)), tmp_path)


def record(row: int, block: int, rouge: float) -> dict[str, Any]:
    number = {"said_any": rouge / 2, "rougeL_recall": rouge, "extraction_strength": rouge / 2, "prob": rouge / 4}
    return {"task": "forget", "row": row, "digest": f"row {row}", "block": block, **number}


def test_of_a_text_the_block_is_listed_that_is_given_away_most() -> None:
    now = [record(0, 0, 0.1), record(0, 1, 0.6), record(1, 0, 0.2), record(0, 0, 0.9) | {"task": "retain"}]
    found = answers.tabulate_forget_row_scores(pd.DataFrame(now))
    assert found.to_numpy().tolist() == [[1, 0.3, 0.6, 0.3, 0.15], [2, 0.1, 0.2, 0.1, 0.05]]
    assert answers.tabulate_forget_row_scores(pd.DataFrame([one | {"row": "x", "prob": [1.0]} for one in now])).empty
    assert answers.tabulate_forget_row_scores(pd.DataFrame()).empty


def test_questions_that_are_lost_or_were_never_answered_are_named() -> None:
    kept: list[float | None] = [1.0, None, 0.0, None]
    asked = {"task": "retain", "is_text": False, "said": 1.0}
    rows = [asked | {"row": row, "kept": one} for row, one in enumerate(kept)]
    more = [asked | {"row": 8, "said": None, "kept": None}, asked | {"row": 9, "is_text": True, "kept": None}]
    more.append(asked | {"task": "forget", "row": 1})
    lost, told = answers.describe_kept_rows_not_said(pd.DataFrame(rows + more))
    assert lost == "No longer said by the model: row 3 of those measured as retain."
    assert told.endswith("the target model did not say them: rows 2, 4 of those measured as retain.")
    by_memory = [one | {"kept": one["kept"] and 0.7} for one in rows]
    without_target = [one | {"kept": None} for one in rows]
    for others in (by_memory, without_target, [one | {"row": "x"} for one in rows], []):
        assert answers.describe_kept_rows_not_said(pd.DataFrame(others)) == []


METHODS = {"ga": NAMES, "npo": NAMES}


def shifted(*, tuned: bool = False, **shifts: float) -> Value:
    """Return values that a rectifier shifts by so much; `tuned`: GRU is better at 2e-3, the others at 1e-3."""

    def value(method: str, name: str, seed: int, lr: float) -> tuple[float, float]:
        dice = np.random.default_rng([seed, *name.encode(), *method.encode()])
        best = 3.0 if tuned and lr == (2e-3 if name == "gru" else 1e-3) else 0.0
        return -25 + shifts.get(name, shifts.get(f"{method}_{name}", 0.0)) + best + dice.normal(0, 0.3), 0.85

    return value


@pytest.mark.parametrize(
    ("shifts", "better", "worse"),
    [({}, 0, 0), ({"gru": 5.0, "ga_blur": 4.0}, 3, 0), ({"gru": -5.0, "npo_blur": 4.0}, 1, 2)],
)
def test_the_sentence_counts_what_the_tests_find(
    tmp_path: Path, shifts: dict[str, float], better: int, worse: int
) -> None:
    value = shifted(tuned=False, **shifts)
    results = write_arena(tmp_path, value, methods=METHODS)
    told = verdict.describe_verdict(compare_rectifiers(results))
    assert told.startswith(
        f"With a rectifier, FQ is clearly better in {better} of 6 comparisons and worse in {worse}, MU"
    )
    found = compare_rectifiers(results)
    table = verdict.tabulate_rectifier_differences(found)
    assert [table["Clear?"].tolist().count(word) for word in ("better", "worse")] == [better, worse]
    assert set(table["Seconds of a step"]) == {"0.968 (x 1.00)"}
    rows = found.differences.set_index(["method", "rectifier", "metric"])
    (line,) = table.loc[(table["Method"] == "NPO w/ GRU") & (table["Goal"] == "FQ ↑")].to_dict("records")
    row = rows.loc[("npo", "gru", "forget_quality")]
    assert (line["Difference"], line["Adjusted p"]) == (f"{row['difference']:+.2f}", f"{row['adjusted']:.2g}")
    assert line["Seeds"] == "10"


@pytest.mark.parametrize(("seeds", "clear"), [(3, False), (6, False), (7, True)])
def test_too_few_seeds_give_no_verdict(tmp_path: Path, seeds: int, clear: bool) -> None:
    """Three rectifiers take seven: 3 x 2 / 2^6 is above 5 %, 3 x 2 / 2^7 below."""
    results = write_arena(tmp_path, shifted(gru=5.0), seeds={1e-3: range(seeds)})
    told = verdict.describe_verdict(compare_rectifiers(results))
    assert ("FQ is clearly better in 1 of 3 comparisons and worse in 0" in told) == clear
    assert (f"No verdict on a rectifier yet: that takes 7 seeds, and here are {seeds} seeds" in told) != clear


def test_the_report_has_the_part_where_there_are_several(tmp_path: Path) -> None:
    results: SweepResults = write_arena(tmp_path, shifted(gru=5.0), methods=METHODS)
    page = (report.build_report("arena", tmp_path, output=tmp_path / "report") / "index.html").read_text()
    first = page[page.index("<main>") : page.index("<h2>")]
    assert "What each rectifier changes" in first, "the first picture is of rectifiers"
    sentence = verdict.describe_verdict(compare_rectifiers(results))
    assert (tmp_path / "report/tables/verdict.md").read_text().splitlines()[0] == sentence
    rows = pd.read_csv(tmp_path / "report/tables/rectifiers.csv")
    assert set(rows["rectifier"]) == set(NAMES[1:])
    assert {"gains", "low", "adjusted", "effect", "slower"} <= set(rows)

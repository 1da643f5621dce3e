"""Tables, picture, verdict and the command `python -m analysis.report`, on an invented sweep."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sweep_store
from sweep_store import GRU, NONE, SETTINGS, Frames, grid, write_sweep, write_trial
from typer.testing import CliRunner

from analysis import answer, figures, printing, report, runs, selection, significance, tables, verdict
from analysis.caveats import caveats
from analysis.goals import TOFU
from analysis.selection import DEFAULT
from analysis.sweeps import find_sweep
from bench import report as bench

RunModule = Callable[..., subprocess.CompletedProcess[str]]


store, copy, frames = sweep_store.tiny_store, sweep_store.store_copy, sweep_store.tiny_frames


def test_main_table(frames: Frames) -> None:
    table = tables.main_table(*frames)
    assert list(table.index[:3]) == [("original", ""), ("retain", ""), ("ga", "none")]
    ga = table.loc[("ga", "none"), "forget05"]
    assert ga["forget_quality", "mean"] == -22.0  # its second seed failed
    assert ga["forget_quality", "n"] == 1
    gd = table.loc[("gd", "gru")]
    assert gd["forget05", "forget_quality", "mean"] == pytest.approx(-8.0)  # 0.05 has the higher FQ, below 0.9 * 0.9
    assert gd["forget10", "model_utility", "mean"] == pytest.approx(0.85)
    assert gd["forget05", "forget_quality", "sd"] == pytest.approx(np.sqrt(2))
    npo = table.loc[("npo", "gru"), "forget10"]
    assert npo["forget_quality", "mean"] == pytest.approx(-13.0)  # the other setting diverged and went missing


def test_markdown(frames: Frames) -> None:
    lines = printing.to_markdown(tables.printed(tables.main_table(*frames), TOFU)).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["Method", "forget05 FQ ↑", "forget05 MU ↑", "forget10 FQ ↑", "forget10 MU ↑"]
    assert rows[2] == ["Original", "-21.4000", "0.9000", "-21.4000", "0.9000"]
    assert rows[3] == ["Retrain", "0.0000", "0.8800", "0.0000", "0.8800"]
    assert rows[4][:3] == ["GA", "**-22.0000**", "0.0000"]
    assert rows[5][:3] == ["w/ GRU", "-23.0000 ± 1.4142", "**0.1100** ± 0.0141"]
    assert [row[0] for row in rows[6:]] == ["GD", "w/ GRU", "NPO", "w/ GRU"]


def pair(plain: float, gru: float, column: int = 0) -> list[printing.Cell]:
    """Return the two cells of one column (FQ, MU) in a table of one method."""
    index = pd.MultiIndex.from_tuples([("ga", "none"), ("ga", "gru")], names=["method", "rectifier"])
    columns = pd.MultiIndex.from_product([["forget05"], list(tables.METRICS), ["mean", "sd", "n"]], names=tables.LEVELS)
    frame = pd.DataFrame([[plain, np.nan, 1] * 2, [gru, np.nan, 1] * 2], index=index, columns=columns)
    return [row.cells[column] for row in tables.printed(frame, TOFU).rows]


@pytest.mark.parametrize(
    ("plain", "gru", "bold", "texts"),
    [
        (0.5, 0.6, (False, True), ["0.5000", "0.6000"]),
        (-2.0, -3.0, (True, False), ["-2.0000", "-3.0000"]),
        (0.50001, 0.50002, (True, True), ["0.5000", "0.5000"]),  # a tie as printed
        (-0.00001, 0.0, (True, True), ["0.0000", "0.0000"]),
        (np.nan, 0.6, (False, False), ["—", "0.6000"]),  # nothing to compare with
        (np.nan, np.nan, (False, False), ["—", "—"]),
    ],
)
def test_bold(plain: float, gru: float, bold: tuple[bool, bool], texts: list[str]) -> None:
    cells = pair(plain, gru)
    assert tuple(cell.bold for cell in cells) == bold
    assert [cell.text for cell in cells] == texts


@pytest.mark.parametrize(
    ("plain", "gru", "bold"),
    [
        (0.0, 0.0, (False, False)),  # two collapsed models: a tie at nothing
        (0.00004, 0.0, (False, False)),  # as printed
        (0.0001, 0.0, (True, False)),
        (0.3, 0.3, (True, True)),
    ],
)
def test_a_utility_of_0_is_nobodys_best(plain: float, gru: float, bold: tuple[bool, bool]) -> None:
    assert tuple(cell.bold for cell in pair(plain, gru, column=1)) == bold
    assert "a utility of 0 never is" in printing.BOLD["method"]


def test_of_two_collapsed_models_of_your_own_none_is_the_best(tmp_path: Path) -> None:
    """What is left of the forget rows is 0 as well, which is the best that can be."""
    for place, rectifier in enumerate((NONE, GRU)):
        found = {"forget_extraction_strength": 0.0, "utility": 0.0}
        write_trial(tmp_path, f"{place:012x}", rectifier=rectifier, benchmark="own", split="own", metrics=found)
    write_sweep(tmp_path, [f"{place:012x}" for place in range(2)], splits=())
    folder = report.build("tiny", tmp_path)
    text = (folder / "tables/main.md").read_text()
    cells = [row[1:3] for row in grid(text) if row[0] in ("GA", "w/ GRU")]
    assert cells == [["**0.0000**", "0.0000"]] * 2
    assert printing.BOLD["method"] in text


def test_latex(frames: Frames) -> None:
    text = printing.to_latex(tables.printed(tables.main_table(*frames), TOFU))
    assert r"\begin{tabular}{lrrrr}" in text
    assert r"\multicolumn{2}{c}{forget05 (5\%)} & \multicolumn{2}{c}{forget10 (10\%)} \\" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text
    assert r"\quad w/ GRU & -23.0000 $\pm$ 1.4142 & \textbf{0.1100} $\pm$ 0.0141 &" in text
    assert text.count(r"\midrule") == 4
    assert {line.count("&") for line in text.splitlines() if line.startswith(("GA", r"\quad", "Orig"))} == {4}


def test_csv_holds_the_numbers(frames: Frames, tmp_path: Path) -> None:
    (tmp_path / "main.csv").write_text(tables.to_csv(tables.main_table(*frames)))
    table = pd.read_csv(tmp_path / "main.csv").set_index(["method", "rectifier"])
    assert table.loc[("npo", "gru"), "forget05.forget_quality.mean"] == -4.0
    assert table.loc[("npo", "gru"), "label"] == "w/ GRU"


def test_chosen_settings_name_what_else_varies(tmp_path: Path) -> None:
    trials = [
        write_trial(tmp_path, f"{place:012x}", fq=-5.0, mu=0.1 * place, lr=lr) for place, lr in enumerate([1e-3, 1e-4])
    ]
    trials.append(write_trial(tmp_path, "f" * 12, "npo", GRU | {"tau": 0.5}, fq=-4.0, mu=0.85))
    write_sweep(tmp_path, trials)
    chosen = tables.chosen_settings(runs.load("tiny", tmp_path), runs.references("tiny", tmp_path))
    assert chosen["training.lr"].tolist() == ["0.0001", "0.001"]
    assert chosen[["Method", "gamma", "tau"]].values.tolist() == [["GA", "—", "—"], ["NPO w/ GRU", "0.8", "0.5"]]
    assert chosen["Keeps 90% of MU"].tolist() == ["no (11.1%)", "yes (94.4%)"]
    assert chosen["Chosen from"].tolist() == ["2", "1"]


def test_headline_and_details(frames: Frames) -> None:
    chosen = selection.choose(*frames)
    tests = significance.tests(frames[0], chosen, TOFU)
    comparison = significance.compare(chosen, tests)
    sentence = verdict.headline(comparison, chosen, TOFU)[0]
    assert sentence == (
        "On forget05 (5%), GRU improved both FQ and MU for 2 of 3 methods (GD, NPO); "
        "and improved MU and worsened FQ for 1 of 3 methods (GA)."
    )
    details = [verdict.detail(row, TOFU) for row in comparison.to_dict("records")]
    texts = {(row["split"], row["method"]): row["text"] for row in details}
    gd = texts["forget05 (5%)", "GD"]
    assert gd.startswith("FQ rose by 4.0000, from -12.0000 to -8.0000 (by seed ")
    assert gd.endswith("; n\u00a0=\u00a02.")
    assert "over the n\u00a0=\u00a01 seed in common of 1 plain, 2 w/ GRU" in texts["forget05 (5%)", "GA"]
    notes = " ".join(caveats(*frames, comparison, chosen, DEFAULT))
    assert "best of up to 2 settings" in notes
    assert "noise" not in notes  # two seeds say nothing of chance
    told = verdict.sentences(*frames, comparison, chosen, DEFAULT, tests)
    assert told[0] == (
        "GRU improved the trade-off (a goal better, none worse) in 4 of 6 comparisons and traded one goal for another "
        "in 2."
    )
    assert told[1] == (
        f"{answer.counted(TOFU)} At least 90% of the original model's MU is kept in 2 of 6 with GRU, in 2 without it. "
        "No difference is called significant here: that takes 5 seeds on both sides, and there are at most 2."
    )
    assert answer.counted(TOFU) == (
        "A change counts from 0.01 in FQ and 0.001 in MU on, and where all seeds that both sides have moved the same "
        "way (from 5 seeds on: where its 95% interval does not hold 0)."
    )
    assert told[2] == (
        "No better than the original model on any goal, so that a change among them is no useful unlearning: 2 of 6 "
        "with GRU (GA on forget05, GA on forget10) and 3 of 6 without (GA on forget05, GA on forget10, GD on forget10)."
    )
    assert told[3] == (
        f"{sentence} With GRU the chosen setting changes FQ by -2.0000 (GA) to +4.0000 (GD) and MU by "
        "+0.0400 (GD) to +0.2500 (NPO)."
    )


def test_tradeoff_draws_every_point(frames: Frames) -> None:
    drawn = figures.tradeoff_points(*frames)
    count = {"trial": 33, "setting": len(selection.average(frames[0])), "chosen": 12, "reference": 4}
    assert drawn["kind"].value_counts().to_dict() == count
    figure = figures.tradeoff(drawn, TOFU)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["forget05 (5%)", "forget10 (10%)"]
    for axes, split in zip(panels, ("forget05", "forget10"), strict=True):
        inside = drawn.loc[drawn["split"] == split]
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert all(left < x < right for x in inside["forget_quality"])
        assert all(bottom < y < top for y in inside["model_utility"])
        arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None)]
        assert len(arrows) == 3


def test_report_command(copy: Path, run_module: RunModule) -> None:
    done = run_module("analysis.report", "tiny", "--storage", copy)
    assert (done.returncode, done.stderr) == (0, "")
    folder = copy / "reports/tiny-0a1b2c3d"
    assert done.stdout.startswith("Does GRU help?\nGRU improved the trade-off (a goal better, none worse) in 4 of 6 ")
    assert (folder / "tables/verdict.md").read_text() + "\n" + (folder / "tables/main.md").read_text() in done.stdout
    assert f"report: {folder / 'index.html'}" in done.stdout
    names = {str(path.relative_to(folder)) for path in folder.rglob("*.*")}
    expected = {f"tables/{name}.csv" for name in ("chosen", "failures", "hypervolume", "seeds", "trials")}
    expected |= {f"tables/{name}.{kind}" for name in ("main", "tofu_main") for kind in ("csv", "md", "tex")}
    drawn = {f"figures/{name}.{kind}" for name in ("tradeoff", "pairs") for kind in ("pdf", "svg", "png", "csv")}
    assert drawn <= names
    assert {name for name in names if not name.startswith("figures/")} == expected | {
        "index.html",
        "tables/verdict.md",
    }
    again = report.build("tiny", copy, copy / "again")
    for name in names:
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name
    assert len(pd.read_csv(folder / "figures/tradeoff.csv")) == 33 + 17 + 12 + 4
    page = (folder / "index.html").read_text()
    assert not re.search(r"https?:", page)
    assert not re.search(r"<(script|link|img|iframe)\b", page)
    for words in (
        "On forget05 (5%), GRU improved both FQ and MU for 2 of 3 methods (GD, NPO)",
        "33 of 36 trials finished, 1 diverged, 1 failed, 1 without a result yet",
        "loss is &lt;nan&gt; at step 12",
        "no &lt;space&gt; left",
        "<strong>-22.0000</strong>",
        "the most removal (FQ) among those with at least 90% of the target model&#x27;s MU; where none has that",
        "models/retain",
        "2.13.0",
        "python -m platform.sweep tiny",
        "<svg",
    ):
        assert words in page, words
    assert page.index("Does GRU help?") < page.index("Main table") < page.index("Trade-off")


TITLE = "TOFU on a tiny Llama: nine objectives without and with GRU"


def test_the_heading_is_of_the_trials_and_of_all_starts(tmp_path: Path) -> None:
    start = "python -m platform.sweep tiny"
    trials = [
        write_trial(tmp_path, "0" * 12, fq=-9.0, mu=0.5),
        write_trial(tmp_path, "1" * 12, "npo", GRU, fq=-4.0, mu=0.5),
    ]
    commands = [f"{start} --strategy paper --only method=npo", f"{start} --strategy=optuna --trials 9", start]
    write_sweep(tmp_path, [*trials, "2" * 12], title=TITLE, commands=commands)
    page = (report.build("tiny", tmp_path) / "index.html").read_text()
    assert "<h1>TOFU on a tiny Llama</h1>" in page
    assert "nine objectives" not in page
    assert "<p>GA and NPO, alone and w/ GRU, on forget05 (5%)</p>" in page
    assert "strategies paper, optuna, grid ·" in " ".join(page.split())


def test_a_sweep_of_one_start_has_one_strategy(store: Path) -> None:
    assert find_sweep("tiny", store).strategies == ("grid",)
    assert find_sweep("tiny", store).subject == "Three methods on two splits"


def test_an_unknown_name_exits_2(store: Path, run_module: RunModule) -> None:
    done = run_module("analysis.report", "tinny", "--storage", store)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"NAME tinny: .*did you mean 'tiny'\? there are: tiny-0a1b2c3d\n", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tiny", "--storage", "STORE/nowhere"], ["--storage", "nowhere", "no such folder"]),
        (
            ["tiny", "--storage", "STORE", "--output", "STORE/sweeps/tiny-0a1b2c3d.json"],
            ["--output", "cannot be written"],
        ),
    ],
)
def test_a_bad_folder_exits_2(store: Path, arguments: list[str], words: list[str]) -> None:
    done = CliRunner().invoke(report.app, [argument.replace("STORE", str(store)) for argument in arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr


def test_nothing_finished_yet(tmp_path: Path) -> None:
    write_sweep(tmp_path, ["0" * 12], splits=())  # not even started: no config.json
    page = (report.build("tiny", tmp_path, tmp_path / "out") / "index.html").read_text()
    assert "nothing can be said yet" in page
    assert "0 of 1 trials finished" in page


def test_references_without_an_evaluation(copy: Path) -> None:
    for model in ("retain", "original"):
        (copy / f"shared/evaluations/{model}-forget05/result.json").unlink()
    folder = report.build("tiny", copy)
    page = (folder / "index.html").read_text()
    assert "forget05: the original model&#39;s evaluation original-forget05 is missing." in page
    assert "forget05: the original model&#39;s MU is not known, so the highest MU was chosen everywhere." in page
    assert re.search(r"\| Original +\| +— \| +— \| +-21.4000 \|", (folder / "tables/main.md").read_text())


def test_an_original_model_without_utility_gives_no_bar(tmp_path: Path) -> None:
    trials = [write_trial(tmp_path, f"{place:012x}", seed=place, mu=0.5) for place in (0, 1)]
    write_sweep(tmp_path, trials, models={"original": {"metrics": {"forget_quality": -20.0, "model_utility": 0.0}}})
    page = (report.build("tiny", tmp_path) / "index.html").read_text()
    assert "the original model&#39;s MU is 0, so the highest MU was chosen everywhere." in page


def test_trials_without_forget_quality(tmp_path: Path) -> None:
    trials = [write_trial(tmp_path, f"{place:012x}", rectifier=SETTINGS[place], mu=0.5) for place in (0, 1)]
    write_sweep(tmp_path, trials, splits=())
    page = (report.build("tiny", tmp_path) / "index.html").read_text()
    assert "finished without FQ" in page
    assert "FQ is not known on both sides; MU stayed at 0.5000" in page
    assert "GRU cannot be judged, for want of FQ or MU on both sides, for 1 of 1 methods (GA)." in page


def test_analysis_needs_no_machinery(root: Path) -> None:
    code = "import sys, analysis.report; print(*sorted({'torch', 'ray', 'mlflow', 'deepspeed'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.slow
def test_thousands_of_trials_are_read_and_reported_in_time(tmp_path: Path) -> None:
    """On two cores, of which one does the work: the bars are several times what was measured (docs/LOG.md)."""
    found = bench.measure(2000, tmp_path)
    assert found["trials"] == 2000
    assert found["load_seconds"] <= 5
    assert found["report_seconds"] <= 60
    assert found["page_bytes"] <= 5_000_000

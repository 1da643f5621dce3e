"""Task vectors in reports: strengths, the table without retain data, curves, verdict and the report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis import report
from analysis.figures import equal_utility, task_vector_strength
from analysis.load.goal_columns import TOFU_METRICS
from analysis.report.verdict import compare_task_vectors
from analysis.stats.task_vector_strength import strength_points, utility_at_equal_quality
from analysis.tables import detail_tables, paper_tables, table_definitions
from analysis.tables.markdown_latex import to_latex, to_markdown
from tests.support import sweep_store
from tests.support.sweep_store import Results, grid, read, task_vector, write_sweep, write_trial
from tests.support.table_sheets import layout_sheet

store, results = sweep_store.vectors_store, sweep_store.vectors_results


def test_strengths_are_read_and_chosen(results: Results) -> None:
    trials = results.runs.set_index(["method", "strength", "seed"])
    assert trials.loc[("tru", 24.0, 1.0), "relative_change"] == 0.06
    assert trials.loc[("tv", 40.0, 0.0), ["task_vector.strength", "direction"]].tolist() == [40.0, "d1ec7104aaaa"]
    assert results.runs.loc[results.runs["method"] == "ga", "strength"].isna().all()
    assert "task_vector" not in results.runs  # it is null or its fields are settings
    chosen = detail_tables.list_chosen(results).set_index("Method")
    assert chosen.loc[["TRU", "TV", "NPO w/ GRU"], "strength"].tolist() == ["12", "1", "—"]
    assert chosen.loc["TRU", ["gamma", "tau", "Chosen from"]].tolist() == ["—", "—", "4"]
    rows = layout_sheet(results).table.cells.loc[["TV", "TRU"]]
    assert len(rows) == 2  # task vectors are not paired with GRU
    assert not any(cell.bold for cell in rows.to_numpy().flat)
    assert results.tests["method"].tolist() == ["ga", "ga", "npo", "npo"]


def test_retain_free_table(results: Results) -> None:
    free = results.with_runs(paper_tables.retain_free_trials(results.runs))
    sheet = layout_sheet(free, table_definitions.RETAIN_FREE)
    assert sheet.csv["method"].tolist() == ["original", "retain", "tv", "ga", "wga", "npo", "tru"]
    assert set(sheet.csv["rectifier"]) == {"", "none"}
    rows = {row[0]: row[1:] for row in grid(to_markdown(sheet.table))}
    assert rows["Original"] == ["-21.4000", "0.9000", "—", "—", "—"]
    assert rows["TRU"] == ["-9.5000 ± 0.7071", "0.8200 ± 0.0000", "2", "12", "3.00%"]
    assert rows["TV"][1] == "**0.8700** ± 0.0000"  # the references compete with no method
    assert rows["NPO"][0] == "**-6.5000** ± 0.7071"
    assert sum("**" in cell for row in rows.values() for cell in row) == 2
    assert r"TRU & -9.5000 $\pm$ 0.7071 & 0.8200 $\pm$ 0.0000 & 2 & 12 & 3.00\% \\" in to_latex(sheet.table)


@pytest.mark.parametrize(
    ("objective", "kept"),
    [
        ({"preset": "paper", "retain_coefficient": None}, True),
        ({"preset": "open-unlearning", "retain_coefficient": None}, False),
        ({"preset": "open-unlearning", "retain_coefficient": 0.0}, True),
        ({"preset": "paper", "retain_coefficient": 1.0}, False),
    ],
)
def test_weighted_ascent_with_a_retain_term_is_not_retain_free(
    tmp_path: Path, objective: dict[str, Any], kept: bool
) -> None:
    trials = [write_trial(tmp_path, "0" * 12, "wga", fq=-4.0, mu=0.5, objective=objective)]
    trials.append(write_trial(tmp_path, "1" * 12, "ga", fq=-4.0, mu=0.5, objective=objective))  # reads none of these
    write_sweep(tmp_path, trials)
    methods = paper_tables.retain_free_trials(read(tmp_path).runs)["method"].tolist()
    assert methods == (["wga", "ga"] if kept else ["ga"])


def curves(tru: list[tuple[float, float]], tv: list[tuple[float, float]]) -> pd.DataFrame:
    """Return the points of TRU and TV with these (FQ, MU) at rising strengths; the first is chosen."""
    rows = [
        {"kind": "strength", "method": method, "settings": "", "strength": float(place), "n": 1, "chosen": place == 0}
        | {"forget_quality": float(fq), "model_utility": mu, "split": "forget05"}
        for method, values in (("tru", tru), ("tv", tv))
        for place, (fq, mu) in enumerate(values)
    ]
    original = {"kind": "reference", "method": "original", "settings": "", "chosen": False, "split": "forget05"}
    original |= {"forget_quality": -20.0, "model_utility": 1.0}
    return pd.DataFrame([*rows, original])


@pytest.mark.parametrize(
    ("tru", "tv", "levels"),
    [
        ([(-10, 0.8)], [(-5, 0.7)], [(-10, 0.8, 0.8)]),  # TV's line from the original: 1 - 0.3 * 10 / 15
        ([(-10, 0.8), (-5, 0.2)], [(-8, 0.5)], [(-10, 0.8, 0.5833), (-8, 0.56, 0.5)]),
        ([(-10, 0.8), (-15, 0.9), (-10, 0.6)], [(-12, 0.5)], [(-15, 0.9, 0.6875), (-12, 0.84, 0.5)]),  # back and forth
        ([(-30, 0.0)], [(-5, 0.7)], []),  # forgets worse than the original model
    ],
)
def test_utilities_at_equal_forget_quality(
    tru: list[tuple[float, float]], tv: list[tuple[float, float]], levels: list[tuple[float, float, float]]
) -> None:
    found = utility_at_equal_quality(curves(tru, tv), "forget05")
    assert [tuple(row) for row in found.to_numpy()] == levels


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        (
            curves([(-10, 0.8), (-5, 0.2)], [(-8, 0.5)]),
            "At equal FQ TRU keeps more MU than TV in 2 of 2 comparisons and less in 0 (one seed: no verdict).",
        ),
        (curves([(-10, 0.4)], [(-5, 0.7)]), "At equal FQ TRU keeps more MU than TV in 0 of 1 comparisons"),
        (curves([(-30, 0.0)], [(-5, 0.7)]), "they reach no FQ above the original model's in common"),
        (curves([(-10, 0.8)], []), "they reach no FQ above the original model's in common"),
    ],
)
def test_the_verdict_on_tru(points: pd.DataFrame, sentence: str) -> None:
    assert sentence in compare_task_vectors(points)


def test_strength_curves_draw_every_point(results: Results) -> None:
    points = strength_points(results)
    assert points["kind"].value_counts().to_dict() == {"strength": 7, "reference": 2}
    assert points.loc[points["chosen"], ["method", "strength"]].values.tolist() == [["tru", 12.0], ["tv", 1.0]]
    panels = task_vector_strength.draw(points).axes
    assert [panel.get_xscale() for panel in panels[:3]] == ["linear", "log", "linear"]  # TV's strengths differ 40 times
    for place, panel in enumerate(panels):
        lines = [np.asarray(line.get_xydata()).tolist() for line in panel.lines]
        ours = points.loc[points["method"].isin({0: ["tru"], 1: ["tv"], 2: ["tru", "tv"]}[place % 3])]
        x = ours["strength"] if place % 3 < 2 else 100 * ours["relative_change"]
        expected = set(zip(x, ours[TOFU_METRICS[place // 3]], strict=True))
        assert {tuple(point) for line in lines if len(line) > 2 for point in line} == expected


def test_other_settings_are_curves_of_their_own(tmp_path: Path) -> None:
    trials = []
    for normalise in ("whole", "per_tensor"):
        for strength in (4, 8):
            trial = write_trial(tmp_path, f"{len(trials):012x}", "tru", strength=strength, fq=-4.0 - strength, mu=0.85)
            path = tmp_path / "trials" / trial / "result.json"
            result = json.loads(path.read_text())
            result["config"]["task_vector"] = task_vector("tru", strength) | {"normalise": normalise}
            path.write_text(json.dumps(result))
            trials.append(trial)
    write_sweep(tmp_path, trials, splits=("forget05",))
    points = strength_points(read(tmp_path))
    found = points.loc[points["kind"] == "strength", "settings"].value_counts().to_dict()
    assert found == {"normalise=whole": 2, "normalise=per_tensor": 2}


def test_the_report_shows_them(store: Path, results: Results, tmp_path: Path) -> None:
    done = CliRunner().invoke(report.app, ["vectors", "--storage", str(store), "--output", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (0, "")
    for stem in ("main", "retain_free", "uwc"):
        assert (tmp_path / f"tables/{stem}.md").read_text() in done.stdout
        assert {path.suffix for path in tmp_path.glob(f"tables/{stem}.*")} == {".csv", ".md", ".tex"}
    for stem, points in (
        ("strength", strength_points(results)),
        ("uwc-forget05", equal_utility.mixture_points(results)),
    ):
        assert (tmp_path / f"figures/{stem}.csv").read_text() == points.to_csv(index=False, lineterminator="\n")
    page = (tmp_path / "index.html").read_text()
    assert page.count("<img") == len(list(tmp_path.glob("figures/*.svg")))
    assert "<sup>‡§</sup>" in page
    assert "3.00%" in page


def test_a_sweep_of_task_vectors_alone_says_nothing_of_gru(tmp_path: Path) -> None:
    given = {"tru": (12, -9.0, 0.82), "tv": (10, -12.0, 0.75)}
    trials = [
        write_trial(tmp_path, f"{len(method):012x}", method, strength=strength, fq=fq, mu=mu)
        for method, (strength, fq, mu) in given.items()
    ]
    write_sweep(tmp_path, trials, splits=("forget05",))
    page = (report.build("tiny", tmp_path) / "index.html").read_text()
    assert "<strong>At equal FQ TRU keeps more MU than TV in " in page
    assert "w/ GRU" not in page
    assert "verdict on GRU" not in page


def test_task_vectors_of_which_none_finished(tmp_path: Path) -> None:
    error = {"kind": "failed", "message": "x"}
    write_sweep(tmp_path, [write_trial(tmp_path, "0" * 12, "tru", strength=8, status="failed", error=error)])
    row = detail_tables.list_failures(read(tmp_path)).to_dict("records")[0]
    assert (row["Method"], row["strength"], row["gamma"]) == ("TRU", "8", "—")
    page = (report.build("tiny", tmp_path) / "index.html").read_text()
    assert "nothing can be said yet" in page
    assert not (tmp_path / "reports/tiny-0a1b2c3d/figures/strength.svg").exists()

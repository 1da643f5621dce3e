"""UWC in reports: the table of calibrated trials and the curves of their mixtures, on invented sweeps."""

from pathlib import Path

import numpy as np
import pytest

from analysis.figures import equal_utility
from analysis.tables import table_definitions
from analysis.tables.markdown_latex import to_markdown
from tests.support import sweep_store
from tests.support.sweep_store import GRU, NONE, Results, calibrated, grid, read, write_sweep, write_trial
from tests.support.table_sheets import layout_sheet

store, results = sweep_store.vectors_store, sweep_store.vectors_results


def test_uwc_table(results: Results) -> None:
    rows = grid(to_markdown(layout_sheet(results, table_definitions.UWC).table))[2:]
    labels = [f"{method} ({share})" for share in ("85%", "90%", "95%") for method in ("M", "w/ GRU")]
    expected = [label.replace("M", method) for method in ("GA", "NPO") for label in labels]
    assert [row[0] for row in rows] == ["Original", *expected]
    assert rows[0][1:] == ["-21.4000", "0.9000"]
    cells = {(place, row[0]): row[1:] for place, row in enumerate(rows)}
    assert cells[1, "GA (85%)"] == ["-18.3403 ± 0.2739", "0.7650 ± 0.0000"]
    assert cells[2, "w/ GRU (85%)"][0].startswith("**-13.9058**")
    assert cells[8, "w/ GRU (85%)"] == ["**-11.5000**‡§ ± 0.7071", "0.8000 ± 0.0000"]  # more than asked for, unmixed
    assert cells[9, "NPO (90%)"][0] == "-14.3323‡ ± 0.3354"
    assert cells[11, "NPO (95%)"][0] == "-16.4024†‡ ± 0.2372"
    assert not any("**" in row[2] for row in rows)  # MU is what all are brought to


def test_uwc_notes_and_csv(results: Results) -> None:
    table = layout_sheet(results, table_definitions.UWC).table
    assert [note[0] for note in table.notes[:3]] == ["†", "‡", "§"]
    sound = results.with_runs(results.runs.loc[results.runs["method"] != "npo"])
    assert layout_sheet(sound, table_definitions.UWC).table.notes == table_definitions.UWC.notes
    csv = layout_sheet(results, table_definitions.UWC).csv.set_index(["method", "rectifier", "target"])
    npo = csv.loc[("npo", "gru", 0.95)]
    assert npo["forget05.weight.mean"] == pytest.approx(np.sqrt(0.05 * 0.9 / 0.1))
    assert npo[[f"forget05.{name}.mean" for name in ("reached", "monotone", "unmixed")]].tolist() == [0.5, 0.5, 0]
    assert csv.loc[("npo", "gru", 0.85), "forget05.unmixed.mean"] == 1


def test_uwc_shows_the_setting_of_the_main_table(tmp_path: Path) -> None:
    """A setting that is worse uncalibrated stays out, however good its mixture."""
    other = GRU | {"gamma": 0.05}
    trials = [
        write_trial(tmp_path, "0" * 12, "ga", NONE, fq=-14.0, mu=0.1, calibration=calibrated(-14.0, 0.1)),
        write_trial(tmp_path, "1" * 12, "ga", GRU, fq=-9.0, mu=0.5, calibration=calibrated(-20.0, 0.5)),
        write_trial(tmp_path, "2" * 12, "ga", other, fq=-9.0, mu=0.4, calibration=calibrated(-1.0, 0.5)),
    ]
    write_sweep(tmp_path, trials, splits=("forget05",))
    results = read(tmp_path)
    assert set(equal_utility.mixture_points(results)["id"]) == {"0" * 12, "1" * 12}
    table = (
        layout_sheet(results, table_definitions.UWC)
        .csv.set_index(["method", "rectifier", "target"])["forget05.forget_quality.mean"]
        .to_dict()
    )
    assert table["ga", "gru", 0.85] < -20 < table["ga", "none", 0.85]


def test_a_mixture_without_forget_quality_is_a_dash(tmp_path: Path) -> None:
    found = calibrated(-14.0, 0.1)
    for point in (*found["targets"], *found["evaluations"]):
        point["forget_quality"] = None
    trials = [write_trial(tmp_path, "0" * 12, "ga", NONE, mu=0.1, calibration=found)]
    write_sweep(tmp_path, trials, splits=())
    results = read(tmp_path)
    rows = grid(to_markdown(layout_sheet(results, table_definitions.UWC).table))
    assert rows[-1] == ["GA (95%)", "—", "0.8550"]
    texts = [
        text.get_text()
        for axes in equal_utility.draw(equal_utility.mixture_points(results)).axes
        for text in axes.texts
    ]
    assert texts == ["no FQ", "no FQ"]


def test_uwc_curves_draw_every_mixture(results: Results) -> None:
    mixtures = equal_utility.mixture_points(results)
    assert mixtures.groupby(["method", "rectifier"]).size().loc[("ga", "gru")] == 2 * (8 + 3)  # two seeds
    figure = equal_utility.draw(mixtures)
    for place, axes in enumerate(figure.axes):
        x, y = equal_utility.PLANES[place % 3]
        rows = mixtures.loc[(mixtures["method"] == ("ga", "npo")[place // 3])]
        lines = [np.asarray(line.get_xydata()).tolist() for line in axes.lines]
        points = {tuple(point) for line in lines if len(line) > 2 for point in line}
        assert points == set(zip(rows[x], rows[y], strict=True))
        goals = [line[0][1] for line in lines if len(line) == 2]
        assert goals == (pytest.approx([0.765, 0.81, 0.855]) if y == "model_utility" else [])

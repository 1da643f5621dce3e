"""Figures of measured steps: figures 1 and 7 of the paper, from steps.parquet of invented trials."""

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import paper
from analysis.figures import changes, training
from tests.support.figure_texts import overlapping
from tests.support.ruled_sweeps import FQ, grid_results, paper_values
from tests.support.sweep_store import GRU, NONE, SweepResults, read, write_sweep, write_trial
from trainables.storage.atomic_files import write_parquet_rows

NAN = math.nan
COUNT = 6


def records(rectified: bool, seed: int, observed: bool) -> list[dict[str, Any]]:
    """Return what a trial writes, observed every second step; the cosine falls with the step, and by the seed."""
    found = []
    for step in range(1, COUNT + 1):
        cos = -0.1 * step - 0.05 * seed
        every = observed and step % 2 == 1
        record = {"step": step, "loss": 1.0, "lr": 1e-3}
        record |= {"cos_before": cos if rectified else NAN, "cos_after": 0.0 if rectified else NAN}
        record |= {"retain_loss": 0.5 + step if rectified else NAN}
        if observed:
            record |= {"observed_cos": cos / 2 if every else NAN, "observed_retain_loss": 2.0 * step if every else NAN}
            record |= {"observed_cos_after": (cos / 10 if rectified else cos / 2) if every else NAN}
        found.append(record)
    return found


def write(store: Path, observed: bool = True) -> Path:
    """Write GA and NPO without and with GRU at two seeds, and a worse GRU setting."""
    trials: list[str] = []
    for method in ("ga", "npo"):
        for seed in (0, 1):
            for rectifier in (NONE, GRU):
                name = f"{len(trials):012x}"
                trials.append(write_trial(store, name, method, rectifier, fq=-5.0, mu=0.85, seed=seed))
                write_parquet_rows(store / "trials" / name / "steps.parquet", records(rectifier == GRU, seed, observed))
        name = f"{len(trials):012x}"
        trials.append(write_trial(store, name, method, GRU | {"gamma": 0.05}, fq=-9.0, mu=0.85))
        write_parquet_rows(store / "trials" / name / "steps.parquet", records(True, 0, observed))
    write_sweep(store, trials, splits=("forget05",))
    return store


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    store = write(tmp_path_factory.mktemp("steps"))
    return training.load_chosen_trial_steps(read(store))


def test_of_files_of_chosen_settings_missing_and_damaged_ones_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = write(tmp_path)
    found = training.load_chosen_trial_steps(read(store))
    assert caplog.records == []
    assert found.groupby(["method", "rectifier", "seed"]).size().tolist() == [COUNT] * 8  # of no other settings
    (store / "trials" / "000000000001" / "steps.parquet").unlink()
    (store / "trials" / "000000000002" / "steps.parquet").write_bytes(b"PAR1")
    with caplog.at_level(logging.WARNING):
        found = training.load_chosen_trial_steps(read(store))
    assert len(found) == 6 * COUNT
    assert "trials/000000000002/steps.parquet" in caplog.text


def test_figure_1_draws_what_was_observed(measured: pd.DataFrame) -> None:
    points = training.tabulate_cosine_and_loss(measured)
    assert set(points["measured"]) == {"observe"}
    line = points.loc[(points["method"] == "ga") & (points["rectifier"] == "none")]
    seed = line.loc[(line["kind"] == "seed") & (line["seed"] == 1)]
    assert seed["step"].tolist() == [1, 3, 5]
    assert seed["cos"].tolist() == pytest.approx([-0.075, -0.175, -0.275])
    assert seed["retain_loss"].tolist() == [2.0, 6.0, 10.0]
    mean = line.loc[line["kind"] == "mean"]
    assert mean["cos"].tolist() == pytest.approx([-0.0625, -0.1625, -0.2625])
    assert mean["n"].tolist() == [2, 2, 2]
    figure = training.draw_cosine_and_loss(points)
    assert overlapping(figure) == []
    panels = figure.axes
    cosines, risks = panels[0].lines, panels[2].lines
    assert (len(cosines), len(risks)) == (1 + 9, 6)  # zero; of each rectifier two seeds and their mean
    means = [line for line in cosines if line.get_linewidth() == 1.5]
    drawn = {str(line.get_linestyle()): np.asarray(line.get_ydata()).tolist() for line in means}
    assert drawn.pop(":") == drawn.pop("--") == pytest.approx([-0.0625, -0.1625, -0.2625])  # GRU's before, GA's
    assert drawn == {"-": pytest.approx([-0.0125, -0.0325, -0.0525])}


def test_without_observation_gru_shows_its_own_steps(tmp_path: Path) -> None:
    store = write(tmp_path, observed=False)
    measured = training.load_chosen_trial_steps(read(store))
    points = training.tabulate_cosine_and_loss(measured)
    assert points[["rectifier", "measured"]].drop_duplicates().to_numpy().tolist() == [["gru", "each step"]]
    seed = points.loc[(points["method"] == "npo") & (points["rectifier"] == "gru") & (points["seed"] == 0)]
    assert seed["cos"].tolist() == pytest.approx([-0.1 * step for step in range(1, 7)])
    assert seed["retain_loss"].tolist() == [step + 0.5 for step in range(1, 7)]
    assert set(training.tabulate_angles(measured)["line"]) == {"Pre-rect.", "Post-rect."}


def test_figure_7_has_the_papers_three_lines(measured: pd.DataFrame) -> None:
    points = training.tabulate_angles(measured)
    found = points.loc[(points["method"] == "ga") & (points["kind"] == "seed") & (points["seed"] == 0)]
    lines = {name: rows["angle"].tolist() for name, rows in found.groupby("line")}
    assert lines["Post-rect."] == pytest.approx([90.0] * COUNT)
    assert lines["Orig."] == pytest.approx([math.degrees(math.acos(-0.05 * step)) for step in (1, 3, 5)])
    assert lines["Pre-rect."][4] == pytest.approx(120.0)  # cos -0.5
    figure = training.draw_angles(points)
    assert all(len(axes.lines) == 1 + 3 * 3 for axes in figure.axes)
    assert overlapping(figure) == []
    assert training.tabulate_angles(measured.head(0)).empty


def test_a_mean_is_of_all_seeds_and_ends_with_the_shortest() -> None:
    """Seed s at step t is t + 100 s, so that the mean of n seeds is t + 50 (n - 1): a straight line, no zigzag."""
    lengths, rows = [600, 900, 10], []
    for seed, length in enumerate(lengths):
        step = np.arange(1, length + 1)
        record = {"step": step, "observed_cos": -0.5, "observed_retain_loss": step + 100.0 * seed, "seed": seed}
        rows.append(pd.DataFrame(record | {"split": "forget05", "method": "ga", "rectifier": "none"}))
    found = training.tabulate_cosine_and_loss(pd.concat(rows, ignore_index=True).reindex(columns=training.STEP_COLUMNS))
    every = -(-max(lengths) // training.MAX_DRAWN_STEPS)
    mean = found.loc[found["kind"] == "mean"].sort_values("step")
    assert mean["step"].tolist() == list(range(1, min(lengths) + 1, every))
    assert mean["retain_loss"].tolist() == pytest.approx([t + 50.0 * (len(lengths) - 1) for t in mean["step"]])
    assert set(mean["n"]) == {len(lengths)}
    for seed, length in enumerate(lengths):
        thinned = found.loc[(found["kind"] == "seed") & (found["seed"] == seed), "step"].tolist()
        assert thinned == list(range(1, length + 1, every))


grid_sweep = grid_results


def test_sensitivity_to_tau_is_the_papers_without_its_misprint() -> None:
    points = changes.tabulate_sensitivity(paper.load_table("tofu_tau", corrected=True), "tau")
    numbers = paper_values("tofu_tau")
    assert len(points) == len(numbers) == 54
    different = []
    for row in points.to_dict("records"):
        key = ("Llama-2-7B-chat", "forget05", row["method"], "gru", "", row["setting"], "", row["metric"])
        if numbers[key] != row["value"]:
            different.append((numbers[key], row["value"]))
    assert sorted(different) == [(-2.9534, -2.9538), (14.0316, -14.0316)]
    upper, lower = changes.draw_gamma_tau_sensitivity(points).axes
    curve, alone = (np.asarray(line.get_xydata()).tolist() for line in upper.lines[:2])
    assert (len(curve), curve[0]) == (8, [0, -29.6514])
    assert alone == [[8, numbers["Llama-2-7B-chat", "forget05", "ga", "gru", "", "none", "", FQ]]]
    ticks = [tick.get_text() for tick in lower.get_xticklabels()]
    assert ticks == ["0.001", "0.01", "0.1", "1", "2", "3", "10", "100", "none"]


def test_curves_of_runs_hold_all_else_at_the_chosen_setting(grid_sweep: SweepResults) -> None:
    frame = changes.select_rows_varying_gru_settings(grid_sweep.tidy_frame)
    points = changes.tabulate_sensitivity(frame, "gamma")
    curve = points.loc[(points["method"] == "ga") & (points["metric"] == FQ)]  # tau 0.1 is best, and the first rate
    assert curve["value"].tolist() == pytest.approx([-10 * gamma - 0.1 - 0.5 for gamma in (0.05, 0.4, 0.8)])
    assert curve["chosen"].tolist() == [True, False, False]
    assert curve["n"].tolist() == [2, 2, 2]
    assert curve["sd"].tolist() == pytest.approx([np.sqrt(0.5)] * 3)
    over_tau = changes.tabulate_sensitivity(frame, "tau")
    curve = over_tau.loc[(over_tau["method"] == "ga") & (over_tau["metric"] == FQ)]
    assert curve["setting"].tolist() == ["0.1", "1", "none"]
    assert curve["value"].tolist() == pytest.approx([-1.1, -2.0, -4.0])

"""Hypervolume and the Pareto front: areas by another way, and settings that count for neither."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import report
from analysis.figures import tradeoff
from analysis.stats import hypervolume
from tests.support.sweep_store import GRU, ORIGINAL_FQ, read, write_sweep, write_trial

steps = st.integers(0, 6)


points = st.lists(st.tuples(steps, steps), max_size=12)


@settings(deadline=None)
@given(points, st.tuples(st.integers(-2, 3), st.integers(-2, 3)))
def test_hypervolume_counts_the_squares_that_a_point_beats(
    found: list[tuple[int, int]], corner: tuple[int, int]
) -> None:
    """On a lattice the area is the number of unit squares between the corner and some point."""
    squares = itertools.product(range(corner[0], 6), range(corner[1], 6))
    covered = sum(any(x + 1 <= a and y + 1 <= b for a, b in found) for x, y in squares)
    assert hypervolume.hypervolume(found, corner) == covered


def test_areas_of_settings_with_and_without_gru(tmp_path: Path) -> None:
    """GA both ways: above (-21.4, 0) a setting without and two with GRU; GD has no GRU and does not count."""
    trials = [write_trial(tmp_path, "0" * 12, fq=-11.4, mu=0.5)]
    trials.append(write_trial(tmp_path, "1" * 12, rectifier=GRU, fq=-11.4, mu=0.4))
    trials.append(write_trial(tmp_path, "2" * 12, rectifier=GRU | {"tau": 1.0}, fq=-16.4, mu=0.8))
    trials.append(write_trial(tmp_path, "3" * 12, "gd", fq=-1.0, mu=0.9))
    write_sweep(tmp_path, trials, splits=("forget05",))
    row = hypervolume.measure_hypervolume(read(tmp_path)).to_dict("records")[0]
    assert (row["volume_none"], row["volume_gru"]) == (pytest.approx(10 * 0.5), pytest.approx(10 * 0.4 + 5 * 0.4))
    assert (row["settings_none"], row["settings_gru"], row["methods"], row["reference"]) == (1, 2, 1, -21.4)


def test_the_front_is_of_means_and_of_nothing_that_the_original_beats(tmp_path: Path) -> None:
    """The original is at (-21.4, 0.9). One seed of GA is far beyond all else; its mean is not.

    GD gives up less utility at less FQ than the original, on no goal better; with GRU it is better on one.
    """
    trials = [
        write_trial(tmp_path, "0" * 12, fq=-1.0, mu=0.8),
        write_trial(tmp_path, "1" * 12, fq=-19.0, mu=0.2, seed=1),
    ]
    trials.append(write_trial(tmp_path, "2" * 12, rectifier=GRU, fq=-8.0, mu=0.6))
    trials.append(write_trial(tmp_path, "3" * 12, "gd", fq=-22.0, mu=0.85))
    trials.append(write_trial(tmp_path, "4" * 12, "gd", rectifier=GRU, fq=-20.0, mu=0.85))
    trials.append(write_trial(tmp_path, "5" * 12, "npo", fq=-30.0, mu=0.95))
    write_sweep(tmp_path, trials, splits=("forget05",))
    results = read(tmp_path)
    points = tradeoff.trial_points(results)
    front = points.loc[points["front"]]
    found = sorted(zip(front["forget_quality"], front["model_utility"], strict=True))
    assert found == [(-30.0, 0.95), (-20.0, 0.85), (-8.0, 0.6)]
    axes = tradeoff.draw(points).axes[0]
    (line,) = [line for line in axes.lines if line.get_drawstyle() == "steps-pre"]
    assert sorted(np.asarray(line.get_xdata())[1:-1].tolist()) == [-30.0, -20.0, -8.0]
    means = points.loc[points["kind"] == "setting"]
    of_all = zip(means["forget_quality"], means["model_utility"], strict=True)
    area = hypervolume.hypervolume(found, (ORIGINAL_FQ, 0.0))
    assert area == hypervolume.hypervolume(of_all, (ORIGINAL_FQ, 0.0)) == pytest.approx(13.4 * 0.6 + 1.4 * 0.25)
    without_npo = results.with_runs(results.runs.loc[results.runs["method"] != "npo"])
    table = hypervolume.measure_hypervolume(without_npo).iloc[0]
    assert table["volume_gru"] == pytest.approx(area)  # of the front's two settings that remove more than the original
    assert table["volume_none"] == pytest.approx((ORIGINAL_FQ - -10.0) * -0.5)  # GA's mean, and nothing of GD


def test_without_the_target_model_the_front_is_of_all_settings_and_the_area_left_out(tmp_path: Path) -> None:
    trials = [
        write_trial(tmp_path, "0" * 12, rectifier=GRU, fq=-30.0, mu=0.8),
        write_trial(tmp_path, "1" * 12, "gd", fq=-31.0, mu=0.7),
    ]
    write_sweep(tmp_path, trials, splits=())
    points = tradeoff.trial_points(read(tmp_path))
    assert points.loc[points["front"], "forget_quality"].tolist() == [-30.0]
    page = (report.build("tiny", tmp_path) / "index.html").read_text()
    assert "Area under the Pareto front" not in page

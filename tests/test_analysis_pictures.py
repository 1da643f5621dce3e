"""The figures of tidy frames: what is drawn is what the paper's tables, or a sweep's trials, say, and can be read."""

import csv
import itertools
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from drawn import labels, overlapping, texts
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from sweep_store import GRU, NONE, Frames, read, write_sweep, write_trial

from analysis import arrows, heat, overlay, pairs, paper, pictures, sensitivity, shares, style, tidy
from trainables.config import METHOD_LABELS

FQ, MU = "forget_quality", "model_utility"


def printed(table: str) -> dict[tuple[str, ...], float]:
    """Return a table's values by (backbone, split, method, rectifier, gamma, tau, target, metric), as it is stored."""
    with Path(paper.__file__).with_name(f"{table}.csv").open(encoding="utf-8", newline="") as file:
        names = ("backbone", "split", "method", "rectifier", "gamma", "tau", "target", "metric")
        return {tuple(row[name] for name in names): float(row["value"]) for row in csv.DictReader(file)}


def shown(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes if axes.axison]


@pytest.fixture(scope="module")
def gridded(tmp_path_factory: pytest.TempPathFactory) -> Frames:
    """A sweep of GA and GD without and with GRU over gamma and tau at two learning rates, two seeds, one cell missing.

    FQ of GRU is -10 gamma - tau (none: 3) - seed, 20 worse at the other learning rate; MU is always above the bar.
    """
    store = tmp_path_factory.mktemp("gridded")
    trials: list[str] = []
    for method in ("ga", "gd"):
        for seed in (0, 1):
            name = f"{len(trials):012x}"
            trials.append(write_trial(store, name, method, NONE, fq=-15.0 - seed, mu=0.85, seed=seed))
            for gamma in (0.05, 0.4, 0.8):
                for tau in (None, 0.1, 1.0):
                    for lr in (0.001, 0.002):
                        if (method, gamma, tau) == ("gd", 0.8, 1.0):
                            continue
                        fq = -10 * gamma - (3.0 if tau is None else tau) - seed - 20 * (lr == 0.002)
                        given = {"fq": fq, "mu": 0.85, "seed": seed, "lr": lr}
                        rectifier = GRU | {"gamma": gamma, "tau": tau}
                        trials.append(write_trial(store, f"{len(trials):012x}", method, rectifier, **given))
    write_sweep(store, trials, splits=("forget05",))
    return read(store, "tiny")


def test_figure_4_is_the_papers() -> None:
    drawn = pairs.points(paper.mended("tofu_main"))
    found = drawn.set_index(["backbone", "split", "metric", "method"])
    assert round(found.loc[("llama", "forget05", FQ, "ga"), "none"], 2) == -16.93  # the example of its caption
    assert round(found.loc[("llama", "forget05", FQ, "ga"), "gru"], 2) == -3.52
    numbers = printed("tofu_main")
    assert len(numbers) == sum(map(len, (found["none"].dropna(), found["gru"].dropna())))
    for row in drawn.to_dict("records"):
        backbone, split, metric, method = (row[name] for name in ("backbone", "split", "metric", "method"))
        for side in ("none", "gru"):
            known = numbers.get((backbone, split, method, side, "", "", "", metric))
            assert known == row[side] or (known is None and np.isnan(row[side]))
    figure = pairs.draw(drawn)
    places = ("Llama, forget05 (5%)", "Llama, forget10 (10%)", "Phi, forget05 (5%)", "Phi, forget10 (10%)")
    named = [f"({letter}) {places[place // 2]}" for place, letter in enumerate("abcdefgh")]
    assert shown(figure) == named  # (h) is 10 %: the paper's caption of it is wrong
    assert [axes.get_ylabel() for axes in figure.axes] == ["FQ ↑", "MU ↑"] * 4
    first: list[Any] = list(figure.axes[0].patches)
    assert [round(bar.get_height(), 4) for bar in first[:3]] == [-16.9281, -3.5161, 13.412]  # alone, w/ GRU, between
    assert first[2].get_y() == pytest.approx(-16.9281)
    assert [text.get_text() for text in figure.axes[0].texts] == "+13.4 +1.06 +2.65 +0.956 0 +3.74 0".split()
    assert labels(figure) == {"method alone", "w/ GRU", "improvement w/ GRU", "original model", "retain model"}


@pytest.mark.parametrize("table", ["tofu_main", "wmdp", "muse"])
def test_the_numbers_of_pairs_lie_upon_nothing(table: str) -> None:
    figure = pairs.draw(pairs.points(paper.mended(table)))
    with mpl.rc_context(style.STYLE):
        figure.draw_without_rendering()
    for axes in figure.axes:
        panel = axes.get_window_extent()
        for number in axes.texts:
            box = number.get_window_extent()
            assert panel.y0 <= box.y0 < box.y1 <= panel.y1, number.get_text()
            for drawn in (*axes.patches, *axes.lines):
                extent = drawn.get_window_extent()
                apart = box.y0 > extent.y1 or box.y1 < extent.y0 or box.x0 > extent.x1 or box.x1 < extent.x0
                assert apart, (number.get_text(), drawn)


def test_less_accuracy_on_what_is_to_be_forgotten_is_an_improvement() -> None:
    drawn = pairs.points(paper.mended("wmdp")).set_index(["metric", "method"])["improvement"].to_dict()
    assert drawn["wmdp_cyber", "gd"] == pytest.approx(0.2441 - 0.2511)
    assert drawn["mmlu", "gd"] == pytest.approx(0.2995 - 0.2589)
    figure = pairs.draw(pairs.points(paper.mended("wmdp")))
    assert [axes.get_ylabel() for axes in figure.axes] == ["bio ↓", "cyber ↓", "MMLU ↑"]
    assert "worse w/ GRU" in labels(figure)


def test_arrows_go_from_each_method_to_itself_with_gru() -> None:
    drawn = arrows.points(paper.mended("tofu_main"))
    assert len(drawn) == 4 * (7 * 2 + 2)
    numbers = printed("tofu_main")
    for row in drawn.to_dict("records"):
        key = (row["backbone"], row["split"], row["method"], row["rectifier"], "", "", "")
        assert (row[FQ], row[MU]) == (numbers[*key, FQ], numbers[*key, MU])
    figure = arrows.draw(drawn)
    ends = [(text.xyann, text.xy) for text in figure.axes[0].texts if isinstance(text, Annotation)]
    assert len(ends) == 7
    assert ends[0] == ((-16.9281, 0.0), (-3.5161, 0.519))
    stars = [line for line in figure.axes[0].lines if line.get_marker() == "*"]
    assert sorted(float(np.asarray(star.get_xdata())[0]) for star in stars) == [-32.133, 0.0]


def test_arrows_of_several_goals_are_over_their_mean() -> None:
    found = arrows.points(paper.mended("muse")).set_index(["method", "rectifier"])
    assert found.loc[("original", "none"), "removal"] == pytest.approx((99.7016 + 45.8791) / 2)


def test_sensitivity_to_tau_is_the_papers_without_its_misprint() -> None:
    drawn = sensitivity.points(paper.mended("tofu_tau"), "tau")
    numbers = printed("tofu_tau")
    assert len(drawn) == len(numbers) == 54
    different = []
    for row in drawn.to_dict("records"):
        key = ("llama", "forget05", row["method"], "gru", "", row["setting"], "", row["metric"])
        if numbers[key] != row["value"]:
            different.append((numbers[key], row["value"]))
    assert sorted(different) == [(-2.9534, -2.9538), (14.0316, -14.0316)]
    figure = sensitivity.draw(drawn)
    upper, lower = figure.axes
    curve = np.asarray(upper.lines[1].get_xydata())  # the first is what sets `none` apart
    assert curve[:, 0] == pytest.approx(np.log10([0.001, 0.01, 0.1, 1, 2, 3, 10, 100]))
    assert curve[0, 1] == -29.6514
    alone = np.asarray(upper.lines[2].get_xydata())
    assert alone.shape == (1, 2)
    assert alone[0, 0] > 2
    assert alone[0, 1] == numbers["llama", "forget05", "ga", "gru", "", "none", "", FQ]
    ticks = [tick.get_text() for tick in lower.get_xticklabels()]
    assert {"0.001", "1", "100", "none"} <= set(ticks)
    assert (lower.get_ylabel(), "clipping norm" in lower.get_xlabel()) == ("MU ↑", True)


def test_sensitivity_to_gamma_has_the_points_of_the_table() -> None:
    drawn = sensitivity.points(paper.mended("tofu_gamma"), "gamma")
    assert drawn.groupby(["metric", "method"]).size().tolist() == [13, 9, 13] * 2  # GD ends at 0.6
    assert drawn.loc[drawn["setting"] == "none", "method"].unique().tolist() == ["ga", "npo"]


def test_curves_of_runs_hold_all_else_at_the_chosen_setting(gridded: Frames) -> None:
    frame = overlay.near_chosen(tidy.from_runs(*gridded), gridded[0])
    drawn = sensitivity.points(frame, "gamma")
    curve = drawn.loc[(drawn["method"] == "ga") & (drawn["metric"] == FQ)]  # tau 0.1 is best, and the first rate
    assert curve["value"].tolist() == pytest.approx([-10 * gamma - 0.1 - 0.5 for gamma in (0.05, 0.4, 0.8)])
    assert curve["chosen"].tolist() == [True, False, False]
    assert curve["n"].tolist() == [2, 2, 2]
    assert curve["sd"].tolist() == pytest.approx([np.sqrt(0.5)] * 3)
    over_tau = sensitivity.points(frame, "tau")
    curve = over_tau.loc[(over_tau["method"] == "ga") & (over_tau["metric"] == FQ)]
    assert curve["setting"].tolist() == ["0.1", "1", "none"]
    assert curve["value"].tolist() == pytest.approx([-1.1, -2.0, -4.0])


@pytest.mark.parametrize("knob", ["gamma", "tau"])
def test_hollow_says_without_gru_and_the_chosen_setting_is_framed(gridded: Frames, knob: str) -> None:
    """Curves over gamma and tau are all with GRU."""
    frame = overlay.near_chosen(tidy.from_runs(*gridded), gridded[0])
    drawn = sensitivity.points(frame, knob)
    figure = sensitivity.draw(drawn)
    for axes in figure.axes:
        shown = [line for line in axes.lines if line.get_marker() not in ("None", "none", None)]
        assert all(to_rgb(line.get_markerfacecolor()) == to_rgb(line.get_color()) for line in shown)
        framed = [line for line in shown if line.get_markeredgecolor() == "black"]
        assert [np.asarray(line.get_ydata()).size for line in framed] == [1, 1]  # GA's and GD's
    (upper, _), best = figure.axes, drawn.loc[drawn["chosen"] & (drawn["metric"] == FQ), "value"]
    framed = [line for line in upper.lines if line.get_markeredgecolor() == "black"]
    assert sorted(float(np.asarray(line.get_ydata())[0]) for line in framed) == sorted(best)
    assert "chosen setting" in labels(figure)


def test_heat_map_of_runs_hatches_what_is_missing(gridded: Frames) -> None:
    drawn = heat.points(overlay.near_chosen(tidy.from_runs(*gridded), gridded[0]))
    found = drawn.loc[drawn["metric"] == FQ].set_index(["method", "gamma", "tau"])["value"]
    assert len(found) == 9 + 8
    assert found["gd", "0.4", "none"] == pytest.approx(-4 - 3 - 0.5)
    figure = heat.draw(drawn)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert shown(figure)[:4] == ["GA: FQ ↑", "GA: MU ↑", "GD: FQ ↑", "GD: MU ↑"]
    assert [len(axes.texts) for axes in panels] == [9, 9, 8, 8]
    cells = np.ma.getmaskarray(np.ma.asarray(panels[2].images[0].get_array()))
    assert np.argwhere(cells).tolist() == [[1, 2]]  # tau 1, gamma 0.8
    assert all(axes.patches[0].get_hatch() for axes in panels)
    assert [tick.get_text() for tick in panels[2].get_yticklabels()] == ["0.1", "1", "none"]


def test_heat_map_of_the_paper_is_a_cross_that_agrees_where_it_crosses() -> None:
    frame = pd.concat([paper.mended("tofu_tau"), paper.mended("tofu_gamma")])
    drawn = heat.points(frame)
    assert len(drawn) == 54 + 70 - 6  # a cell a method and goal is in both tables
    tau, gamma = printed("tofu_tau"), printed("tofu_gamma")
    for method, at_gamma, at_tau in (("ga", "0.8", "1.0"), ("npo", "0.8", "1.0"), ("gd", "0.05", "none")):
        for metric in (FQ, MU):
            both = [tau["llama", "forget05", method, "gru", "", at_tau, "", metric]]
            both.append(gamma["llama", "forget05", method, "gru", at_gamma, "", "", metric])
            assert both[0] == both[1]


def test_uwc_is_drawn_over_its_targets() -> None:
    frame = pd.concat([paper.mended("tofu_uwc_ga"), paper.mended("tofu_uwc_npo")])
    drawn = shares.points(frame)
    numbers = printed("tofu_uwc_npo")
    line = drawn.loc[(drawn["split"] == "forget10") & (drawn["method"] == "npo") & (drawn["rectifier"] == "gru")]
    targets = ("0.85", "0.90", "0.95")
    assert line["target"].tolist() == [float(target) for target in targets]
    expected = [numbers["phi", "forget10", "npo", "gru", "", "", target, FQ] for target in targets]
    assert line[FQ].tolist() == expected
    figure = shares.draw(drawn)
    assert [title.split(":")[0] for title in shown(figure)] == ["GA", "GA", "NPO", "NPO"]
    assert all(len(axes.lines) == 3 for axes in figure.axes)  # alone, w/ GRU, the original model


@pytest.mark.parametrize("benchmark", ["tofu", "wmdp", "muse"])
def test_the_papers_pictures_can_be_read(benchmark: str) -> None:
    found = pictures.of_paper({table: "" for table in paper.TABLES if table.startswith(benchmark)})
    stems = [picture.stem.removeprefix("paper-") for picture in found]
    more = ["gamma", "tau", "heat-forget05", "uwc"] if benchmark == "tofu" else []
    assert stems == ["arrows", "pairs", *more]
    for picture in found:
        assert overlapping(picture.figure) == [], picture.stem
        assert min(float(text.get_fontsize()) for text in texts(picture.figure)) >= 5.5
        assert picture.figure.get_figwidth() <= 7.5  # inches of a page's text
        assert f"figures/{picture.stem}.csv" in picture.text
        assert not {'"', "<", "&"} & set(picture.text)


def test_the_papers_pictures_of_a_sweep_are_of_its_tables_and_backbone() -> None:
    found = pictures.of_paper({"tofu_main": "phi"})
    assert [picture.stem for picture in found] == ["paper-arrows", "paper-pairs"]
    assert {backbone for picture in found for backbone in picture.points["backbone"]} == {"phi"}
    assert [picture.stem for picture in pictures.of_paper({"tofu_tau": "llama"})] == ["paper-tau"]
    assert pictures.of_paper({"tofu_retain_free": "llama"}) == []


def test_a_sweeps_pictures_can_be_read_and_have_the_papers_numbers_over_them(gridded: Frames) -> None:
    runs, models = gridded
    frame = tidy.from_runs(runs, models)
    alone = pictures.of(frame, runs)
    assert [picture.stem for picture in alone] == ["pairs", "gamma", "tau", "heat-forget05"]
    llama = frame.assign(backbone="llama")
    both = pictures.of(llama, runs, beside=True)
    assert [picture.stem for picture in both] == ["arrows", "pairs", "gamma", "tau", "heat-forget05"]
    for picture in (*alone, *both):
        assert overlapping(picture.figure) == [], picture.stem
    for picture in both[:4]:
        assert set(picture.points["source"]) == {"paper", "runs"}
        assert pictures.LAID in picture.caption
        assert any("the paper" in label for label in labels(picture.figure)), picture.stem
    assert set(both[1].points["split"]) == {"forget05"}  # the paper's other splits are no panels of this sweep
    otherwise = runs.assign(**{"benchmark.dialect": "open-unlearning"})
    for apart in (pictures.of(frame, runs, beside=True), pictures.of(llama, otherwise, beside=True)):
        assert [picture.stem for picture in apart] == ["pairs", "gamma", "tau", "heat-forget05"]
        assert all(set(picture.points["source"]) == {"runs"} for picture in apart)


def test_pairs_of_runs_are_means_over_seeds_of_the_chosen_settings(gridded: Frames) -> None:
    drawn = pairs.points(tidy.from_runs(*gridded)).set_index(["metric", "method"])
    row = drawn.loc[(FQ, "ga")]
    assert row[["none", "gru", "none_n", "gru_n"]].tolist() == pytest.approx([-15.5, -1.1, 2, 2])
    assert row["improvement"] == pytest.approx(14.4)


def test_a_sweep_without_results_has_no_pictures(tmp_path: Path) -> None:
    trial = write_trial(tmp_path, "0" * 12, status="failed", error={"kind": "failed", "message": "x"})
    write_sweep(tmp_path, [trial])
    runs, models = read(tmp_path, "tiny")
    assert pictures.of(tidy.from_runs(runs, models), runs) == []


def test_equal_numbers_give_equal_bytes(gridded: Frames, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        frame = tidy.from_runs(*gridded)
        for picture in pictures.of(frame, gridded[0]):
            style.save(picture.figure, tmp_path / folder, picture.stem, picture.points)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(names) == 4 * 4
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def seen(colour: str, lacking: str) -> np.ndarray:
    """Return a colour's linear red, green and blue as eyes without red or green cones see them; `grey`: brightness.

    Vienot, Brettel and Mollon (1999), "Digital video colourmaps for checking the legibility of displays by dichromats".
    """
    linear = np.asarray(to_rgb(colour)) ** 2.2
    if lacking == "grey":
        return linear @ np.asarray([0.2126, 0.7152, 0.0722])
    first, second = {"red": (0.11238, 0.88762), "green": (0.29275, 0.70725)}[lacking]
    third = {"red": 0.00401, "green": -0.02234}[lacking]
    mixed = first * linear[0] + second * linear[1]
    return np.clip([mixed, mixed, third * (linear[0] - linear[1]) + linear[2]], 0, 1) ** (1 / 2.2)


def test_methods_can_be_told_apart() -> None:
    assert set(style.LOOKS) == set(METHOD_LABELS)
    for one, other in itertools.combinations(METHOD_LABELS, 2):
        a, b = (style.marker(name, "gru")["marker"] for name in (one, other))
        assert a != b  # without any colour
        drawn = [(style.colour(name), style.dashes(name)) for name in (one, other)]
        assert drawn[0] != drawn[1], (one, other)
        if drawn[0][0] != drawn[1][0]:
            for lacking in ("red", "green"):
                assert np.abs(seen(drawn[0][0], lacking) - seen(drawn[1][0], lacking)).max() > 0.1, (one, other)
    assert "*" not in {look[1] for look in style.LOOKS.values()}  # the reference models' sign
    for colour in {style.colour(name) for name in METHOD_LABELS}:
        assert 0.05 < seen(colour, "grey") < 0.5, colour  # neither the original model's black nor lost on white


def test_the_legend_shows_a_methods_line() -> None:
    drawn = arrows.points(paper.mended("tofu_main"))
    figure = arrows.draw(drawn)
    legend = figure.legends[0]
    signs = {text.get_text(): line for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)}
    assert signs["NPO+KL"].is_dashed()
    assert not signs["NPO"].is_dashed()
    patches = [text.arrow_patch for text in figure.axes[0].texts if isinstance(text, Annotation)]
    styles = {patch.get_linestyle() for patch in patches if patch is not None}
    assert len(styles) == 2


@pytest.mark.parametrize(("count", "most", "wide"), [(9, 4, 3), (9, 7, 5), (4, 4, 4), (5, 4, 3), (1, 4, 1), (8, 4, 4)])
def test_rows_are_even(count: int, most: int, wide: int) -> None:
    assert style.abreast(count, most) == wide


def test_overlaps_are_found() -> None:
    figure = Figure(figsize=(3, 2))
    figure.text(0.1, 0.5, "one word")
    figure.text(0.12, 0.5, "another")
    figure.text(0.8, 0.9, "far beyond the edge")
    assert overlapping(figure) == [("one word", "another"), ("far beyond the edge", "edge")]

"""Pairs, arrows and a report's pictures as a whole: what is drawn is what tables say, and can be read."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Annotation

from analysis import paper
from analysis.figures import bars, catalog, style, tradeoff
from analysis.stats import tidy
from tests.support.drawn import labels, overlapping, texts
from tests.support.gridded import FQ, MU, gridded_results, printed, shown
from tests.support.sweep_store import Results, read, write_sweep

gridded = gridded_results


def test_figure_4_is_the_papers() -> None:
    drawn = bars.pair_points(paper.mended("tofu_main"))
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
    figure = bars.draw(drawn)
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
    figure = bars.draw(bars.pair_points(paper.mended(table)))
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
    drawn = bars.pair_points(paper.mended("wmdp")).set_index(["metric", "method"])["improvement"].to_dict()
    assert drawn["wmdp_cyber", "gd"] == pytest.approx(0.2441 - 0.2511)
    assert drawn["mmlu", "gd"] == pytest.approx(0.2995 - 0.2589)
    figure = bars.draw(bars.pair_points(paper.mended("wmdp")))
    assert [axes.get_ylabel() for axes in figure.axes] == ["bio ↓", "cyber ↓", "MMLU ↑"]
    assert "worse w/ GRU" in labels(figure)


def test_arrows_go_from_each_method_to_itself_with_gru() -> None:
    drawn = tradeoff.arrow_points(paper.mended("tofu_main"))
    assert len(drawn) == 4 * (7 * 2 + 2)
    numbers = printed("tofu_main")
    for row in drawn.to_dict("records"):
        key = (row["backbone"], row["split"], row["method"], row["rectifier"], "", "", "")
        assert (row[FQ], row[MU]) == (numbers[*key, FQ], numbers[*key, MU])
    figure = tradeoff.draw_arrows(drawn)
    ends = [(text.xyann, text.xy) for text in figure.axes[0].texts if isinstance(text, Annotation)]
    assert len(ends) == 7
    assert ends[0] == ((-16.9281, 0.0), (-3.5161, 0.519))
    stars = [line for line in figure.axes[0].lines if line.get_marker() == "*"]
    assert sorted(float(np.asarray(star.get_xdata())[0]) for star in stars) == [-32.133, 0.0]
    found = tradeoff.arrow_points(paper.mended("muse")).set_index(["method", "rectifier"])  # several goals: their mean
    assert found.loc[("original", "none"), "removal"] == pytest.approx((99.7016 + 45.8791) / 2)


@pytest.mark.parametrize("benchmark", ["tofu", "wmdp", "muse"])
def test_the_papers_pictures_can_be_read(benchmark: str) -> None:
    found = catalog.draw_paper({table: "" for table in paper.TABLES if table.startswith(benchmark)})
    stems = [picture.stem.removeprefix("paper-") for picture in found]
    more = ["gamma", "tau", "uwc"] if benchmark == "tofu" else []
    assert stems == ["arrows", "pairs", *more]
    for picture in found:
        assert overlapping(picture.figure) == [], picture.stem
        assert min(float(text.get_fontsize()) for text in texts(picture.figure)) >= 5.5
        assert picture.figure.get_figwidth() <= 7.5  # inches of a page's text
        assert f"figures/{picture.stem}.csv" in picture.text
        assert not {'"', "<", "&"} & set(picture.text)


@pytest.mark.parametrize(
    ("tables", "stems"),
    [
        ({"tofu_main": "phi"}, ["paper-arrows", "paper-pairs"]),
        ({"tofu_tau": "llama"}, ["paper-tau"]),
        ({"tofu_retain_free": "llama"}, []),
    ],
)
def test_the_papers_pictures_of_a_sweep_are_of_its_tables_and_backbone(
    tables: dict[str, str], stems: list[str]
) -> None:
    found = catalog.draw_paper(tables)
    assert [picture.stem for picture in found] == stems
    assert all(set(picture.points["backbone"]) == set(tables.values()) for picture in found)


def test_a_sweeps_pictures_can_be_read_and_have_the_papers_numbers_over_them(gridded: Results) -> None:
    runs, frame = gridded.runs, tidy.from_runs(gridded)
    alone = catalog.draw_sweep(frame, runs)
    assert [picture.stem for picture in alone] == ["pairs", "gamma", "tau", "heat-forget05"]
    llama = frame.assign(backbone="llama")
    both = catalog.draw_sweep(llama, runs, beside=True)
    assert [picture.stem for picture in both] == ["arrows", "pairs", "gamma", "tau", "heat-forget05"]
    for picture in (*alone, *both):
        assert overlapping(picture.figure) == [], picture.stem
    for picture in both[:4]:
        assert set(picture.points["source"]) == {"paper", "runs"}
        assert catalog.CAPTIONS["any"]["laid_over"] in picture.caption
        assert any("the paper" in label for label in labels(picture.figure)), picture.stem
    assert set(both[1].points["split"]) == {"forget05"}  # the paper's other splits are no panels of this sweep
    otherwise = runs.assign(**{"benchmark.dialect": "open-unlearning"})
    for apart in (catalog.draw_sweep(frame, runs, beside=True), catalog.draw_sweep(llama, otherwise, beside=True)):
        assert [picture.stem for picture in apart] == ["pairs", "gamma", "tau", "heat-forget05"]
        assert all(set(picture.points["source"]) == {"runs"} for picture in apart)


def test_pairs_of_runs_are_means_over_seeds_of_the_chosen_settings(gridded: Results, tmp_path: Path) -> None:
    drawn = bars.pair_points(tidy.from_runs(gridded)).set_index(["metric", "method"])
    row = drawn.loc[(FQ, "ga")]
    assert row[["none", "gru", "none_n", "gru_n"]].tolist() == pytest.approx([-15.5, -1.1, 2, 2])
    assert row["improvement"] == pytest.approx(14.4)
    write_sweep(tmp_path, ["0" * 12])  # without results nothing is drawn
    assert catalog.draw_sweep(tidy.from_runs(read(tmp_path)), gridded.runs) == []


def test_equal_numbers_give_equal_bytes(gridded: Results, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        picture = catalog.draw_sweep(tidy.from_runs(gridded), gridded.runs)[1]
        style.save_figure(picture.figure, tmp_path / folder, picture.stem, picture.points)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["gamma.csv", "gamma.pdf", "gamma.png", "gamma.svg"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name

"""Reports on MUSE, WMDP and a person's own rows: their goals in tables, sentences, picture and page."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from analysis import report
from analysis.figures import tradeoff
from analysis.load import goal_columns
from tests.support import benchmark_store
from tests.support.benchmark_store import SAME_ROWS, main_rows, metrics, report_tables, write_store
from tests.support.sweep_store import grid, read

BENCHMARKS = ["muse", "wmdp", "own"]
HEADS = {
    "muse": ["VerbMem ↓", "KnowMem-U ↓", "KnowMem-R ↑", "PrivLeak"],
    "wmdp": ["Bio ↓", "Cyber ↓", "MMLU ↑"],
    "own": ["ES ↓", "utility ↑", "EM ↓", "ROUGE ↓", "prob ↓"],
}
# Means of two seeds; with GRU the setting of the least removal metrics that keeps 90 % of the original's utility.
SHOWN = {
    "muse": {
        "Original": ["58.4000", "63.9000", "55.2000", "-99.8000"],
        "Retrain": ["20.8000", "33.1000", "55.0000", "0.0000"],
        "GA": ["**0.5000**", "**1.5000**", "2.5000", "52.0000"],
        "GA w/ GRU": ["20.5000", "44.5000", "**50.5000**", "52.0000"],
        "GD": ["—", "—", "—", "—"],
        "NPO": ["**2.5000**", "40.5000", "51.5000", "52.0000"],
        "NPO w/ GRU": ["6.5000", "**30.5000**", "**52.5000**", "52.0000"],
    },
    "wmdp": {
        "Original": ["0.6400", "0.4400", "0.5800"],
        "GA": ["**0.2550**", "**0.2450**", "0.2450"],
        "GA w/ GRU": ["0.5050", "0.4050", "**0.5650**"],
        "GD": ["—", "—", "—"],
        "NPO": ["0.3050", "**0.3050**", "0.5450"],
        "NPO w/ GRU": ["**0.2850**", "0.3450", "**0.5550**"],
    },
    "own": {
        "Original": ["0.6000", "0.7000", "0.7000", "0.8000", "0.9000"],
        "GA": ["**0.0300**", "0.0100", "**0.1300**", "**0.2300**", "**0.3300**"],
        "GA w/ GRU": ["0.3100", "**0.6900**", "0.4100", "0.5100", "0.6100"],
        "GD": ["—"] * 5,
        "NPO": ["0.2100", "0.5100", "0.3100", "0.4100", "0.5100"],
        "NPO w/ GRU": ["**0.1100**", "**0.6700**", "**0.2100**", "**0.3100**", "**0.4100**"],
    },
}
VERDICTS = {
    "muse": "VerbMem is clearly better in 0 and worse in 2 of 2 comparisons, KnowMem-U is clearly better in 1",
    "wmdp": "Bio is clearly better in 1 and worse in 1 of 2 comparisons, Cyber is clearly better in 0 and worse in 2",
    "own": "ES is clearly better in 1 and worse in 1 of 2 comparisons, utility is clearly better in 2",
}
REMOVAL = {
    "muse": "removal (mean of VerbMem and KnowMem-U, less is more)",
    "wmdp": "removal (mean of Bio and Cyber, less is more)",
    "own": "removal (ES, less is more)",
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_report_has_the_goals_of_the_benchmark(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(report.app, [name, "--storage", str(write_store(tmp_path, name))])
    assert (done.exit_code, done.stderr) == (0, "")
    split = benchmark_store.SPLITS[name]
    folder = tmp_path / f"reports/{name}-0a1b2c3d"
    main = (folder / "tables/main.md").read_text()
    assert grid(main)[0] == ["Method", *(f"{split} {head}" for head in HEADS[name])]
    assert main_rows(main) == SHOWN[name]
    what = goal_columns.find_goals(name)
    rule = f"the most {REMOVAL[name]} among those with at least 90% of the target model's {what.retention.short}"
    assert rule in done.stdout
    assert SAME_ROWS in done.stdout
    page = (folder / "index.html").read_text()
    for words in (VERDICTS[name], rule.replace("'", "&#39;"), SAME_ROWS, "no space left", "12 of 13 trials finished"):
        assert words in page, words
    assert "forget quality" not in page
    assert "FQ" not in re.sub(r"base64,[^\"]+", "", page)  # of heat maps
    assert ("Retrain: a model trained without" in page) == (name == "muse")
    assert ("Before and after trial" in page) == (name == "own")
    assert ("PrivLeak: how far membership inference" in page) == (name == "muse")
    assert r"$\downarrow$" in (folder / "tables/main.tex").read_text()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_load_has_the_metrics_as_columns(name: str, tmp_path: Path) -> None:
    results = read(write_store(tmp_path, name))
    trials, expected = results.runs, metrics(name, benchmark_store.RESULTS[name]["ga", 0])
    assert trials.iloc[0][list(expected)].to_dict() == expected
    assert "forget_quality" not in trials
    assert trials.iloc[-1][results.goals.metrics].isna().all()
    assert results.models["role"].tolist() == {"muse": ["original", "retain"]}.get(name, ["original"])
    columns = report_tables(tmp_path)["trials.csv"].splitlines()[0].split(",")
    assert set(expected) < set(columns)
    assert not {"choice.removal", "choice.utility", "halves", "chosen_step"} & set(columns)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_picture_is_better_to_the_right_and_has_the_front(name: str, tmp_path: Path) -> None:
    results = read(write_store(tmp_path, name))
    what, points = results.goals, tradeoff.trial_points(results)
    kinds = {"trial": 12, "setting": len(results.means), "chosen": 4, "reference": len(benchmark_store.MODELS[name])}
    assert points["kind"].value_counts().to_dict() == kinds
    axes = tradeoff.draw(points).axes[0]
    left, right = axes.get_xlim()
    assert left > max(points[what.removal.metric]) > min(points[what.removal.metric]) > right
    assert axes.get_xlabel().endswith("lower is better →")
    assert axes.get_ylabel().endswith("\n(higher is better →)")
    means = points.loc[points["kind"] == "setting"]
    model = points.loc[(points["kind"] == "reference") & (points["method"] == "original")].iloc[0]
    x, y = (means[goal.metric].to_numpy() for goal in (what.removal, what.retention))
    beaten = [any((x <= a) & (y >= b) & ((x < a) | (y > b))) for a, b in zip(x, y, strict=True)]
    useless = (x >= model[what.removal.metric]) & (y <= model[what.retention.metric])
    assert means["front"].tolist() == [not (one or other) for one, other in zip(beaten, useless, strict=True)]
    if len(what.removals) > 1:
        assert points["removal"].tolist() == pytest.approx(points[[goal.metric for goal in what.removals]].mean(axis=1))

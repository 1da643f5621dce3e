"""The trade-off that answers: what the page holds of trials, and, in a Chromium, what its controls do."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.page import interactive
from tests.support import browser, sweep_store
from tests.support.sweep_store import GRU, NONE, Results, write_sweep, write_trial

store, results = sweep_store.tiny_store, sweep_store.tiny_results
load_library = interactive.bundle_script  # as it is: the fixtures of this folder leave it out
EVIL = '</script><img src=x onerror="boom()"><!--<script>'


def read_data(block: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="answers-data">(.*?)</script>', block, flags=re.DOTALL)
    return json.loads(found)


def test_every_trial_with_both_goals_is_there_once_with_its_numbers(results: Results) -> None:
    data = read_data(interactive.write_block(results, "my runs"))
    found = {row["id"]: row for row in data["trials"]}
    expected = results.runs.dropna(subset=["forget_quality", "model_utility"])
    expected = expected.loc[expected["status"] == "finished"]
    assert len(data["trials"]) == len(found) == len(expected) == 33
    for row in expected.to_dict("records"):
        shown = found[row["id"]]
        names = ("forget_quality", "model_utility", "method")
        assert [shown[name] for name in names] == [row[name] for name in names]
        assert (shown["split"], shown["rectifier"]) == (row["benchmark.split"], row["rectifier.name"])
        assert len(shown["heights"]) == len(data["axes"])
    assert {key for key, row in found.items() if row["chosen"]} == set(results.chosen_trials["id"])
    assert [title for _, title in data["columns"]] == ["Method", "gamma", "tau", "FQ", "MU", "Seed", "Trial"]
    assert data["where"] == "--storage 'my runs' "
    floor = {row["split"]: row["model_utility"] for row in data["models"] if row["role"] == "floor"}
    assert floor == {"forget05": pytest.approx(0.81), "forget10": pytest.approx(0.81)}


def test_only_models_that_are_drawn_are_named(results: Results) -> None:
    models = results.models.copy()
    models.loc[models["role"] == "retain", "model_utility"] = None
    for shown, named in ((results, True), (replace(results, models=models), False)):
        assert ("(Retrain)" in interactive.write_block(shown)) == named


def test_texts_of_results_do_not_break_out(tmp_path: Path) -> None:
    given = {"split": EVIL, "fq": -3.0, "mu": 0.5}
    keys = [write_trial(tmp_path, f"{seed}" * 12, EVIL, GRU | {"name": EVIL}, seed=seed, **given) for seed in (0, 1)]
    write_sweep(tmp_path, keys, splits=())
    block = interactive.write_block(sweep_store.read(tmp_path), f"runs/{EVIL}")
    assert "<img" not in block
    assert len(re.findall("<script", block)) == len(re.findall("</script", block)) == 2
    data = read_data(block)
    assert [data["trials"][0][name] for name in ("method", "rectifier", "split")] == [EVIL] * 3
    assert (data["axes"], 'id="lines"' in block, "<select>" in block) == ([], False, False), "nothing differs"


def test_two_thousand_trials_add_less_than_a_megabyte(results: Results) -> None:
    rows = read_data(interactive.write_block(results))["trials"]
    assert 2000 * len(json.dumps(rows, separators=(",", ":"))) / len(rows) < 1_000_000


@pytest.mark.parametrize(
    ("values", "heights", "ticks"),
    [
        (["0.8", "0.05", "—", "0.1"], [1, 0, -0.13, 0.5], ["0.05", "0.1", "0.8", "—"]),  # few: at equal distances
        (
            [10.0**n for n in range(-8, 1)],
            [n / 8 for n in range(9)],
            ["1e-08", "0.0001", "1"],
        ),  # many: by the logarithm
        ([-4.0, -3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0], [n / 8 for n in range(9)], ["-4", "-2", "0"]),
        (["GA", "NPO", "GA"], [1, 0, 1], ["GA", "NPO"]),
        ([None, 2.0], [-0.13, 0], ["2", "—"]),
    ],
)
def test_values_stand_in_order_on_their_axis(values: list[Any], heights: list[float], ticks: list[str]) -> None:
    axis = interactive.place_on_axis("training.lr", values)
    assert axis["title"] == "lr"
    assert axis["heights"] == pytest.approx(heights)
    assert [label for label, _ in axis["ticks"]] == ticks


def test_nothing_is_drawn_without_two_trials_that_have_both_goals(tmp_path: Path) -> None:
    keys = [
        write_trial(tmp_path, "0" * 12, "ga", NONE, mu=0.5),
        write_trial(tmp_path, "1" * 12, seed=1, fq=-3.0, mu=0.5),
    ]
    write_sweep(tmp_path, keys, splits=())
    assert interactive.write_block(sweep_store.read(tmp_path)) == ""


def test_the_libraries_are_bundled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is for one script; it may be missing or unreadable."""
    (tmp_path / "interactive.js").write_text("window.told = [vegaEmbed, 1];")
    monkeypatch.setattr(interactive, "TEMPLATES", tmp_path)
    bundled = load_library.__wrapped__
    first = bundled().result()
    assert "window.told" in first
    (kept,) = (tmp_path / "__pycache__").iterdir()
    assert kept.read_text() == first
    kept.write_text("kept")
    assert bundled().result() == "kept"
    kept.write_text("")  # the machine stopped before it was on the disk
    assert bundled().result() == first
    (tmp_path / "interactive.js").write_text("window.told = [vegaEmbed, 2];")
    shutil.rmtree(tmp_path / "__pycache__")
    (tmp_path / "__pycache__").touch()
    second = bundled().result()
    assert "window.told" in second
    assert second != first


@pytest.fixture(scope="module")
def page(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Open the block of the invented sweep in a Chromium; the page says nothing and asks for nothing but itself."""
    driver = pytest.importorskip("playwright.sync_api", reason="no playwright: make setup")
    if not browser.CHROMIUM:
        pytest.skip("no chromium: apt-get install chromium fonts-dejavu-core")
    folder, said = tmp_path_factory.mktemp("page"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interactive, "bundle_script", load_library)
        block = interactive.write_block(sweep_store.read(store))
    path = folder / "index.html"
    head = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Report</title><main><h1>Report</h1><h2>Trade-off</h2>"
    )
    path.write_text(f"{head}<figure>still</figure>{block}</main></html>", encoding="utf-8")
    assert path.stat().st_size < 1_500_000
    with driver.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=browser.CHROMIUM, args=["--no-sandbox"])
        shown = opened.new_page(viewport={"width": 1300, "height": 1000})
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.on("request", lambda asked: said.append(asked.url) if asked.url != path.as_uri() else None)
        shown.goto(path.as_uri())
        shown.wait_for_function("document.querySelectorAll('#answers tbody tr').length > 0", timeout=120_000)
        yield shown
        opened.close()
    assert said == []


def read_count(page: Any, expected: str) -> None:
    page.wait_for_function("words => document.querySelector('#count').textContent.startsWith(words)", arg=expected)


@pytest.mark.slow
def test_legend_filters_and_a_region_lists_its_trials(page: Any) -> None:
    """By the mouse: the boxes are the legend; of forget05 17 of 18 trials have both goals."""
    assert not page.is_visible("figure")
    read_count(page, "17 of 33 trials shown")
    page.click("label:has-text('GA')")
    read_count(page, "12 of 33")
    page.click("label:has-text('GA')")
    page.click("text=forget10 (10%)")
    read_count(page, "16 of 33")
    page.click("text=forget05 (5%)")
    read_count(page, "17 of 33")
    assert not page.is_visible("tbody")
    box = page.locator("#cloud canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.7 * box["height"])
    page.mouse.up()
    page.wait_for_function("document.querySelector('#count').textContent.includes('in the region')")
    rows = page.locator("#answers tbody tr").all_inner_texts()
    low = [float(page.input_value(f"[data-bound='{bound}0']")) for bound in (0, 1)]
    data = read_data(page.content())["trials"]
    within = {
        one["id"]
        for one in data
        if one["forget_quality"] >= low[0] and one["model_utility"] >= low[1]
        if one["split"] == "forget05"
    }
    assert 0 < len(within) < 17
    assert {row.split("\t")[-2].strip() for row in rows} == within
    trial = sorted(within)[0]
    assert f"python -m trainables.export {trial} --output exported/{trial}" in page.inner_text(f"[data-id='{trial}']")
    page.click("text=All trials")
    read_count(page, "17 of 33 trials shown")


@pytest.mark.slow
def test_keyboard_reaches_filters_bounds_and_commands(page: Any) -> None:
    page.focus("[name=method]")
    page.keyboard.press("Space")
    read_count(page, "12 of 33")
    page.keyboard.press("Space")
    read_count(page, "17 of 33")
    page.focus("[name=split]")
    page.keyboard.press("ArrowRight")
    read_count(page, "16 of 33")
    page.keyboard.press("ArrowLeft")
    page.evaluate("document.querySelector('details').open = false")
    page.focus("summary")
    page.keyboard.press("Enter")
    page.focus("[data-bound='10']")
    page.keyboard.type("0.7")
    page.keyboard.press("Tab")
    read_count(page, "8 of 33 trials in the region")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # All trials
    read_count(page, "17 of 33 trials shown")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Copy"
    assert page.locator("tr.here").count() == 1
    page.select_option("#answers select", "forget_quality")


@pytest.mark.slow
def test_print_has_the_still_figure(page: Any) -> None:
    page.emulate_media(media="print")
    assert (page.is_visible("figure"), page.is_visible("#answers")) == (True, False)
    page.emulate_media(media="screen")


def test_a_stopped_trial_without_weights_has_no_export_command(tmp_path: Path) -> None:
    given: dict[str, Any] = {"status": "stopped", "fq": -3.0, "mu": 0.5}
    keys = [write_trial(tmp_path, str(seed) * 12, seed=seed, **given) for seed in (0, 1)]
    keys.append(write_trial(tmp_path, "2" * 12, seed=2, fq=-3.0, mu=0.5))
    write_sweep(tmp_path, keys, splits=())
    (tmp_path / "trials" / keys[1] / "weights").mkdir()
    rows = read_data(interactive.write_block(sweep_store.read(tmp_path)))["trials"]
    assert {row["id"][0]: row["export"] for row in rows} == {"0": False, "1": True, "2": True}

"""What the pages say is so: links, the example report's numbers, the hours of every sweep, the errata."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import paper
from analysis.tables.table_definitions import LAYOUTS
from tests.platform.plan.test_dry_runs import FACTS
from tests.support import pages
from tests.support.starts import in_process


def test_every_page_is_followed_or_a_record(root: Path) -> None:
    found = {path.relative_to(root).as_posix() for path in root.glob("docs/*.md")}
    assert found | {"README.md", "CONTRIBUTING.md", "docs/smollm2/README.md"} == {*pages.PAGES, *pages.RECORDS}


@pytest.mark.parametrize("page", pages.PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert [str(path) for path in pages.links(page) if not path.exists()] == []


@pytest.mark.parametrize("row", pages.rows(pages.read("CONTRIBUTING.md"), "question"), ids=lambda row: row[1])
def test_where_to_look_names_what_is_there(row: list[str], root: Path) -> None:
    """Every symbol of a row is defined on the top level of the row's first file."""
    _, symbols, place = row
    tree = ast.parse((root / place.split("`")[1]).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [part for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) for part in ast.walk(node)]
    defined |= {part.id for part in targets if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    assert set(re.findall("`([^`]+)`", symbols)) <= defined


def test_the_readme_is_short(root: Path) -> None:
    assert 100 <= len(pages.read("README.md").splitlines()) <= 150


def test_the_readmes_numbers_are_the_example_reports() -> None:
    """Rows in order, cell by cell; and the verdict."""
    copied = pages.rows(pages.read("README.md"), "Method | forget05 FQ")
    report = pages.rows("\n" + pages.read("docs/example_report/tables/main.md"), "Method")
    places = [report.index(row) for row in copied]
    assert len(copied) == 8
    assert all(report[at - 1] in copied for row, at in zip(copied, places, strict=True) if row[0] == "w/ GRU")
    (quoted,) = re.findall(r'"(Of [^"]*)"', pages.read("README.md"))
    assert quoted in pages.read("docs/example_report/tables/verdict.md")


def test_the_first_claim_is_the_arenas(root: Path) -> None:
    """MU and ES of the bisector and of GRU on NPO, with their intervals, from the table of all differences."""
    tables = root / "docs/arena/tables"
    rows = pd.read_csv(tables / "rectifiers.csv").set_index(["basis", "method", "rectifier", "metric"])
    claim = pages.read("README.md").split("**Which rectifier helps?**")[1].split("\n\n")[0]
    for name in ("bisector", "gru"):
        for metric, short in (("model_utility", "MU"), ("forget_extraction_strength", "ES")):
            row: Any = rows.loc[("own best", "npo", name, metric)]
            assert row["n"] == 10
            assert row["adjusted"] < 0.05
            change, low, high = (re.escape(f"{row[key]:+.3f}") for key in ("difference", "low", "high"))
            assert re.search(rf"{short} {change} ?,? ?\(?(95% interval )?{low} to {high}\)", claim), (name, short)
    assert f"all {len(pd.read_csv(tables / 'trials.csv'))} trials" in claim


def test_trials_and_sizes_of_every_sweep_are_those_of_its_dry_run() -> None:
    """FACTS is compared with dry runs elsewhere; hours and memory are compared with them below."""
    written = {row[0].strip("`"): row[2:8] for row in pages.rows(pages.read("docs/reproduction.md"), "sweep | fills")}
    assert written.keys() == FACTS.keys()
    for name, (trials, gpus, _, hours, disk, grid) in written.items():
        facts = FACTS[name]
        assert (int(trials), float(disk)) == (facts.trials, facts.disk), name
        assert gpus == (str(facts.ranks) if hours else "0"), name
        assert not grid or int(grid) == facts.grid, name


@pytest.mark.parametrize("row", pages.rows(pages.read("docs/one-server.md"), "sweep | GPU memory"), ids=" ".join)
def test_what_fits_on_a_server_is_what_a_dry_run_says(row: list[str], tmp_path: Path) -> None:
    name, memory, settings, *expected = row
    typed = ["--set", f"resources.gpu_memory={memory}"]
    typed += [word for one in re.findall("`([^`]*)`", settings) for word in ("--set", one)]
    done = in_process(
        name.strip("`"), "--strategy", "paper", "--dry-run", "--json", "--storage", tmp_path / "runs", *typed
    )
    worst = max(json.loads(done.stdout)["memory"], key=lambda need: need["total_bytes"])
    assert [f"{worst['total_bytes'] / 1e9:.1f}", str(worst["zero_stage"]), str(worst["micro_batch"])] == expected


@pytest.mark.slow
def test_hours_of_the_grids(tmp_path: Path) -> None:
    written = {row[0].strip("`"): row[7:9] for row in pages.rows(pages.read("docs/reproduction.md"), "sweep | fills")}
    for name in (name for name, (_, hours) in written.items() if hours):
        done = in_process(name, "--dry-run", "--json", "--storage", tmp_path / "runs")
        plan = json.loads(done.stdout)
        assert written[name] == [str(len(plan["trials"])), f"{plan['gpu_hours']:.2f}"], name


@pytest.mark.parametrize("name", ["tofu_llama", "tofu_phi", "wmdp_rmu"])
def test_memory_and_hours_of_a_table_are_those_of_its_dry_run(name: str, tmp_path: Path) -> None:
    written = {row[0].strip("`"): row[4:6] for row in pages.rows(pages.read("docs/reproduction.md"), "sweep | fills")}
    done = in_process(name, "--strategy", "paper", "--dry-run", "--json", "--storage", tmp_path / "runs")
    plan = json.loads(done.stdout)
    most = max(need["total_bytes"] for need in plan["memory"])
    assert written[name] == [f"{most / 1e9:.2f}", f"{plan['gpu_hours']:.2f}"]


def test_every_table_has_the_command_of_the_sweeps_that_fill_it() -> None:
    listed = pages.rows(pages.read("docs/reproduction.md"), "in the paper")
    tables = {name: (file.strip("`"), set(command.strip("`").split()[3:])) for name, command, file in listed}
    for layout in LAYOUTS.values():
        number = layout.caption.partition(".")[0]
        assert tables.pop(number) == (layout.table, set(layout.sweeps.values()))
    assert list(tables) == [f"Figure {number}" for number in (1, 4, 5, 6, 7)]


def test_errata_are_listed() -> None:
    written = pages.rows(pages.read("docs/reproduction.md"), "table | cell")
    assert written == [
        [
            f"`{one.table}`",
            ", ".join(f"{name} {value}" for name, value in one.where.items()),
            one.printed,
            one.corrected or "not known",
        ]
        for one in paper.ERRATA
    ]

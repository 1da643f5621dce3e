"""What the pages say is so: links, the example report's numbers, the hours of every sweep, the errata."""

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from analysis import paper
from analysis.tables.table_definitions import LAYOUTS
from docs import pictures, supported
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


def test_the_readme_is_short_and_begins_with_the_commands() -> None:
    """Lines outside code and tables have at most 120 characters."""
    text = pages.read("README.md")
    lines = text.splitlines()
    assert 120 <= len(lines) <= 180
    assert {"make quickstart", "python -m platform.sweep own"} <= {line.partition(" --")[0] for line in lines[:30]}
    prose = [line for line in pages.FENCE.sub("", text).splitlines() if not line.startswith("|")]
    assert [line for line in prose if len(line) > 120] == []


def test_the_table_of_what_is_supported_is_the_codes() -> None:
    assert supported.make_table() in pages.read("README.md")


def test_the_readmes_rectifier_works() -> None:
    """||g_u||^2 = 4, ||g_r||^2 = 9: the forget gradient becomes half as long again, as long as the other."""
    ((path, code),) = pages.files(pages.read("README.md")).items()
    assert path.startswith("trainables/methods/custom/")
    assert len([line for line in code.splitlines() if line]) <= 10
    names: dict[str, Any] = {}
    exec(compile(code, path, "exec"), names)
    square, retain_square, dot = torch.tensor([[4.0], [9.0], [-1.0]], dtype=torch.float64)
    forget, retain = names["Rectifier"]().weights(square, retain_square, dot)
    assert (forget.item(), retain.item()) == (1.5, 1.0)
    found = names["Rectifier"]().decide(-1.0, 9.0, 4.0)
    assert (found.forget, found.retain) == (1.5, 1.0)


def test_the_arenas_claim_is_its_tables(root: Path) -> None:
    """MU and ES of the bisector and of GRU on NPO, with their intervals, from the table of all differences."""
    tables = root / "docs/arena/tables"
    rows = pd.read_csv(tables / "rectifiers.csv").set_index(["basis", "method", "rectifier", "metric"])
    (claim,) = (line for line in pages.read("README.md").splitlines() if "(docs/arena/README.md)" in line)
    for name in ("bisector", "gru"):
        for metric, short in (("model_utility", "MU"), ("forget_extraction_strength", "ES")):
            row: Any = rows.loc[("own best", "npo", name, metric)]
            assert row["n"] == 10
            assert row["adjusted"] < 0.05
            change, low, high = (f"{row[key]:+.3f}" for key in ("difference", "low", "high"))
            assert f"{short} {change} ({low} to {high})" in claim, (name, short)


def test_figures_of_the_pages_are_drawn_as_the_code_draws(root: Path, tmp_path: Path) -> None:
    """Equal points and equal code give the same pixels, but for the fonts of another release of matplotlib."""
    for name in ("example_report", "arena", "smollm2"):
        shutil.copytree(root / "docs" / name, tmp_path / name)
    pictures.draw_figures(tmp_path)
    for file in (*tmp_path.rglob("tradeoff.png"), *tmp_path.rglob("rectifiers-forget05.png")):
        now, kept = (plt.imread(path) for path in (file, root / "docs" / file.relative_to(tmp_path)))
        assert now.shape == kept.shape
        coloured = np.maximum(*(np.ptp(image[..., :3], axis=-1) for image in (now, kept))) > 0.1  # marks, not letters
        assert coloured.mean() > 0.002
        assert float(np.abs(now - kept)[coloured].mean()) < 0.02, file.name


def test_the_table_of_the_runs_on_a_gpu_is_that_of_their_file(root: Path) -> None:
    made = pd.read_csv(root / "docs/smollm2/trials.csv")
    columns = [f"forget_{name}" for name in ("prob", "extraction_strength")]
    kept = made[["forget_quality", "model_utility", *columns, "retain_prob"]].fillna(0).to_numpy()
    written = [row[3:8] for row in pages.rows(pages.read("docs/smollm2/README.md"), "| rectifier")]
    rows = np.array(sorted(written, key=lambda row: [float(cell) for cell in row]), dtype=float)
    assert np.abs(rows - np.array(sorted(kept.tolist()))).max() < 0.006


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


@pytest.mark.parametrize("name", ["tofu_llama", "tofu_phi", "wmdp_rmu"])
def test_memory_and_hours_of_a_table_are_those_of_its_dry_runs(name: str, tmp_path: Path) -> None:
    written = {row[0].strip("`"): row[4:] for row in pages.rows(pages.read("docs/reproduction.md"), "sweep | fills")}
    typed = (name, "--dry-run", "--json", "--storage", tmp_path / "runs")
    plan, grid = (json.loads(in_process(*typed, "--strategy", how).stdout) for how in ("paper", "grid"))
    most = max(need["total_bytes"] for need in plan["memory"])
    assert written[name][:2] == [f"{most / 1e9:.2f}", f"{plan['gpu_hours']:.2f}"]
    assert written[name][3:5] == [str(len(grid["trials"])), f"{grid['gpu_hours']:.2f}"]


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
        for one in paper.PAPER_ERRATA
    ]

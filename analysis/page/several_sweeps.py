"""A report of several sweeps: what each says, and what they fill of the paper's tables and figures together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from analysis import paper
from analysis.labels import join_names
from analysis.load.opening import find_sweep
from analysis.page import html
from analysis.page.detail_sections import Section, TableItem
from analysis.page.interactive import write_block
from analysis.page.paper_layout_sections import write_parts
from analysis.prose import verdict
from analysis.prose.caveats import list_decisive
from analysis.stats import tidy
from analysis.stats.sweep_results import Results
from analysis.tables import markdown_latex, paper_tables
from analysis.tables.paper_tables import FillingSweep, Sheet, make_sheet
from analysis.tables.table_definitions import main_layout
from trainables.storage.folder_storage import Storage
from trainables.storage.sweep_file import SweepFile


def find_sweeps(names: Sequence[str], store: Storage) -> dict[str, SweepFile]:
    """Return the sweeps called so by their names, by NAME-HASH where two have one name.

    Raise InputError if there is no such sweep.
    """
    found = {sweep.label: sweep for sweep in (find_sweep(name, store) for name in names)}
    named = [sweep.name for sweep in found.values()]
    return {sweep.name if named.count(sweep.name) == 1 else sweep.label: sweep for sweep in found.values()}


def write(
    sweeps: dict[str, SweepFile], results: dict[str, Results], folder: Path, both: bool, command: str, storage: str
) -> None:
    """Write tables/, figures/ and index.html of these sweeps; `both`: with the paper's numbers beside the runs'."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    filling = {label: _head_columns(label, sweep, results[label]) for label, sweep in sweeps.items()}
    said = {label: _say(one.results) for label, one in filling.items()}
    benchmarks = dict.fromkeys(one.results.goals.benchmark for one in filling.values())
    parts, texts = [], [f"{label}: {text}" for label, text in said.items()]
    for benchmark in benchmarks:
        here = {label: one for label, one in filling.items() if one.results.goals.benchmark == benchmark}
        sheets, pictures = write_parts(here, folder, both, f"{benchmark}-" * (len(benchmarks) > 1))
        sheets = sheets or [_write_main(here, folder)]
        tables = tuple(TableItem(sheet.table, title=sheet.title) for sheet in sheets)
        parts += [Section(benchmark.upper(), figures=pictures[:1]), Section("", tables, pictures[1:])]
        texts += [f"## {sheet.title}\n\n{markdown_latex.to_markdown(sheet.table)}" for sheet in sheets]
    (folder / "tables/several.md").write_text("\n\n".join(texts), encoding="utf-8")
    page = html.render_page(
        "several.html.j2",
        folder,
        title=join_names(sweeps),
        citation=paper.CITATION,
        said=said,
        parts=parts,
        interactive=_write_trials(results, storage) if len(benchmarks) == 1 else "",
        commands=[typed for sweep in sweeps.values() for typed in sweep.commands],
        command=command,
    )
    (folder / "index.html").write_text(page, encoding="utf-8")


def _head_columns(label: str, sweep: SweepFile, results: Results) -> FillingSweep:
    """Return a sweep's results; columns are called by the backbone in a sweep of the paper's, else by the label."""
    backbones = paper_tables.tables_of_sweep(label).values()
    if sweep.backbone not in backbones:
        results = results.with_runs(results.runs.assign(backbone=label))
    return FillingSweep(results, tidy.from_runs(results))


def _write_trials(results: dict[str, Results], storage: str) -> Markup:
    """Return `write_block` of several sweeps on one benchmark, whose splits are called `SWEEP: SPLIT`."""

    def join(frames: Iterable[pd.DataFrame], split: str) -> pd.DataFrame:
        named = zip(results, frames, strict=True)
        parts = [frame.assign(**{split: f"{name}: " + frame[split].astype("str")}) for name, frame in named]
        return pd.concat(parts, ignore_index=True)

    runs = join((one.runs for one in results.values()), "benchmark.split")
    models = join((one.models for one in results.values()), "split")
    chosen = join((one.chosen_trials for one in results.values()), "benchmark.split")
    return write_block(replace(next(iter(results.values())), runs=runs, models=models), storage, chosen)


def _say(results: Results) -> str:
    """Return a sweep's verdict, after what is to be read before it, and how many of its trials are done."""
    sentences = [*list_decisive(results), *verdict.write_verdict(results), f"{verdict.count_trials(results.runs)}."]
    return " ".join(sentences)


def _write_main(sweeps: dict[str, FillingSweep], folder: Path) -> Sheet:
    """Write the main table of sweeps side by side: of a benchmark that the paper has no table of."""
    layout = main_layout(next(iter(sweeps.values())).results)
    frame = tidy.join({label: one.frame for label, one in sweeps.items()})
    sheet = make_sheet(replace(layout, report=False), frame)
    sheet.save(folder / "tables")
    return sheet

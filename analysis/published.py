"""Reports with the paper's numbers: its tables alone, without a run, or a sweep's tables in its layouts."""

from __future__ import annotations

import difflib
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from analysis import layouts, pages, printing
from analysis.layouts import Sheet
from analysis.sweeps import SWEEP_FILE, InputError, Sweep

BENCHMARKS = {
    **dict.fromkeys(("quickstart", "tofu_tiny", "tofu_llama", "tofu_phi", "tofu_llama_tru", "tofu_phi_tru"), "tofu"),
    **dict.fromkeys(("tofu_tau", "tofu_gamma", "tofu_ablation", "tofu_phi_uwc"), "tofu"),
    **dict.fromkeys(("wmdp_zephyr", "wmdp_rmu"), "wmdp"),
    **dict.fromkeys(("muse_books", "muse_news"), "muse"),
}
"""The benchmark of every named sweep that the paper has tables of (`search_spaces` is not for analysis to import)."""
ON_THE_PAGE = ("tofu_main", "tofu_retain_free", "wmdp", "muse")
"""Tables whose numbers a report of runs has in its other sections already; UWC's are too."""


def write(folder: Path, runs: pd.DataFrame, models: pd.DataFrame, sweep: Sweep, beside: bool = False) -> list[Sheet]:
    """Write into `tables/` the tables that the sweep fills, in the paper's layouts; return those for the page.

    `beside`: with the paper's numbers, all of them; without, those that no other part of the report has.
    """
    sheets = layouts.of(runs, models, sweep.selection, sweep.command, beside)
    for sheet in sheets:
        save(sheet, folder / "tables")
    return [sheet for sheet in sheets if beside or not (sheet.name in ON_THE_PAGE or sheet.layout.targets)]


def save(sheet: Sheet, folder: Path) -> None:
    """Write a table as Markdown and LaTeX as printed, and its numbers unrounded as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = sheet.numbers.drop(columns=["table", "chosen"]).dropna(axis="columns", how="all")
    texts = {
        "md": printing.to_markdown(sheet.table),
        "tex": printing.to_latex(sheet.table),
        "csv": numbers.to_csv(index=False, lineterminator="\n"),
    }
    for kind, text in texts.items():
        (folder / f"{sheet.name}.{kind}").write_text(text, encoding="utf-8")


def benchmark(name: str) -> str:
    """Return the benchmark of the sweep called NAME or NAME-HASH. InputError where the paper has no tables of it."""
    match = SWEEP_FILE.fullmatch(name)
    plain = match["name"] if match else name
    if plain in BENCHMARKS:
        return BENCHMARKS[plain]
    close = difflib.get_close_matches(plain, BENCHMARKS, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    known = ", ".join(sorted(BENCHMARKS))
    raise InputError(f"NAME {name}: the paper has no tables for such a sweep; {hint}it has them for: {known}")


def build(name: str, storage: str | Path = "runs", output: str | Path | None = None) -> Path:
    """Write the paper's tables of a sweep's benchmark and a page of them, and return their folder.

    Nothing is read from the storage, which need not exist. InputError on an unknown name, a storage that is no folder
    without an `output`, or a folder that cannot be written.
    """
    found = benchmark(name)
    if output is None and "://" in str(storage):
        raise InputError(f"--storage {storage}: the paper's tables go into a folder; say which with --output DIR")
    folder = Path(output) if output else Path(storage) / "reports" / f"{found}-paper"
    sheets = layouts.published(found)
    try:
        for sheet in sheets:
            save(sheet, folder / "tables")
        (folder / "index.html").write_text(_page(found, sheets), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--output {folder}: cannot be written ({error.strerror}); give another folder") from error
    return folder


def _page(found: str, sheets: list[Sheet]) -> str:
    tables = [{"title": sheet.title, "table": Markup(printing.to_html(sheet.table))} for sheet in sheets]
    return pages.render("paper.html.j2", benchmark=found.upper(), tables=tables)

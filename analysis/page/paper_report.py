"""A report of the paper's own numbers, without a run: the tables that a sweep fills, and figures of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from analysis.figures import catalog, style
from analysis.load.sweeps import SWEEP_FILE, InputError
from analysis.page import html
from analysis.tables import choose
from analysis.tables import format as tables_format
from analysis.tables.choose import Sheet

BENCHMARKS = {
    **dict.fromkeys(("quickstart", "tofu_tiny", "tofu_llama", "tofu_phi", "tofu_llama_tru", "tofu_phi_tru"), "tofu"),
    **dict.fromkeys(("tofu_tau", "tofu_gamma", "tofu_ablation", "tofu_phi_uwc"), "tofu"),
    **dict.fromkeys(("wmdp_zephyr", "wmdp_rmu"), "wmdp"),
    **dict.fromkeys(("muse_books", "muse_news"), "muse"),
}
"""The benchmark of every named sweep that the paper has tables of (`search_spaces` is not for analysis to import)."""


def save(sheet: Sheet, folder: Path) -> None:
    """Write a table as Markdown and LaTeX as printed, and its numbers unrounded as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = sheet.numbers.drop(columns=["table", "chosen"]).dropna(axis="columns", how="all")
    texts = {
        "md": tables_format.to_markdown(sheet.table),
        "tex": tables_format.to_latex(sheet.table),
        "csv": numbers.to_csv(index=False, lineterminator="\n"),
    }
    for kind, text in texts.items():
        (folder / f"{sheet.name}.{kind}").write_text(text, encoding="utf-8")


def known(name: str) -> str:
    """Return NAME of the sweep called NAME or NAME-HASH. InputError where the paper has no tables of its benchmark."""
    match = SWEEP_FILE.fullmatch(name)
    plain = match["name"] if match else name
    if plain in BENCHMARKS:
        return plain
    close = difflib.get_close_matches(plain, BENCHMARKS, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    names = ", ".join(sorted(BENCHMARKS))
    raise InputError(f"NAME {name}: the paper has no tables for such a sweep; {hint}it has them for: {names}")


def tables(name: str) -> tuple[dict[str, str], str]:
    """Return the paper's tables for a known sweep, each with its backbone, and what they are.

    Those that the sweep fills; where the paper has none of its model or data, all of its benchmark and all backbones.
    """
    filled = choose.filled_by(name)
    if filled:
        return filled, f"What the paper prints of what {name} runs."
    benchmark = BENCHMARKS[name]
    every = {table: "" for table in choose.LAYOUTS if table.partition("_")[0] == benchmark}
    other = f"The paper has no table of what {name} runs: these are all that it has on {benchmark.upper()}"
    return every, f"{other}, of other models or data."


def build(name: str, storage: str | Path = "runs", output: str | Path | None = None) -> Path:
    """Write the paper's tables for a sweep, figures and a page of them, and return their folder.

    Nothing is read from the storage, which need not exist. InputError on an unknown name, a storage that is no folder
    without an `output`, or a folder that cannot be written.
    """
    sweep = known(name)
    if output is None and "://" in str(storage):
        raise InputError(f"--storage {storage}: the paper's tables go into a folder; say which with --output DIR")
    folder = Path(output) if output else Path(storage) / "reports" / f"{sweep}-paper"
    found, what = tables(sweep)
    try:
        _write(folder, sweep, found, what)
    except OSError as error:
        raise InputError(f"--output {folder}: cannot be written ({error.strerror}); give another folder") from error
    return folder


def _write(folder: Path, sweep: str, found: Mapping[str, str], what: str) -> None:
    sheets, drawn = choose.published(found), catalog.of_paper(found)
    for sheet in sheets:
        save(sheet, folder / "tables")
    for one in drawn:
        style.save(one.figure, folder / "figures", one.stem, one.points)
    parts = [what, *(f"## {sheet.title}\n\n{tables_format.to_markdown(sheet.table)}" for sheet in sheets)]
    (folder / "tables/paper.md").write_text("\n\n".join(parts), encoding="utf-8")
    shown = [{"title": sheet.title, "table": Markup(tables_format.to_html(sheet.table))} for sheet in sheets]
    values = {"benchmark": BENCHMARKS[sweep], "what": what, "tables": shown}
    page = html.render("paper.html.j2", sweep=sweep, figures=html.figures(drawn, folder / "figures"), **values)
    (folder / "index.html").write_text(page, encoding="utf-8")

"""A report of the paper's own numbers, without a run: the tables that a sweep fills, and figures of them."""

from __future__ import annotations

from pathlib import Path

from analysis.figures import catalog
from analysis.figures.style import save_figure
from analysis.page import html
from analysis.tables import paper_tables
from analysis.tables.markdown_latex import to_markdown
from trainables.common.errors import InputError, closest
from trainables.storage.sweep_file import NAME_AND_HASH

BENCHMARKS = {
    **dict.fromkeys(("quickstart", "tofu_tiny", "tofu_llama", "tofu_phi", "tofu_llama_tru", "tofu_phi_tru"), "tofu"),
    **dict.fromkeys(("tofu_tau", "tofu_gamma", "tofu_ablation", "tofu_dynamics", "tofu_phi_uwc"), "tofu"),
    **dict.fromkeys(("wmdp_zephyr", "wmdp_rmu"), "wmdp"),
    **dict.fromkeys(("muse_books", "muse_news"), "muse"),
}
"""The benchmark of every named sweep that the paper has tables of (`search_spaces` is not for analysis to import)."""


def build(name: str, storage: str | Path = "runs", output: str | Path | None = None) -> Path:
    """Write the paper's tables for a sweep, figures and a page of them, and return their folder.

    Nothing is read from the storage, which need not exist. Raise InputError on an unknown name, a storage that is no
    folder without an `output`, or a folder that cannot be written.
    """
    match = NAME_AND_HASH.fullmatch(name)
    sweep = match["name"] if match else name
    if sweep not in BENCHMARKS:
        raise InputError(f"NAME {name}: the paper has no tables for such a sweep; {closest(sweep, BENCHMARKS)}")
    if output is None and "://" in str(storage):
        raise InputError(f"--storage {storage}: the paper's tables go into a folder; say which with --output DIR")
    folder = Path(output) if output else Path(storage) / "reports" / f"{sweep}-paper"
    try:
        _write(folder, sweep)
    except OSError as error:
        raise InputError(f"--output {folder}: cannot be written ({error.strerror}); give another folder") from error
    return folder


def _find_tables(name: str) -> tuple[dict[str, str], str]:
    """Return the paper's tables for a known sweep, each with its backbone, and what they are.

    Those that the sweep fills; where the paper has none of its model or data, all of its benchmark and all backbones.
    """
    filled = paper_tables.tables_of_sweep(name)
    if filled:
        return filled, f"What the paper prints of what {name} runs."
    benchmark = BENCHMARKS[name]
    every = {table: "" for table in paper_tables.LAYOUTS if table.partition("_")[0] == benchmark}
    other = f"The paper has no table of what {name} runs: these are all that it has on {benchmark.upper()}"
    return every, f"{other}, of other models or data."


def _write(folder: Path, sweep: str) -> None:
    tables, what = _find_tables(sweep)
    published, pictures = paper_tables.published_sheets(tables), catalog.draw_paper(tables)
    for sheet in published:
        sheet.save(folder / "tables")
    for picture in pictures:
        save_figure(picture.figure, folder / "figures", picture.stem, picture.points)
    parts = [what, *(f"## {sheet.title}\n\n{to_markdown(sheet.table)}" for sheet in published)]
    (folder / "tables/paper.md").write_text("\n\n".join(parts), encoding="utf-8")
    page = html.render_page(
        "paper.html.j2",
        folder,
        sweep=sweep,
        benchmark=BENCHMARKS[sweep],
        what=what,
        sheets=published,
        figures=pictures,
    )
    (folder / "index.html").write_text(page, encoding="utf-8")

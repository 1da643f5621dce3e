"""A report of the paper's own numbers, without a run: the tables that a sweep fills, and figures of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis import paper
from analysis.figures import catalog
from analysis.figures.style import save_figure
from analysis.labels import join_names
from analysis.page import html
from analysis.tables import paper_tables
from analysis.tables.markdown_latex import to_markdown
from trainables.common.errors import InputError, closest
from trainables.storage.sweep_file import NAME_AND_HASH

BENCHMARKS = {
    **dict.fromkeys(("quickstart", "tofu_tiny", "tofu_llama", "tofu_phi", "tofu_llama_tru", "tofu_phi_tru"), "tofu"),
    **dict.fromkeys(("tofu_tau", "tofu_gamma", "tofu_ablation", "tofu_dynamics", "tofu_phi_uwc"), "tofu"),
    **dict.fromkeys(("arena", "arena_quick"), "tofu"),
    **dict.fromkeys(("tofu_llama32_1b", "tofu_llama32_3b", "tofu_llama31_8b"), "tofu"),
    **dict.fromkeys(("wmdp_zephyr", "wmdp_rmu"), "wmdp"),
    **dict.fromkeys(("muse_books", "muse_news"), "muse"),
}
"""The benchmark of every named sweep that the paper has tables of (`search_spaces` is not for analysis to import)."""


def build(names: Sequence[str], storage: str | Path = "runs", output: str | Path | None = None) -> Path:
    """Write the paper's tables for sweeps, figures and a page of them, and return their folder.

    Nothing is read from the storage, which need not exist. Raise InputError on an unknown name, a storage that is no
    folder without an `output`, or a folder that cannot be written.
    """
    sweeps = [match["name"] if (match := NAME_AND_HASH.fullmatch(name)) else name for name in names]
    for name, sweep in zip(names, sweeps, strict=True):
        if sweep not in BENCHMARKS:
            raise InputError(f"NAME {name}: the paper has no tables for such a sweep; {closest(sweep, BENCHMARKS)}")
    if output is None and "://" in str(storage):
        raise InputError(f"--storage {storage}: the paper's tables go into a folder; say which with --output DIR")
    folder = Path(output) if output else Path(storage) / "reports" / f"{'+'.join(sweeps)}-paper"
    try:
        _write(folder, sweeps)
    except OSError as error:
        raise InputError(f"--output {folder}: cannot be written ({error.strerror}); give another folder") from error
    return folder


def _find_tables(names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return the paper's tables for known sweeps, each with its backbone, empty for all, and what they are.

    Those that the sweeps fill; where the paper has none of their models or data, all of their benchmarks.
    """
    filled: dict[str, str] = {}
    for name in names:
        for table, backbone in paper_tables.tables_of_sweep(name).items():
            filled[table] = backbone if filled.get(table, backbone) == backbone else ""
    said = f"{join_names(names)} {'runs' if len(names) == 1 else 'run'}"
    if filled:
        more = {"tofu_retain_free": ""} if filled.get("tofu_main") == "" else {}
        ordered = {table: backbone for table in paper.TABLES if (backbone := (more | filled).get(table)) is not None}
        return ordered, f"What the paper prints of what {said}."
    benchmarks = dict.fromkeys(BENCHMARKS[name] for name in names)
    every = {table: "" for table in paper.TABLES if table.partition("_")[0] in benchmarks}
    other = f"The paper has no table of what {said}: these are all that it has on"
    return every, f"{other} {join_names(map(str.upper, benchmarks))}, of other models or data."


def _write(folder: Path, sweeps: Sequence[str]) -> None:
    tables, what = _find_tables(sweeps)
    published, benchmarks = paper_tables.published_sheets(tables), list(dict.fromkeys(map(BENCHMARKS.get, sweeps)))
    pictures = [
        picture._replace(stem=picture.stem + f"-{benchmark}" * (len(benchmarks) > 1))
        for benchmark in benchmarks
        for picture in catalog.draw_paper(
            {table: backbone for table, backbone in tables.items() if table.partition("_")[0] == benchmark}
        )
    ]
    for sheet in published:
        sheet.save(folder / "tables")
    for picture in pictures:
        save_figure(picture.figure, folder / "figures", picture.stem, picture.points)
    parts = [what, *(f"## {sheet.title}\n\n{to_markdown(sheet.table)}" for sheet in published)]
    (folder / "tables/paper.md").write_text("\n\n".join(parts), encoding="utf-8")
    page = html.render_page(
        "paper.html.j2",
        folder,
        sweep=join_names(sweeps),
        benchmarks=benchmarks,
        what=what,
        citation=paper.CITATION,
        sheets=published,
        figures=pictures,
    )
    (folder / "index.html").write_text(page, encoding="utf-8")

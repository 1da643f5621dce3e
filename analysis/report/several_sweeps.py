"""Reports that lay several sweeps, or the paper's own tables, side by side."""

from collections.abc import Sequence
from pathlib import Path

from analysis import paper
from analysis.labels import join_names
from analysis.report import verdict
from analysis.report.page import Section, catch_report_write_errors, write_page
from analysis.report.sections import list_table_items, save_paper_tables_and_figures
from analysis.stats.rectifier_comparison import compare_rectifiers
from analysis.stats.sweep_results import Results, join_sweep_frames
from analysis.tables import paper_tables
from analysis.tables.markdown_latex import to_markdown
from analysis.tables.paper_tables import FilledTable, fill_table
from analysis.tables.table_definitions import LAYOUTS, make_main_layout
from trainables.common.errors import InputError, suggest_name
from trainables.storage.sweep_file import NAME_AND_HASH_PATTERN, SweepFile


def write_several_sweeps_report(
    sweeps: dict[str, SweepFile], results: dict[str, Results], folder: Path, both: bool, command: str
) -> None:
    """Write tables/, figures/ and index.html of sweeps; `both`: with the paper's numbers beside the runs'."""
    filling = {}
    for label, sweep in sweeps.items():
        own = results[label]
        if (
            sweep.backbone not in paper_tables.list_tables_of_sweep(label).values()
        ):  # its columns are called by the sweep
            own = own.replace_runs(own.runs.assign(backbone=label))
        filling[label] = own
    lead = []
    for label, one in results.items():
        told = [verdict.describe_verdict(compare_rectifiers(one)), f"{verdict.describe_trial_counts(one.runs)}."]
        lead.append(f"{label}: {' '.join(filter(None, told))}")
    lead += [f"{label}: {one}" for label, sweep in sweeps.items() for one in sweep.list_deviations()]
    benchmarks = dict.fromkeys(one.goals.benchmark for one in filling.values())
    sections, sheets = [], []
    for benchmark in benchmarks:
        here = {label: one for label, one in filling.items() if one.goals.benchmark == benchmark}
        filled, drawn = save_paper_tables_and_figures(here, folder, both, f"{benchmark}-" * (len(benchmarks) > 1))
        if not filled:
            frame = join_sweep_frames({label: one.tidy_frame for label, one in here.items()})
            filled = [fill_table(make_main_layout(next(iter(here.values()))), frame)]
            filled[0].save(folder / "tables")
        sections.append(Section(benchmark.upper(), list_table_items(filled), drawn))
        sheets += filled
    _write_texts(folder / "tables/several.md", lead, sheets)
    commands = [*(typed for sweep in sweeps.values() for typed in sweep.commands), command]
    write_page(folder, title=join_names(sweeps), lead=lead, opened=sections, commands=commands)


def _write_texts(path: Path, lead: Sequence[str], sheets: Sequence[FilledTable]) -> None:
    tables = [f"## {sheet.layout.caption}\n\n{to_markdown(sheet.table)}" for sheet in sheets]
    path.write_text("\n\n".join([*lead, *tables]), encoding="utf-8")


def write_published_numbers_report(names: Sequence[str], storage: str | Path, output: Path | None) -> Path:
    """Write the paper's tables for sweeps and a page of them, and return their folder."""
    sweeps = [match["name"] if (match := NAME_AND_HASH_PATTERN.fullmatch(name)) else name for name in names]
    known = sorted({name for layout in LAYOUTS.values() for name in layout.sweeps.values()})
    filled: dict[str, str] = {}
    for name in sweeps:
        tables = paper_tables.list_tables_of_sweep(name)
        if not tables:
            raise InputError(f"NAME {name}: the paper has no table of this sweep; {suggest_name(name, known)}")
        for table, backbone in tables.items():
            filled[table] = backbone if filled.get(table, backbone) == backbone else ""
    if output is None and "://" in str(storage):
        raise InputError(f"--storage {storage}: the paper's tables go into a folder; say which with --output DIR")
    folder = output or Path(storage) / "reports" / f"{'+'.join(sweeps)}-paper"
    if filled.get("tofu_main") == "":
        filled["tofu_retain_free"] = ""
    sheets = [
        fill_table(LAYOUTS[name], paper.load_table(name, filled[name])) for name in paper.TABLE_NAMES if name in filled
    ]
    lead = [f"The numbers of {paper.CITATION} for {join_names(sweeps)}, as printed; ¶ marks what cannot be right."]
    with catch_report_write_errors(folder):
        for sheet in sheets:
            sheet.save(folder / "tables")
        _write_texts(folder / "tables/paper.md", lead, sheets)
        sections = [Section("", list_table_items(sheets))]
        write_page(folder, title=f"{join_names(sweeps)}: the paper's tables", lead=lead, opened=sections)
    return folder

"""`python -m analysis.report NAME ...`: tables, figures and one page about sweeps. It imports all of analysis."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from analysis import paper
from analysis.figures.tradeoff import draw_tradeoff, tabulate_tradeoff
from analysis.labels import METRIC_EXPLANATIONS, REFERENCE_LABELS, REFERENCE_NOTES, goal_axis_title, join_names
from analysis.load.trials import find_sweep, open_storage
from analysis.report import answers, sections, verdict
from analysis.report.page import Section, catch_report_write_errors, save_frame_as_csv, save_picture, write_page
from analysis.stats.rectifier_comparison import compare_rectifiers
from analysis.stats.sweep_results import SweepResults, join_sweep_frames, read_sweep_results
from analysis.tables.paper_tables import FilledTable, fill_table, map_tables_to_backbones
from analysis.tables.printing import PrintedTable, to_markdown
from analysis.tables.table_definitions import LAYOUTS, make_main_layout
from trainables.common import cli, typed_paths
from trainables.common.errors import InputError, suggest_name
from trainables.common.wording import format_count
from trainables.storage.opening import format_storage_option
from trainables.storage.sweep_file import SWEEP_NAME_AND_HASH_PATTERN, SweepFile

ReportNumbersSource = Literal["runs", "paper", "both"]


def build_report(
    name: str | Sequence[str],
    storage: str | Path = "runs",
    output: str | Path | None = None,
    source: ReportNumbersSource = "runs",
    say: Callable[[str], object] = str,
) -> Path:
    """Write the report of a sweep, or of several together, and return its folder: index.html, tables/, figures/.

    `say` is told what it does; `source`: whose numbers. The folder is STORAGE/reports/NAME-HASH unless `output` says
    otherwise. Raise InputError if a sweep or the storage cannot be read or the folder cannot be written.
    """
    names = list(dict.fromkeys([name] if isinstance(name, str) else name))
    if source == "paper":
        return write_published_numbers_report(names, storage, Path(output) if output else None)
    store, both = open_storage(storage), source == "both"
    found = {sweep.label: sweep for sweep in (find_sweep(one, store) for one in names)}
    called = [sweep.name for sweep in found.values()]
    if both and not any(map(map_tables_to_backbones, called)):
        raise InputError(f"--source both: the paper has no table of {join_names(called)}")
    sweeps = {sweep.name if called.count(sweep.name) == 1 else sweep.label: sweep for sweep in found.values()}
    folder = Path(output) if output else store.root / "reports" / "+".join(found)
    say(f"reading {format_count(sum(len(sweep.trials) for sweep in found.values()), 'trial')} of {' '.join(found)}")
    results = {name: read_sweep_results(sweep, store) for name, sweep in sweeps.items()}
    say(f"drawing figures and writing tables to {folder}")
    whose = "" if source == "runs" else f" --source {source}"
    command = f"python -m analysis.report {' '.join(found)}{format_storage_option(store)}{whose}"
    with catch_report_write_errors(folder):
        for part in ("tables", "figures") if output is None else ():  # what an earlier report had and this one has not
            store.remove(folder / part)
        (folder / "tables" / "several.md").unlink(missing_ok=True)
        if len(sweeps) > 1:
            _write_several(sweeps, results, folder, both, command)
        else:
            ((label, sweep),) = sweeps.items()
            _write_single(results[label], sweep, folder, both, command)
    if output is None:
        store.push(folder, changing=True)
    return folder


def _write_single(results: SweepResults, sweep: SweepFile, folder: Path, both: bool, command: str) -> None:
    comparison = compare_rectifiers(results)
    points, goals, main = tabulate_tradeoff(results), results.goals, _write_main_table(results, folder)
    words = {"x": goal_axis_title(goals.removal_goal), "y": goal_axis_title(goals.retention)}
    tradeoff = save_picture(folder, "tradeoff", "tradeoff", draw_tradeoff(points, results.rule), points, **words)
    ship, before_after, rows = answers.write_own_rows_sections(results, folder)
    best = [] if ship else [verdict.describe_recommended_methods(results)]
    answer = [*filter(None, [*ship, verdict.describe_verdict(comparison)])]
    lead, below = (answer, [*filter(None, best)]) if answer else (best, [])
    notes = [*verdict.list_verdict_caveats(results), *sweep.list_plan_deviations()]
    shortfalls = list(verdict.describe_utility_removal_shortfalls(results))
    said = [*lead, *below, *(f"- {note}" for note in [*shortfalls, *notes])]
    first, *others = [*sections.write_rectifier_figures(comparison, folder), tradeoff]
    opened = [Section("", [*before_after, main], [first])]
    opened += [*answers.write_request_sequence_section(results, folder), *answers.make_before_after_section(results)]
    save_frame_as_csv(folder, "differences", verdict.select_deciding_differences(comparison))
    differences = verdict.tabulate_rectifier_differences(comparison)
    if len(differences):
        note = verdict.SIGN_FLIP_TEST_NOTE if comparison.has_several else verdict.CLEAR_DIFFERENCE_NOTE
        opened.append(Section("What a rectifier changes", (PrintedTable(differences, (note,)),)))
        said += ["", differences.to_markdown(index=False, disable_numparse=True)]
    if others:
        opened.append(Section("Every trial", figures=others))
    (folder / "tables" / "verdict.md").write_text("\n".join(said) + "\n", encoding="utf-8")
    created = sweep.first_started.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    write_page(
        folder,
        title=sweep.title.partition(": ")[0],
        subtitle=" ".join([*below, *shortfalls, f"{verdict.describe_trial_counts(results.runs)}."]),
        lead=lead,
        notes=notes,
        opened=opened,
        folded=[
            *rows,
            *sections.write_training_figures(results, folder),
            *sections.write_statistics_sections(results, folder),
            *sections.write_paper_layout_section(results, sweep.label, folder, both),
            *sections.write_run_details_sections(results, folder),
        ],
        origin=", ".join(filter(None, [sweep.label, created, f"plan {sweep.plan_hash}" * bool(sweep.plan)])) + ". ",
        commands=[*sweep.commands, command],
        interactive=answers.write_interactive_tradeoff(results, folder),
    )


def _write_main_table(results: SweepResults, folder: Path) -> PrintedTable:
    """Write the main table, which stands beside the picture."""
    sheet = fill_table(make_main_layout(results), results.tidy_frame)
    sheet.save(folder / "tables")
    roles = set(results.models["role"])
    others = "".join(f"; {REFERENCE_LABELS[role]}: {text}" for role, text in REFERENCE_NOTES.items() if role in roles)
    notes = [f"{one.head}: {METRIC_EXPLANATIONS.get(one.metric, one.text)}." for one in results.goals.columns]
    notes.append(f"Original: the target model, before unlearning{others}. —: no result.")
    return PrintedTable(sheet.table.cells, (" ".join(notes), *sheet.table.notes))


def _write_several(
    sweeps: dict[str, SweepFile], results: dict[str, SweepResults], folder: Path, both: bool, command: str
) -> None:
    """Write tables/, figures/ and index.html of sweeps; `both`: with the paper's numbers beside the runs'."""
    by_benchmark: dict[str, dict[str, SweepResults]] = {}
    lead = []
    how = ["backbone", "benchmark.dialect", "benchmark.limit"]
    measured = {label: [*own.runs.reindex(columns=how).mode().iloc[0].fillna("")] for label, own in results.items()}
    for label, own in results.items():
        told = [verdict.describe_verdict(compare_rectifiers(own)), *verdict.describe_utility_removal_shortfalls(own)]
        told.append(f"{verdict.describe_trial_counts(own.runs)}.")
        lead.append(f"{label}: {' '.join(filter(None, told))}")
        lead += [f"{label}: {note}" for note in verdict.list_verdict_caveats(own)]
        mine = measured[label]
        unlike = any(other[0] == mine[0] and other != mine for other in measured.values())
        if unlike or mine[0] not in map_tables_to_backbones(label).values():  # columns are called by the sweep
            own = replace(own, runs=own.runs.assign(backbone=label))
        by_benchmark.setdefault(own.goals.benchmark, {})[label] = own
    lead += [f"{label}: {one}" for label, sweep in sweeps.items() for one in sweep.list_plan_deviations()]
    parts, sheets = [], []
    for benchmark, here in by_benchmark.items():
        stem = f"{benchmark}-" * (len(by_benchmark) > 1)
        filled, drawn = sections.save_papers_tables_and_figures(here, folder, both, stem)
        if not filled:
            frame = join_sweep_frames({label: one.tidy_frame for label, one in here.items()})
            layout = replace(make_main_layout(next(iter(here.values()))), table=f"{stem}main")
            filled = [fill_table(layout, frame)]
            filled[0].save(folder / "tables")
        parts.append(Section(benchmark.upper(), [sheet.table for sheet in filled], drawn))
        sheets += filled
    _write_texts(folder / "tables/several.md", lead, sheets)
    commands = [*(typed for sweep in sweeps.values() for typed in sweep.commands), command]
    write_page(folder, title=join_names(sweeps), lead=lead, opened=parts, commands=commands)


def _write_texts(path: Path, lead: Iterable[str], sheets: Iterable[FilledTable]) -> None:
    tables = [f"## {sheet.table.title}\n\n{to_markdown(sheet.table)}" for sheet in sheets]
    path.write_text("\n\n".join([*lead, *tables]), encoding="utf-8")


def write_published_numbers_report(names: Sequence[str], storage: str | Path, output: Path | None) -> Path:
    """Write the paper's tables for sweeps and a page of them, and return their folder."""
    sweeps = [match["name"] if (match := SWEEP_NAME_AND_HASH_PATTERN.fullmatch(name)) else name for name in names]
    known = sorted({name for layout in LAYOUTS.values() for name in layout.sweeps.values()})
    filled: dict[str, str] = {}
    for name in sweeps:
        tables = map_tables_to_backbones(name)
        if not tables:
            raise InputError(f"NAME {name}: the paper has no table of this sweep; {suggest_name(name, known)}")
        for table, backbone in tables.items():
            filled[table] = backbone if filled.get(table, backbone) == backbone else ""
    if output is None and "://" in str(storage):
        raise InputError(f"--storage {storage}: the paper's tables go into a folder; say which with --output DIR")
    folder = output or Path(storage) / "reports" / f"{'+'.join(sweeps)}-paper"
    if filled.get("tofu_main") == "":
        filled["tofu_retain_free"] = ""
    known = [name for name in paper.TABLE_NAMES if name in filled]
    sheets = [fill_table(LAYOUTS[name], paper.load_table(name, filled[name])) for name in known]
    lead = [f"The numbers of {paper.CITATION} for {join_names(sweeps)}, as printed; ¶ marks what cannot be right."]
    with catch_report_write_errors(folder):
        for sheet in sheets:
            sheet.save(folder / "tables")
        _write_texts(folder / "tables/paper.md", lead, sheets)
        opened = [Section("", [sheet.table for sheet in sheets])]
        write_page(folder, title=f"{join_names(sweeps)}: the paper's tables", lead=lead, opened=opened)
    return folder


def main(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Sweep: NAME (its newest) or NAME-HASH. Several fill the paper's tables together."
        ),
    ],
    storage: cli.StorageOption = cli.DEFAULT_STORAGE,
    output: Path | None = typer.Option(None, help="Where to write; none: STORAGE/reports/NAME-HASH."),
    source: ReportNumbersSource = typer.Option("runs", help="Whose numbers; paper needs no storage."),
) -> int:
    """Write the tables, figures and index.html of a sweep or of several; print verdict, tables and where they are.

    Example: python -m analysis.report tofu_llama tofu_phi
    """
    with Console(stderr=True, force_terminal=sys.stderr.isatty()).status("opening the storage") as status:
        folder = build_report(names, storage, output, source, status.update)
    several = (folder / "tables" / "several.md").exists()
    printed = ["paper"] if source == "paper" else ["several"] if several else ["verdict", "main"]
    for path in (folder / "tables" / f"{stem}.md" for stem in printed):
        if path.exists():
            cli.print_line(path.read_text(encoding="utf-8"))
    cli.print_line(f"report: {typed_paths.make_path_relative(folder) / 'index.html'}")
    return 0


app = cli.make_typer_app(main)

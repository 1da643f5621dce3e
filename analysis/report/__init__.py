"""`python -m analysis.report NAME ...`: tables, figures and one page about sweeps. It imports all of analysis."""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from analysis.load.trials import find_sweep, open_storage
from analysis.report import sections, several_sweeps, verdict
from analysis.report.answers import write_before_after_section, write_interactive_tradeoff
from analysis.report.own import write_own_rows_parts, write_request_sequence
from analysis.report.page import Section, TableItem, catch_report_write_errors, save_frame, write_page
from analysis.report.sections import NumbersSource, Report
from analysis.stats.sweep_results import read_results
from trainables.common import cli
from trainables.common.wording import format_count
from trainables.storage.folder_storage import format_storage_option
from trainables.storage.sweep_file import SweepFile


def build_report(
    name: str | Sequence[str],
    storage: str | Path = "runs",
    output: str | Path | None = None,
    source: NumbersSource = NumbersSource.RUNS,
    say: Callable[[str], object] = str,
) -> Path:
    """Write the report of a sweep, or of several together, and return its folder: index.html, tables/, figures/.

    `say` is told what it does; `source`: whose numbers. The folder is STORAGE/reports/NAME-HASH unless `output` says
    otherwise. Raise InputError if a sweep or the storage cannot be read or the folder cannot be written.
    """
    names = list(dict.fromkeys([name] if isinstance(name, str) else name))
    if source == NumbersSource.PAPER:
        return several_sweeps.write_published_numbers_report(names, storage, Path(output) if output else None)
    store, both = open_storage(storage), source == NumbersSource.BOTH
    found = {sweep.label: sweep for sweep in (find_sweep(one, store) for one in names)}
    called = [sweep.name for sweep in found.values()]
    sweeps = {sweep.name if called.count(sweep.name) == 1 else sweep.label: sweep for sweep in found.values()}
    folder = Path(output) if output else store.root / "reports" / "+".join(found)
    say(f"reading {format_count(sum(len(sweep.trials) for sweep in found.values()), 'trial')} of {' '.join(found)}")
    results = {name: read_results(sweep, store) for name, sweep in sweeps.items()}
    say(f"drawing figures and writing tables to {folder}")
    whose = "" if source == NumbersSource.RUNS else f" --source {source}"
    command = f"python -m analysis.report {' '.join(found)}{format_storage_option(store)}{whose}"
    with catch_report_write_errors(folder):
        if len(sweeps) > 1:
            several_sweeps.write_several_sweeps_report(sweeps, results, folder, both, command)
        else:
            ((label, sweep),) = sweeps.items()
            _write_single(Report(folder, results[label]), sweep, both, command)
    if output is None:
        store.push(folder, changing=True)
    return folder


def _write_single(report: Report, sweep: SweepFile, both: bool, command: str) -> None:
    results, folder, comparison = report.results, report.folder, report.comparison
    pictures, main = [sections.write_tradeoff_figure(report)], sections.write_main_table(report)
    ship, before_after, rows = write_own_rows_parts(report)
    best = "" if ship else verdict.describe_recommended_methods(results)
    lead = [*filter(None, [*ship, verdict.describe_verdict(comparison)])] or [best]
    best = "" if lead == [best] else best
    notes = [*verdict.list_verdict_caveats(results), *sweep.list_deviations()]
    below, judged = [best] * bool(best), [*verdict.describe_shortfalls(results)]
    said = [*lead, *below, *(f"- {note}" for note in [*judged, *notes])]
    pictures = [
        *sections.write_rectifier_figures(report),
        *pictures,
    ]  # of several rectifiers the first picture is of these
    opened = [Section("", (*before_after, main), tuple(pictures[:1]))]
    opened += [*write_request_sequence(report), *write_before_after_section(results)]
    save_frame(folder, "differences", verdict.list_rectifier_differences(comparison))
    differences = verdict.tabulate_rectifier_differences(comparison)
    if len(differences):
        opened.append(
            Section(
                "What a rectifier changes",
                (TableItem(differences, verdict.SIGN_FLIP_NOTE if comparison.has_several else verdict.CLEAR_NOTE),),
            )
        )
        said += ["", differences.to_markdown(index=False, disable_numparse=True)]
    if pictures[1:]:
        opened.append(Section("Every trial", figures=tuple(pictures[1:])))
    (folder / "tables" / "verdict.md").write_text("\n".join(said) + "\n", encoding="utf-8")
    created = sweep.first_started.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    write_page(
        folder,
        title=sweep.title.partition(": ")[0],
        subtitle=" ".join([*below, *judged, f"{verdict.describe_trial_counts(results.runs)}."]),
        lead=lead,
        notes=notes,
        opened=opened,
        folded=[
            *rows,
            *sections.write_training_figures(report),
            *sections.write_supplementary_statistics(report),
            *sections.write_paper_tables_and_figures(report, sweep, both),
            *sections.write_run_details(report),
        ],
        origin=", ".join(filter(None, [sweep.label, created, f"plan {sweep.plan_hash}" * bool(sweep.plan)])) + ". ",
        commands=[*sweep.commands, command],
        interactive=write_interactive_tradeoff(results, folder),
    )


def main(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Sweep: NAME (its newest) or NAME-HASH. Several fill the paper's tables together."
        ),
    ],
    storage: cli.StorageOption = cli.DEFAULT_STORAGE,
    output: Path | None = typer.Option(None, help="Where to write; none: STORAGE/reports/NAME-HASH."),
    source: NumbersSource = typer.Option(NumbersSource.RUNS, help="Whose numbers; paper needs no storage."),
) -> int:
    """Write the tables, figures and index.html of a sweep or of several; print verdict, tables and where they are.

    Example: python -m analysis.report tofu_llama tofu_phi
    """
    with Console(stderr=True, force_terminal=sys.stderr.isatty()).status("opening the storage") as status:
        folder = build_report(names, storage, output, source, status.update)
    printed = ("verdict", "main") if len(names) == 1 else ("several",)
    printed = ("paper",) if source == NumbersSource.PAPER else printed
    for path in (folder / "tables" / f"{stem}.md" for stem in printed):
        if path.exists():
            cli.print_line(path.read_text(encoding="utf-8"))
    cli.print_line(f"report: {folder / 'index.html'}")
    return 0


app = cli.make_app(main)

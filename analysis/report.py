"""`python -m analysis.report NAME ...`: tables, the trade-off picture and one self-contained page about sweeps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console

from analysis.figures import catalog
from analysis.figures.style import writing_beside
from analysis.load.opening import open_storage
from analysis.load.trials import CHOICE, settings
from analysis.page import (
    detail_sections,
    html,
    interactive,
    paper_layout_sections,
    paper_only_report,
    request_by_request,
    several_sweeps,
    trial_to_ship,
)
from analysis.page.detail_sections import Report
from analysis.page.paper_layout_sections import Source
from analysis.prose import verdict
from analysis.prose.caveats import list_caveats, list_decisive
from analysis.prose.verdict import explain_verdict, write_verdict
from analysis.prose.which_rectifier import summarise_rectifiers
from analysis.stats.sweep_results import read_results
from analysis.tables import detail_tables
from trainables.common import cli
from trainables.common.errors import InputError
from trainables.common.wording import format_count
from trainables.storage.sweep_file import SweepFile


def build(
    name: str | Sequence[str],
    storage: str | Path = "runs",
    output: str | Path | None = None,
    source: Source = Source.RUNS,
    say: Callable[[str], object] = str,
    show_rows: bool = False,
) -> Path:
    """Write the report of a sweep, or of several together, and return its folder: index.html, tables/, figures/.

    `say` is told what it does.

    `source`: with the paper's numbers beside the runs' (both), or the paper's alone (`paper_only_report.build`).
    `show_rows`: of own rows, the text of those that can still be got out; takes an `output` outside of the storage.

    The folder is STORAGE/reports/NAME-HASH, of several NAME-HASH+NAME-HASH, unless `output` says otherwise. Raise
    InputError if a sweep or the storage cannot be read or the folder cannot be written; trials that failed are
    reported, never an error.
    """
    names = list(dict.fromkeys([name] if isinstance(name, str) else name))
    if source == Source.PAPER:
        return paper_only_report.build(names, storage, output)
    store = open_storage(storage)
    sweeps = several_sweeps.find_sweeps(names, store)
    label = "+".join(sweep.label for sweep in sweeps.values())
    folder = Path(output) if output else store.root / "reports" / label
    if show_rows and folder.resolve().is_relative_to(store.root.resolve()):
        raise InputError("--show-rows: the storage holds no text of rows; give --output DIR, a folder outside of it")
    say(f"reading {format_count(sum(len(sweep.trials) for sweep in sweeps.values()), 'trial')} of {label}")
    interactive.bundle_script()
    results = {name: read_results(sweep, store) for name, sweep in sweeps.items()}
    say(f"drawing figures and writing tables to {folder}")
    try:
        if len(sweeps) > 1:
            command = _repeat_command(label.replace("+", " "), str(storage), source)
            several_sweeps.write(sweeps, results, folder, source == Source.BOTH, command, str(storage))
        else:
            ((name, sweep),) = sweeps.items()
            _write(Report(folder, results[name], store), sweep, source, str(storage), show_rows=show_rows)
    except OSError as error:
        raise InputError(f"--output {folder}: cannot be written ({error.strerror}); give another folder") from error
    if output is None:
        store.push_parts(folder)
    return folder


def write_lists(report: Report) -> None:
    """Write the chosen settings, every trial, and those without a result."""
    runs, rule = report.results.runs, report.results.rule
    report.save_frame("chosen", detail_tables.list_chosen(report.results))
    hidden = ["configuration", "calibrated", "twins", *([] if rule.halves else [*CHOICE, "halves"])]
    hidden += ["chosen_step"] * bool(runs["chosen_step"].isna().all())
    report.save_frame("trials", runs.drop(columns=hidden))
    report.save_frame("failures", detail_tables.list_failures(report.results))


def _write(report: Report, sweep: SweepFile, source: Source, storage: str, *, show_rows: bool) -> None:
    """Write all parts, and the page of them."""
    results, folder = report.results, report.folder
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    with writing_beside():
        papers = paper_layout_sections.write_sections(report, sweep, source)  # has the figures that take longest
        main, tradeoff = detail_sections.write_main(report), report.save_picture(catalog.draw_tradeoff(results))
        parts = [*detail_sections.write_sections(report), *papers]
        write_lists(report)
        recommended = trial_to_ship.find_recommended(results)
        subject, decisive = verdict.describe_trials(results.runs), list_decisive(results)
        answer = write_verdict(results)
        answer += summarise_rectifiers(report.rectifiers) if report.rectifiers else []
        answer += verdict.describe_attacks(report.attacks)
        if recommended:
            rows = trial_to_ship.list_recoverable(report, recommended)
            decisive = [*trial_to_ship.describe_recommended(results, recommended, rows), *decisive]
            parts.insert(0, trial_to_ship.write_section(report, recommended, rows, show_rows=show_rows))
        decisive += request_by_request.describe_requests(results)
        parts = [*filter(None, [request_by_request.write_section(report)]), *parts]
    first, export = [*filter(None, [subject]), *decisive, *answer], ""
    if recommended:
        export = f"python -m trainables.export {recommended['id']}{cli.spell_storage(storage)} --output DIR"
        first.insert(2, f"To write its model: {export}")
    (folder / "tables" / "verdict.md").write_text("\n".join(first) + "\n", encoding="utf-8")
    page = html.render_page(
        "report.html.j2",
        folder,
        sweep=sweep,
        created=sweep.time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        subject=subject,
        counts=verdict.count_trials(results.runs),
        decisive=decisive,
        verdict=answer,
        explained=explain_verdict(results),
        caveats=list_caveats(results),
        changes=detail_tables.list_changes(results),
        tradeoff=tradeoff,
        export=export,
        interactive=interactive.write_block(results, storage),
        main=main,
        sections=parts,
        chosen=detail_tables.list_chosen(results),
        failures=detail_tables.list_failures(results),
        models=detail_tables.list_models(results.models, results.goals),
        settings=_list_settings(results.runs),
        versions=_list_versions(results.runs),
        command=_repeat_command(sweep.label, storage, source),
    )
    (folder / "index.html").write_text(page, encoding="utf-8")


def _list_settings(runs: pd.DataFrame) -> dict[str, str]:
    """Return every setting with its value or values."""
    columns = [column for column in runs if str(column).startswith("calibration.")]  # no part of a configuration
    beside = {column: runs.loc[runs["configuration"].notna(), column] for column in [*columns, "seed"]}
    return {str(column): _join_values(values) for column, values in (dict(settings(runs).items()) | beside).items()}


def _list_versions(runs: pd.DataFrame) -> dict[str, str]:
    """Return what the trials ran on: libraries, topology, commits (with a + where files were changed)."""
    columns = [column for column in runs if str(column).startswith(("versions.", "topology."))]
    found = {str(column): _join_values(runs[column].dropna()) for column in columns}
    known = runs.loc[runs["commit"].notna()]
    commits = [f"{commit}{'+' if dirty else ''}" for commit, dirty in zip(known["commit"], known["dirty"], strict=True)]
    return found | {"commit": _join_values(commits)}


def _join_values(column: Iterable[Any]) -> str:
    texts = ["none" if value is None or value != value else detail_tables.plain_text(value) for value in column]
    texts = sorted(dict.fromkeys(texts), key=lambda text: text == "none")
    return ", ".join(texts[:12]) + (f" and {len(texts) - 12} more" if len(texts) > 12 else "")


def _repeat_command(labels: str, storage: str, source: Source) -> str:
    """Return the command that makes this report again."""
    whose = "" if source == Source.RUNS else f" --source {source}"
    return f"python -m analysis.report {labels}{cli.spell_storage(storage)}{whose}"


@cli.command
def main(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Sweep: NAME (its newest) or NAME-HASH. Several fill the paper's tables together.",
        ),
    ],
    storage: cli.StorageOption = cli.DEFAULT_STORAGE,
    output: Path | None = typer.Option(None, help="Where to write; none: STORAGE/reports/NAME-HASH."),
    source: Source = typer.Option(Source.RUNS, help="Whose numbers; paper needs no storage."),
    show_rows: Annotated[bool, typer.Option("--show-rows", help="own: the rows that can still be got out.")] = False,
) -> int:
    """Write the tables, figures and index.html of a sweep or of several; print verdict, tables and where they are.

    Example: python -m analysis.report tofu_llama tofu_phi
    """
    with Console(stderr=True, force_terminal=sys.stderr.isatty()).status("opening the storage") as status:
        folder = build(names, storage, output, source, status.update, show_rows)
    printed = ("verdict", "main", "retain_free", "uwc") if len(names) == 1 else ("several",)
    printed = ("paper",) if source == Source.PAPER else printed
    for path in (folder / "tables" / f"{stem}.md" for stem in printed):
        if path.exists():
            typer.echo(path.read_text(encoding="utf-8"))
    typer.echo(f"report: {folder / 'index.html'}")
    return 0


app = cli.make_app(main)

if __name__ == "__main__":
    app()

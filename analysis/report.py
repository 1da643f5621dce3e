"""`python -m analysis.report NAME`: tables, the trade-off picture and one self-contained page about a sweep."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path
from typing import Any

import pandas as pd
import typer
from markupsafe import Markup

from analysis.load.goals import Goals
from analysis.load.sweeps import InputError, Sweep, find_sweep, open_storage, told
from analysis.page import html, paper_report, paper_sections, sections
from analysis.page.paper_sections import Source
from analysis.page.sections import Given
from analysis.prose import verdict
from analysis.prose.caveats import caveats
from analysis.runs import CHOICE, load, references, settings
from analysis.stats import selection, significance
from analysis.tables import format as tables_format
from analysis.tables import main as tables_main
from trainables.common import cli
from trainables.config.settings import Selection

LISTED = 50
"""So many trials without a result are listed on the page, the others counted; tables/failures.csv has all."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def build(
    name: str, storage: str | Path = "runs", output: str | Path | None = None, source: Source = Source.RUNS
) -> Path:
    """Write the report of a sweep and return its folder: index.html, tables/, figures/.

    `source`: with the paper's numbers beside the runs' (both), or the paper's alone (`published.build`).

    The folder is STORAGE/reports/NAME-HASH unless `output` says otherwise. InputError where the sweep or the storage
    cannot be read or the folder cannot be written; trials that failed are reported, never an error.
    """
    if source == Source.PAPER:
        return paper_report.build(name, storage, output)
    store = open_storage(storage)
    sweep = find_sweep(name, store)
    runs, models = load(sweep.label, store), references(sweep.label, store)
    folder = Path(output) if output else store.root / "reports" / sweep.label
    given = Given(folder, runs, models, sweep.selection, store)
    try:
        parts = [*sections.write(given), *paper_sections.write(given, sweep, source)]
        _write_lists(given)
        answers = _answers(given)
        (folder / "tables" / "verdict.md").write_text(_brief(answers), encoding="utf-8")
        page = _page(sweep, given, parts, answers, command(sweep, str(storage), source))
        (folder / "index.html").write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--output {folder}: cannot be written ({error.strerror}); give another folder") from error
    if output is None:
        with told():
            store.push_parts(folder)
    return folder


def _write_lists(given: Given) -> None:
    """Write the chosen settings, every trial, and those without a result."""
    given.frame("chosen", tables_main.chosen_settings(given.runs, given.models, given.rule))
    given.frame("trials", _trials(given.runs, given.rule))
    given.frame("failures", verdict.failures(given.runs, given.rule))


def _trials(runs: pd.DataFrame, rule: Selection) -> pd.DataFrame:
    """Return every trial's settings and numbers; what the choice went by where that is not what is reported."""
    without = ["configuration", "calibrated", "twins", *([] if rule.halves else [*CHOICE, "halves"])]
    return runs.drop(columns=without + ["chosen_step"] * bool(runs["chosen_step"].isna().all()))


def _answers(given: Given) -> dict[str, Any]:
    """Return the question, the verdict's sentences, its details, and what to know before believing them."""
    runs, models, rule, what = given.runs, given.models, given.rule, given.what
    chosen = selection.choose(runs, models, rule)
    tests = significance.tests(runs, chosen, what)
    comparison = significance.compare(chosen, tests)
    return {
        "question": verdict.question(runs),
        "headline": verdict.sentences(runs, models, comparison, chosen, rule, tests),
        "details": [verdict.detail(row, what) for row in comparison.to_dict("records")],
        "caveats": caveats(runs, models, comparison, chosen, rule),
    }


def _brief(answers: dict[str, Any]) -> str:
    """Return the question, the answer as a whole and the first caveat: what a terminal shows above the table."""
    return "\n".join([answers["question"], *answers["headline"][:1], *answers["caveats"][:1]]) + "\n"


def _page(sweep: Sweep, given: Given, parts: list[sections.Section], answers: dict[str, Any], reproduced: str) -> str:
    runs, models, rule, what = given.runs, given.models, given.rule, given.what
    failures = verdict.failures(runs, rule)
    return html.render(
        "report.html.j2",
        sweep=sweep,
        created=sweep.created.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        held=verdict.held(runs),
        counts=verdict.counts(runs),
        **answers,
        sections=[_section(part, given.folder / "figures") for part in parts],
        chosen=tables_main.chosen_settings(runs, models, rule),
        failures=failures.head(LISTED),
        unlisted=verdict.unlisted(failures.iloc[LISTED:]) if len(failures) > LISTED else "",
        models=_models(models, what),
        settings=_settings(runs),
        versions=_versions(runs),
        command=reproduced,
    )


def _section(part: sections.Section, folder: Path) -> dict[str, Any]:
    """Return a section as the template takes it: printed tables and figures as HTML, frames of texts as they are."""
    shown = [
        {
            "title": table.title,
            "printed": Markup(tables_format.to_html(table.body))
            if isinstance(table.body, tables_format.Table)
            else None,
            "frame": table.body,
            "caption": table.caption,
        }
        for table in part.tables
    ]
    drawn = html.figures(part.figures, folder)
    return {"title": part.title, "text": part.text, "tables": shown, "figures": drawn}


def _models(models: pd.DataFrame, what: Goals) -> pd.DataFrame:
    """Return the reference models as texts."""
    numbers = {column.metric: column.label for column in what.columns}
    names = {"split": "Split", "role": "Role", **numbers, "model.path": "Model"}
    names |= {"model.fingerprint": "Fingerprint", "evaluation": "Evaluation", "status": "Status"}
    formats = {name: tables_format.number if name in numbers else verdict.text for name in names}
    return pd.DataFrame({names[name]: [formats[name](value) for value in models[name]] for name in names}, dtype="str")


def _settings(runs: pd.DataFrame) -> dict[str, str]:
    """Return every setting with its value or values."""
    table = settings(runs)
    beside = [column for column in runs if str(column).startswith("calibration.")]  # no part of a configuration
    told = {column: runs.loc[runs["configuration"].notna(), column] for column in [*beside, "seed"]}
    return {str(column): _values(values) for column, values in (dict(table.items()) | told).items()}


def _versions(runs: pd.DataFrame) -> dict[str, str]:
    """Return what the trials ran on: libraries, topology, commits (with a + where files were changed)."""
    columns = [column for column in runs if str(column).startswith(("versions.", "topology."))]
    found = {str(column): _values(runs[column].dropna()) for column in columns}
    made = runs.loc[runs["commit"].notna()]
    commits = [f"{commit}{'+' if dirty else ''}" for commit, dirty in zip(made["commit"], made["dirty"], strict=True)]
    return found | {"commit": _values(commits)}


def _values(column: Iterable[Any]) -> str:
    values = list(dict.fromkeys(map(_plain, column)))
    shown = sorted(values, key=lambda value: value == "none")
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "")


def _plain(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return str(value)
    return "none" if pd.isna(value) else verdict.text(value)


def command(sweep: Sweep, storage: str, source: Source = Source.RUNS) -> str:
    """Return the command that makes this report again."""
    where = "" if storage == cli.DEFAULT_STORAGE else f" --storage {shlex.quote(storage)}"
    whose = "" if source == Source.RUNS else f" --source {source}"
    return f"python -m analysis.report {sweep.label}{where}{whose}"


@app.command()
def main(
    name: str = typer.Argument(help="a sweep: NAME, or NAME-HASH for one of several"),
    storage: cli.StorageOption = cli.DEFAULT_STORAGE,
    output: Path | None = typer.Option(None, help="where to write (default: STORAGE/reports/NAME-HASH)"),
    source: Source = typer.Option(Source.RUNS, help="whose numbers; paper needs no storage"),
) -> None:
    """Write a sweep's tables, figures and index.html; print the verdict, the tables and where they are."""
    try:
        folder = build(name, storage, output, source)
    except InputError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    told = ("paper",) if source == Source.PAPER else ("verdict", "main", "retain_free", "uwc")
    for path in (folder / "tables" / f"{name}.md" for name in told):
        if path.exists():
            typer.echo(path.read_text(encoding="utf-8"))
    typer.echo(f"report: {folder / 'index.html'}")


if __name__ == "__main__":
    app()

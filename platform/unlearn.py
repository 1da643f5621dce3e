"""`unlearn COMMAND ...`: every command from any folder. unlearn.sh starts it, with the checkout first on sys.path.

A command runs as `python -m MODULE` runs it, and its module is imported when it is chosen.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import runpy
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trainables.common.provenance import ROOT

COMMANDS = {
    "sweep": ("platform.sweep", "Plan, run and report a sweep", "quickstart --dry-run"),
    "status": ("platform.status", "Say where a sweep stands", "tofu_tiny"),
    "report": ("analysis.report", "Write a sweep's tables, figures and page", "tofu_tiny"),
    "community": ("analysis.community", "Write open-unlearning's folder of each method", "tofu_llama32_1b"),
    "export": ("trainables.export", "Write the model of a trial", "ID --output DIR"),
    "evaluate": ("trainables.evaluate", "Measure a saved model", "--model DIR --split forget05 --output FILE.json"),
    "stress": ("trainables.stress", "Attack an unlearned model, and say what comes back", "ID --lr 2e-5"),
    "run": ("trainables.run", "Run one trial, without Ray", "CONFIG.json"),
    "cluster": ("platform.cluster.__main__", "Check a cluster file; prepare an AWS account", "check cluster.yaml"),
    "tracking": ("platform.tracking.__main__", "Make MLflow's runs again from results", "sync tofu_tiny"),
}
"""Name -> module, what it does, arguments of an example."""


class Commands(TyperGroup):
    """The commands as --help lists them; the shell's completion asks the chosen one's module for its options."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        from trainables.common import cli

        chosen = cli.make_app(importlib.import_module(COMMANDS[name or ""][0]).main, name)
        return name, typer.main.get_command(chosen), rest


app = typer.Typer(cls=Commands, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
for _name, (_, _about, _example) in COMMANDS.items():
    app.command(_name, help=f"{_about}: [dim]unlearn {_name} {_example}[/dim]")(lambda: None)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"unlearn {importlib.metadata.version('gru-unlearning')} ({ROOT})")
        raise typer.Exit


@app.callback()
def describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and its folder.")
    ] = False,
) -> None:
    """Make language models forget: sweeps of unlearning trials, their reports and their models.

    Paths, and the default --storage runs, are looked for in the folder where you type the command.
    """


def main() -> None:
    """Run what was typed."""
    sys.argv[0] = "unlearn"
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        sys.argv[:2] = [f"unlearn {sys.argv[1]}"]
        runpy.run_module(COMMANDS[sys.argv[0].partition(" ")[2]][0], run_name="__main__")
    else:
        app(prog_name="unlearn")

"""`python -m platform.status NAME`: where a sweep stands, from its storage alone, its driver alive or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import trainables as trainables  # first: where packages are missing, it says what to type

# isort: split
import typer
from tabulate import tabulate

from platform.state import manifest
from platform.state.status import describe_sweep
from trainables.common import cli
from trainables.common.wording import format_bytes, format_count, format_duration
from trainables.storage.file_names import FAILURES
from trainables.storage.opening import open_storage
from trainables.trial.progress import LOST_AFTER_SECONDS, format_progress

MAX_CAUSES_SHOWN, MAX_TRIALS_SHOWN = 5, 8
"""How many causes of failure and how many trials in one place the table tells; --json tells all."""


@cli.make_command
def main(
    name: cli.SweepArgument,
    location: cli.StorageOption = cli.DEFAULT_STORAGE,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> int:
    """Say where a sweep stands: what is done, runs, failed and is left, and how to go on.

    Example: python -m platform.status tofu_tiny
    """
    store = open_storage(location, writable=False)
    sweep, *others = manifest.load_manifests(name, store)
    found = describe_sweep(sweep, store)
    found["others"] = [
        {"name": item.label, "created": item.created, "trials": len(item.trials), "command": item.command}
        for item in others
    ]
    cli.print_line(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))
    return 0


def _lines(found: dict[str, Any]) -> Iterator[str]:
    counts, left = found["counts"], found["remaining_seconds"]
    yield f"{found['sweep']}-{found['hash']}: {found['title']}"
    yield f"storage {found['storage']}, begun {found['created']}"
    yield _driver(found)
    tally = [f"{state} {count}" for state, count in counts.items() if state != "total"] + [f"of {counts['total']}"]
    yield " | ".join(tally if left is None else [*tally, f"about {format_duration(left)} left"])
    for name, count in found["outcomes"].items():
        if name not in ("finished", *FAILURES):
            yield f"done, but {name}: {count}"
    yield from _under_way(found)
    so_far = " so far" if counts["left"] else ""
    yield from (f"verdict on {split}{so_far}: {verdict}" for split, verdict in found["verdicts"].items())
    for group in found["failures"][:MAX_CAUSES_SHOWN]:
        yield f"{group['status']} {len(group['trials'])}: {group['cause']} ({group['log']})"
    yield from (f"damaged: {path} (--resume runs its trial again)" for path in found["damaged"])
    yield f"disk: {format_bytes(found['free_bytes'])} free"
    for other in found["others"]:
        yield f"also: {other['name']}, begun {other['created']}, {other['trials']} trials: {other['command']}"


def _driver(found: dict[str, Any]) -> str:
    driver, counts = found["driver"], found["counts"]
    if driver is None or driver["alive"] is False:
        ended = "no driver" if driver is None else f"its driver died (process {driver['pid']} on {driver['host']})"
        return ended + (f"; go on with: {found['go_on']}" if counts["left"] else "")
    if driver["pid"] is None:
        return "driven by an unknown process (its lock is damaged)"
    beat = f"last heartbeat {driver['heartbeat_seconds']:.0f} s ago"
    known = "" if driver["alive"] else " (of another machine: nobody here knows whether it lives)"
    return f"driven by process {driver['pid']} on {driver['host']} since {driver['since']}, {beat}{known}"


def _under_way(found: dict[str, Any]) -> Iterator[str]:
    trials = found["running"]
    rows = [("running", "phase", "step", "for", "left", "on")]
    rows += [(item["label"], *format_progress(item), item["host"]) for item in trials[:MAX_TRIALS_SHOWN]]
    if trials:
        yield tabulate(rows, tablefmt="plain", disable_numparse=True)
    if len(trials) > MAX_TRIALS_SHOWN:
        yield f"and {len(trials) - MAX_TRIALS_SHOWN} more"
    if found["interrupted"]:
        yield f"interrupted: {format_count(len(found['interrupted']), 'trial')} that had begun, counted as left"
    if found["unknown"]:
        many, hosts = format_count(len(found["unknown"]), "trial"), sorted({item["host"] for item in found["unknown"]})
        yield (
            f"unknown: {many} on {', '.join(hosts)} with no sign of life within {LOST_AFTER_SECONDS:.0f} s of this "
            "machine's clock; nobody here knows whether they run; they count as left"
        )


if __name__ == "__main__":
    cli.make_app(main)()

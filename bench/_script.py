"""What the scripts here share: options, commands, and rows as JSON."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainables.common import provenance
from trainables.common.provenance import CODE_ROOT


def find_shared_path(*parts: str) -> Path:
    """Return where data and models are that nobody named: in UNLEARN_SHARED, else in `shared` beside the checkout."""
    return Path(os.environ.get("UNLEARN_SHARED", CODE_ROOT.parent / "shared")).joinpath(*parts)


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return the parser of a script with this docstring, with the option that every one has."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    return parser


def run_python(
    *command: object, python: str | Path = sys.executable, folder: Path = CODE_ROOT, **variables: str
) -> tuple[float, str]:
    """Run Python with these arguments and variables in a folder; return wall-clock seconds and what was printed.

    Ends the script with the end of what was said where it fails.
    """
    arguments, env = list(map(str, command)), {**os.environ, **variables}
    started = time.perf_counter()
    done = subprocess.run([str(python), *arguments], cwd=folder, env=env, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode:
        said = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        raise SystemExit(f"{' '.join(arguments[:4])} ended with {done.returncode}:\n{said}")
    return seconds, done.stdout


def describe_hardware(device: str = "cpu") -> str:
    """Return what was measured on: the GPU's name, or cores and what they can do."""
    import torch

    if device == "cuda":
        return torch.cuda.get_device_name(0)
    return f"{os.cpu_count()} cores, {os.uname().machine}, {torch.backends.cpu.get_cpu_capability()}"


def report(file: Path | None, rows: Sequence[Mapping[str, Any]], *, start: int = 0, **facts: Any) -> None:
    """Print each row from `start` on; write all where a file is named, each with facts, cores, versions and commit."""
    for row in rows[start:]:
        known = ((name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in row.items())
        print(", ".join(f"{name} {value}" for name, value in known if value is not None), flush=True)
    if file:
        more = {**facts, "cores": os.cpu_count(), **provenance.collect_provenance()}
        file.write_text(json.dumps([{**row, **more} for row in rows], indent=2) + "\n", encoding="utf-8")

"""What is wrong in a batch script for Slurm, such as clusters/slurm.sbatch, read plainly: nothing of it is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from platform.cluster.file import find_secrets, is_filled, storage_address_problems
from search_spaces.schema.sweep import sweep_names
from trainables.common.errors import closest

SHORT = {"-N": "nodes", "-c": "cpus-per-task", "-a": "array"}
COMMAND = ["exec", "bash", "clusters/slurm.sh", "python", "-m", "platform.sweep"]
NODE_FOLDER = re.compile(r"/(tmp|var/tmp|dev/shm)(/|$)|\$\{?(SLURM_)?TMPDIR\b")
"""How the path of a folder begins that each node has for itself."""
COUNT = re.compile("[1-9][0-9]*")
CONTINUED = re.compile(r"^(?!\s*#)(?:.*\\\n)+.*", re.M)
"""Lines of one command."""


@dataclass
class BatchScript:
    """The options that Slurm reads in a batch script, the variables that it exports, and its last command's words."""

    options: dict[str, str] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    last: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Lines that are not filled in, or not read."""


def find_problems(path: str, text: str) -> list[str]:
    """Return all that keeps a file with this text from being used, as `place: what is wrong; what to do`."""
    found = [] if text.startswith("#!") else ["line 1: Slurm wants #!/bin/bash there"]
    if "\r" in text:
        found.append(f"{path}: has DOS line ends, which Slurm refuses; run: sed -i 's/\\r$//' {shlex.quote(path)}")
    script = read_script(text.replace("\r\n", "\n"))
    found += [*script.problems, *_option_problems(script.options), *_export_problems(script)]
    return [*found, *_last_problems(script)]


def find_notes(text: str) -> Iterator[str]:
    """Yield what a person should know, although the file can be used."""
    options = read_script(text).options.items()
    if not any(re.match("-G|gpus|(gres|tres).*gpu", f"{name}={value}") for name, value in options):
        yield "no option asks for GPUs, such as --gpus-per-node=8: trials may have none"


def read_script(text: str) -> BatchScript:
    """Read a script. Slurm reads options at the beginning of a line, above the first command, and no others."""
    script, commands = BatchScript(), False
    text = CONTINUED.sub(lambda lines: lines[0].replace("\\\n", " ") + "\n" * lines[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        option = re.match(r"\s*#+\s*SBATCH\b", line)
        if not line.strip() or (line.lstrip().startswith("#") and not option):
            continue
        try:
            words = shlex.split(line.lstrip("# \t") if option else line, comments=True)
        except ValueError:  # a quote that another line closes
            words = line.split()
        written = re.split(r"\s+#", line.strip())[0]
        script.problems += [
            f"{secret}, which Slurm shows with the script; export it before sbatch"
            for secret in find_secrets(written, f"line {number}")
        ]
        if not is_filled(" ".join(words)):
            script.problems.append(f"line {number}: still to be filled in ({written})")
        if not option:
            commands, script.last = True, words
            if words[:1] == ["export"]:
                script.exports |= dict(word.split("=", 1) for word in words if "=" in word)
        elif commands or not line.startswith("#SBATCH"):
            why = "stands below the first command" if commands else "is a comment to it"
            script.problems.append(
                f"line {number}: Slurm does not read it, as it {why}; begin it with #SBATCH, above all commands"
            )
        else:
            script.options |= _read_options(words[1:])
    return script


def _read_options(words: list[str]) -> dict[str, str]:
    """Return options with their values by their long names, as `--nodes=2`, `--nodes 2`, `-N 2` and `-N2` give them."""
    found, name = {}, ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
        elif word.startswith("-"):
            name, value = SHORT.get(word[:2], word[:2]), word[2:]
        else:
            value = word
        found[name] = value
    return found


def _option_problems(options: dict[str, str]) -> Iterator[str]:
    nodes = options.get("nodes", "1")
    several = nodes != "1"
    if not COUNT.fullmatch(nodes):
        yield f"--nodes: '{nodes}' is no number above 0; Ray waits for as many nodes as it is told"
    if options.get("ntasks-per-node", "" if several else "1") != "1":
        yield "--ntasks-per-node: must be 1; each task starts the Ray of its node"
    if not COUNT.fullmatch(options.get("cpus-per-task", "")):
        yield "--cpus-per-task: no number above 0, by which Ray knows the CPUs that the job has of a node"
    if several and options.get("exclusive") != "":
        yield "--exclusive: missing, or has a value; two Rays on one node meet at its ports, and one ends the other"
    if "requeue" not in options or "no-requeue" in options:
        yield "--requeue: missing; a job that is preempted would not be queued again"
    if options.get("open-mode") != "append":
        yield "--open-mode=append: missing; a job that is queued again would write over its log"
    if "array" in options:
        yield "--array: a sweep has one driver; leave it out, --nodes gives the sweep more nodes"


def _export_problems(script: BatchScript) -> Iterator[str]:
    storage = script.exports.get("UNLEARN_STORAGE", "").removeprefix("file://")
    yield from storage_address_problems(storage, "UNLEARN_STORAGE")
    if not storage:
        yield "UNLEARN_STORAGE: missing; export a folder that every node sees, or s3://BUCKET/FOLDER"
    elif is_filled(storage) and NODE_FOLDER.match(storage):
        yield f"UNLEARN_STORAGE: '{storage}' is a folder of each node by itself; name one that every node sees"
    elif is_filled(storage) and "://" not in storage and not storage.startswith(("/", "$", "~")):
        yield f"UNLEARN_STORAGE: '{storage}' is a relative path; write the whole one, the same on every node"
    if script.exports.get("RAY_AUTH_MODE", "token") != "token":
        yield "RAY_AUTH_MODE: without tokens everybody who reaches a node can run programs as you; leave it out"


def _last_problems(script: BatchScript) -> Iterator[str]:
    command, arguments = script.last[: len(COMMAND)], script.last[len(COMMAND) :]
    if command != COMMAND:
        yield f"the last command: must be `{' '.join(COMMAND)} NAME --resume`; its exit status is the job's state"
        return
    name = next(iter(arguments), "")
    if is_filled(" ".join(arguments)) and name not in sweep_names():
        yield f"the last command: unknown sweep '{name}'; {closest(name, sweep_names())}"
    if "--new" in arguments:
        yield "the last command: has --new; a job that is queued again would begin anew, leave it out"
    if "--resume" not in arguments:
        yield "the last command: lacks --resume; a job that is queued again would refuse to go on"

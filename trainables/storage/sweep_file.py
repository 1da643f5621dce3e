"""The files of sweeps, STORAGE/sweeps/NAME-HASH.json, which the driver writes (platform.state.manifest)."""

import contextlib
import json
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from trainables.common.errors import InputError, suggest_name
from trainables.common.fingerprints import hash_json
from trainables.config.settings import Selection
from trainables.config.trial import Trial
from trainables.config.types import IsoTimeText, Name
from trainables.storage.atomic_files import read_json
from trainables.storage.folder_storage import Storage

StoredRange = dict[Literal["low", "high", "log"], int | float | bool]
FILE_FORMAT_VERSION = 2
"""Version of a storage's files: of sweeps, trials and what they share."""
RETRAINED = "retrained"
"""The role of a retain model that was trained with another seed."""
SWEEP_NAME_AND_HASH_PATTERN = re.compile(r"(?P<name>.+)-(?P<hash>[0-9a-f]{8})")


def _check_command(text: str) -> str:
    """Refuse what a shell would not take as one start of a sweep: people paste what is printed."""
    if not text.startswith("python -m platform.sweep ") or shlex.join(shlex.split(text)) != text.rstrip():
        raise ValueError("is no command that starts a sweep, its words quoted")
    return text


SweepCommand = Annotated[str, AfterValidator(_check_command)]


class ReferenceEvaluation(BaseModel):
    """A reference model's evaluation on a split; `role`: original, retain or baseline."""

    model_config = ConfigDict(frozen=True)

    role: Name
    split: Name
    evaluation: Name


class SweepFile(BaseModel):
    """What the file of a sweep says."""

    model_config = ConfigDict(frozen=True)

    format: int = FILE_FORMAT_VERSION
    name: Name
    hash: Name
    title: str
    benchmark: Name | Literal[""] = ""
    backbone: Name | Literal[""] = ""
    """A name of `search_spaces.schema.backbones`; empty where the target model is another."""
    created: IsoTimeText
    command: SweepCommand
    commands: tuple[SweepCommand, ...]
    unfinished: tuple[SweepCommand, ...] = ()
    """The commands that together go on with all that was left when the last one started; none: `command` alone."""
    sweep: dict[str, Any] = {}
    """The value of the last start's Sweep: the search space as it was planned."""
    strategy: Name = "unknown"
    selection: Selection = Selection()
    axes: dict[Name, list[str | int | float | bool | None] | StoredRange] = {}
    """What its starts varied: values by configuration path, or the ends of a range and whether it is a log."""
    trial_budget: int | None = None
    """How many trials the starts meant to run; an Optuna study has more points. None: all that are listed."""
    budgets: dict[str, int] = {}
    """How many trials each study is to have, by its name: those that `--only` has left, and of earlier starts."""
    plan: dict[str, Any] = {}
    """`describe_plan` of the first start, before its first trial; empty in a file from before there were plans."""
    plan_hash: str = ""
    """`hash_json` of `plan`, which the first start printed."""
    trials: tuple[Name, ...]
    references: tuple[ReferenceEvaluation, ...] = ()

    def describe_plan(self) -> dict[str, Any]:
        """Return what is planned now, by configuration path: axes with their seeds, rules, goals, number of trials."""
        sections = {name: self.sweep.get(name, {}) for name in ("search", "references", "stress")}
        sections["selection"] = self.selection.model_dump(mode="json")
        rules = {f"{name}.{key}": value for name, one in sections.items() for key, value in one.items()}
        rules["studies"] = sorted(self.budgets)
        return {"strategy": self.strategy, "trials": self.planned_trial_count, **rules, **self.axes}

    def list_plan_deviations(self) -> list[str]:
        """Return what later starts changed of the first one's plan, a line each."""
        if not self.plan:
            return []
        now = self.describe_plan()
        changed = [path for path in sorted({**self.plan, **now}) if self.plan.get(path) != now.get(path)]
        then, now = ({path: json.dumps(one.get(path), sort_keys=True) for path in changed} for one in (self.plan, now))
        found = [f"{path}: planned {then[path]}, now {now[path]}" for path in changed]
        edited = ["the plan in the sweep's file was edited: its hash is another"]
        return [f"Not as planned: {one}." for one in (*found, *edited * (hash_json(self.plan) != self.plan_hash))]

    @property
    def label(self) -> str:
        return f"{self.name}-{self.hash}"

    @property
    def first_started(self) -> datetime:
        """Return when the sweep was first started; without a time zone it is UTC."""
        found = datetime.fromisoformat(self.created)
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    @property
    def planned_trial_count(self) -> int:
        return len(self.trials) if self.trial_budget is None else self.trial_budget

    @property
    def varied_axes(self) -> tuple[str, ...]:
        return tuple(path for path, axis in self.axes.items() if isinstance(axis, dict) or len(axis) > 1)


def read_sweep(path: Path) -> SweepFile:
    """Return what a sweep's file says. Raises InputError if it is missing, cannot be read or is of another format."""
    found = read_json(path)
    if found is not None and found.get("format") != FILE_FORMAT_VERSION:
        ours = f"this version reads and writes format {FILE_FORMAT_VERSION}"
        advice = "give another --storage, or use the version that wrote it"
        raise InputError(f"{path} is of a storage of format {found.get('format', 1)}, and {ours}; {advice}")
    try:
        sweep = SweepFile.model_validate(found)
    except (ValueError, RecursionError) as error:
        why = "no JSON object" if found is None else " ".join(str(error).split())
        advice = "move it away and start its sweep again with --resume: the trials stay"
        raise InputError(f"{path} cannot be read ({why}); {advice}") from error
    if sweep.label != path.stem:  # it names the report's folder
        raise InputError(f"{path} cannot be used: it is called {sweep.label} inside; give the file that name again")
    return sweep


def find_sweeps_by_name(name: str, store: Storage) -> list[SweepFile]:
    """Return the sweeps called NAME, newest first, or the one NAME-HASH. Raises InputError if there is none."""
    names = map_sweep_labels_to_names(store)
    found = [read_sweep(store.root / "sweeps" / f"{stem}.json") for stem in names if name in (stem, names[stem])]
    if not found:
        known = "it holds none" if store.root.is_dir() else "there is no such folder"
        known = suggest_name(name, {*names.values(), *names}) if names else known
        raise InputError(f"no sweep '{name}' in {store.location}; {known}")
    return sorted(found, key=lambda sweep: (sweep.first_started, sweep.hash), reverse=True)


def resolve_trial_id(name: str, store: Storage) -> str:
    """Return the id of the trial that is called so, by its id or its label. Raises InputError if several are."""
    store.download_sweeps_and_results()
    found: dict[str, None] = {}
    for stem in {} if store.has_result(name) else map_sweep_labels_to_names(store):
        sweep = read_sweep(store.root / "sweeps" / f"{stem}.json")
        for key in sweep.trials:
            with contextlib.suppress(ValidationError):  # no result, or one of other custom methods
                trial = Trial.model_validate((store.result(key) or {}).get("config"))
                if name in (trial.label(), trial.label(sweep.varied_axes)):
                    found[key] = None
    if len(found) > 1:
        raise InputError(f"ID: {len(found)} trials are called '{name}'; name one by its id: {', '.join(found)}")
    return next(iter(found), name)


def map_sweep_labels_to_names(store: Storage) -> Mapping[str, str]:
    files = sorted((store.root / "sweeps").glob("*.json"))
    found = (SWEEP_NAME_AND_HASH_PATTERN.fullmatch(file.stem) for file in files)
    return {match[0]: match["name"] for match in found if match}

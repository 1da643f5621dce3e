"""The runs of one sweep in MLflow: found all at once, one for each trial, however often MLflow was asked to make it.

MLflow's client sends a request again that was not answered in time, which makes two runs where one was wanted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PARENT_TAG, TRIAL_TAG, SWEEP_TAG = "mlflow.parentRunId", "trial_id", "sweep_id"
STATE_TAG = "mirrored"
"""Of the parent: a digest of every trial and attempt that the runs show."""
ENDED = ("FINISHED", "FAILED", "KILLED")


@dataclass(frozen=True)
class Run:
    """A trial's run: whether it is complete, when the attempt that it shows was started, and its parent run."""

    id: str
    complete: bool = False
    started: str | None = None
    parent: str | None = None


class TrialRuns:
    """The child runs of the sweep called `label`; `tags` are those of every child.

    `attempts`: when the attempt that each trial's result is of was started.
    """

    def __init__(
        self,
        client: Any,
        experiment: str,
        parent: str,
        label: str,
        tags: Mapping[str, str],
        attempts: Mapping[str, str | None],
    ) -> None:
        self.client = client
        self.experiment = experiment
        self.parent = parent
        self.label = label
        self.tags = tags
        self.attempts = attempts
        self.known: dict[str, Run] | None = None

    def load(self) -> dict[str, Run]:
        """Return every trial's run, by one search: asking for each of thousands takes minutes.

        Of several runs of a trial the complete one of its result's attempt is kept, and the others are deleted.
        """
        found: dict[str, list[Run]] = {}
        for run in self.search(f"tags.{TRIAL_TAG} != ''"):
            tags, complete = run.data.tags, run.info.status in ENDED
            child = Run(run.info.run_id, complete, tags.get("started"), tags.get(PARENT_TAG))
            found.setdefault(tags[TRIAL_TAG], []).append(child)
        known: dict[str, Run] = {}
        for trial_id, runs in found.items():
            attempt = self.attempts.get(trial_id)
            kept, *others = sorted(runs, key=lambda run: (run.complete, run.started == attempt), reverse=True)
            for other in others:
                self.client.delete_run(other.id)
            if kept.parent != self.parent:
                self.client.set_tag(kept.id, PARENT_TAG, self.parent)
            known[trial_id] = kept
        self.known = known
        return known

    def search(self, condition: str) -> Iterator[Any]:
        """Yield every run of the sweep that meets a condition, however many."""
        token: str | None = None
        while token != "":
            wanted = f"tags.{SWEEP_TAG} = '{self.label}' and {condition}"
            page = self.client.search_runs([self.experiment], filter_string=wanted, page_token=token)
            yield from page
            token = page.token or ""

    def get_or_create(self, trial_id: str, name: str) -> Run:
        """Return a trial's run, made if it is missing."""
        known = self.load() if self.known is None else self.known
        if trial_id not in known:
            tags = {**self.tags, SWEEP_TAG: self.label, PARENT_TAG: self.parent, TRIAL_TAG: trial_id}
            known[trial_id] = Run(self.client.create_run(self.experiment, tags=tags, run_name=name).info.run_id)
        return known[trial_id]

    def replace(self, trial_id: str, name: str) -> Run:
        """Delete a trial's run and return an empty one."""
        self.client.delete_run(self.get_or_create(trial_id, name).id)
        del (self.known or {})[trial_id]
        return self.get_or_create(trial_id, name)

    def delete_duplicates(self, complete: Collection[str]) -> None:
        """Delete runs that nothing is logged to: further parents under way, and such of trials that are complete."""
        for run in list(self.search("attributes.status = 'RUNNING'")):
            trial_id = run.data.tags.get(TRIAL_TAG)
            if run.info.run_id != self.parent and (trial_id is None or trial_id in complete):
                self.client.delete_run(run.info.run_id)


def ensure_parent(client: Any, experiment: str, tags: dict[str, str], name: str) -> tuple[Any, bool]:
    """Return the sweep's parent run, made if it is missing, and whether it was the only one; others are deleted."""
    wanted = f"tags.{SWEEP_TAG} = '{tags[SWEEP_TAG]}' and tags.role = 'parent'"
    found = sorted(client.search_runs([experiment], filter_string=wanted), key=lambda run: STATE_TAG in run.data.tags)
    if not found:
        return client.create_run(experiment, tags=tags, run_name=name), True
    *others, kept = found
    for other in others:
        client.delete_run(other.info.run_id)
    return kept, not others

"""The options of a start, apart from what is planned."""

from collections.abc import Iterator
from dataclasses import dataclass

from platform.plan.spaces import STRATEGIES
from trainables.common.errors import suggest_name
from trainables.storage.file_names import FAILED_STATUSES

KEEP_WEIGHTS_CHOICES = ("all", "pareto", "best", "none")
"""`best` is the trial that the selection rule chooses; `pareto` keeps it, too."""


@dataclass(frozen=True)
class StartOptions:
    gpu_hours: float | None = None
    address: str | None = None
    max_concurrent: int | None = None
    keep: str = "pareto"
    resume: bool = False
    new: bool = False
    retry_failed: bool = False
    reason: str | None = None
    minutes: float | None = None

    @property
    def retried_outcomes(self) -> tuple[str, ...]:
        """Return the outcomes whose trials run again, beside those that were lost."""
        return () if not self.retry_failed else (self.reason,) if self.reason else FAILED_STATUSES

    def find_problems(self, strategy: str, trials: int | None, cluster: str | None) -> Iterator[str]:
        """Yield what is wrong: values that are unknown, and options that exclude each other."""
        if cluster is not None and self.address is not None:
            yield "--cluster and --address exclude each other: the first starts the sweep on that head"
        if strategy not in STRATEGIES:
            yield f"--strategy: unknown strategy '{strategy}'; {suggest_name(strategy, STRATEGIES)}"
        elif trials is not None and strategy != "optuna":
            yield f"--trials {trials}: for --strategy optuna; --strategy {strategy} has its own order"
        if self.new and (self.resume or self.retry_failed):
            yield f"--{'resume' if self.resume else 'retry-failed'} and --new exclude each other"
        if self.reason is not None and not self.retry_failed:
            yield "--reason: says which failed trials --retry-failed runs again; add --retry-failed"
        if self.reason is not None and self.reason not in FAILED_STATUSES:
            yield f"--reason: unknown reason '{self.reason}'; {suggest_name(self.reason, FAILED_STATUSES)}"
        for option, limit in (("--gpu-hours", self.gpu_hours), ("--minutes", self.minutes)):
            if limit is not None and not 0 < limit < float("inf"):
                yield f"{option}: must be above 0, got {limit:g}"
        if self.keep not in KEEP_WEIGHTS_CHOICES:
            yield f"--keep: unknown choice '{self.keep}'; {suggest_name(self.keep, KEEP_WEIGHTS_CHOICES)}"

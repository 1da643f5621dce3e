"""The documented entry to a sweep's trials and reference models as pandas frames: `analysis.runs.load("tofu_tiny")`."""

from analysis.load.column_descriptions import COLUMNS
from analysis.load.opening import find_sweep, open_storage
from analysis.load.trials import canonical, evaluated, load, references, settings
from analysis.stats.importance import measure_importance as importance

__all__ = ["COLUMNS", "canonical", "evaluated", "find_sweep", "importance", "load", "open_storage", "references"]
__all__ += ["settings"]

"""The documented entry to a sweep's trials and reference models as pandas frames: `analysis.runs.load("tofu_tiny")`."""

from analysis.load.trials import evaluated, find_sweep, load, open_storage, references, settings
from analysis.stats.setting_importance import measure_setting_importance as importance

__all__ = ["evaluated", "find_sweep", "importance", "load", "open_storage", "references", "settings"]

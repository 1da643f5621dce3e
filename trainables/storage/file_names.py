"""Names of the files and folders of a trial, and its outcomes as result.json spells them."""

RESULT, CONFIG, STEPS, ROWS, ERROR = "result.json", "config.json", "steps.parquet", "evaluation.parquet", "error.txt"
PROGRESS, RETRY = "progress.json", "retry.json"
LIVE_CURVE_COLUMNS = ("loss", "retain_loss", "cos_before", "cos_after")
"""The columns of steps.parquet that a running trial's progress tells, and that MLflow draws."""
SHARED_PROGRESS_FOLDER = "shared/making"
"""Where the progress of what trials share lies in a storage, in a folder each."""
CHECKPOINT, EVALUATIONS, WEIGHTS = "checkpoint", "evaluations", "weights"
EXPORT_FACTS_FILE = "unlearning.json"
"""In a model folder that was exported: of which run of which trial it is, and what was measured."""
ATTACK_RESULTS_FILE = "came_back.json"
"""What attacks brought back, beside each attack's own file."""
META_FILE = "meta.json"
"""Makes a checkpoint count; written last."""
EVALUATED_STATUSES = ("finished", "collapsed")
"""Outcomes that come with metrics."""
LOST = "lost"
"""Outcome of a trial whose process, machine or disk failed: it goes on from its checkpoint when resumed."""
FAILED_STATUSES = ("failed", "out_of_memory", LOST)
"""Outcomes that are accidents; every other one (`finished`, `diverged`, ...) is a result."""

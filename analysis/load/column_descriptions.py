"""What the columns of `analysis.runs.load` are, for who makes figures of their own."""

COLUMNS = {
    "id": "the trial's id, a hash of its configuration: the folder trials/ID of the storage",
    "status": "finished, collapsed, stopped, diverged, failed, out_of_memory, lost, missing (no result) or damaged",
    "method": "the objective or task vector, as in --set method=",
    "rectifier.name": "none, clip, gru, ...: what happens to the objective's gradient",
    "rectifier.gamma": "weight of the new retain gradient in the moving average; NaN where the rectifier has none",
    "rectifier.tau": "the clipping norm; NaN where nothing is clipped, see clipping",
    "clipping": "tau as text: a number, none (a rectifier that clips was told not to), empty (it has no tau)",
    "benchmark.split": "which rows are forgotten",
    "seed": "the seed of a trial",
    "strength": "of a task vector: TRU's stg or TV's strength",
    "seconds": "the trial's own time; seconds.training and seconds.evaluation are parts of it",
    "steps": "optimizer steps taken; skipped: how many were degenerate and drawn again",
    "chosen_step": "the step that the trial chose among several evaluations",
    "relative_change": "how far the weights moved, relative to the target model's",
    "error.kind": "why there is no result; error.message and error.step say more",
    "configuration": "the settings apart from the seed as JSON: equal for trials that differ in the seed alone",
    "removal": "mean of the goals of removal, where there are several",
    "choice.removal": "what the selection rule goes by, more being better; choice.utility likewise",
    "halves": "whether the rows were split into those that are chosen on and those that are reported",
    "calibrated": "what UWC found; None where it was not asked for",
    "backbone": "the sweep's backbone, empty where it is not known",
    "started": "when the trial began (UTC); commit and dirty: the code it ran on",
}
"""By column. Besides: each setting under the path that --set takes, each metric under its name in result.json,
versions.* and topology.*."""

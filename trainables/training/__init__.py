"""Engine, loop, checkpoints, memory plan, task vectors. It imports common to inference, and methods."""

"""Engine, loop, checkpoints, memory plan. It imports common to inference, and methods."""

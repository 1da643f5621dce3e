"""The training loop and its engine, the memory plan, checkpoints, task vectors. It imports config to data, and methods."""

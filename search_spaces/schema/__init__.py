"""The type of a sweep and how sweeps are found, backbones, the paper's choices. It imports trainables.config alone."""

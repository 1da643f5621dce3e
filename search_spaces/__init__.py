"""Named sweeps, one a file, as a frozen Python value called SWEEP. It imports trainables.config."""

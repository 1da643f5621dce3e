"""What to run: one named sweep a file, as a frozen Python value called SWEEP. It imports trainables.config."""

"""One start of a sweep, from its plan through Ray Tune to its last line. It imports every package but `status`."""

"""One start of a sweep, from its plan to its last line. It imports every package but the commands."""

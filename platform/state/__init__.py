"""A sweep on disk: manifest, state of its trials, limits, the lock. It imports plan and trainables."""

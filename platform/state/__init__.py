"""A sweep on disk: manifest, state of its trials, kept weights, limits, the lock. It imports trainables alone."""

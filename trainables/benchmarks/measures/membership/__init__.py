"""Measures of membership: whether a row looks like one that was trained on. It imports measures and metrics."""

"""Measures of the paraphrased answer. It imports measures and metrics."""

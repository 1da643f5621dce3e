"""Measurements of what the project claims about time and memory; README.md says how to run them."""

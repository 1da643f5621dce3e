"""Rows to train on: prompts, texts, fictional authors, what the hub gave. It imports common, config and storage."""

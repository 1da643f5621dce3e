"""Tidy frames, layouts, and tables as CSV, Markdown and LaTeX. It imports stats, load and paper."""

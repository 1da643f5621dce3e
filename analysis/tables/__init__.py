"""Tidy frames, layouts, and tables as CSV, Markdown and LaTeX. It imports stats and what stats imports."""

"""Figures from frames. It imports stats and what stats imports."""

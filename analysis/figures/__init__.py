"""Figures from frames. It imports stats, load, tables' labels and paper."""

"""Plans of sweeps: their trials, models, rows, costs and needs. It imports trainables and search_spaces."""

"""Sweeps and trials from a storage or from MLflow, and their goals. It imports labels, paper and light trainables."""

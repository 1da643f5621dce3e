"""Sweeps and trials from a storage, as pandas frames. It imports labels and light trainables."""

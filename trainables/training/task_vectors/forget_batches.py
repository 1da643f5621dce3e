"""A direction's batches, for plans and the driver, without torch.

A trial moves along a direction, `theta_org - strength * direction`, that is made once for all strengths: TRU's mean of
rectified unit vectors, or TV's plain vector (direction_files.py).
"""

from trainables.common.errors import InputError

SPLIT_SEED_STREAM = 11
"""Added to the seed, so that the random split differs from other streams of the same seed."""
VECTOR_RECORDS_FILE = "batches.parquet"


def check_enough_forget_rows(rows: int, batches: int, split: str) -> None:
    """Raise InputError if the forget points of `split` cannot be divided into so many batches."""
    if rows < 2:
        raise InputError(f"benchmark.split: {split} has one forget point; tru rectifies each with others, so use tv")
    if batches > rows:
        raise InputError(
            f"task_vector.batches={batches}: {split} has {rows} forget points; give at most {rows} batches"
        )


def divide_rows_into_batches(rows: int, batches: int, seed: int) -> list[list[int]]:
    """Return the row numbers of each batch: a random division into parts whose sizes differ by one at most."""
    import numpy as np

    order = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, SPLIT_SEED_STREAM]))).permutation(rows)
    return [part.tolist() for part in np.array_split(order, batches)]

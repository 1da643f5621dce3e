"""The paper's published numbers as tidy tables, one CSV a table, exactly as printed (misprints included).

Columns: `table`, `benchmark` (tofu, wmdp, muse), `backbone` (phi, llama, zephyr, iclm), `split` (forget05, forget10,
bio_cyber, books), `method` (keys of `trainables.config.methods.METHODS`; `original` and `retain` are the models before
unlearning and without the forget set), `rectifier` (none, gru, clip), `gamma` and `tau` (text; empty where the table
does not vary them, `none` where it prints N/A), `target` (the share of utility that UWC keeps), `metric`, `value`,
`bold`. `forget_quality` is the natural logarithm of the KS p-value.

In the gamma table GD has no rows above gamma = 0.6: the paper prints "--" there, "same to those without GRU".
In the UWC tables the share belongs to the method's rows and is missing (NaN) for `original`.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

TABLES: tuple[str, ...] = (
    "tofu_main",
    "tofu_retain_free",
    "wmdp",
    "muse",
    "wmdp_rmu",
    "tofu_tau",
    "tofu_gamma",
    "tofu_ablation",
    "tofu_uwc_ga",
    "tofu_uwc_npo",
)


def load(table: str, backbone: str = "") -> pd.DataFrame:
    """The rows of one table, of all backbones or one: `value` and `target` are floats, `bold` is bool, all else text.

    ValueError if there is no such table.
    """
    if table not in TABLES:
        raise ValueError(f"unknown table {table!r}: the paper's tables are {', '.join(TABLES)}")
    frame = pd.read_csv(
        Path(__file__).with_name(f"{table}.csv"),
        dtype={"gamma": "str", "tau": "str", "target": "float64", "value": "float64", "bold": "bool"},
        keep_default_na=False,
        na_values={"target": [""]},
    )
    return frame.loc[frame["backbone"] == backbone].reset_index(drop=True) if backbone else frame


@dataclass(frozen=True)
class Erratum:
    """A printed value that cannot be right.

    `where` holds the columns that select its row in `table`. `corrected` is None where the right value is not known.
    """

    table: str
    where: dict[str, str]
    printed: str
    corrected: str | None
    reason: str

    @property
    def description(self) -> str:
        """Return `14.0316 (the minus sign is missing; -14.0316 is meant)`."""
        meant = f"; {self.corrected} is meant" if self.corrected else ""
        return f"{self.printed} ({self.reason}{meant})"

    def find_rows(self, frame: pd.DataFrame) -> pd.Series:
        """Return which rows of a frame with the columns of `load` hold the value: one of its table, none of others."""
        found = pd.Series(frame["table"] == self.table)
        for column, value in self.where.items():
            found &= frame[column] == (float(value) if column == "target" else value)
        return found


def _forget_quality(method: str, rectifier: str, **where: str) -> dict[str, str]:
    return {"method": method, "rectifier": rectifier, "metric": "forget_quality", **where}


_EITHER = "not a value for 300 forget rows; rounded from {rows200} for 200 rows, or truncated from {rows300} for 300"

ERRATA: tuple[Erratum, ...] = (
    Erratum("tofu_tau", _forget_quality("gd", "gru", tau="0.1"), "14.0316", "-14.0316", "the minus sign is missing"),
    Erratum("tofu_tau", _forget_quality("ga", "gru", tau="10"), "-2.9534", "-2.9538", "ln p is -2.95384"),
    Erratum("tofu_ablation", _forget_quality("ga", "clip"), "-20.7646", "-20.7647", "truncated: ln p is -20.76469"),
    Erratum(
        "tofu_retain_free",
        _forget_quality("original", "none", backbone="phi", split="forget05"),
        "-28.84",
        "-28.85",
        "truncated, while the rest of the table is rounded: -28.8476 in the main table",
    ),
    Erratum(
        "tofu_uwc_ga",
        _forget_quality("ga", "none", split="forget05", target="0.85"),
        "-22.0",
        None,
        "not a value for 200 forget rows (nearest -22.1323), nor truncated from one; rounded from -21.9692 for 300",
    ),
    Erratum(
        "tofu_uwc_ga",
        _forget_quality("ga", "gru", split="forget10", target="0.90"),
        "-28.8",
        None,
        "not a value for 300 forget rows (nearest -28.5669), nor truncated from one; rounded from -28.8476 for 200",
    ),
    Erratum(
        "tofu_uwc_ga",
        _forget_quality("ga", "gru", split="forget10", target="0.85"),
        "-20.8",
        None,
        _EITHER.format(rows200="-20.7647", rows300="-20.8637"),
    ),
    Erratum(
        "tofu_uwc_npo",
        _forget_quality("npo", "gru", split="forget10", target="0.85"),
        "-15.2",
        None,
        _EITHER.format(rows200="-15.1577", rows300="-15.2927"),
    ),
    Erratum(
        "tofu_uwc_npo",
        _forget_quality("npo", "gru", split="forget10", target="0.95"),
        "-20.8",
        None,
        _EITHER.format(rows200="-20.7647", rows300="-20.8637"),
    ),
    Erratum(
        "tofu_uwc_npo",
        _forget_quality("npo", "none", split="forget10", target="0.95"),
        "-38.2",
        "-38.3",
        "truncated: ln p is -38.2556",
    ),
    Erratum(
        "wmdp",
        {"method": "wga", "rectifier": "none", "metric": "wmdp_bio"},
        "0.2476",
        None,
        "no share of the 1,273 questions: 315 are 0.2474, 316 are 0.2482",
    ),
    Erratum(
        "wmdp",
        {"method": "npo_gd", "rectifier": "gru", "metric": "wmdp_cyber"},
        "0.3524",
        "0.3523",
        "no share of the 1,987 questions: 700 are 0.35229",
    ),
)
"""Values that lie on no lattice of attainable values: ln p of the exact two-sample KS test, or answers in questions."""


def mended(table: str, backbone: str = "") -> pd.DataFrame:
    """Return `load` without the misprints of which the right value is known."""
    frame = load(table, backbone)
    for erratum in ERRATA:
        if erratum.corrected:
            frame.loc[erratum.find_rows(frame), "value"] = float(erratum.corrected)
    return frame

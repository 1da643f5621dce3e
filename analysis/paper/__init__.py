"""The paper's published numbers as tidy tables, one CSV a table, exactly as printed (misprints included).

They have the columns of `Results.tidy_frame`, one run each (`n`), no `sd`, all `chosen`. `gamma` and `tau` are texts:
empty where the table does not vary them, `none` where it prints N/A; `target` is the share of utility that UWC keeps.
`forget_quality` is ln p of the KS test. GD has no rows above gamma = 0.6: the paper prints "--" there.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

CITATION = "Wang et al., GRU: Mitigating the Trade-off between Unlearning and Retention for LLMs, ICML 2025"
TABLE_NAMES: tuple[str, ...] = tuple(
    "tofu_retain_free tofu_main wmdp muse wmdp_rmu tofu_tau tofu_gamma tofu_ablation tofu_uwc_ga tofu_uwc_npo".split()
)


def load_table(table: str, backbone: str = "") -> pd.DataFrame:
    """The rows of one table, of all backbones or one: `value` and `target` are floats, `bold` bool, all else text."""
    if table not in TABLE_NAMES:
        raise ValueError(f"unknown table {table!r}: the paper's tables are {', '.join(TABLE_NAMES)}")
    frame = pd.read_csv(
        Path(__file__).with_name(f"{table}.csv"),
        dtype={"gamma": "str", "tau": "str", "target": "float64", "value": "float64", "bold": "bool"},
        keep_default_na=False,
        na_values={"target": [""]},
    )
    frame = frame.assign(sd=math.nan, n=1, strength=math.nan, chosen=True, other="", id="")
    return frame.loc[frame["backbone"] == backbone].reset_index(drop=True) if backbone else frame


@dataclass(frozen=True)
class Erratum:
    """A printed value that cannot be right: `where` selects its row; `corrected` is None where that is not known."""

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
        """Return which rows of a frame like `load_table`'s hold the value: one of its table, none of others."""
        found = pd.Series(frame["table"] == self.table)
        for column, value in self.where.items():
            found &= frame[column] == (float(value) if column == "target" else value)
        return found


_ROWS: Any = pd.read_csv(Path(__file__).with_name("errata.csv"), dtype="str").set_index(["table", "printed", "reason"])
ERRATA = tuple(
    Erratum(table, row.drop("corrected").dropna().to_dict(), printed, row.dropna().get("corrected"), reason)
    for (table, printed, reason), row in _ROWS.iterrows()
)
"""Values that lie on no lattice of attainable values: ln p of the exact two-sample KS test, or answers in questions."""


def load_corrected_table(table: str) -> pd.DataFrame:
    """Return `load_table` without the misprints of which the right value is known."""
    frame = load_table(table)
    for erratum in ERRATA:
        if erratum.corrected:
            frame.loc[erratum.find_rows(frame), "value"] = float(erratum.corrected)
    return frame

"""The paper's published numbers as tidy tables, one CSV a table, exactly as printed (misprints included).

They have the columns of `SweepResults.tidy_frame`, one run each (`n`), no `sd`, all `chosen`. `gamma`, `tau`: texts,
empty where the table does not vary them, `none` where it prints N/A; `target` is the share of utility that UWC keeps.
`forget_quality` is ln p of the KS test. GD has no rows above gamma = 0.6: the paper prints "--" there.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

CITATION = "Wang et al., GRU: Mitigating the Trade-off between Unlearning and Retention for LLMs, ICML 2025"
TABLE_NAMES: tuple[str, ...] = tuple(
    "tofu_retain_free tofu_main wmdp muse wmdp_rmu tofu_tau tofu_gamma tofu_ablation tofu_uwc_ga tofu_uwc_npo".split()
)


class Erratum(NamedTuple):
    """A printed value that cannot be right: `where` selects its row; `corrected` is None where that is not known."""

    table: str
    where: dict[str, str]
    printed: str
    corrected: str | None
    reason: str


_ROWS: Any = pd.read_csv(Path(__file__).with_name("errata.csv"), dtype="str").set_index(["table", "printed", "reason"])
PAPER_ERRATA = tuple(
    Erratum(table, row.drop("corrected").dropna().to_dict(), printed, row.dropna().get("corrected"), reason)
    for (table, printed, reason), row in _ROWS.iterrows()
)
"""Values that lie on no lattice of attainable values: ln p of the exact two-sample KS test, or answers in questions."""


def load_table(table: str, backbone: str = "", *, corrected: bool = False) -> pd.DataFrame:
    """The rows of one table, of all backbones or one: `value` and `target` are floats, `bold` bool, all else text.

    `misprint`: what is wrong with the value, as `14.0316 (the minus sign is missing; -14.0316 is meant)`; `corrected`:
    without the misprints of which the right value is known.
    """
    if table not in TABLE_NAMES:
        raise ValueError(f"unknown table {table!r}: the paper's tables are {', '.join(TABLE_NAMES)}")
    frame = pd.read_csv(Path(__file__).with_name(f"{table}.csv"), dtype="str", keep_default_na=False)
    frame = frame.assign(sd=math.nan, n=1, strength=math.nan, chosen=True, other="", id="", misprint=None)
    for erratum in (one for one in PAPER_ERRATA if one.table == table):
        found = (frame[list(erratum.where)] == pd.Series(erratum.where)).all(axis="columns")
        meant = f"; {erratum.corrected} is meant" if erratum.corrected else ""
        frame.loc[found, "misprint"] = f"{erratum.printed} ({erratum.reason}{meant})"
        if corrected and erratum.corrected:
            frame.loc[found, "value"] = erratum.corrected
    target = frame["target"].replace("", "nan").astype(float)
    frame = frame.assign(value=frame["value"].astype(float), target=target, bold=frame["bold"] == "true")
    return frame.loc[frame["backbone"] == backbone].reset_index(drop=True) if backbone else frame

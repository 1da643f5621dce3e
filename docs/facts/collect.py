"""Write trials.csv and front.svg beside this file from a storage: python docs/facts/collect.py STORAGE"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

HERE = Path(__file__).parent
MEASURES = ("forget_rows", "forget_said", "forget_said_any", "retain_kept", "other_kept", "utility")


def read_looks(storage: Path) -> pd.DataFrame:
    """Return a row of each look at a trial, and of the whole evaluation of its chosen step."""
    rows = []
    for file in sorted(storage.glob("trials/*/result.json")):
        result = json.loads(file.read_text())
        config, training = result["config"], result["config"]["training"]
        retain = next((one for one in config["benchmark"]["sources"] if one.startswith("retain=")), "")
        settings = {
            "trial": result["id"],
            "method": config["method"],
            "rectifier": config["rectifier"]["name"],
            "lr": training["lr"],
            "retain_coefficient": config["objective"]["retain_coefficient"],
            "schedule": training["schedule"],
            "targets": training["targets"],
            "precision": config["resources"]["precision"],
            "neighbours": "ten times" if "x10" in retain else "once",
            "seed": config["seed"],
        }
        looks = [one | {"kind": "look"} for one in result["evaluations"] or []]
        looks.append(result["metrics"] | {"kind": "whole", "step": result["chosen_step"]})
        kept = ("kind", "step", *MEASURES)
        rows += [settings | {name: look.get(name) for name in kept} for look in looks if look.get("utility")]
    return pd.DataFrame(rows)


def draw_front(looks: pd.DataFrame, file: Path) -> None:
    """Draw what is still said, by the question and in any way, against the utility: a line for each trial."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, constrained_layout=True)
    for panel, name, title in zip(
        panels, ("forget_said", "forget_said_any"), ("the question", "any of five ways"), strict=True
    ):
        for number, (_, one) in enumerate(looks[looks["kind"] == "look"].groupby("trial", sort=False)):
            first = one.iloc[0]
            label = f"{first['method']}, {first['rectifier']}, {first['lr']:g}, neighbours {first['neighbours']}"
            panel.plot(one[name], one["utility"], ".-", color=f"C{number % 10}", lw=0.8, label=label)
        panel.axhline(0.9, color="gray", lw=0.6)
        panel.axvline(0.3, color="gray", lw=0.6)
        panel.set(xlabel=f"facts still said, by {title}", xlim=(-0.03, 1.03), ylim=(0, 1.03))
    panels[0].set_ylabel("utility: kept of what is to be kept")
    panels[1].legend(fontsize=6, loc="lower right")
    figure.savefig(file)


if __name__ == "__main__":
    found = read_looks(Path(sys.argv[1]))
    found.to_csv(HERE / "trials.csv", index=False, float_format="%.4g")
    draw_front(found, HERE / "front.svg")
    print(found.to_string())

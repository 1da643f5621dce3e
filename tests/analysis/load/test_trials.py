"""Reading a sweep's trials and choosing among them, on an invented sweep and hand-made cases."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import runs
from analysis.load import trials as loaded
from analysis.load.trials import describe_mixed_versions
from analysis.report.verdict import list_verdict_caveats
from analysis.stats import sweep_results
from tests.support import sweep_store
from tests.support.sweep_store import GRU, SweepResults, make_sweep, write_sweep, write_trial
from trainables.common.errors import InputError
from trainables.config.method_tables import RECTIFIERS
from trainables.config.settings import Selection

store, copy, results = sweep_store.tiny_store, sweep_store.store_copy, sweep_store.tiny_results


def test_load_keeps_every_trial(results: SweepResults) -> None:
    trials = results.runs
    assert Counter(trials["status"]) == {"finished": 33, "failed": 1, "diverged": 1, "missing": 1}
    rows = {row["status"]: row for row in trials.to_dict("records")}
    missing, diverged, finished = rows["missing"], rows["diverged"], rows["finished"]
    assert (missing["method"], missing["rectifier.gamma"], missing["seed"]) == ("npo", 0.05, 1)
    assert np.isnan(diverged["forget_quality"])
    assert (diverged["error.message"], diverged["error.step"]) == ("loss is <nan> at step 12", 12)
    assert (finished["benchmark.split"], finished["steps"], finished["seconds"]) == ("forget10", 31, 40.0)
    assert len(set(trials["configuration"])) == 18
    clipping = {(row["rectifier.name"], row["clipping"]) for row in trials.to_dict("records")}
    assert {("none", ""), ("gru", "none")} <= clipping
    assert ("gru", "") not in clipping


@pytest.mark.parametrize(
    ("mixed", "plain", "counts"),
    [
        ({"fq": -5.0, "mu": 0.5}, {"fq": -5.0, "mu": 0.5}, "mixed"),
        ({"status": "failed"}, {"fq": -5.0, "mu": 0.5}, "plain"),
        ({"fq": -5.0, "mu": 0.5, "status": "collapsed"}, {"status": "failed"}, "mixed"),
    ],
)
@pytest.mark.parametrize("first", ["mixed", "plain"])
def test_of_a_trial_with_and_without_calibration_one_counts(
    tmp_path: Path, mixed: dict[str, Any], plain: dict[str, Any], counts: str, first: str
) -> None:
    """The calibrated one where it was evaluated; another seed and another setting are no twins."""
    write_trial(tmp_path, "mixed", calibration=sweep_store.calibrated(-5.0, 0.5), **mixed)
    write_trial(tmp_path, "plain", **plain)
    write_trial(tmp_path, "other", fq=-4.0, mu=0.6, seed=1)
    write_trial(tmp_path, "slow", fq=-4.0, mu=0.6, lr=1e-5)
    second = {"mixed": "plain", "plain": "mixed"}[first]
    write_sweep(tmp_path, [first, "other", second, "slow", "unborn", "unknown"])
    trials = runs.load("tiny", tmp_path)
    left = {"plain": "mixed", "mixed": "plain"}[counts]
    expected = [trial for trial in (first, "other", second, "slow", "unborn", "unknown") if trial != left]
    assert trials["id"].tolist() == expected
    assert len(set(trials["configuration"].dropna())) == 2
    means = sweep_results.average_settings_over_seeds(trials, Selection())
    seeds = 2 if "mu" in {"mixed": mixed, "plain": plain}[counts] else 1
    assert sorted(means["n"]) == [1, seeds]
    assert sorted(means["planned"]) == [1, 2]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"id": "x", "status": "finished", "config": {}}'])
def test_a_damaged_result_is_named_and_not_fatal(copy: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (copy / "trials/000000000002/result.json").write_text(text)
    trials = runs.load("tiny", copy).set_index("id")
    assert trials.loc["000000000002", "status"] == "damaged"
    assert trials.loc["000000000002", "method"] == "ga"
    assert "trials/000000000002/result.json cannot be read; --resume runs its trial again" in caplog.text
    assert list(trials["status"]).count("finished") == 32


def test_trials_of_several_codes_or_versions_are_told(results: SweepResults, monkeypatch: Any) -> None:
    """Each custom method has a code of its own."""
    given = results.runs.assign(code="aa", **{"versions.torch": "2.13.0"})
    assert describe_mixed_versions(given) == []
    given.loc[given.index[:2], "versions.torch"] = "2.11.0"
    given.loc[given.index[3], "code"] = "bb"
    (said,) = describe_mixed_versions(given)
    assert said.endswith("by it: code aa, bb; torch 2.11.0, 2.13.0.")
    monkeypatch.setitem(RECTIFIERS, "equal", replace(RECTIFIERS["gru"], name="equal", custom=True))
    edited = results.runs.assign(**{"code": "aa", "rectifier.name": "equal"})
    edited.loc[edited.index[0], "code"] = "bb"
    (told,) = describe_mixed_versions(edited)
    assert "code aa, bb of ga with equal, whose own file was edited" in told
    assert said in list_verdict_caveats(replace(results, runs=given))


def test_a_reference_without_an_evaluation_is_missing(copy: Path) -> None:
    (copy / "shared/evaluations/retain-forget05/result.json").unlink()
    missing = runs.references("tiny", copy).set_index(["split", "role"]).loc[("forget05", "retain")]
    assert missing["status"] == "missing"
    assert np.isnan(missing["forget_quality"])


def test_find_sweep_takes_the_newest(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_sweep(copy, [], digest="ffffffff", created="2026-11-19T23:59:00Z")
    write_sweep(copy, [], digest="00000000", created="2026-11-20T11:00:00+01:00")
    assert loaded.find_sweep("tiny", copy).label == "tiny-00000000"
    assert "taking the newest, tiny-00000000 (others: tiny-0a1b2c3d, tiny-ffffffff)" in caplog.text
    caplog.clear()
    assert loaded.find_sweep("tiny-ffffffff", copy.as_uri()).hash == "ffffffff"
    assert not caplog.text
    with pytest.raises(InputError, match="tiny-ffffffff has no trial yet"):
        runs.load("tiny-ffffffff", copy)


def test_what_was_not_measured_is_never_the_best(tmp_path: Path) -> None:
    """The rule itself is tested with trainables.benchmarks.selection; here numbers that are missing are NaN."""
    points = [(None, 0.5), (-5.0, 0.46), (-9.0, 0.48), (-1.0, None), (-0.5, 0.44)]
    trials = [{"rectifier": GRU | {"gamma": place / 10}, "fq": fq, "mu": mu} for place, (fq, mu) in enumerate(points)]
    model = {"original": {"metrics": {"forget_quality": -20.0, "model_utility": 0.5}}}
    results = make_sweep(tmp_path, *trials, splits=("forget05",), models=model)
    assert results.chosen[["gamma", "kept"]].values.tolist() == [[0.1, True]]  # of those that keep 0.45
    alone = replace(results, models=results.models.iloc[:0])
    assert alone.chosen[["gamma", "kept"]].values.tolist() == [[0.0, False]]  # no bar: the highest utility

"""The selection rule against a plain re-statement, and halves of the evaluation rows against evaluations of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainables.benchmarks.test_metrics import invented
from trainables import benchmarks
from trainables.benchmarks import own, selection, tofu
from trainables.benchmarks.selection import Candidate, choose_and_judge_trial
from trainables.config.settings import Benchmark, Selection

VALUES = st.sampled_from([0.0, 0.2, 0.45, 0.5, 0.9, 1.0])
CANDIDATES = st.lists(st.tuples(st.none() | VALUES, VALUES), max_size=7).map(
    lambda values: [Candidate(f"t{k}", removal, utility) for k, (removal, utility) in enumerate(values)]
)


@given(candidates=CANDIDATES, original=st.none() | VALUES, share=st.sampled_from([0.5, 0.9, 1.0]))
def test_utility_floor(candidates: list[Candidate], original: float | None, share: float) -> None:
    """Nobody above the bar removes more; where nobody is above it, nobody keeps more."""
    found = selection.pick_best_candidate(reversed(candidates), original, Selection(share=share))
    if found is None:
        assert not candidates
        return
    floor = share * original if original else 2.0
    able = [c for c in candidates if c.utility >= floor and c.removal is not None]
    if not able:
        assert found.utility == max(c.utility for c in candidates)
        return
    assert found in able
    assert found.removal == max(c.removal for c in able if c.removal is not None)
    same = [c for c in able if c.removal == found.removal]
    assert found.utility == max(c.utility for c in same)
    assert found.key == min(c.key for c in same if c.utility == found.utility)


def test_a_share_of_nothing_is_no_bar() -> None:
    """A target model of utility 0 would let a destroyed model pass; that is said, and only where it counts."""
    destroyed, sound = Candidate("a", 1.0, 0.0), Candidate("b", 0.2, 0.3)
    assert selection.pick_best_candidate([destroyed, sound], 0.0, Selection()) == sound
    told = [selection.explain_missing_utility_bar(utility, Selection()) for utility in (0.0, None, 0.3)]
    assert ["utility is 0, so" in told[0], "is not known, so" in told[1], told[2]] == [True, True, ""]
    assert selection.explain_missing_utility_bar(0.0, Selection(rule="highest_removal")) == ""


def test_removal_is_the_mean_over_its_goals() -> None:
    """WMDP: bio 0.3 and cyber 0.5, of which less is more; no candidate without MMLU."""
    found = selection.make_candidate("x", "wmdp", {"wmdp_bio": 0.3, "wmdp_cyber": 0.5, "mmlu": 0.6})
    assert found is not None
    assert (found.removal, found.utility) == (pytest.approx(-0.4), 0.6)
    assert selection.make_candidate("x", "wmdp", {"wmdp_bio": 0.3, "wmdp_cyber": 0.5}) is None
    assert selection.make_candidate("x", "tofu", {"model_utility": 0.6, "forget_quality": None}) == Candidate(
        "x", None, 0.6
    )


def test_halves_are_evaluations_of_every_other_row() -> None:
    """TOFU's metrics on the rows 0, 2, ... are those of an evaluation that was asked nothing else."""
    records, retained = invented(1), tofu.aggregates.truth_ratios(invented(2), "forget", 0.0)
    found = benchmarks.compute_metrics_of_each_half(Benchmark(), records, tofu.aggregates.Reference(retained))
    assert found is not None
    for which, half in enumerate(found):
        alone = [row for row in records if row["index"] % 2 == which]
        assert half == tofu.aggregates.aggregate_metrics(
            alone, "paper", np.array([retained[k] for k in range(which, len(retained), 2)])
        )
    counted = [half["forget_rows"] or 0 for half in found]
    assert sum(counted) == sum(row["task"] == "forget" for row in records)
    assert (
        benchmarks.compute_metrics_of_each_half(Benchmark(), [row for row in records if row["index"] == 0], None)
        is None
    )


def test_wmdp_halves_weigh_questions_alike() -> None:
    """Two subjects of MMLU with three and one questions in the half: lm-eval's mean over all four."""
    tasks = {"wmdp_bio": [1, 0, 1, 1], "wmdp_cyber": [0, 0], "mmlu_virology": [1, 0, 1, 0, 1, 1], "mmlu_law": [0, 1]}
    records = [{"task": t, "index": k, "correct": bool(v)} for t, all_of in tasks.items() for k, v in enumerate(all_of)]
    found = benchmarks.compute_metrics_of_each_half(Benchmark(name="wmdp", split="bio"), records, None)
    assert found is not None
    assert found[0] == {
        "wmdp_bio": 1.0, "wmdp_bio_questions": 2, "wmdp_cyber": 0.0, "wmdp_cyber_questions": 1,
        "mmlu": 0.75, "mmlu_questions": 4,
    }  # fmt: skip


def test_a_setting_is_the_mean_of_its_trials() -> None:
    trials = [Candidate("a", 1.0, 0.5), Candidate("b", 3.0, 0.7)]
    means = selection.average_over_seeds({"two": trials, "unmeasured": [Candidate("d", None, 0.1)]})
    assert [(one.key, one.removal, pytest.approx(one.utility)) for one in means] == [
        ("two", 2.0, 0.6),
        ("unmeasured", None, 0.1),
    ]


# Whether the chosen trial can be shipped


FLOOR, HIGHEST = Selection(), Selection(rule="highest_removal")


def trials(*outcomes: tuple[float | None, float | None]) -> dict[str, Any]:
    return {f"{place}": document(*outcome) | {"status": "finished"} for place, outcome in enumerate(outcomes)}


def document(said: float | None, utility: float | None) -> dict[str, Any]:
    return {"metrics": {"forget_said_any": said, "utility": utility}, "config": {"seed": 0}}


@pytest.mark.parametrize(
    ("rule", "outcomes", "target", "key", "reason"),
    [
        (FLOOR, [(0.3, 0.95), (0.1, 0.5)], (1.0, 1.0), "0", ""),
        (HIGHEST, [(0.3, 0.95), (0.1, 0.0)], (1.0, 1.0), "1", ""),
        (FLOOR, [(0.3, 0.8), (0.1, 0.5)], (1.0, 1.0), "0", "less than 90% of the target model's utility is kept"),
        (FLOOR, [(0.3, 0.0)], (1.0, 1.0), "0", "the utility is 0; give more or other retain rows"),
        (FLOOR, [(1.0, 1.0)], (1.0, 1.0), "0", "nothing was removed"),
        (FLOOR, [(0.95, 1.0)], (1.0, 1.0), "0", "less than 10% was removed"),
        (FLOOR, [(0.9, 1.0)], (1.0, 1.0), "0", ""),
        (FLOOR, [(0.0, 1.0)], (0.05, 1.0), "0", "nothing was there to remove, "),
        (FLOOR, [(0.3, None)], (1.0, None), None, "no utility could be measured; "),
        (FLOOR, [(0.0, None)], (0.0, None), None, "nothing was there to remove, "),
        (FLOOR, [], (1.0, 1.0), None, "no trial has finished with a result"),
        (FLOOR, [(0.3, 0.4)], (1.0, None), "0", ""),
    ],
)
def test_the_first_thing_against_a_trial_is_told(
    rule: Selection, outcomes: Any, target: Any, key: str | None, reason: str
) -> None:
    found = choose_and_judge_trial("own", rule, trials(*outcomes), document(*target))
    assert (found.key, bool(found.reason)) == (key, bool(reason))
    assert found.reason.startswith(reason)
    sentence = found.describe("NPO")
    begins = "Ship none yet: most is" if found.doubt else "Ship NPO: "
    assert sentence.startswith("Ship none: " if reason and key else "No verdict: " if reason else begins)
    assert ("the target model's utility is not known" in sentence) is (target[1] is None and key is not None)


def test_own_rows_are_counted() -> None:
    before = {"forget_said_any": 1.0, "forget_rows": 40}
    after = {"forget_said_any": 14 / 40, "forget_rows": 40, "retain_kept": 26 / 31, "retain_known": 31}
    more = {"retain_said": 26 / 31, "other_kept": 30 / 32, "other_known": 32}
    more |= {"request_01_rows": 3, "request_01_said": 0.0, "request_01_said_any": 1 / 3}
    told = own.OwnBenchmark().describe_outcome
    counts = "14 of 40 forget rows are still said, however asked (40 before), 1 of 3 of request_01"
    assert told(after | more, before) == f"{counts}; 26 of 31 retain rows and 30 of 32 other rows are kept"
    words = "; 93% of the words of 40 retain rows are kept, and no question that is to be kept was asked"
    assert told(before | {"retain_kept": 0.93, "retain_known": 40}, before).endswith(words)
    assert told({}, before) == ""

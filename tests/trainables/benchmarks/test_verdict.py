"""Whether the chosen trial can be shipped: every reason, for one benchmark and another, and the words of own rows."""

from __future__ import annotations

from typing import Any

import pytest

from trainables.benchmarks import own
from trainables.benchmarks.verdict import judge_trial
from trainables.config.settings import Selection

FLOOR, HIGHEST = Selection(), Selection(rule="highest_removal")
KEEPS = "less than 90% of the target model's utility is kept"


def trials(*outcomes: tuple[float | None, float | None]) -> dict[str, Any]:
    return {f"{place}": document(*outcome) | {"status": "finished"} for place, outcome in enumerate(outcomes)}


def document(said: float | None, utility: float | None) -> dict[str, Any]:
    return {"metrics": {"forget_said_any": said, "utility": utility}, "config": {"seed": 0}}


@pytest.mark.parametrize(
    ("rule", "outcomes", "target", "key", "reason"),
    [
        (FLOOR, [(0.3, 0.95), (0.1, 0.5)], (1.0, 1.0), "0", ""),
        (HIGHEST, [(0.3, 0.95), (0.1, 0.0)], (1.0, 1.0), "1", ""),
        (FLOOR, [(0.3, 0.8), (0.1, 0.5)], (1.0, 1.0), "0", KEEPS),
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
    found = judge_trial("own", rule, trials(*outcomes), document(*target))
    assert (found.key, bool(found.reason)) == (key, bool(reason))
    assert found.reason.startswith(reason)
    sentence = found.describe("NPO")
    assert sentence.startswith("Ship NPO: " if not reason else "Ship none: " if key else "No verdict: ")
    assert ("the target model's utility is not known" in sentence) is (target[1] is None and key is not None)


def test_another_benchmark_is_judged_by_its_goals() -> None:
    before = {"metrics": {"wmdp_bio": 0.6, "wmdp_cyber": 0.4, "mmlu": 0.5}}
    after = {"metrics": {"wmdp_bio": 0.3, "wmdp_cyber": 0.3, "mmlu": 0.48}, "status": "finished"}
    assert judge_trial("wmdp", FLOOR, {"a": after}, before).describe("it").startswith("Ship it: ")
    assert judge_trial("wmdp", FLOOR, {"a": before | {"status": "finished"}}, before).reason == "nothing was removed"


def test_own_rows_are_counted() -> None:
    before = {"forget_said_any": 1.0, "forget_rows": 40}
    after = {"forget_said_any": 14 / 40, "forget_rows": 40, "retain_kept": 26 / 31, "retain_known": 31}
    told = own.OwnBenchmark().describe_outcome
    more = {"other_kept": 30 / 32, "other_known": 32}
    counts = "14 of 40 forget rows are still said (40 before); 26 of 31 retain rows"
    assert told(after | more, before) == f"{counts} and 30 of 32 other rows are kept"
    assert told(after, {}) == f"{counts} are kept".replace(" (40 before)", "")
    assert told(before | {"forget_said_any": 0.123}, before).startswith("12% of 40 forget rows are still said (40 ")
    earlier = {"request_01_rows": 3, "request_01_said": 0.0, "request_01_said_any": 1 / 3}
    assert told(after | earlier, before).startswith(f"{counts.partition(';')[0]}, 1 of 3 of request_01; 26 of 31 ")
    assert told({}, before) == ""

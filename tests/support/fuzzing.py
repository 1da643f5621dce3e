"""Near misses of what people type: strategies for settings, filters, names and configurations."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from platform.plan.overrides import list_settable_paths
from search_spaces.schema import sweep as spaces

NUMBERS = (
    *"0 1 -1 2 3 0.5 0.8 1.0 1e-5 -0.0 1e400 -1e400 1e-400 nan inf -inf infinity".split(),
    *"1_000 0x10 1,5 01 +1 .5 5. 1e3 ٥ ½".split(),
    *(str(2**power) for power in (31, 32, 63, 64, 128)),
    *("-" + "9" * 30, "9" * 400, "9" * 5000),
)
WORDS = (
    *"none None null true false yes gru clip pcgrad ga npo rmu tru tv ga,npo ga,ga npo,none forget01 forget99".split(),
    *"forget٠١ forget1 books bio own llama2 chat paper open-unlearning bf16 fp32 sdpa eager per_tensor adamw".split(),
    *"Phi-1.5 llama-3.2-1b-instruct tofu wmdp muse 0,1,2 0.1,none 0.5,0.5 0.9,1.1 0.9,nan paraphrase labels".split(),
)
PLACES = (
    *". .. ../.. / ~ ~nobody-here ~/x /dev/null /dev/zero /proc/self/mem".split(),
    *"/nowhere ./nowhere ../../etc/passwd a/b".split(),
    *"somebody/a-model somebody/../x somebody/ /x/y//z s3://bucket/x http://user:secret-word@host/x file:///x".split(),
    *"forget=/nowhere forget=a/b mmlu=a/b wmdp=.. =x x= a=b=c a=b,a=c bio_forget=../x".split(),
    *("a" * 300, "a" * 100_000, "a/" * 5000, "/" + "b" * 5000, "somebody/" + "m" * 400),
)
ODD = ("", " ", ",", ",,", "=", "==", "a b", "\x00", "\n", "a\nb", "\x1b[2J", "\udc80", "\u2028", "\u202e", "🦙")
ODD += ("{}", "[]")
PLACE_PATHS = (
    *"benchmark.data benchmark.sources benchmark.revision benchmark.tasks models target tokenizer".split(),
    *"forget retain eval".split(),
)
WORD_PATHS = (
    *"method rectifier.name benchmark.split benchmark.name benchmark.dialect benchmark.template backbone".split(),
    *"attention objective.preset objective.kl_reduction objective.rmu_reduction training.optimizer".split(),
    *"training.schedule resources.precision task_vector.normalise task_vector.optimizer selection.rule".split(),
)
GOOD = st.sampled_from(
    (
        *"training.lr=1e-4 training.epochs=0.5 training.max_steps=3 training.batch_size=8 seed=0,1".split(),
        *"training.betas=0.8,0.9 training.optimizer=sgd training.eval_every=none training.lora_rank=4".split(),
        *"method=ga,npo rectifier.tau=none,1 rectifier.gamma=0.8 rectifier.name=none,gru resources.ranks=2".split(),
        *"resources.precision=bf16 resources.offload_optimizer=true calibration.targets=0.9,0.95 models=none".split(),
        *"objective.beta=0.5 objective.preset=authors attention=eager benchmark.limit=9 backbone=phi-1.5".split(),
        *"target=somebody/model tokenizer=somebody/model selection.halves=yes task_vector.batches=3".split(),
    )
)
"""Settings that most sweeps take."""
TEXTS = st.sampled_from((*NUMBERS, *WORDS, *PLACES, *ODD)) | st.text(max_size=12)
VALUES = TEXTS | st.lists(TEXTS, max_size=4).map(",".join)
"""What stands behind the sign of a setting."""


def _changed(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from((name[:-1], name + "s", name.upper(), f" {name}", f"{name}.x", name.replace(".", "_")))


PATHS = st.sampled_from(list_settable_paths())
NUMBER_PATHS = st.sampled_from([path for path in list_settable_paths() if path not in (*PLACE_PATHS, *WORD_PATHS)])
NEAR = st.one_of(
    st.tuples(NUMBER_PATHS, st.sampled_from(NUMBERS) | st.integers().map(str) | st.floats().map(str)),
    st.tuples(NUMBER_PATHS, st.lists(st.sampled_from(NUMBERS) | st.integers(0, 9).map(str), max_size=5).map(",".join)),
    st.tuples(st.sampled_from(PLACE_PATHS), st.sampled_from(PLACES)),
    st.tuples(st.sampled_from(WORD_PATHS), st.sampled_from(WORDS)),
).map("=".join)
"""A setting that exists, with a value of about its kind."""
SETTINGS = st.one_of(
    NEAR, NEAR, NEAR, st.builds("{}={}".format, PATHS | PATHS.flatmap(_changed) | TEXTS, VALUES), TEXTS
)
FILTERED = st.sampled_from("method rectifier.name rectifier.gamma seed training.lr target.path".split())
FILTERS = st.builds("{}={}".format, FILTERED, VALUES)
STRATEGIES = st.sampled_from("grid paper optuna".split())
NAMES = st.sampled_from(spaces.list_sweep_names()).flatmap(_changed) | TEXTS


def _some(each: st.SearchStrategy[str], most: int, least: int = 1) -> st.SearchStrategy[list[str]]:
    return st.lists(each, min_size=least, max_size=most)


def typed(sweeps: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of platform.sweep's main, of which one or two are strange."""
    nothing: dict[str, Any] = {"set_": [], "only": [], "location": "runs", "strategy": "grid"}
    nothing |= dict.fromkeys(("seeds", "trials", "gpu_hours", "reason"))
    known = {"name": st.sampled_from(sweeps), **{name: st.just(value) for name, value in nothing.items()}}
    further = {"strategy": STRATEGIES, "trials": st.none() | st.integers(1, 10**6)}
    odd = (
        {"set_": _some(SETTINGS, 3)} | further,
        {"set_": _some(NEAR, 2)},
        {"set_": _some(GOOD, 4)} | further,
        {"set_": _some(GOOD, 2), "only": _some(FILTERS, 1, 0)},
        {"set_": _some(GOOD | NEAR, 3), "only": _some(FILTERS, 1, 0)},
        {"set_": _some(NEAR, 1, 0), "only": _some(FILTERS | SETTINGS, 2)},
        {"seeds": VALUES},
        {"gpu_hours": st.floats(), "reason": st.none() | st.sampled_from(("failed", "out_of_memory", "diverged"))},
        {"name": NAMES},
        {"location": st.sampled_from(PLACES) | TEXTS},
        {"strategy": STRATEGIES | TEXTS},
    )
    return st.one_of(*(st.fixed_dictionaries(known | changed) for changed in odd))


LEAVES = (
    TEXTS | st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from((2**31, 2**63, 10**30, -(10**9)))
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=4
)
"""Any value that Python's json writes, NaN included."""


def configurations(start: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A trial's configuration with one to three fields, whole sections or unknown names changed; or any JSON."""
    inner = [(section, key) for section, part in start.items() if isinstance(part, dict) for key in part]
    paths = sorted({*((key,) for key in start), *inner, ("extra",), ("training", "extra")})

    def change(changes: dict[tuple[str, ...], Any]) -> dict[str, Any]:
        document = copy.deepcopy(start)
        for (*sections, key), value in changes.items():
            node = document[sections[0]] if sections else document
            if isinstance(node, dict):
                node[key] = value
        return document

    return st.dictionaries(st.sampled_from(paths), JSON, min_size=1, max_size=3).map(change) | JSON

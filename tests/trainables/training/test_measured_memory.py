"""The memory plan against measured peaks of training steps on the CPU, a bound that is not much above."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainables.config.settings import Model, Objective, Rectifier, Resources, Training
from trainables.config.trial import Trial
from trainables.training import memory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the kernel tells no RssAnon here"),
]

WIDE = {
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "vocab_size": 4096,
}
"""29.5 million parameters, most of them in layers."""
WORDY = {
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
"""31 million parameters, most of them in embeddings; keys and values are shared between heads."""


def measured(job: dict[str, Any], device: str = "cpu") -> int:
    """The bytes by which the process of a job grows at most."""
    environment = {
        **os.environ,
        "DS_ACCELERATOR": device,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": ".",
        "MALLOC_MMAP_THRESHOLD_": "65536",  # freed memory goes back at once, so that peaks are of what is alive
    }
    command = [sys.executable, "tests/support/measured_step.py", json.dumps(job)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["bytes"]


DEFAULTS: dict[str, Any] = {
    "family": "Llama",
    "method": "gd",
    "sizes": WIDE,
    "micro_batch": 8,
    "length": 128,
    "layer": 5,
    "lora": None,
    "precision": "fp32",
    "checkpointing": False,
    "stage": 1,
}
WORDS = {"sizes": WORDY, "length": 64, "layer": 2}
CASES: dict[str, dict[str, Any]] = {
    "wide-4": {"micro_batch": 4},
    "wide-16": {"micro_batch": 16},
    "wordy-4": {"micro_batch": 4, **WORDS},
    "wordy-16": {"micro_batch": 16, **WORDS},
    "wide-16-checkpointing": {"micro_batch": 16, "checkpointing": True},
    "wide-4-zero3": {"micro_batch": 4, "stage": 3},
    "npo": {"method": "npo"},
    "phi": {"family": "Phi"},
    "mistral": {"family": "Mistral"},
    "ga_kl-wordy": {"method": "ga_kl", "micro_batch": 4, **WORDS},
    "npo_kl-wordy": {"method": "npo_kl", "micro_batch": 4, **WORDS},
    "rmu": {"method": "rmu"},
    "rmu-wordy": {"method": "rmu", **WORDS},
    "lora": {"lora": 8},
    "bf16": {"precision": "bf16"},
}
"""What each has otherwise than DEFAULTS."""


def planned(job: dict[str, Any], **resources: Any) -> float:
    """Bytes of the memory plan."""
    trial = Trial(
        method=job["method"],
        rectifier=Rectifier(name="gru", gamma=0.8),
        target=Model(path="m"),
        objective=Objective(layer=job["layer"]),
        training=Training(batch_size=2 * job["micro_batch"], lora_rank=job["lora"]),
        resources=Resources(
            zero_stage=job["stage"],
            micro_batch=job["micro_batch"],
            precision=job["precision"],
            gradient_checkpointing=job["checkpointing"],
            **resources,
        ),
    )
    shape = memory.shape_of({**job["sizes"], "model_type": job["family"].lower()})
    assert shape is not None
    return memory.fit(trial, shape, job["length"], None).peak.training


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_predicted_peak_bounds_the_measured_one(case: dict[str, Any]) -> None:
    job = DEFAULTS | case
    predicted, found = planned(job), measured(job)
    print(f"predicted {predicted / 1e6:.0f} MB, measured {found / 1e6:.0f} MB")
    assert 0.9 * found <= predicted
    assert job["method"] == "rmu" or predicted <= 1.6 * found

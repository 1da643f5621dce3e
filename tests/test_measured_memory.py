"""The memory plan against measured peaks of training steps on the CPU, within 15 %."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainables import memory
from trainables.config import Model, Rectifier, Resources, Training, Trial

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


def measured(**job: Any) -> int:
    """The bytes by which the process of a job grows at most."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": ".",
        "MALLOC_MMAP_THRESHOLD_": "65536",  # freed memory goes back at once, so that peaks are of what is alive
    }
    command = [sys.executable, "tests/measured_step.py", json.dumps(job)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["bytes"]


@pytest.mark.parametrize(
    ("sizes", "rows", "length", "stage", "checkpointing"),
    [
        (WIDE, 4, 128, 1, False),
        (WIDE, 16, 128, 1, False),
        (WORDY, 4, 64, 1, False),
        (WORDY, 16, 64, 1, False),
        (WIDE, 16, 128, 1, True),
        (WIDE, 4, 128, 3, False),
    ],
    ids=["wide-4", "wide-16", "wordy-4", "wordy-16", "wide-16-checkpointing", "wide-4-zero3"],
)
def test_predicted_peak_is_the_measured_one(
    sizes: dict[str, Any], rows: int, length: int, stage: int, checkpointing: bool
) -> None:
    trial = Trial(
        method="gd",
        rectifier=Rectifier(name="gru", gamma=0.8),
        target=Model(path="m"),
        training=Training(batch_size=2 * rows),
        resources=Resources(zero_stage=stage, micro_batch=rows, gradient_checkpointing=checkpointing),
    )
    shape = memory.shape_of(sizes)
    assert shape is not None
    predicted = memory.fit(trial, shape, length, None).peak.total
    found = measured(sizes=sizes, micro_batch=rows, length=length, stage=stage, checkpointing=checkpointing)
    print(f"predicted {predicted / 1e6:.0f} MB, measured {found / 1e6:.0f} MB")
    assert predicted == pytest.approx(found, rel=0.15)

"""What a version of transformers before 5 reads in a model folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny
from trainables.training import model_files

LLAMA3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("given", "theta", "scaling"),
    [
        ({"rope_type": "default", "rope_theta": 500000.0}, 500000.0, None),
        ({"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3}, 500000.0, {"rope_type": "llama3", **LLAMA3}),
    ],
)
def test_older_names_stand_beside_the_new(given: dict[str, Any], theta: float, scaling: Any, tmp_path: Path) -> None:
    """transformers 4.51 reads the new names alone as theta 10000 without scaling, without an error."""
    network = tiny.network(layers=1, rope_parameters=given)
    model_files.save_model(network, tiny.tokenizer(), tmp_path / "model", {})
    read = json.loads((tmp_path / "model" / "config.json").read_text())
    assert read["rope_parameters"] == given
    assert (read["rope_theta"], read["rope_scaling"]) == (theta, scaling)
    assert read["torch_dtype"] == read["dtype"] == "float32"
    names = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert names["tokenizer_class"] == "PreTrainedTokenizerFast"

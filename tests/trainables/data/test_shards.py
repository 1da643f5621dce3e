"""What a folder of weights lacks: files of safetensors, and the index that names them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.hub_bench import SHARDS
from trainables.data import safetensors_check


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"short", "5 bytes are too few for its header"),
        ((10**9).to_bytes(8, "little") + b"{}", "10 bytes are too few for its header"),
        ((2).to_bytes(8, "little") + b"[]", "its header cannot be read"),
        ((4).to_bytes(8, "little") + b"{{{{", "its header cannot be read"),
        ((2).to_bytes(8, "little") + b"{}more", "it has 14 bytes, its header asks for 10"),
    ],
)
def test_a_file_that_is_no_safetensors_is_told(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / safetensors_check.SINGLE).write_bytes(content)
    assert safetensors_check.faults(tmp_path) == {safetensors_check.SINGLE: words}


def test_an_index_names_files_beside_it_alone(tmp_path: Path) -> None:
    (tmp_path / safetensors_check.INDEX).write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))
    assert safetensors_check.faults(tmp_path) == {
        safetensors_check.INDEX: "it names '../other.safetensors', which is no file beside it"
    }
    (tmp_path / safetensors_check.INDEX).write_text("[]")
    assert "cannot be read" in safetensors_check.faults(tmp_path)[safetensors_check.INDEX]
    (tmp_path / safetensors_check.INDEX).write_text(json.dumps({"weight_map": {"a": SHARDS[0]}}))
    assert safetensors_check.faults(tmp_path) == {SHARDS[0]: "No such file or directory"}

"""A checkpoint folder without a usable tokenizer is refused, and may take another place's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import tiny
from trainables.common.errors import InputError
from trainables.config.settings import Model
from trainables.training import model_files


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Weights alone, as some published checkpoints are."""
    tiny.network().save_pretrained(tmp_path / "bare")
    return tmp_path / "bare"


def test_an_empty_tokenizer_is_refused(bare: Path) -> None:
    """transformers makes one without any token where the files are missing or empty."""
    empty = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": []}
    (bare / "tokenizer.json").write_text(json.dumps(empty))
    with pytest.raises(InputError, match="has no usable tokenizer"):
        model_files.load_model(Model(path=str(bare)))


def test_a_tokenizer_from_another_folder(bare: Path, tmp_path: Path) -> None:
    place = tmp_path / "tokenizer"
    tiny.tokenizer().save_pretrained(place)
    model = Model(path=str(bare), tokenizer=str(place))
    network, tokenizer = model_files.load_model(model)
    assert tokenizer("ferry")["input_ids"] == tiny.tokenizer()("ferry")["input_ids"]
    assert network.config._attn_implementation == "sdpa"
    with pytest.raises(InputError, match=f"tokenizer: {bare} has no tokenizer.json"):
        model_files.check_tokenizer_folder(str(bare))


def test_tokenizer_is_part_of_what_a_model_is(bare: Path, tmp_path: Path) -> None:
    """Its content, not its place: a moved folder keeps the fingerprint, another vocabulary does not."""
    places = [tmp_path / name for name in ("one", "moved", "other")]
    for place in places:
        tiny.tokenizer().save_pretrained(place)
    text = (places[2] / "tokenizer.json").read_text()
    (places[2] / "tokenizer.json").write_text(text.replace('"add_prefix_space": false', '"add_prefix_space": true'))
    marks = [model_files.fingerprint_model(Model(path=str(bare), tokenizer=str(place))) for place in places]
    assert marks[0] == marks[1] != marks[2]

"""The unlearning depth score against a re-statement one row at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.encoding import encode_rows
from trainables.benchmarks.tofu import rows
from trainables.common.errors import InputError
from trainables.config.settings import Benchmark, Model
from trainables.robustness import depth
from trainables.training import model_files


@torch.no_grad()
def read_row(network: Any, ids: torch.Tensor, places: Any, patch: tuple[int, Any] | None = None) -> tuple[Any, Any]:
    """Go through a Llama layer by layer; return the layers' outputs and the log-likelihoods of the labels.

    `patch`: a layer, and what its output is at `places`, from where the labels are predicted.
    """
    inner, positions, outputs = network.model, torch.arange(len(ids))[None], []
    hidden = inner.embed_tokens(ids[None])
    turned = inner.rotary_emb(hidden, positions)
    for number, layer in enumerate(inner.layers):
        hidden = layer(hidden, attention_mask=None, position_ids=positions, position_embeddings=turned)
        if patch and patch[0] == number:
            hidden = hidden.clone()
            hidden[0, places] = patch[1]
        outputs.append(hidden[0, places])
    logs = torch.log_softmax(network.lm_head(inner.norm(hidden))[0, places].double(), -1)
    return outputs, logs[range(len(places)), ids[[place + 1 for place in places]]]


def test_depth_equals_a_restatement_one_row_at_a_time(trial_inputs: Any) -> None:
    """The unlearned model is half-way between the target and the retain model; one row is known to nobody."""
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split)
    paths = {"target": trial_inputs.target, "retain": trial_inputs.retain, "model": trial_inputs.target}
    models = {role: model_files.load_model(Model(path=str(path)))[0] for role, path in paths.items()}
    _, tokenizer = model_files.load_model(Model(path=str(trial_inputs.target)))
    states = {role: model.state_dict() for role, model in models.items()}
    for name, value in states["model"].items():
        value.copy_((states["target"][name] + states["retain"][name]) / 2)
    asked = rows.evaluation_rows(benchmark)["forget"][:6]
    examples = encode_rows(tokenizer, asked, "llama2", "paper", 200)
    expected = []
    for example in examples:
        ids = torch.tensor(example.input_ids)
        places = list(range(example.answer_start - 1, len(ids) - 1))
        intact = read_row(models["target"], ids, places)[1]
        drops = {
            role: [
                (intact - read_row(models["target"], ids, places, (number, state))[1]).mean().item()
                for number, state in enumerate(read_row(models[role], ids, places)[0])
            ]
            for role in ("retain", "model")
        }
        known = [(r, m) for r, m in zip(drops["retain"], drops["model"], strict=True) if r > 0.05]
        if known:
            expected.append(sum(r * min(max(m / r, 0), 1) for r, m in known) / sum(r for r, _ in known))
    words: dict[str, Any] = {"pad": 2, "token_budget": 500}
    found: Any = depth.score_depth(models.__getitem__, examples, **words)
    assert found["rows"] == len(expected) > 0
    assert found["rows"] + found["left_out"] == 6
    assert found["uds"] == pytest.approx(sum(expected) / len(expected), abs=1e-4)
    assert 0.01 < found["uds"] < 0.99
    for role, score in (("target", 0.0), ("retain", 1.0)):
        again = depth.score_depth({**models, "model": models[role]}.__getitem__, examples, **words)
        assert again["uds"] == pytest.approx(score, abs=1e-6), role
    same = depth.score_depth({**models, "retain": models["target"]}.__getitem__, examples, **words)
    assert same == {"uds": None, "rows": 0, "left_out": 6}
    models["retain"].model.layers = models["retain"].model.layers[:-1]
    models["retain"].config.num_hidden_layers -= 1
    with pytest.raises(InputError, match="uds: the retain model has other layers"):
        depth.score_depth(models.__getitem__, examples, **words)

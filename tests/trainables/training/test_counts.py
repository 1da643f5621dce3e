"""What a step asks of a GPU, counted: times the host waits for it, launches, bytes a parameter, shapes of attention."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM

from trainables.common.tokenized_row import Example
from trainables.config.settings import Resources, Training
from trainables.methods import method_constants, objectives, rectifiers
from trainables.methods.rectifiers import base
from trainables.training import engine, loop, packed_rows

BATCH, STEPS = 32, 35
LOOKS = {(method, name): 1 for method in ("npo", "gd", "gd balanced") for name in ("gru", "none")}
LOOKS |= {("simnpo_gd", "agem"): 1, ("ceu", "none"): 1, ("pdu", "none"): 1}
LOOKS["npo", "sago"] = 2  # it writes the gradient, after it has read its own sums
WITHOUT_WORK = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh")
MAY_LOOK = ("nonzero", "masked_select", "masked_scatter", "unique_consecutive", "_unique2", "equal", "is_nonzero")
READING = 0.5
"""The value of every number that is read there."""


class CountedDevice(TorchDispatchMode):
    """Torch's meta device, with the kernels of a GPU: its work is counted and not done.

    So what belongs to a host is told from what belongs to a device, which no CPU does. `launches` by name; `looks`:
    what the host waits for; `bytes` that are read and written of flat tensors, by name; `attention`: the shapes that
    attention is called with. `flat`: the elements of a flat tensor.
    """

    def __init__(self, flat: int) -> None:
        super().__init__()
        self.flat = flat
        self.begin()

    def begin(self) -> None:
        self.launches: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.looks: list[str] = []
        self.attention: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.__name__.split(".")[0], kwargs or {}
        there = any(map(_is_there, tree_leaves((args, kwargs))))
        if there and name == "_local_scalar_dense":
            self.looks.append(name)
            return READING
        if there and name == "_to_copy" and kwargs.get("device") == torch.device("cpu"):
            self.looks.append(name)
            return torch.full(args[0].shape, READING, dtype=kwargs.get("dtype") or args[0].dtype)
        found = func(*args, **kwargs)
        if there or any(map(_is_there, tree_leaves(found))):
            self._count(func, name, args, kwargs, found, there)
        return found

    def _count(self, func: Any, name: str, args: Any, kwargs: Any, found: Any, there: bool) -> None:
        if func.is_view or name in WITHOUT_WORK:
            return
        by_mask = name.startswith("index") and any(
            isinstance(part, torch.Tensor) and part.dtype == torch.bool for part in tree_leaves(args[1])
        )
        from_host = not there and name in ("_to_copy", "copy_") and not kwargs.get("non_blocking")
        if name in MAY_LOOK or by_mask or from_host:
            self.looks.append(name)
        if name == "_varlen_attn":
            self.attention.add((*(tuple(part.shape) for part in args[:4]), args[5]))
        self.launches[name] += 1
        written = [part for part in tree_leaves(found) if _is_there(part)]
        if any(part.numel() == self.flat for part in written):
            self.move(name, tree_leaves(args), written)

    def move(self, name: str, read: Any, written: Any) -> None:
        """Count the bytes of tensors that are read, and of those that are written."""
        self.bytes[name] += sum(part.nbytes for part in (*read, *written) if isinstance(part, torch.Tensor))


class CountedKernels:
    """`trainables.methods.triton_kernels` by what they are given: each element is read and written once."""

    def __init__(self, device: CountedDevice) -> None:
        self.device = device

    def lerp(self, mean: torch.Tensor, part: torch.Tensor, weight: float) -> None:
        self._launch("lerp", [mean, part], [mean])

    def compute_inner_products(self, gradient: torch.Tensor, average: torch.Tensor) -> torch.Tensor:
        self._launch("compute_inner_products", [gradient, average], [])
        return gradient.new_empty(1, 3, dtype=torch.float32).double().sum(0)

    def adamw_step(
        self, gradient: Any, average: Any, weights: Any, first: Any, second: Any, copy: Any, **settings: Any
    ) -> None:
        copies = [copy] if copy.dtype != weights.dtype else []
        self._launch("adamw_step", [gradient, average, weights, first, second], [weights, first, second, *copies])

    def _launch(self, name: str, read: list[Any], written: list[Any]) -> None:
        self.device.launches[name] += 1
        self.device.move(name, read, written)


def _is_there(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def rows(count: int = 200) -> list[Example]:
    """Rows of TOFU's lengths."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(30, 121, (count,), generator=generator).tolist()
    return [Example(tuple(range(3, 3 + length)), length // 2) for length in lengths]


def network(layers: int) -> Any:
    """SmolLM2-135M of so many layers and fewer words, without memory."""
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        made: Any = LlamaForCausalLM(config)
    made.set_attn_implementation(packed_rows.PACKED_ATTENTION_NAME)
    return made.bfloat16().train()


def start(
    monkeypatch: pytest.MonkeyPatch, method: str, rectifier: str, layers: int = 2, **changed: Any
) -> tuple[CountedDevice, Iterator[dict[str, Any]], int]:
    """A run on the counted device, and the parameters of its model."""
    training = Training(batch_size=BATCH, epochs=STEPS, max_steps=STEPS)
    runner = engine.PlainEngine(network(layers), training, Resources(precision="bf16"), packs=True)
    device = CountedDevice(flat=runner.weights.numel())
    monkeypatch.setattr(base, "find_triton_kernels", lambda part: CountedKernels(device))
    both, (name, *balanced) = rows(), method.split()
    constants = method_constants.ObjectiveConstants(beta=0.5, retain_coefficient="balanced" if balanced else 1.0)
    task = loop.TrainingTask(
        forget=both,
        retain=both,
        objective=objectives.make_objective(name, constants),
        rectifier=rectifiers.find_rectifier_class(rectifier)(0.8 if rectifier == "gru" else None),
        training=training,
        seed=0,
        pad=2,
        **changed,
    )
    state = loop.TrainingState(dict.fromkeys(range(len(both)), 1.0), multiplier=task.objective.dual and 1.0)
    return device, loop.train_steps(runner, task, state), runner.weights.numel()


def count_step(
    monkeypatch: pytest.MonkeyPatch, method: str, rectifier: str, **changed: Any
) -> tuple[CountedDevice, int]:
    """The second step, in which nothing is made for good."""
    device, steps, parameters = start(monkeypatch, method, rectifier, **changed)
    with device:
        next(steps)
        device.begin()
        next(steps)
    return device, parameters


@pytest.mark.parametrize(("method", "rectifier"), LOOKS)
def test_looks_at_the_device_a_step(method: str, rectifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in several micro-batches, which all methods share; `observe` reads two cosines more."""
    wanted = LOOKS[method, rectifier]
    changes = [(0, {}), (0, {"micro_batch": 8}), (2, {"observe": 1})] if (method, rectifier) == ("npo", "gru") else []
    for more, changed in changes or [(0, {})]:
        device, _ = count_step(monkeypatch, method, rectifier, layers=1, **changed)
        assert len(device.looks) == wanted + more, (changed, device.looks)


def test_launches_a_rectified_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of SmolLM2-135M. PyTorch's varlen_attn fills two tensors for each of its backward passes beside the 6,700."""
    device, _ = count_step(monkeypatch, "npo", "gru", layers=30)
    fills = 2 * device.launches["_varlen_attn_backward"]
    assert 4000 < device.launches.total() - fills <= 6700, device.launches.most_common()


def test_bytes_a_parameter_of_a_step_and_of_rectification(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read and written from autograd's gradients to the weights."""
    plain, parameters = count_step(monkeypatch, "npo", "none")
    rectified, _ = count_step(monkeypatch, "npo", "gru")
    assert 28 * parameters <= plain.bytes.total() <= 40 * parameters, plain.bytes
    more = rectified.bytes - plain.bytes
    assert 0 < rectified.bytes.total() - plain.bytes.total() <= 20 * parameters, more


def test_a_run_has_few_shapes_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs are filled up, so that 70 passes over rows of 30 to 120 tokens have a handful of sizes."""
    device, steps, _ = start(monkeypatch, "npo", "gru", layers=1)
    with device:
        assert len(list(steps)) == STEPS
    assert device.launches["_varlen_attn"] == 2 * STEPS
    tokens = {query[0] for query, *_ in device.attention}
    assert all(count % packed_rows.PACK_TOKENS_MULTIPLE == 0 for count in tokens)
    assert len(device.attention) <= 10, device.attention


def test_the_counted_kernels_are_called_as_the_modules() -> None:
    """Triton comes with torch's CUDA build alone: here nothing else would miss a function that was renamed."""
    file = Path(objectives.__file__).parents[1] / "triton_kernels.py"
    defined = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
    names = {node.name for node in defined if not node.name.startswith("_")}
    assert names == {name for name in vars(CountedKernels) if not name.startswith("_")}

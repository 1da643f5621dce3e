"""The paper's two theorems, on quadratics whose constants are known and on the tiny model.

Theorem 1: with lr < 2 / L the rectified step lowers the unlearning loss, unless cos(g_u, g_r) = -1.
Theorem 2: if R is L-smooth, its lr-curvature is at least l |g|^2, l >= L sin^2(g_u, g_r) and 0 < lr <= 2 / L, then the
retain loss R after the rectified step is at most that after the plain one.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.support.tiny import encode_rows
from trainables.benchmarks import tofu
from trainables.config.settings import Benchmark, Model
from trainables.inference.padded_batch import pad_examples
from trainables.methods import rectifiers
from trainables.training import model_files

TOFU = tofu.TofuBenchmark()

seeds, sizes = st.integers(0, 10_000), st.integers(2, 6)
fractions = st.floats(0.01, 0.95)
shown = settings(max_examples=60)


@dataclass(frozen=True)
class Quadratic:
    """1/2 x'Hx + b'x with H symmetric: its smoothness L is the largest |eigenvalue|."""

    hessian: torch.Tensor
    slope: torch.Tensor

    def __call__(self, x: torch.Tensor) -> float:
        return float(0.5 * x @ self.hessian @ x + self.slope @ x)

    def gradient(self, x: torch.Tensor) -> torch.Tensor:
        return self.hessian @ x + self.slope


def quadratic(generator: torch.Generator, size: int, low: float, high: float) -> Quadratic:
    """Random axes, eigenvalues in [low, high] with both ends taken."""
    axes, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    values = low + (high - low) * torch.rand(size, generator=generator, dtype=torch.float64)
    values[0], values[-1] = low, high
    return Quadratic(axes @ torch.diag(values) @ axes.T, torch.randn(size, generator=generator, dtype=torch.float64))


def rectified(
    gradient: torch.Tensor, retain: torch.Tensor, tau: float | None = None
) -> tuple[torch.Tensor, rectifiers.Outcome]:
    """What GRU with gamma None makes of a full-batch gradient."""
    rectifier = rectifiers.GRU(None, tau)
    rectifier.take_retain_gradient([retain])
    changed = gradient.clone()
    return changed, rectifier.apply([changed], lambda value: value)


@shown
@given(seeds, sizes, st.floats(-1, 0.5), st.floats(0.1, 10), fractions, st.sampled_from([None, 0.1]))
def test_unlearning_loss_descends(
    seed: int, size: int, low: float, smoothness: float, fraction: float, tau: float | None
) -> None:
    """Theorem 1, convex or not, with any retain loss; clipping only shortens the step."""
    generator = torch.Generator().manual_seed(seed)
    unlearn = quadratic(generator, size, low * smoothness, smoothness)
    retain = quadratic(generator, size, -1.0, 3.0)
    lr, x = fraction * 2 / smoothness, torch.randn(size, generator=generator, dtype=torch.float64)
    step, outcome = rectified(unlearn.gradient(x), retain.gradient(x), tau)
    assume(1 + outcome.cos_before > 1e-4)  # nearer to -1 the rounding of the fp32 average has a say
    drop = unlearn(x) - unlearn(x - lr * step)
    assert drop > 0
    scale = outcome.clip_scale
    assert drop >= 0.95 * lr * (1 - scale * lr * smoothness / 2) * float(step @ step) / scale


def conflict(
    generator: torch.Generator, retain: Quadratic, x: torch.Tensor, sine: float, cosine: float, length: float
) -> torch.Tensor:
    """A gradient of norm `length` at the given angle to the retain gradient."""
    along = retain.gradient(x) / retain.gradient(x).norm()
    across = torch.randn(len(x), generator=generator, dtype=torch.float64)
    across -= (across @ along) * along
    return length * (cosine * along + sine * across / across.norm())


@shown
@example(0, 2, 1.0, 1.0, 1.0, 10.0, 0.5)
@example(1, 6, 0.5, 1.0, 1.0, 100.0, 1.0)
@given(seeds, sizes, fractions, st.floats(0, 1), st.floats(0.01, 1), st.floats(0.01, 100), st.sampled_from([0.5, 1.0]))
def test_retain_loss_is_at_most_that_of_the_plain_step(
    seed: int, size: int, ratio: float, part: float, fraction: float, length: float, curvature: float
) -> None:
    """Theorem 2 under its conditions, up to their limits.

    The lr-curvature of a quadratic is 1/2 g'Hg, so the theorem's l is half the smallest eigenvalue (`curvature` 0.5);
    the proof's integral leaves out the factor (1 - a), and with it l may be the eigenvalue itself (1.0).
    """
    generator = torch.Generator().manual_seed(seed)
    smoothness = 3.0
    retain = quadratic(generator, size, ratio * smoothness, smoothness)
    x, lr = torch.randn(size, generator=generator, dtype=torch.float64), fraction * 2 / smoothness
    sine = math.sqrt(part * curvature * ratio)
    gradient = conflict(generator, retain, x, sine, -math.sqrt(1 - sine**2), length)
    step, outcome = rectified(gradient, retain.gradient(x))
    assume(not outcome.degenerate and outcome.cos_before < 0)
    rounding = 1e-6 * lr * length * (outcome.average_norm + lr * smoothness * length)
    assert retain(x - lr * step) <= retain(x - lr * gradient) + rounding


def test_one_step_of_the_tiny_model_keeps_the_retain_loss_to_first_order(trial_inputs: Any) -> None:
    """Plain GA costs -lr <g_u, g_r>; the rectified step costs O(lr^2) only, and less at every lr (full batches)."""
    network, tokenizer = model_files.load_model_and_tokenizer(Model(path=str(trial_inputs.target)))
    network = network.double()
    benchmark = Benchmark(data=str(trial_inputs.data), split=trial_inputs.split)
    encoded = [encode_rows(tokenizer, side, "llama2", "paper", 192) for side in TOFU.training_rows(benchmark)]
    forget, retain = (pad_examples(side, tokenizer.pad_token_id) for side in encoded)

    def loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Mean over label tokens, as objectives.nll has it, without its fp32."""
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
        labels = batch["labels"][:, 1:]
        return torch.nn.functional.cross_entropy(logits[labels != -100], labels[labels != -100])

    def gradient(sign: float, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        return list(torch.autograd.grad(sign * loss(network, batch), list(network.parameters())))

    plain, kept = gradient(-1.0, forget), gradient(1.0, retain)
    flat, outcome = rectified(torch.cat([part.reshape(-1) for part in plain]), torch.cat([p.reshape(-1) for p in kept]))
    ours = [part.view_as(like) for part, like in zip(flat.split([p.numel() for p in plain]), plain, strict=True)]

    @torch.no_grad()
    def after(lr: float, step: list[torch.Tensor]) -> float:
        moved = copy.deepcopy(network)
        for parameter, part in zip(moved.parameters(), step, strict=True):
            parameter -= lr * part
        return float(loss(moved, retain))

    assert outcome.rectified
    assert not outcome.degenerate
    before = after(0.0, plain)
    seconds = []
    for lr in (0.1, 0.01, 0.001):
        price, cost = after(lr, plain) - before, after(lr, ours) - before
        assert cost < price / 2
        seconds.append(cost / lr**2)
    assert price == pytest.approx(-lr * outcome.dot, rel=0.02)
    assert cost < 0.01 * price
    assert seconds == pytest.approx([seconds[0]] * 3, rel=0.05)

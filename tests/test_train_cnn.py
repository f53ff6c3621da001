"""examples/train_cnn.py: three frameworks make the same steps, loss scaling saves gradients, and the network learns."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from suite.core.paths import ROOT

EXAMPLE = ROOT / "examples" / "train_cnn.py"
BATCH, RATE = 16, 3e-3


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of examples/cnn."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    return lambda name: import_module(f"cnn.{name}")


def gradients(part: Any, trainer: str, **settings: Any) -> dict[str, np.ndarray]:
    """The gradients of the second step, which the first one has changed the weights for."""
    module, name, *folder = trainer.split()
    network, digits = part("network"), part("digits").draw(2 * BATCH, ("DejaVuSans",), seed=0)
    made = getattr(part(module), name)(network.first_weights(0), network.Settings(BATCH, **settings), *folder)
    for at in (slice(0, BATCH), slice(BATCH, None)):
        made.step(digits.images[at], digits.labels[at], RATE)
    return dict(made.gradients)


def errors(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(np.linalg.norm(found[name] - each) / np.linalg.norm(each)) for name, each in expected.items()}


@pytest.mark.parametrize(
    "other", ["by_jax JaxTrainer", "by_kernels KernelTrainer", "by_kernels KernelTrainer cuda_ref"]
)
def test_every_framework_makes_the_same_steps(part: Any, other: str) -> None:
    expected = gradients(part, "by_torch TorchTrainer")
    found = gradients(part, other)
    assert found.keys() == expected.keys()
    assert max(errors(found, expected).values()) < 1e-3


def test_without_a_loss_scale_small_gradients_of_float16_are_lost(part: Any) -> None:
    """A batch of a step with 2^22 images: its gradients are below the smallest number of float16."""
    share = BATCH / 2**22
    exact = {name: share * each for name, each in gradients(part, "by_kernels KernelTrainer").items()}
    found = {
        scale: gradients(part, "by_kernels KernelTrainer", dtype="float16", share=share, loss_scale=scale)
        for scale in (1.0, 65536.0)
    }
    lost, kept = (errors(each, exact) for each in found.values())
    assert max(kept.values()) < 0.1
    assert min(lost[name] for name in ("w1", "w2")) > 0.5
    zeros = [float((each["w2"] == 0.0).mean()) for each in found.values()]
    assert zeros[0] > 2.0 * zeros[1]


def test_the_same_seed_draws_the_same_digits_of_other_fonts_for_the_test(part: Any) -> None:
    digits = part("digits")
    first, again = (digits.draw(64, digits.TRAINING, seed=3) for _ in range(2))
    assert np.array_equal(first.images, again.images)
    assert first.images.shape == (64, 28, 28, 1)
    assert set(first.labels) == set(range(10))
    assert not set(digits.TRAINING) & set(digits.TEST)


@pytest.mark.slow(seconds=120)
@pytest.mark.thorough
def test_it_learns_to_read_digits_of_other_fonts() -> None:
    command = [sys.executable, EXAMPLE, "--by", "torch", "--batch", "64", "--dtype", "bfloat16"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    header, row = (line.split() for line in done.stdout.replace("ms a step", "ms_a_step").splitlines())
    assert float(row[header.index("accuracy")]) > 0.95


def test_the_page_has_the_numbers_of_the_kept_runs() -> None:
    page = (ROOT / "docs" / "lab" / "cnn.md").read_text(encoding="utf-8")
    kept = "".join(each.read_text() for each in (ROOT / "results/nvidia-h100-80gb-hbm3/cnn").glob("*.txt")).split()
    cells = [cell for line in page.splitlines() if line.startswith("|") for cell in line.strip("|").split("|")]
    numbers = [number for cell in cells for number in re.findall(r"\b\d+\.\d+\b", cell)]
    assert len(numbers) > 30
    assert [number for number in numbers if number not in kept] == []

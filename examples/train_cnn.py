"""Trains a small convolutional network on digits that it draws, by PyTorch, JAX and the operations of this suite.

    python examples/train_cnn.py            float32 by all three, then float16 without and with loss scaling
    python examples/train_cnn.py --table    batch sizes and types by all three
    python examples/train_cnn.py --by kernels --folder cuda_ref --steps 4    our CUDA kernels, emulated without a GPU

A row is one training: `seconds` and `ms a step` without the first steps, which compile; `MB`, the peak memory of a
step; `joules` of the GPU; `zeros`, the share of gradients of weights that are exactly 0; the mean loss of the last
steps; the accuracy on digits of other fonts.

Loss scaling. With --whole 4194304 a step's loss is the mean over as many images, of which other processes have the
others, as a language model's is over millions of tokens. Gradients are then below 2^-24 and become 0 in float16.
Multiplied by 65536 they do not, and float32 weights get them divided by it again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from cnn.digits import TEST, TRAINING, Digits, draw
from cnn.network import Settings, Trainer, first_weights

from suite.hardware import monitor

IMAGES, TESTED, RATE, FIRST_STEPS = 6144, 2000, 3e-3, 3
WHOLE, SCALE = 2**22, 65536.0
COLUMNS = ("by", "dtype", "batch", "scale", "seconds", "ms_a_step", "MB", "joules", "zeros", "loss", "accuracy")


def trainer(by: str, settings: Settings, folder: str) -> Trainer:
    """Return the training by a framework, with the same first weights for all."""
    if by == "torch":
        from cnn.by_torch import TorchTrainer

        return TorchTrainer(first_weights(0), settings)
    if by == "jax":
        from cnn.by_jax import JaxTrainer

        return JaxTrainer(first_weights(0), settings)
    from cnn.by_kernels import KernelTrainer

    return KernelTrainer(first_weights(0), settings, folder)


def batches(digits: Digits, batch: int, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the images in a random order, again and again, the same order for all trainings."""
    source, order = np.random.default_rng(1), np.empty(0, np.int64)
    for _ in range(steps):
        if len(order) < batch:
            order = source.permutation(len(digits.labels))
        chosen, order = order[:batch], order[batch:]
        yield digits.images[chosen], digits.labels[chosen]


def train(learner: Trainer, settings: Settings, steps: int, drawn: tuple[Digits, Digits]) -> dict[str, Any]:
    """Train with a rate that falls to 0, and return the columns of the row."""
    losses, begin, energy = [], time.perf_counter(), joules(settings)
    for number, (images, labels) in enumerate(batches(drawn[0], settings.batch, steps)):
        losses.append(learner.step(images, labels, RATE * (1.0 - number / steps)))
        if number == FIRST_STEPS - 1:
            float(losses[-1])
            if settings.device == "cuda":
                torch.cuda.reset_peak_memory_stats()  # the first steps choose kernels, with buffers of their own
            begin, energy = time.perf_counter(), joules(settings)
    last = float(np.mean([float(each) for each in losses[-20:]]))
    seconds, now = time.perf_counter() - begin, joules(settings)
    gradients = np.concatenate([each.ravel() for each in learner.gradients.values()])
    peak, right = learner.peak_bytes(), learner.classes(drawn[1].images) == drawn[1].labels
    return {
        "dtype": settings.dtype,
        "batch": settings.batch,
        "scale": f"{settings.loss_scale:g}",
        "seconds": f"{seconds:.2f}",
        "ms_a_step": f"{1000.0 * seconds / max(1, steps - FIRST_STEPS):.2f}",
        "MB": "-" if peak is None else f"{peak / 1e6:.1f}",
        "joules": "-" if now is None or energy is None else f"{now - energy:.1f}",
        "zeros": f"{float((gradients == 0.0).mean()):.3f}",
        "loss": f"{last:.4f}",
        "accuracy": f"{right.mean():.4f}",
    }


def joules(settings: Settings) -> float | None:
    """Read the energy counter of the first GPU; None without one."""
    handles = monitor.visible_handles() if settings.device == "cuda" else []
    found = monitor.energy_mj(handles[0]) if handles else None
    return None if found is None else found / 1000.0


def plan(given: argparse.Namespace) -> list[tuple[str, Settings]]:
    """Return the trainings to make."""
    names = given.by.split(",")
    share = given.batch / given.whole if given.whole else 1.0
    asked = Settings(given.batch, given.dtype, share, given.loss_scale, given.device)
    if given.table:
        kinds = [("float32", 1.0), ("bfloat16", 1.0), ("float16", SCALE / 64)]
        return [
            (by, Settings(batch, dtype, 1.0, scale, given.device))
            for batch in (32, 128, 512)
            for dtype, scale in kinds
            for by in names
        ]
    found = [(by, asked) for by in names]
    if given.dtype == "float32" and not given.whole:
        tiny = replace(asked, dtype="float16", share=given.batch / WHOLE)
        found += [(names[-1], replace(tiny, loss_scale=scale)) for scale in (1.0, SCALE)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--by", default="torch,jax,kernels", help="torch, jax, kernels, or several with commas")
    parser.add_argument("--folder", default="triton_kernels" if device == "cuda" else "torch_impls")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float32")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--whole", type=int, default=0, help="images of a whole step, over all processes")
    parser.add_argument("--loss-scale", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=0, help="default: four times all images")
    parser.add_argument("--device", default=device)
    parser.add_argument("--table", action="store_true", help="batch sizes and types")
    given = parser.parse_args()
    drawn = draw(IMAGES, TRAINING, seed=0), draw(TESTED, TEST, seed=1)
    print("".join(f"{name.replace('_', ' '):>12}" for name in COLUMNS), flush=True)
    for by, settings in plan(given):
        steps = given.steps or 4 * IMAGES // settings.batch
        row = {"by": by, **train(trainer(by, settings, given.folder), settings, steps, drawn)}
        print("".join(f"{row[name]:>12}" for name in COLUMNS), flush=True)


if __name__ == "__main__":
    main()

"""The network that all three trainers train, and how: sizes, first weights, precision, loss scale.

    images (B, 28, 28, 1)
    convolution 3 x 3, ReLU, max pooling 2 x 2     (B, 14, 14, 16)
    convolution 3 x 3, ReLU, max pooling 2 x 2     (B, 7, 7, 32)
    dense, softmax, cross entropy                  (B, 10)

Mixed precision: activations and their gradients are of a 16-bit type; weights, moments of Adam and sums are float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, SupportsFloat

import numpy as np

Weights = dict[str, np.ndarray]
WINDOW, PADDING, POOL = 3, 1, 2
CHANNELS, FEATURES, CLASSES = (1, 16, 32), 7 * 7 * 32, 10


@dataclass(frozen=True)
class Settings:
    """batch: images of a step. dtype: float32, float16 or bfloat16. share: of this batch in the whole loss; 1/1024 if
    1024 processes divide a step's images among them. loss_scale: factor of the loss in the backward pass, by which
    gradients are divided in float32. device: cpu or cuda."""

    batch: int = 64
    dtype: str = "float32"
    share: float = 1.0
    loss_scale: float = 1.0
    device: str = "cpu"


class Trainer(Protocol):
    """A framework's training of the network."""

    def step(self, images: np.ndarray, labels: np.ndarray, lr: float) -> SupportsFloat:
        """Change the weights by one step of Adam; return the mean loss before it, which `float` waits for."""

    def classes(self, images: np.ndarray) -> np.ndarray:
        """Return the most probable class of each image."""

    @property
    def gradients(self) -> Mapping[str, np.ndarray]:
        """The gradients of the last step, by the names of the weights."""

    def peak_bytes(self) -> int | None:
        """Return the largest memory of a step in bytes, as the framework counts it; None where it does not."""


def first_weights(seed: int) -> Weights:
    """Draw the weights (K, R, S, C) of the convolutions and (classes, features) of the dense layer; biases are 0."""
    source = np.random.default_rng(seed)
    shapes = {
        "w1": (CHANNELS[1], WINDOW, WINDOW, CHANNELS[0]),
        "w2": (CHANNELS[2], WINDOW, WINDOW, CHANNELS[1]),
        "w3": (CLASSES, FEATURES),
    }
    found: Weights = {}
    for name, shape in shapes.items():
        deviation = (2.0 / np.prod(shape[1:])) ** 0.5
        found[name] = source.normal(0.0, deviation, shape).astype(np.float32)
        found[name.replace("w", "b")] = np.zeros(shape[0], np.float32)
    return found

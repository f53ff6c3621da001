"""The network by JAX: a loss, its gradient by `jax.grad`, and the step of Adam of `jax_impls`; XLA compiles."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from cnn.network import PADDING, POOL, Settings, Weights
from jax_impls.adam_step import adam_step

Tree = dict[str, Array]


class JaxTrainer:
    def __init__(self, weights: Weights, settings: Settings) -> None:
        jax.config.update("jax_default_matmul_precision", "highest")  # the default for float32 is tf32 on a GPU
        self.settings, self.steps = settings, 0
        self.weights = {name: jnp.asarray(each) for name, each in weights.items()}
        self.m, self.v = ({name: jnp.zeros_like(each) for name, each in self.weights.items()} for _ in range(2))
        self.found: Tree = {}
        self.bytes: int | None = None

    def step(self, images: np.ndarray, labels: np.ndarray, lr: float) -> Array:
        self.steps += 1
        at = self.settings
        given = self.weights, images, labels, at.share * at.loss_scale, at.loss_scale
        loss, self.found = loss_and_gradients(*given, dtype=at.dtype)
        if self.bytes is None:
            self.bytes = _bytes(loss_and_gradients.lower(*given, dtype=at.dtype).compile())
        for name, weight in self.weights.items():
            state = weight, self.found[name], self.m[name], self.v[name]
            self.weights[name], self.m[name], self.v[name] = adam_step(*state, step=self.steps, lr=lr)
        return loss

    def classes(self, images: np.ndarray) -> np.ndarray:
        return np.asarray(most_probable(self.weights, images, dtype=self.settings.dtype))

    @property
    def gradients(self) -> Mapping[str, np.ndarray]:
        return {name: np.asarray(each) for name, each in self.found.items()}

    def peak_bytes(self) -> int | None:
        return self.bytes


def _bytes(compiled: Any) -> int | None:
    """Return the memory of the compiled gradient: arguments, results and temporaries."""
    found = compiled.memory_analysis()
    if found is None:
        return None
    return int(found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes)


def logits(weights: Tree, images: Array, dtype: str) -> Array:
    w = {name: each.astype(dtype) for name, each in weights.items()}
    x = images.astype(dtype)
    border = ((PADDING, PADDING),) * 2
    for layer in "12":
        taps = w[f"w{layer}"]
        x = lax.conv_general_dilated(x, taps, (1, 1), border, dimension_numbers=("NHWC", "OHWI", "NHWC"))
        x = jax.nn.relu(x + w[f"b{layer}"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, POOL, POOL, 1), (1, POOL, POOL, 1), "VALID")
    return x.reshape(len(x), -1) @ w["w3"].T + w["b3"]


@partial(jax.jit, static_argnames="dtype")
def loss_and_gradients(
    weights: Tree, images: Array, labels: Array, factor: float, loss_scale: float, *, dtype: str
) -> tuple[Array, Tree]:
    def scaled(weights: Tree) -> tuple[Array, Array]:
        log = jax.nn.log_softmax(logits(weights, images, dtype).astype(jnp.float32))
        loss = -jnp.take_along_axis(log, labels[:, None], axis=1).mean()
        return loss * factor, loss

    gradients, loss = jax.grad(scaled, has_aux=True)(weights)
    return loss, {name: each / loss_scale for name, each in gradients.items()}


@partial(jax.jit, static_argnames="dtype")
def most_probable(weights: Tree, images: Array, *, dtype: str) -> Array:
    return logits(weights, images, dtype).argmax(1)

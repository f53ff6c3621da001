"""The network by the operations of this suite: the backward pass is written out.

`folder` names the kernels: triton_kernels or cuda_ref on a GPU; torch_impls, which have the same signatures, on a CPU,
where cuda_ref runs emulated, slowly. Between the operations stand additions of biases, ReLU,
its gradient and sums of gradients over pixels, as expressions of torch.

A convolution has three products with the same terms. Its result and the gradient of its images are both `conv2d`, the
latter with flipped weights. The gradient of its weights is one `matmul`: gradients of pixels times windows of pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cnn.network import CLASSES, FEATURES, PADDING, POOL, WINDOW, Settings, Weights


class Kernels:
    """The operations of a folder; on a GPU those of `auto`, which chooses a kernel by the shape, where it has one."""

    def __init__(self, folder: str, device: str) -> None:
        self.conv2d, self.max_pool2d, self.max_pool2d_grad, self.matmul, self.softmax, self.adam_step = (
            _operation(folder, name, device)
            for name in ("conv2d", "max_pool2d", "max_pool2d_grad", "matmul", "softmax", "adam_step")
        )


def _operation(folder: str, name: str, device: str) -> Callable[..., Any]:
    chooser = f"{folder}.{name}.auto"
    package = import_module(f"{folder}.{name}")
    if device == "cuda" and hasattr(package, "__path__") and find_spec(chooser) is not None:
        package = import_module(chooser)
    found: Callable[..., Any] = getattr(package, name)
    return found


@dataclass
class Layer:
    """The operands of the backward pass of a convolution: its images, its result after ReLU, and that after pooling."""

    x: Tensor
    active: Tensor
    pooled: Tensor


class KernelTrainer:
    def __init__(self, weights: Weights, settings: Settings, folder: str = "torch_impls") -> None:
        self.settings, self.dtype = settings, getattr(torch, settings.dtype)
        self.kernels, self.steps = Kernels(folder, settings.device), 0
        self.weights = {name: torch.tensor(each, device=settings.device) for name, each in weights.items()}
        self.m, self.v = ({name: torch.zeros_like(each) for name, each in self.weights.items()} for _ in range(2))
        self.found: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, images: np.ndarray, labels: np.ndarray, lr: float) -> Tensor:
        self.steps += 1
        at, wanted = self.settings, torch.from_numpy(labels).to(self.settings.device)
        layers, logits = self.forward(images)
        probabilities = self.kernels.softmax(logits.float())
        loss = -probabilities.gather(1, wanted[:, None]).clamp_min(1e-30).log().mean()
        error = probabilities - torch.nn.functional.one_hot(wanted, CLASSES)
        factor = at.share * at.loss_scale / len(images)
        scaled = self.backward(layers, (error * factor).to(self.dtype))
        self.found = {name: each.float() / at.loss_scale for name, each in scaled.items()}
        for name, weight in self.weights.items():
            state = weight, self.found[name], self.m[name], self.v[name]
            self.weights[name], self.m[name], self.v[name] = self.kernels.adam_step(*state, step=self.steps, lr=lr)
        return loss

    def forward(self, images: np.ndarray) -> tuple[list[Layer], Tensor]:
        """Return the layers of convolution, and the logits."""
        w, kernels = self.small_weights(), self.kernels
        x, layers = torch.from_numpy(images).to(self.settings.device, self.dtype), []
        for layer in "12":
            active = (kernels.conv2d(x, w[f"w{layer}"], padding=PADDING) + w[f"b{layer}"]).relu_()
            pooled = kernels.max_pool2d(active, window=(POOL, POOL), stride=POOL)
            layers.append(Layer(x, active, pooled))
            x = pooled
        return layers, kernels.matmul(x.view(len(x), FEATURES), w["w3"].T) + w["b3"]

    def backward(self, layers: list[Layer], d_logits: Tensor) -> dict[str, Tensor]:
        """Return the gradients of all weights from that of the logits."""
        w, kernels = self.small_weights(), self.kernels
        features = layers[-1].pooled.view(len(d_logits), FEATURES)
        found = {"w3": kernels.matmul(d_logits.T, features), "b3": d_logits.float().sum(0)}
        d_pooled = kernels.matmul(d_logits, w["w3"]).view(layers[-1].pooled.shape)
        for number, layer in reversed(list(enumerate(layers, 1))):
            d_active = kernels.max_pool2d_grad(layer.active, d_pooled, window=(POOL, POOL), stride=POOL)
            dy = d_active * (layer.active > 0)
            found[f"w{number}"] = self.gradient_of_weights(layer.x, dy)
            found[f"b{number}"] = dy.float().sum((0, 1, 2))
            if number > 1:
                flipped = w[f"w{number}"].flip(1, 2).permute(3, 1, 2, 0)
                d_pooled = kernels.conv2d(dy, flipped, padding=WINDOW - 1 - PADDING)
        return found

    def gradient_of_weights(self, x: Tensor, dy: Tensor) -> Tensor:
        """Return the gradient (K, R, S, C): the sum over all pixels of dy (B, H, W, K) times their windows of x."""
        padded = torch.nn.functional.pad(x, (0, 0, PADDING, PADDING, PADDING, PADDING))
        windows = padded.unfold(1, WINDOW, 1).unfold(2, WINDOW, 1).permute(0, 1, 2, 4, 5, 3)
        taps, outputs = WINDOW * WINDOW * x.shape[3], dy.shape[3]
        product = self.kernels.matmul(dy.reshape(-1, outputs).T, windows.reshape(-1, taps))
        found: Tensor = product.view(outputs, WINDOW, WINDOW, x.shape[3])
        return found

    def small_weights(self) -> dict[str, Tensor]:
        return {name: each.to(self.dtype) for name, each in self.weights.items()}

    @torch.no_grad()
    def classes(self, images: np.ndarray) -> np.ndarray:
        return self.forward(images)[1].argmax(1).cpu().numpy()

    @property
    def gradients(self) -> Mapping[str, np.ndarray]:
        return {name: each.cpu().numpy() for name, each in self.found.items()}

    def peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated() if self.settings.device == "cuda" else None

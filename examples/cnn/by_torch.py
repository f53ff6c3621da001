"""The network by PyTorch: automatic differentiation, autocast for mixed precision, the optimizer of torch.optim."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cnn.network import PADDING, POOL, Settings, Weights


class TorchTrainer:
    def __init__(self, weights: Weights, settings: Settings) -> None:
        self.settings, self.dtype = settings, getattr(torch, settings.dtype)
        self.weights = {
            name: torch.tensor(each, device=settings.device, requires_grad=True) for name, each in weights.items()
        }
        self.optimizer = torch.optim.Adam(self.weights.values(), fused=settings.device == "cuda")
        torch.backends.cudnn.conv.fp32_precision = "ieee"  # cuDNN's default is tf32

    def step(self, images: np.ndarray, labels: np.ndarray, lr: float) -> Tensor:
        self.optimizer.zero_grad()
        self.optimizer.param_groups[0]["lr"] = lr
        loss = F.cross_entropy(self.logits(images).float(), torch.from_numpy(labels).to(self.settings.device))
        (loss * (self.settings.share * self.settings.loss_scale)).backward()
        for each in self.weights.values():
            assert each.grad is not None
            each.grad /= self.settings.loss_scale
        self.optimizer.step()
        return loss.detach()

    def logits(self, images: np.ndarray) -> Tensor:
        w, device = self.weights, self.settings.device
        x = torch.from_numpy(images).to(device).permute(0, 3, 1, 2)
        with torch.autocast(device, self.dtype, enabled=self.dtype != torch.float32):
            for layer in "12":
                taps = w[f"w{layer}"].permute(0, 3, 1, 2)
                x = F.max_pool2d(F.relu(F.conv2d(x, taps, w[f"b{layer}"], padding=PADDING)), POOL)
            return F.linear(x.permute(0, 2, 3, 1).flatten(1), w["w3"], w["b3"])

    @torch.no_grad()
    def classes(self, images: np.ndarray) -> np.ndarray:
        return self.logits(images).argmax(1).cpu().numpy()

    @property
    def gradients(self) -> Mapping[str, np.ndarray]:
        return {name: each.grad.cpu().numpy() for name, each in self.weights.items() if each.grad is not None}

    def peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated() if self.settings.device == "cuda" else None

"""The product of all inputs with their weights: one product for all time steps, before the LSTM kernels."""

from types import ModuleType

import torch
from torch import Tensor

from cuda_ref import matmul
from cuda_ref.matmul import auto, mma, register_tiles


def input_products(product: ModuleType, x: Tensor, w_ih: Tensor) -> Tensor:
    """x w_ih^T for all time steps, by a module's `matmul`: (T, B, 4H), in the dtype of x. x (T, B, I), w_ih (4H, I)."""
    (T, B, I), columns = x.shape, w_ih.shape[0]  # noqa: E741
    return product.matmul(x.reshape(T * B, I), w_ih.t()).view(T, B, columns)


def product_config(product: ModuleType, x: Tensor, w_ih: Tensor) -> str:
    """The kernel that `input_products` runs."""
    rows = x.reshape(x.shape[0] * x.shape[1], x.shape[2])
    return product.config(rows, w_ih.t()) if hasattr(product, "config") else product.__name__.rpartition(".")[2]


def product_for(x: Tensor) -> ModuleType:
    """The module whose product is fast on the device and in the dtype of x."""
    if not x.is_cuda:
        return matmul
    if x.dtype == torch.float32:
        return register_tiles
    return auto if torch.cuda.get_device_capability(x.device)[0] == 9 else mma

"""What the LSTM kernels share: the products of all inputs with their weights, by this folder's matmul kernels."""

import torch
from torch import Tensor

from cuda_ref import matmul
from cuda_ref.matmul import register_tiles as matmul_register_tiles
from cuda_ref.matmul import split as matmul_split
from cuda_ref.matmul import wgmma as matmul_wgmma


def input_products(x: Tensor, w_ih: Tensor) -> Tensor:
    """x w_ih^T for all time steps: (T, B, 4H), in the type of x. x (T, B, I), w_ih (4H, I)."""
    (T, B, I), weights = x.shape, w_ih.t()  # noqa: E741
    rows = x.reshape(T * B, I)
    if not x.is_cuda:
        product = matmul.matmul(rows, weights)
    elif x.dtype == torch.float32:
        product = matmul_register_tiles.matmul(rows, weights)
    elif torch.cuda.get_device_capability(x.device)[0] == 9:
        product = matmul_wgmma.matmul(rows, weights)
    else:
        product = matmul_split.matmul(rows, weights)
    return product.view(T, B, w_ih.shape[0])

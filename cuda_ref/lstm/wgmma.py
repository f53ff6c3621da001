"""Layers of LSTM cells in CUDA on Hopper's tensor cores, with the recurrent weights in registers.

Adds clusters to persistent.py: each computes some rows of the batch, and its blocks exchange h in shared memory.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_lstm
from cuda_ref._runtime.kept import kept
from cuda_ref._runtime.layers import each_layer, layers_config
from cuda_ref.lstm._parts import input_products, product_config
from cuda_ref.matmul import wgmma as product

DETERMINISTIC = True
REQUIRES = "sm_90"
LARGEST = 512  # largest H


@kept
def lstm(
    x: Float[Tensor, "T B I"],
    w_ih: Float[Tensor, "4*H I"],
    w_hh: Float[Tensor, "*L 4*H H"],
    bias: Float[Tensor, "*L 4*H"],
    h0: Float[Tensor, "*L B H"],
    c0: Float[Tensor, "*L B H"],
    w_ih_upper: Float[Tensor, "upper 4*H H"] | None = None,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "*L B H"], Float[Tensor, "*L B H"]]:
    """(y, h, c): i, f, g, o = x_t w_ih^T + h w_hh^T + bias; c = sigmoid(f) c + sigmoid(i) tanh(g);
    h = y_t = sigmoid(o) tanh(c).

    With w_ih_upper (L - 1, 4H, H) there are L layers, and each takes the y of the one before: w_hh (L, 4H, H),
    bias (L, 4H), h0, c0, h and c (L, B, H); y is that of the last.

    Shapes: x (T, B, I), w_ih (4H, I), w_hh (4H, H), bias (4H,), h0 and c0 (B, H), H a multiple of 8 up to 512, any
    strides: torch copies tensors that are not contiguous. The results are contiguous.
    Dtypes: float16, bfloat16, the same for all. x w_ih^T, one product for all steps, and h are rounded to this dtype;
    sums and c are float32.
    Kernel: a cluster of 4, 8 or 16 blocks, by H, computes 32 to 64 rows of the batch over all steps: the smallest
    number with which all clusters run at the same time.
    Memory: 8 T B H bytes for the products of the inputs.
    Devices: CUDA, compute capability 9.0, with clusters of 16 blocks for H above 256.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for float32, for other H, and on other devices;
    build.CudaError if the launch fails.
    Source: see wgmma.cu.
    """
    T, B, _, H = check_lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if w_ih_upper is not None:
        return each_layer(lstm, x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if x.element_size() != 2 or H > LARGEST or H % 8 != 0:
        raise NotImplementedError(
            f"lstm: written for 16 bits and H a multiple of 8 up to {LARGEST}; got {x.dtype} and H={H}"
        )
    if T == 0 or B == 0 or H == 0:
        return x.new_empty(T, B, H), *(each.clone(memory_format=torch.contiguous_format) for each in (h0, c0))
    w_hh, bias, h0, c0 = (_aligned(each) for each in (w_hh, bias, h0, c0))
    inputs = input_products(product, x, w_ih)
    y, h, c = x.new_empty(T, B, H), x.new_empty(B, H), x.new_empty(B, H)
    operands = (inputs, w_hh, bias, h0, c0, y, h, c)
    build.launch("lstm/wgmma", "lstm_wgmma", x.device, *operands, T, B, H, build.DTYPES[x.dtype])
    return y, h, c


def config(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor, w_ih_upper: Tensor | None = None
) -> str:
    """The steps that `lstm` runs: the product of the inputs, and the kernel for all time steps."""
    if w_ih_upper is not None:
        return layers_config(config, x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if 0 in (x.shape[0], x.shape[1], w_hh.shape[1]):
        return ""
    return f"{product_config(product, x, w_ih)}; lstm_rows"


def _aligned(x: Tensor) -> Tensor:
    """Returns x, or a copy if x is not contiguous or does not begin at a multiple of 16 bytes."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()

"""Layers of LSTM cells in CUDA: one kernel for all time steps, with the recurrent weights in registers.

Unlike in the plain kernel, blocks keep their weights and exchange h. One product of all inputs precedes the kernel.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_lstm
from cuda_ref._runtime.kept import kept
from cuda_ref._runtime.layers import each_layer, layers_config
from cuda_ref.lstm._parts import input_products, product_config, product_for

DETERMINISTIC = True
UNITS = 16  # hidden units per block on tensor cores, as in persistent.cu
LARGEST = 1024  # largest H
EMULATED = 4  # multiprocessors of the emulated device


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

    Shapes: x (T, B, I), w_ih (4H, I), w_hh (4H, H), bias (4H,), h0 and c0 (B, H), H up to 1024, any strides: torch
    copies tensors that are not contiguous. The results are contiguous.
    Dtypes: float32, float16, bfloat16, the same for all. x w_ih^T, one product for all steps, and h are rounded to this
    dtype; sums and c are float32.
    Kernel: batches beyond four rows of 16-bit numbers use tensor cores, if H is a multiple of 8. All blocks run at the
    same time and wait for each other in every step, so the launch is cooperative.
    Memory: 8 T B H numbers for the products of the inputs, and 24 B H bytes.
    Devices: CUDA; on the CPU the same kernel is emulated, with one launch per step, only to check results.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for H above 1024, and for more than 1024 rows of
    a group of blocks (512 on tensor cores); build.CudaError if the blocks do not fit on the device at the same time.
    Source: G. Diamos et al., "Persistent RNNs: Stashing Recurrent Weights On-Chip", ICML 2016.
    """
    T, B, _, H = check_lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if w_ih_upper is not None:
        return each_layer(lstm, x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if H > LARGEST:
        raise NotImplementedError(f"lstm: H must be at most {LARGEST}, for weights in registers; got {H}")
    if T == 0 or B == 0 or H == 0:
        return x.new_empty(T, B, H), *(each.clone(memory_format=torch.contiguous_format) for each in (h0, c0))
    w_hh, bias, h0, c0 = (each.contiguous() for each in (w_hh, bias, h0, c0))
    inputs = input_products(product_for(x), x, w_ih)
    y, h, c = x.new_empty(T, B, H), x.new_empty(B, H), x.new_empty(B, H)
    pitch = H + H % 2
    cells = x.new_empty(B, H, dtype=torch.float32)
    exchange = x.new_empty(2, B, pitch, dtype=torch.int64)
    rows = _rows_on_tensor_cores(x, w_hh, h0)
    if (rows or B) > (512 if rows else 1024):
        raise NotImplementedError(f"lstm: c of {rows or B} rows does not fit in shared memory beside the sums")
    build.launch(
        "lstm/persistent", "lstm_persistent", x.device,
        inputs, w_hh, bias, h0, c0, y, h, c, cells, exchange, T, B, H, pitch, rows, build.DTYPES[x.dtype],
    )  # fmt: skip
    return y, h, c


def config(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor, w_ih_upper: Tensor | None = None
) -> str:
    """The steps that `lstm` runs: the product of the inputs, and the kernel for all time steps."""
    if w_ih_upper is not None:
        return layers_config(config, x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if 0 in (x.shape[0], x.shape[1], w_hh.shape[1]):
        return ""
    return f"{product_config(product_for(x), x, w_ih)}; lstm_{'mma' if _rows_on_tensor_cores(x, w_hh, h0) else 'words'}"


def _rows_on_tensor_cores(x: Tensor, w_hh: Tensor, h0: Tensor) -> int:
    """Rows of the batch per group of blocks that together hold all weights; 0 without tensor cores.

    There are as many groups as the device can run at the same time.
    """
    B, H = h0.shape
    if x.element_size() != 2 or B <= 4 or H % 8 != 0 or not _aligned(w_hh, h0):
        return 0
    multiprocessors: int = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else EMULATED
    groups = max(1, multiprocessors // -(-H // UNITS))
    return -(-B // groups // 16) * 16


def _aligned(*tensors: Tensor) -> bool:
    """True if all begin at multiples of 16 bytes, after copies of those that are not contiguous."""
    return all(not each.is_contiguous() or each.data_ptr() % 16 == 0 for each in tensors)

"""Layers of LSTM cells in Triton: one product for the inputs of all time steps, then a launch per time step."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_lstm
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels._runtime.layers import each_layer
from triton_kernels.matmul import matmul

DETERMINISTIC = True
BLOCK_U = 256 if INTERPRET else 8  # hidden units of a program
BLOCK_K = 128

Sequence = Float[Tensor, "T B H"]
State = Float[Tensor, "*L B H"]


@triton.jit
def tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def add_product(acc, h, w_ptr, k, u, H, GATE: tl.constexpr):
    """acc + h w^T over the columns k of the weights of one gate (rows GATE H to (GATE + 1) H - 1)."""
    w = tl.load(w_ptr + (GATE * H + u).to(tl.int64) * H + k[:, None], mask=(k[:, None] < H) & (u < H), other=0.0)
    return tl.dot(h, dot_operand(w), acc, input_precision="ieee")


@triton.jit
def input_terms(inputs_ptr, bias_ptr, b, u, inside, H, GATE: tl.constexpr):
    """x w_ih^T + bias of one gate, [BLOCK_B, BLOCK_U]."""
    terms = tl.load(inputs_ptr + (b * 4 + GATE) * H + u, mask=inside, other=0.0).to(tl.float32)
    return terms + tl.load(bias_ptr + GATE * H + u, mask=u < H, other=0.0).to(tl.float32)


@triton.jit
def lstm_step_kernel(
    inputs_ptr, w_hh_ptr, bias_ptr, before_ptr, c_before_ptr, y_ptr, h_ptr, c_ptr, B, H,
    BLOCK_B: tl.constexpr, BLOCK_U: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One time step. One program computes BLOCK_U units of BLOCK_B rows of the batch, from h of the previous step."""
    tiles_u = tl.cdiv(H, BLOCK_U)
    b = (tl.program_id(0) // tiles_u * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]).to(tl.int64)
    u = tl.program_id(0) % tiles_u * BLOCK_U + tl.arange(0, BLOCK_U)[None, :]
    inside = (b < B) & (u < H)
    zero = tl.zeros((BLOCK_B, BLOCK_U), tl.float32)
    i, f, g, o = zero, zero, zero, zero
    for start in range(0, H, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        h = dot_operand(tl.load(before_ptr + b * H + k[None, :], mask=(b < B) & (k[None, :] < H), other=0.0))
        i = add_product(i, h, w_hh_ptr, k, u, H, 0)
        f = add_product(f, h, w_hh_ptr, k, u, H, 1)
        g = add_product(g, h, w_hh_ptr, k, u, H, 2)
        o = add_product(o, h, w_hh_ptr, k, u, H, 3)
    i += input_terms(inputs_ptr, bias_ptr, b, u, inside, H, 0)
    f += input_terms(inputs_ptr, bias_ptr, b, u, inside, H, 1)
    g += input_terms(inputs_ptr, bias_ptr, b, u, inside, H, 2)
    o += input_terms(inputs_ptr, bias_ptr, b, u, inside, H, 3)
    c = tl.load(c_before_ptr + b * H + u, mask=inside, other=0.0).to(tl.float32)
    c = tl.sigmoid(f) * c + tl.sigmoid(i) * tanh(g)
    y = tl.sigmoid(o) * tanh(c)
    tl.store(y_ptr + b * H + u, y, mask=inside)
    tl.store(h_ptr + b * H + u, y, mask=inside)
    tl.store(c_ptr + b * H + u, c, mask=inside)


@kept
def lstm(
    x: Float[Tensor, "T B I"],
    w_ih: Float[Tensor, "4*H I"],
    w_hh: Float[Tensor, "*L 4*H H"],
    bias: Float[Tensor, "*L 4*H"],
    h0: State,
    c0: State,
    w_ih_upper: Float[Tensor, "upper 4*H H"] | None = None,
) -> tuple[Sequence, State, State]:
    """(y, h, c): i, f, g, o = x_t w_ih^T + h w_hh^T + bias; c = sigmoid(f) c + sigmoid(i) tanh(g);
    h = y_t = sigmoid(o) tanh(c).

    With w_ih_upper (L - 1, 4H, H) there are L layers, and each takes the y of the one before: w_hh (L, 4H, H),
    bias (L, 4H), h0, c0, h and c (L, B, H); y is that of the last.

    Shapes: x (T, B, I), w_ih (4H, I), w_hh (4H, H), bias (4H,), h0 and c0 (B, H), any strides: torch copies tensors
    that are not contiguous. The results are contiguous.
    Dtypes: float32 (ieee), float16, bfloat16, the same for all. x w_ih^T, by `matmul`, and h are rounded to this dtype;
    sums and c are float32. Memory: 4 T B H numbers for x w_ih^T, and 4 B H bytes.
    Tail: masked. Errors: ValueError for other shapes, dtypes or devices.
    Source: S. Hochreiter, J. Schmidhuber, "Long Short-Term Memory", 1997; the gates are those of PyTorch.
    """
    check_lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if w_ih_upper is not None:
        return each_layer(lstm, x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    T, B, I = x.shape  # noqa: E741
    inputs = matmul(x.reshape(T * B, I), w_ih.t())
    return run_steps(inputs.view(T, B, w_ih.shape[0]), w_hh, bias, h0, c0)


def run_steps(
    inputs: Float[Tensor, "T B 4*H"], w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor
) -> tuple[Sequence, State, State]:
    """Computes the results of `lstm` from inputs = x w_ih^T."""
    (T, B, _), H = inputs.shape, h0.shape[1]
    if T == 0 or B == 0 or H == 0:
        return inputs.new_empty((T, B, H)), *(each.clone(memory_format=torch.contiguous_format) for each in (h0, c0))
    w_hh, bias, h0, c0 = (each.contiguous() for each in (w_hh, bias, h0, c0))
    y, h, c = (empty_output(shape, inputs.dtype, inputs.device) for shape in ((T, B, H), (B, H), (B, H)))
    cells = torch.empty((B, H), dtype=torch.float32, device=inputs.device)
    BLOCK_B = min(64, max(16, triton.next_power_of_2(B)))
    grid = (triton.cdiv(H, BLOCK_U) * triton.cdiv(B, BLOCK_B),)
    with device_of(inputs):
        for t in range(T):
            launch(
                lstm_step_kernel, grid,
                inputs[t], w_hh, bias, y[t - 1] if t > 0 else h0, cells if t > 0 else c0,
                y[t], h, cells if t + 1 < T else c, B, H, BLOCK_B, BLOCK_U, BLOCK_K, num_warps=4, num_stages=3,
            )  # fmt: skip
    return tuple(finished_output(each, inputs.dtype) for each in (y, h, c))  # type: ignore[return-value]

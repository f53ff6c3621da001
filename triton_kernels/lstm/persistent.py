"""Layers of LSTM cells in Triton: adds to the plain kernel a single launch for all time steps.

After each step the programs synchronize through a counter in memory.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.configs import multiprocessors
from triton_kernels._runtime.contract import check_lstm
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels._runtime.layers import each_layer, layers_config
from triton_kernels.matmul import auto

DETERMINISTIC = True
BLOCK_U = 256 if INTERPRET else 8  # hidden units of a program
BLOCK_K = 128

Sequence = Float[Tensor, "T B H"]
State = Float[Tensor, "*L B H"]


@triton.jit
def squash(x):
    """tanh(x)"""
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def gate_terms(inputs_ptr, bias_ptr, row, u, inside, H, GATE: tl.constexpr):
    """x w_ih^T + bias of one gate, [BLOCK_B, BLOCK_U]."""
    terms = tl.load(inputs_ptr + (row * 4 + GATE) * H + u, mask=inside, other=0.0).to(tl.float32)
    return terms + tl.load(bias_ptr + GATE * H + u, mask=u < H, other=0.0).to(tl.float32)


@triton.jit
def add_product(acc, h, w_ptr, k, u, H, GATE: tl.constexpr):
    """acc + h w^T over the columns k of the weights of one gate."""
    w = tl.load(w_ptr + (GATE * H + u).to(tl.int64) * H + k[:, None], mask=(k[:, None] < H) & (u < H), other=0.0)
    return tl.dot(h, dot_operand(w), acc, input_precision="ieee")


@triton.jit(do_not_specialize=["begin", "end"])
def lstm_persistent_kernel(
    inputs_ptr, w_hh_ptr, bias_ptr, h0_ptr, c0_ptr, y_ptr, h_ptr, c_ptr, cells_ptr, arrived_ptr, begin, end, T, B, H,
    WAIT: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_U: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Steps begin to end - 1. One program computes BLOCK_U units of BLOCK_B rows of the batch; c stays in registers.

    WAIT: all programs synchronize after each step, so they must run at the same time. Loads of h bypass the L1
    cache, which may hold old values.
    """
    across = tl.cdiv(H, BLOCK_U)
    b = tl.program_id(0) // across * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
    u = tl.program_id(0) % across * BLOCK_U + tl.arange(0, BLOCK_U)[None, :]
    inside = (b < B) & (u < H)
    b = b.to(tl.int64)
    if begin == 0:
        c = tl.load(c0_ptr + b * H + u, mask=inside, other=0.0).to(tl.float32)
    else:
        c = tl.load(cells_ptr + b * H + u, mask=inside, other=0.0)
    h = tl.zeros((BLOCK_B, BLOCK_U), tl.float32)
    for t in range(begin, end):
        if t == 0:  # noqa: SIM108 - Triton has no conditional expression of pointers
            before_ptr = h0_ptr
        else:
            before_ptr = y_ptr + tl.full((), t - 1, tl.int64) * B * H
        i = tl.zeros((BLOCK_B, BLOCK_U), tl.float32)
        f = tl.zeros((BLOCK_B, BLOCK_U), tl.float32)
        g = tl.zeros((BLOCK_B, BLOCK_U), tl.float32)
        o = tl.zeros((BLOCK_B, BLOCK_U), tl.float32)
        for start in range(0, H, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            x = tl.load(
                before_ptr + b * H + k[None, :], mask=(b < B) & (k[None, :] < H), other=0.0, cache_modifier=".cg"
            )
            x = dot_operand(x)
            i = add_product(i, x, w_hh_ptr, k, u, H, 0)
            f = add_product(f, x, w_hh_ptr, k, u, H, 1)
            g = add_product(g, x, w_hh_ptr, k, u, H, 2)
            o = add_product(o, x, w_hh_ptr, k, u, H, 3)
        row = tl.full((), t, tl.int64) * B + b
        i += gate_terms(inputs_ptr, bias_ptr, row, u, inside, H, 0)
        f += gate_terms(inputs_ptr, bias_ptr, row, u, inside, H, 1)
        g += gate_terms(inputs_ptr, bias_ptr, row, u, inside, H, 2)
        o += gate_terms(inputs_ptr, bias_ptr, row, u, inside, H, 3)
        c = tl.sigmoid(f) * c + tl.sigmoid(i) * squash(g)
        h = tl.sigmoid(o) * squash(c)
        tl.store(y_ptr + row * H + u, h, mask=inside)
        if WAIT:  # noqa: SIM102 - a constant and a value
            if t + 1 < end:
                tl.debug_barrier()  # all threads have stored h
                tl.atomic_add(arrived_ptr, 1, sem="release")
                while tl.atomic_add(arrived_ptr, 0, sem="acquire") < tl.num_programs(0) * (t + 1):
                    pass
    tl.store(cells_ptr + b * H + u, c, mask=inside)
    if end == T:
        tl.store(h_ptr + b * H + u, h, mask=inside)
        tl.store(c_ptr + b * H + u, c, mask=inside)


def run_together(
    inputs: Float[Tensor, "T B 4*H"], w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor
) -> tuple[Sequence, State, State]:
    """Computes the results of `lstm` from inputs = x w_ih^T in one launch. The interpreter runs programs one after the
    other, so it takes one launch per step."""
    (T, B, _), H = inputs.shape, h0.shape[1]
    if T == 0 or B == 0 or H == 0:
        return inputs.new_empty((T, B, H)), *(each.clone(memory_format=torch.contiguous_format) for each in (h0, c0))
    w_hh, bias, h0, c0 = (each.contiguous() for each in (w_hh, bias, h0, c0))
    y, h, c = (empty_output(shape, inputs.dtype, inputs.device) for shape in ((T, B, H), (B, H), (B, H)))
    cells = torch.empty((B, H), dtype=torch.float32, device=inputs.device)
    arguments = (inputs, w_hh, bias, h0.to(y.dtype), c0, y, h, c, cells)
    tile = {"BLOCK_B": block_b(B), "BLOCK_U": BLOCK_U, "BLOCK_K": BLOCK_K, "num_warps": 4, "num_stages": 3}
    grid = (programs(B, H),)
    with device_of(inputs):
        if INTERPRET:
            for t in range(T):
                launch(lstm_persistent_kernel, grid, *arguments, None, t, t + 1, T, B, H, WAIT=False, **tile)
        else:
            arrived = torch.zeros(1, dtype=torch.int32, device=inputs.device)
            launch(
                lstm_persistent_kernel, grid, *arguments, arrived, 0, T, T, B, H,
                WAIT=True, launch_cooperative_grid=True, **tile,
            )  # fmt: skip
    return tuple(finished_output(each, inputs.dtype) for each in (y, h, c))  # type: ignore[return-value]


def block_b(B: int) -> int:
    """Rows of the batch per program."""
    return min(128, max(16, triton.next_power_of_2(B)))


def programs(B: int, H: int) -> int:
    return triton.cdiv(H, BLOCK_U) * triton.cdiv(B, block_b(B))


def fits(h0: State) -> bool:
    """True if the device runs all programs at the same time. The interpreter needs no such limit."""
    return INTERPRET or programs(*h0.shape) <= multiprocessors(h0)


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

    The launch is cooperative: it fails unless all programs run at the same time. Each step reads the weights from the
    caches.

    Shapes: x (T, B, I), w_ih (4H, I), w_hh (4H, H), bias (4H,), h0 and c0 (B, H), any strides: torch copies tensors
    that are not contiguous. The results are contiguous.
    Dtypes: float32 (ieee), float16, bfloat16, the same for all. x w_ih^T, by `auto` of matmul, and h are rounded to
    this dtype; sums and c are float32. Memory: 4 T B H numbers for x w_ih^T, and 4 B H bytes.
    Tail: masked. Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for more programs, of 8
    units and up to 128 rows each, than multiprocessors.
    """
    check_lstm(x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if w_ih_upper is not None:
        return each_layer(lstm, x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    if not fits(h0):
        raise NotImplementedError(
            f"lstm: {programs(*h0.shape)} programs wait for each other, "
            f"and the device runs {multiprocessors(h0)} at a time"
        )
    T, B, I = x.shape  # noqa: E741
    inputs = auto.matmul(x.reshape(T * B, I), w_ih.t())
    return run_together(inputs.view(T, B, w_ih.shape[0]), w_hh, bias, h0, c0)


def config(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor, w_ih_upper: Tensor | None = None
) -> str:
    """The kernels that `lstm` runs: those of the product x w_ih^T, and `persistent`."""
    if w_ih_upper is not None:
        return layers_config(config, x, w_ih, w_hh, bias, h0, c0, w_ih_upper)
    return "; ".join(filter(None, (auto.config(x.reshape(-1, x.shape[2]), w_ih.t()), "persistent")))

"""Convolution of images with stride 1 in Triton: adds TMA loads of the pixels of a tap to `triton/taps`.

A tile is a box of images, rows and columns.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels._common.tma import readable, strides_of
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch, persistent_grid
from triton_kernels.conv2d._configs_boxes import CONFIGS, set_boxes, short_list, tuning_space  # noqa: F401
from triton_kernels.conv2d._output import new_output

DETERMINISTIC = True
BOX_PIXELS = 128  # pixels of the box of one tile


@triton.jit
def store_channels(out_desc, image, top, left, k, x, PARTS: tl.constexpr):
    """Stores x in PARTS blocks of output channels, one after the other through the same shared memory."""
    if PARTS == 1:
        box: tl.constexpr = out_desc.block_shape
        out_desc.store([image, top, left, k], x.to(out_desc.dtype).T.reshape(box[0], box[1], box[2], box[3]))
    else:
        first, second = x.reshape(2, x.shape[0] // 2, x.shape[1]).permute(1, 2, 0).split()
        store_channels(out_desc, image, top, left, k, first, PARTS // 2)
        store_channels(out_desc, image, top, left, k + x.shape[0] // 2, second, PARTS // 2)


@triton.jit
def box_of_tile(tile, P, Q, K, BOX_N: tl.constexpr, BOX_H: tl.constexpr, BOX_W: tl.constexpr, BLOCK_N: tl.constexpr):
    """First image, row, column and output channel of a tile. The tiles of one box are consecutive."""
    columns, across, down = tl.cdiv(K, BLOCK_N), tl.cdiv(Q, BOX_W), tl.cdiv(P, BOX_H)
    box = tile // columns
    row = box // across
    image = row // down
    return image * BOX_N, (row - image * down) * BOX_H, (box - row * across) * BOX_W, (tile - box * columns) * BLOCK_N


@triton.jit
def conv2d_boxes_kernel(
    x_desc, weight_desc, out_desc, N, P, Q,
    C: tl.constexpr, K: tl.constexpr, R: tl.constexpr, S: tl.constexpr, PADDING: tl.constexpr,
    PRECISION: tl.constexpr, BOX_H: tl.constexpr, BOX_W: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr, PER_SM: tl.constexpr,
):  # fmt: skip
    """A persistent program computes tiles program_id, program_id + num_programs, ... of the output.

    A tile is a box of BLOCK_M pixels, BOX_H x BOX_W of each image, by BLOCK_N output channels. For each tap TMA reads
    the shifted box, with zeros outside of the images. It does not write elements that overhang the output.
    """
    BOX_N: tl.constexpr = BLOCK_M // (BOX_H * BOX_W)
    BLOCKS: tl.constexpr = C // BLOCK_K
    tiles = tl.cdiv(N, BOX_N) * tl.cdiv(P, BOX_H) * tl.cdiv(Q, BOX_W) * tl.cdiv(K, BLOCK_N)
    programs = tl.num_programs(0)
    stored = tl.program_id(0) - programs
    for tile in tl.range(tl.program_id(0), tiles, programs, flatten=True):
        image, top, left, k = box_of_tile(tile, P, Q, K, BOX_N, BOX_H, BOX_W, BLOCK_N)
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for step in range(R * S * BLOCKS):
            tap = step // BLOCKS
            c = (step - tap * BLOCKS) * BLOCK_K
            r = tap // S
            a = x_desc.load([image, top + r - PADDING, left + (tap - r * S) - PADDING, c]).reshape(BLOCK_M, BLOCK_K)
            w = weight_desc.load([k, step * BLOCK_K])
            acc = tl.dot(dot_operand(w), dot_operand(a.T), acc, input_precision=PRECISION)
        stored += programs
        image, top, left, k = box_of_tile(stored, P, Q, K, BOX_N, BOX_H, BOX_W, BLOCK_N)
        store_channels(out_desc, image, top, left, k, acc, PARTS)


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "PARTS": 2, "PER_SM": 1}
else:
    TILE = {}
    KEY = ["N", "P", "Q", "C", "K", "R", "S", "PADDING", "PRECISION"]
    conv2d_boxes_kernel = autotune(CONFIGS, KEY, short_list)(conv2d_boxes_kernel)


def obstacle(x: Tensor, weight: Tensor, stride: int, precision: str) -> str:
    """The reason why TMA cannot read and write these images; empty if it can."""
    C, K, element = x.shape[3], weight.shape[0], x.element_size()
    if x.is_cuda and torch.cuda.get_device_capability(x.device)[0] < 9:
        return "TMA needs compute capability 9.0"
    if stride != 1:
        return f"stride must be 1; got {stride}"
    if element == 4 and precision != "tf32":
        return f'float32 needs precision="tf32"; got "{precision}"'
    if C * element % 128 or K * element % 16:
        return f"C must be a multiple of 128 bytes and K of 16 bytes; got C={C}, K={K} of {element} bytes each"
    if not readable(x):
        return f"channels must be contiguous and pixels begin at multiples of 16 bytes; got strides {tuple(x.stride())}"
    return ""


def pixels_of_boxes(N: int, P: int, Q: int, box: tuple[int, int]) -> int:
    """Pixels of all boxes that cover the output. box: rows and columns of an image in a box of BOX_PIXELS."""
    height, width = box
    images = BOX_PIXELS // (height * width)
    return triton.cdiv(N, images) * triton.cdiv(P, height) * triton.cdiv(Q, width) * BOX_PIXELS


def box_of(N: int, P: int, Q: int) -> tuple[int, int]:
    """Rows and columns of the box that overhangs least; among equals, most pixels per image, then the widest."""
    sides = (1, 2, 4, 8)
    boxes = [(height, width) for height in sides for width in sides if max(height, width) <= 2 * min(height, width)]
    return min(boxes, key=lambda box: (pixels_of_boxes(N, P, Q, box), -box[0] * box[1], -box[1]))


@kept
def conv2d(
    x: Float[Tensor, "N H W C"],
    weight: Float[Tensor, "K R S C"],
    *,
    stride: int = 1,
    padding: int = 0,
    precision: str = "ieee",
) -> Float[Tensor, "N P Q K"]:
    """y[n, p, q, k] = sum over r, s, c of x[n, p + r - padding, q + s - padding, c] weight[k, r, s, c].

    Shapes: x (N, H, W, C), C a multiple of 128 bytes and contiguous, pixels at multiples of 16 bytes; weight
    (K, R, S, C), K a multiple of 16 bytes, any strides; weights that are not contiguous are copied. The output is
    contiguous.
    Dtypes: float16, bfloat16, and float32 with precision="tf32", whose factors the tensor cores truncate to 11
    significant bits; sums in float32, rounded once at the end.
    Tail: TMA reads zeros outside of the images, and does not write elements that overhang the output.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for stride above 1, other
    channels or strides, float32 with precision="ieee", a GPU without TMA, and for 2^31 - 256 pixels and more.
    Source: implicit GEMM as in cuDNN (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014).
    """
    out, finished = new_output(x, weight, stride, padding, precision)
    if not finished:
        if why := obstacle(x, weight, stride, precision):
            raise NotImplementedError(f"conv2d: {why}")
        with device_of(x):
            _launch(x, weight, out, padding, precision)
    return finished_output(out, x.dtype)


def _launch(x: Tensor, weight: Tensor, out: Tensor, padding: int, precision: str) -> None:
    (N, P, Q, K), (_, R, S, C) = out.shape, weight.shape
    height, width = box_of(N, P, Q)
    rows = weight.reshape(K, R * S * C)
    rows = rows if readable(rows[None, None]) else rows.contiguous()
    descriptors = {
        "x_desc": TensorDescriptor(x, list(x.shape), strides_of(x), [1, 1, 1, 16]),
        "weight_desc": TensorDescriptor(rows, list(rows.shape), [max(rows.stride(0), R * S * C), 1], [1, 16]),
        "out_desc": TensorDescriptor(out, list(out.shape), strides_of(out), [1, 1, 1, 16]),
    }
    constants: dict[str, Any] = {"C": C, "K": K, "R": R, "S": S, "PADDING": padding, "PRECISION": precision}
    constants |= {"BOX_H": height, "BOX_W": width, **TILE}
    if INTERPRET:
        processors = 2
        set_boxes({**descriptors, **constants})
    else:
        processors = torch.cuda.get_device_properties(x.device).multi_processor_count

    def grid(tile: dict[str, int]) -> tuple[int]:
        images = tile["BLOCK_M"] // (height * width)
        boxes = triton.cdiv(N, images) * triton.cdiv(P, height) * triton.cdiv(Q, width)
        tiles = boxes * triton.cdiv(K, tile["BLOCK_N"])
        if tile["PER_SM"] == 1:
            return persistent_grid(tiles, processors)
        return (min(tiles, processors * tile["PER_SM"]),)  # not persistent_grid: the last tiles run faster alone

    launch(conv2d_boxes_kernel, grid, *descriptors.values(), N, P, Q, **constants)

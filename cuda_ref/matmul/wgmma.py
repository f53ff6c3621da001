"""Matrix multiplication in CUDA on Hopper's tensor cores: persistent blocks in clusters; also tf32 and float8.

Adds clusters that share loads, blocks that compute several tiles, and stores by TMA to warp_specialized.py.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_matmul
from cuda_ref._runtime.kept import kept
from cuda_ref.hopper.layouts import operand_layouts, tma_layout
from cuda_ref.hopper.pitched import pitched
from cuda_ref.matmul import _model_tf32_float8
from cuda_ref.matmul._limits import check_sizes
from cuda_ref.matmul._plan import best_plan
from cuda_ref.matmul._tiles import SHARE_A, SHARE_B, WGMMA, Plan, described, elements_of_parts, fitted_tile

REQUIRES = "sm_90"
DTYPES_BEYOND = ("float8_e4m3fn",)
FLOAT8 = torch.float8_e4m3fn


@kept
def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n], in float8 times scale_a * scale_b.

    Shapes: a (M, K), b (K, N), any sizes up to 2^30, K = 0 included; the output is contiguous.
    Strides: any. TMA copies tiles of an operand that has one contiguous dimension (in float8 the one along K), the
    other stride a multiple of 16 bytes, and the first element at a multiple of 16 bytes. Other operands are copied
    first, in tf32 also the smaller one if neither is contiguous along K. The copies take their size in memory.
    Plan: a model of the time chooses the tile and the number of parts in which k is divided, see `config`. Each part
    takes 4 bytes of memory per element of the tiles.
    Dtypes: float16, bfloat16, with sums in float32, rounded once at the end. float32 with precision "tf32": factors are
    rounded to tf32, sums are float32. float8_e4m3fn, with a float32 scale of shape () for each operand, gives
    bfloat16: the tensor cores keep 14 bits of the sums over all of K ("fast"), or over 128 products each, which are
    then added in float32 ("promoted").
    Tail: TMA pads tiles that overhang the inputs with zeros and does not write elements that overhang the output.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes, scales and precisions, and for tensors on different devices;
    NotImplementedError for precision "ieee" of float32, for larger sizes, and on other devices; build.CudaError if the
    launch fails.
    Source: see wgmma.cu.
    """
    empty = checked(a, b, scale_a, scale_b, precision)
    return run(choose(a, b, precision), a, b, precision, scale_a, scale_b) if empty is None else empty


def config(
    a: Tensor, b: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None, *, precision: str = "ieee"
) -> str:
    """The kernel, tile, cluster and parts that `matmul` runs, and the operands that it copies for TMA."""
    return described(choose(a, b, precision), **copies(a, b)) if a.numel() * b.numel() > 0 else ""


def choose(a: Tensor, b: Tensor, precision: str) -> Plan:
    """The wgmma plan with the least predicted time."""
    return best_plan(a, b, WGMMA) if a.element_size() == 2 else _model_tf32_float8.best_plan(a, b, precision, WGMMA)


def checked(a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, precision: str) -> Tensor | None:
    """Raises the errors that `matmul` documents. Returns the result if it is empty or zero, or else None."""
    M, N, K = check_matmul(a, b, scale_a, scale_b, precision=precision, float8=True)
    if a.dtype == torch.float32 and precision == "ieee":
        raise NotImplementedError('matmul: tensor cores multiply float32 in precision "tf32" only; got "ieee"')
    check_sizes((M, N, K), 30)
    return a.new_zeros(M, N, dtype=_out_dtype(a)) if 0 in (M, N, K) else None


def run(
    plan: Plan,
    a: Tensor,
    b: Tensor,
    precision: str = "ieee",
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The product of two matrices that are not empty, by a WGMMA plan.

    out: where the product is stored, from a multiple of 16 bytes on; by default in a new tensor.
    """
    (M, K), N = a.shape, b.shape[1]
    a, b, a_layout, b_layout = for_tma(a, b)
    out = a.new_empty(M, N, dtype=_out_dtype(a)) if out is None else out
    product = (N, M) if a.dtype == torch.float32 and b_layout[0] else (M, N)  # then the kernel computes out^T
    sums = a.new_empty(elements_of_parts(plan, *product), dtype=torch.float32) if plan.parts > 1 else None
    sizes = (a, b, out, M, N, K)
    if plan.kernel == "wgmma8":
        build.launch(
            "matmul/_wgmma8", "matmul_wgmma8", a.device,
            *sizes, a_layout[1], b_layout[1], scale_a, scale_b, precision == "promoted", plan.tile, plan.parts, sums,
        )  # fmt: skip
    elif plan.kernel == "fitted":
        tile, name = fitted_tile(plan.tile), f"fitted_{str(a.dtype).removeprefix('torch.')}"
        sharing = SHARE_A * (tile.beside > 1) + SHARE_B * (tile.cluster > 1)
        build.launch(
            f"matmul/_{name}", f"matmul_{name}", a.device,
            *sizes, *a_layout, *b_layout, tile.N, tile.M, sharing, plan.parts, sums,
        )  # fmt: skip
    elif plan.kernel == "wgmma32":
        build.launch(
            "matmul/_wgmma32", "matmul_wgmma32", a.device, *sizes, *a_layout, *b_layout, plan.tile, plan.parts, sums
        )
    else:
        file, function = ("_wgmma16", "matmul_wgmma16") if plan.kernel == "wgmma16" else ("wgmma", "matmul_wgmma")
        build.launch(
            f"matmul/{file}", function, a.device,
            *sizes, *a_layout, *b_layout, plan.tile, plan.parts, sums, build.DTYPES[a.dtype],
        )  # fmt: skip
    return out


def copies(a: Tensor, b: Tensor) -> dict[str, bool]:
    """The operands, by name, and whether they are copied for TMA."""
    (of_a, of_b), _ = operand_layouts(a, b)
    return {"a": of_a is None, "b": of_b is None}


def for_tma(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, tuple[bool, int], tuple[bool, int]]:
    """The operands and their layouts; those that TMA cannot read are copied."""
    operands = [a, b]
    layouts, across = operand_layouts(a, b)
    missing = [i for i, layout in enumerate(layouts) if layout is None]
    if missing:
        made = pitched(*[(operands[i], i if across[i] else 1 - i) for i in missing])
        for i, copy in zip(missing, made, strict=True):
            operands[i] = copy
    k_major_only = a.dtype == FLOAT8
    a_layout, b_layout = (tma_layout("ab"[i], operands[i], 1 - i, k_major_only=k_major_only) for i in (0, 1))
    return operands[0], operands[1], a_layout, b_layout


def _out_dtype(a: Tensor) -> torch.dtype:
    return torch.bfloat16 if a.dtype == FLOAT8 else a.dtype

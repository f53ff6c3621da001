"""The kernels for Hopper: what they refuse, and, on a Hopper GPU, their results."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cuda_ref.linear_sigmoid.skinny import linear_sigmoid as linear_sigmoid_skinny
from cuda_ref.matmul import _model_tf32_float8
from cuda_ref.matmul import _plan as _matmul_plan
from cuda_ref.matmul import _tiles as _matmul_tiles
from cuda_ref.matmul._tiles import PARTS, SKINNY_COLUMNS, Plan
from cuda_ref.matmul.auto import run as run_plan
from cuda_ref.matmul.skinny import matmul as matmul_skinny
from cuda_ref.matmul.skinny import run as run_skinny
from cuda_ref.matmul.tma_wgmma import matmul as matmul_tma_wgmma
from cuda_ref.matmul.warp_specialized import matmul as matmul_warp_specialized
from cuda_ref.matmul.wgmma import matmul as matmul_wgmma
from suite import ops
from suite.checking.judge import judge

HALVES, LAYOUTS = (torch.float16, torch.bfloat16), ("nn", "nt", "tn", "tt")


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


F32, F8 = torch.float32, torch.float8_e4m3fn
F8_MULTIPLE = 16
RUNGS = [
    pytest.param(matmul_tma_wgmma, id="tma_wgmma"),
    pytest.param(matmul_warp_specialized, id="warp_specialized"),
    pytest.param(matmul_wgmma, id="wgmma"),
]
MATMULS = [*RUNGS, pytest.param(matmul_skinny, id="skinny")]
WITHOUT_COPIES = [each for each in MATMULS if each.id != "wgmma"]


@pytest.mark.parametrize("matmul", WITHOUT_COPIES)
def test_cases_that_are_not_covered(matmul: Callable[..., Tensor]) -> None:
    wide = tensor(64, 72)
    for a, b, precision, message in (
        (tensor(8, 65), tensor(65, 64), "ieee", "TMA needs a contiguous"),
        (tensor(8, 64), tensor(64, 65), "ieee", "TMA needs b contiguous"),
        (wide[:8, 1:65], tensor(64, 64), "ieee", "the first element 2 bytes past such a multiple"),
        (tensor(8, 64), wide[:, 1:65], "ieee", "the first element 2 bytes past such a multiple"),
        (tensor(8, 64), tensor(64, 1).expand(64, 64), "ieee", "TMA needs b contiguous"),
        (tensor(8, 8, dtype=F32), tensor(8, 8, dtype=F32), "ieee", "got"),
        (tensor(8, 64), tensor(64, 64), "ieee", "which the CPU does not have"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            matmul(a, b, precision=precision)


def test_cases_that_wgmma_and_skinny_do_not_cover() -> None:
    with pytest.raises(NotImplementedError, match='float32 in precision "tf32" only; got "ieee"'):
        matmul_wgmma(tensor(8, 8, dtype=F32), tensor(8, 8, dtype=F32))
    with pytest.raises(NotImplementedError, match="which the CPU does not have"):
        matmul_wgmma(tensor(8, 65), tensor(65, 64))
    with pytest.raises(NotImplementedError, match="M must be at most 32; got M=33"):
        matmul_skinny(tensor(33, 64), tensor(64, 64))


def test_float8_arguments() -> None:
    a, b, scale = tensor(16, 64, dtype=F8), tensor(32, 64, dtype=F8).t(), torch.tensor(1.5)
    for arguments, precision, message in (
        ((a, b, scale, scale), "ieee", "so precision must be 'promoted' or 'fast'; got 'ieee'"),
        ((a, b), "fast", "so scale_a must be float32 of shape (); got None"),
        ((a, b, scale, scale.double()), "fast", "so scale_b must be float32 of shape (); got float64 of shape ()"),
        ((a, b, scale.reshape(1), scale), "fast", "got float32 of shape (1,)"),
        ((tensor(8, 8), tensor(8, 8), scale, None), "ieee", "a is bfloat16, so scale_a must be None; got float32"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            matmul_wgmma(*arguments, precision=precision)
    empty = matmul_wgmma(tensor(4, 0, dtype=F8), tensor(0, 3, dtype=F8), scale, scale, precision="fast")
    assert torch.equal(empty, tensor(4, 3))


@pytest.mark.parametrize("matmul", MATMULS)
def test_empty_matrices(matmul: Callable[..., Tensor]) -> None:
    assert matmul(tensor(0, 5), tensor(5, 4)).shape == (0, 4)
    assert matmul(tensor(4, 5), tensor(5, 0)).shape == (4, 0)
    assert torch.equal(matmul(tensor(4, 0), tensor(0, 3)), tensor(4, 3))


# Large tiles and small ones; one tile and many; edges in all dimensions; K shorter than a stage, or an odd number of
# stages, or more stages than the ring has; few rows, which may lie across K.
SHAPES = [
    (1, 8, 8),
    (64, 64, 64),
    (200, 136, 72),
    (128, 256, 1000),
    (1000, 520, 136),
    (2048, 2056, 192),
    (4104, 2312, 328),
    (16, 6144, 4096),
]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("matmul", RUNGS)
def test_layouts_and_edges_16_bit(
    matmul: Callable[..., Tensor],
    draw: Callable[..., Tensor],
    agrees_twice: Callable[..., None],
    shape: tuple[int, int, int],
    layout: str,
) -> None:
    M, N, K = shape
    M = M + -M % 8 if layout[0] == "t" else M
    for dtype in HALVES:
        agrees_twice(matmul, draw(M, K, dtype, layout[0] == "t", pad=8), draw(K, N, dtype, layout[1] == "t", pad=16))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", ["wgmma", "wgmma16", "mma", "fitted"])
def test_every_plan_at_any_address(
    draw: Callable[..., Tensor], agrees_twice: Callable[..., None], kernel: str, layout: str
) -> None:
    """Rows at multiples of 16 bytes, and at odd addresses, which TMA needs copied."""
    for M, columns, K in ((70, 130, 200), (129, 257, 1031), (300, 513, 4100)):
        N = columns // 8 * 8 if kernel == "fitted" else columns
        for pad in (8, 3):
            a = draw(M, K, HALVES[1], layout[0] == "t", pad=pad)
            b = draw(K, N, HALVES[1], layout[1] == "t", pad=pad)
            for plan in _matmul_tiles.candidates(_matmul_plan.problem_of(a, b)):
                if plan.kernel == kernel:

                    def matmul(a: Tensor, b: Tensor, precision: str, plan: Plan = plan) -> Tensor:
                        return run_plan(plan, a, b, precision)

                    agrees_twice(matmul, a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_every_plan_of_dense_rows(draw: Callable[..., Tensor], agrees_twice: Callable[..., None], layout: str) -> None:
    for M, N, K in ((5000, 1, 1), (30001, 20, 72), (9000, 3, 256), (2500, 116, 116), (700, 403, 10), (4003, 8, 1031)):
        for dtype, pad in itertools.product(HALVES, (0, 3)):
            a, b = draw(M, K, dtype), draw(K, N, dtype, layout[1] == "t", pad=pad)
            plans = [
                each for each in _matmul_tiles.candidates(_matmul_plan.problem_of(a, b)) if each.kernel == "narrow"
            ]
            assert plans
            for plan in plans:

                def matmul(a: Tensor, b: Tensor, precision: str, plan: Plan = plan) -> Tensor:
                    return run_plan(plan, a, b, precision)

                agrees_twice(matmul, a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["tf32", "fast", "promoted"])
def test_every_plan_of_tf32_and_float8(hopper: torch.device, precision: str) -> None:
    op = ops.get("matmul")
    dtype = "float32" if precision == "tf32" else "float8_e4m3fn"
    for shape in ((5, 700, 532), (333, 16, 1028), (129, 257, 1031), (300, 516, 1100), (6, 520, 64), (1000, 3, 48)):
        for layout in LAYOUTS if precision == "tf32" else ("nn",):
            case = op.case(shape, dtype, precision, layout=layout)
            inputs = op.make_inputs(case, 1, hopper)
            for plan in _model_tf32_float8.candidates(_model_tf32_float8.problem_of(inputs[0], inputs[1], precision)):
                out, again = (run_plan(plan, inputs[0], inputs[1], precision, *inputs[2:]) for _ in range(2))
                verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=op.output_dtype(case))
                assert verdict.agrees, f"{plan} {case.label}: {verdict.reason}"
                assert torch.equal(out, again), f"{plan} {case.label}: the second call gives another result"


@pytest.mark.gpu
def test_operands_that_tma_cannot_read_tf32_and_float8(
    draw: Callable[..., Tensor], agrees_twice: Callable[..., None], hopper: torch.device
) -> None:
    a, b = draw(67, 130, F32, True), draw(130, 75, F32)
    agrees_twice(matmul_wgmma, a, b, "tf32")
    agrees_twice(matmul_wgmma, a[::2, 1::2], b[1::2], "tf32")
    a, b = draw(33, 90, HALVES[1]).to(F8), draw(90, 50, HALVES[1]).to(F8)
    one = torch.ones((), device=hopper)
    wide = F8_MULTIPLE - 90 % F8_MULTIPLE
    padded = (
        torch.nn.functional.pad(a.float(), (0, wide)).to(F8),
        torch.nn.functional.pad(b.float().t(), (0, wide)).to(F8),
    )
    expected = matmul_wgmma(padded[0], padded[1].t(), one, one, precision="promoted")
    assert torch.equal(matmul_wgmma(a, b, one, one, precision="promoted"), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tt"])
def test_layouts_and_edges_tf32(
    draw: Callable[..., Tensor], agrees_twice: Callable[..., None], shape: tuple[int, int, int], layout: str
) -> None:
    M, N, K = shape
    M = M + -M % 8 if layout[0] == "t" else M
    a, b = draw(M, K, F32, layout[0] == "t"), draw(K, N, F32, layout[1] == "t", pad=4)
    agrees_twice(matmul_wgmma, a, b, "tf32")


@pytest.mark.gpu
@pytest.mark.parametrize("matmul", RUNGS)
def test_rows_of_out_that_tma_cannot_store(
    matmul: Callable[..., Tensor], draw: Callable[..., Tensor], agrees_twice: Callable[..., None]
) -> None:
    for M, N in ((33, 67), (130, 259), (1111, 2049)):
        for dtype in HALVES:
            agrees_twice(matmul, draw(M, 136, dtype), draw(136, N, dtype, True))


@pytest.mark.gpu
def test_rows_of_out_that_tma_cannot_store_tf32(draw: Callable[..., Tensor], agrees_twice: Callable[..., None]) -> None:
    for M, N in ((33, 67), (130, 259), (1111, 2049)):
        agrees_twice(matmul_wgmma, draw(M, 136, F32), draw(136, N, F32, True), "tf32")
        wide = N + -N % 4
        agrees_twice(matmul_wgmma, draw(wide, 136, F32, True), draw(136, N, F32, True), "tf32")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["promoted", "fast"])
@pytest.mark.parametrize("shape", [(1, 16, 16), (64, 128, 128), (33, 67, 144), (200, 131, 512), (2312, 4104, 1040)])
def test_wgmma_float8(hopper: torch.device, shape: tuple[int, int, int], precision: str) -> None:
    op = ops.get("matmul")
    for family in ("normal", "exact_sums"):
        case = op.case(shape, "float8_e4m3fn", precision, inputs=family)
        inputs = op.make_inputs(case, 1, hopper)
        out = matmul_wgmma(*inputs, precision=precision)
        verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=op.output_dtype(case))
        assert verdict.agrees, f"{shape} {precision} {family}: {verdict.reason}"
        assert torch.equal(out, matmul_wgmma(*inputs, precision=precision)), "the second call gives another result"


@pytest.mark.gpu
@pytest.mark.parametrize("M", [1, 7, 16, 17, 32])
def test_skinny(draw: Callable[..., Tensor], agrees_twice: Callable[..., None], M: int) -> None:
    for N, K in ((8, 8), (128, 64), (136, 200), (1000, 4096), (14336, 1032)):
        for dtype in HALVES:
            for transposed in (False, True):
                a, b = draw(M, K, dtype, pad=8), draw(K, N, dtype, transposed, pad=8)
                agrees_twice(matmul_skinny, a, b)
    agrees_twice(matmul_skinny, draw(M, 72, HALVES[0]), draw(72, 131, HALVES[0], True))


@pytest.mark.gpu
@pytest.mark.parametrize("parts", PARTS["skinny"])
@pytest.mark.parametrize("tile", range(len(SKINNY_COLUMNS)), ids=lambda tile: f"{SKINNY_COLUMNS[tile]}-columns")
def test_tiles_and_clusters_of_skinny(
    draw: Callable[..., Tensor], agrees_twice: Callable[..., None], tile: int, parts: int
) -> None:
    def matmul(a: Tensor, b: Tensor, precision: str) -> Tensor:
        return run_skinny(Plan("skinny", tile, parts), a, b)

    for M, K, transposed in itertools.product((5, 24), (72, 2056), (False, True)):
        agrees_twice(matmul, draw(M, K, HALVES[0], pad=8), draw(K, 296, HALVES[0], transposed, pad=8))


@pytest.mark.gpu
@pytest.mark.parametrize("M", [1, 16, 30])
def test_a_bias_and_a_sigmoid_of_few_rows(draw: Callable[..., Tensor], nan_outputs: None, M: int) -> None:
    op = ops.get("linear_sigmoid")
    for (N, K), dtype in itertools.product(((8, 8), (131, 72), (1000, 2104)), HALVES):
        x, weight, bias = draw(M, K, dtype, pad=8), draw(N, K, dtype, pad=8), draw(1, N, dtype)[0]
        case = op.case((M, N, K), str(dtype).removeprefix("torch."))
        out = linear_sigmoid_skinny(x, weight, bias)
        verdict = judge(out, op.truth((x, weight, bias), case), shape=(M, N), dtype=case.dtype)
        assert verdict.agrees, f"{case}: {verdict.reason}"
        assert torch.equal(out, linear_sigmoid_skinny(x, weight, bias))

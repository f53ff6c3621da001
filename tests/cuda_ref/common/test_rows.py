"""Kernels that keep rows in registers: how clusters divide rows, what is refused, and, on a GPU, every length."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cuda_ref.common.rows import Sharing, are_packed, sharing
from cuda_ref.layer_norm import cluster as layer_norm_cluster
from cuda_ref.layer_norm import layer_norm
from cuda_ref.layer_norm import registers as layer_norm_registers
from cuda_ref.rms_norm import cluster as rms_norm_cluster
from cuda_ref.rms_norm import registers as rms_norm_registers
from cuda_ref.rms_norm import rms_norm
from cuda_ref.softmax import cluster as softmax_cluster
from cuda_ref.softmax import registers as softmax_registers
from cuda_ref.softmax import softmax
from cuda_ref.sum import sum as sum_of
from suite import ops
from suite.checking.judge import judge

BF16 = torch.bfloat16
REGISTERS = {"softmax": softmax_registers, "rms_norm": rms_norm_registers, "layer_norm": layer_norm_registers}
CLUSTERS = {"softmax": softmax_cluster, "rms_norm": rms_norm_cluster, "layer_norm": layer_norm_cluster}
LENGTHS = (32776, 40000, 65536, 65544, 131072, 262144)
"""Lengths in bfloat16: the shortest row that a cluster shares, rows with and without full parts, and the longest."""


@pytest.mark.parametrize("columns", LENGTHS)
@pytest.mark.parametrize("rows", [1, 1024])
def test_the_blocks_of_a_cluster_hold_a_row_and_none_is_idle(columns: int, rows: int) -> None:
    found = sharing("softmax", torch.empty(1, columns, dtype=BF16).expand(rows, columns), True)
    part = found.threads * 8 * 8
    assert part * found.cluster >= columns
    assert found.threads <= 512
    assert found.cluster in (2, 4, 8)


def test_few_rows_have_larger_clusters() -> None:
    x = torch.empty(1, 65536, dtype=BF16)
    assert sharing("softmax", x.expand(4096, 65536), True) == Sharing(2, 512)
    assert sharing("softmax", x.expand(8, 65536), True) == Sharing(8, 128)


def test_rows_that_clusters_refuse() -> None:
    for columns, packed, message in (
        (65536, False, "rows must begin and end at multiples of 16 bytes"),
        (32768, True, "clusters share rows of more than 65536 and at most 524288 bytes; got 65536"),
        (2**19, True, "clusters share rows of more than 65536 and at most 524288 bytes; got 1048576"),
    ):
        with pytest.raises(NotImplementedError, match=f"rms_norm: {message}"):
            sharing("rms_norm", torch.empty(1, columns, dtype=BF16), packed)


def test_packed_rows_begin_and_end_at_16_bytes() -> None:
    x = torch.empty(4, 72, dtype=BF16)
    assert are_packed(x)
    assert are_packed(x[:, :64])
    assert not are_packed(x[:, 1:65])
    assert not are_packed(x[:, :63])
    assert not are_packed(x[:, ::2])
    assert not are_packed(x[:, :70:1])
    assert are_packed(torch.empty(80, dtype=BF16)[8:].view(1, 72))
    assert not are_packed(x, torch.empty(73, dtype=BF16)[1:])


def test_arguments() -> None:
    x, weight = torch.zeros(3, 8), torch.zeros(8)
    for call, message in (
        (lambda: softmax(weight), r"softmax: x must be \(M, N\); got \(8,\)"),
        (lambda: rms_norm(x, weight[:7], eps=1.0), r"x is \(M, N\)=\(3, 8\), so weight must be \(8,\); got \(7,\)"),
        (lambda: layer_norm(x, weight, weight.double(), eps=1.0), "x is float32, so bias must be float32; got float64"),
        (lambda: sum_of(x, axis=2), "sum: axis must be None, 0 or 1; got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("name", sorted(REGISTERS))
def test_rows_of_eight_packs_a_thread(name: str, device: str) -> None:
    op = ops.get(name)
    function: Callable[..., Tensor] = getattr(REGISTERS[name], name)
    for dtype in ("float32", "bfloat16"):
        case = op.case((1, 16_392), dtype)
        inputs = op.make_inputs(case, 1, torch.device(device))
        out = function(*inputs, **op.arguments(case))
        verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
        assert verdict.agrees, f"{case.label} {dtype}: {verdict.reason}"


@pytest.mark.gpu
@pytest.mark.parametrize("columns", LENGTHS)
@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_clusters_agree_at_every_length(name: str, columns: int) -> None:
    op = ops.get(name)
    function: Callable[..., Tensor] = getattr(CLUSTERS[name], name)
    for dtype, rows in (("bfloat16", 3), ("bfloat16", 300), ("float16", 5), ("float32", 5)):
        case = op.case((rows, columns // 2 if dtype == "float32" else columns), dtype)
        inputs = op.make_inputs(case, 1, torch.device("cuda"))
        out = function(*inputs, **op.arguments(case))
        verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
        assert verdict.agrees, f"{case.label} {dtype}: {verdict.reason}"
        assert torch.equal(out, function(*inputs, **op.arguments(case)))


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["cuda_ref.sum", "cuda_ref.sum.vectorized", "triton_kernels.sum"])
@pytest.mark.parametrize("shape", [(1, 2**22), (3, 2**20), (2**20, 3), (2**20, 1), (5000, 4096), (70_001, 8)], ids=str)
def test_sums_of_every_form_agree(kernel: str, shape: tuple[int, int]) -> None:
    from importlib import import_module

    op, function = ops.get("sum"), import_module(kernel).sum
    for axis in ("all", "0", "1"):
        for transposed in (False, True):
            case = op.case(shape, "bfloat16", axis=axis)
            (x,) = op.make_inputs(case, 1, torch.device("cuda"))
            x = x.t().contiguous().t() if transposed else x
            out = function(x, **op.arguments(case))
            verdict = judge(out, op.truth((x,), case), shape=op.output_shape(case), dtype="bfloat16")
            assert verdict.agrees, f"{case.label} {transposed}: {verdict.reason}"

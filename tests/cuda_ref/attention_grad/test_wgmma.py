"""The gradients of attention on Hopper's tensor cores: edges of tiles, many tiles, groups of heads, equal bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cuda_ref.attention_grad.wgmma import attention_grad, config, parts_of_a_group, run
from suite import ops
from suite.checking.judge import judge

# B, H, H_kv, S_q, S_k: less than a tile; edges; fewer queries and fewer keys; many tiles; a group of 8 heads
SIZES = [
    (1, 1, 1, 1, 1),
    (1, 2, 1, 128, 128),
    (2, 8, 2, 300, 517),
    (1, 2, 2, 517, 300),
    (1, 4, 4, 1, 1000),
    (1, 16, 2, 700, 700),
    (1, 33, 33, 333, 65),
    (1, 68, 17, 1111, 1111),
    (1, 3, 1, 4097, 4099),
]
HALVES = [(1, 2, 1, 128, 128), (1, 2, 2, 517, 300), (1, 16, 2, 700, 700)]
"""Sizes for float16: only the instructions of products and roundings differ."""
CASES = [(size, "bfloat16") for size in SIZES] + [(size, "float16") for size in HALVES]


@pytest.mark.gpu
@pytest.mark.parametrize(("size", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128])
def test_sizes(
    hopper: torch.device, nan_outputs: None, D: int, causal: bool, dtype: str, size: tuple[int, ...]
) -> None:
    op = ops.get("attention_grad")
    case = op.case((*size, D), dtype, causal=causal)
    inputs = op.make_inputs(case, 1, hopper)

    def result() -> Tensor:
        return torch.cat([each.flatten() for each in attention_grad(*inputs, causal=causal)])

    out = result()
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
    assert verdict.agrees, verdict.reason
    for _ in range(3):
        assert torch.equal(result(), out)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "size", [(1, 4, 2, 300, 517), (1, 2, 2, 517, 300), (1, 2, 1, 100, 900), (1, 16, 16, 3000, 3000)]
)
@pytest.mark.parametrize("window", [1, 100, 128, 1024])
@pytest.mark.parametrize("D", [64, 128])
def test_windows(hopper: torch.device, nan_outputs: None, D: int, window: int, size: tuple[int, ...]) -> None:
    op = ops.get("attention_grad")
    case = op.case((*size, D), "bfloat16", window=window)
    inputs = op.make_inputs(case, 1, hopper)
    outs = [
        torch.cat([each.flatten() for each in attention_grad(*inputs, causal=True, window=window)]) for _ in range(3)
    ]
    verdict = judge(outs[0], op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
    assert verdict.agrees, verdict.reason
    assert all(torch.equal(out, outs[0]) for out in outs)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(1, 16, 2, 700, 333), (2, 8, 1, 65, 515)], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128])
def test_every_number_of_parts(
    hopper: torch.device, nan_outputs: None, D: int, causal: bool, size: tuple[int, ...]
) -> None:
    op = ops.get("attention_grad")
    case = op.case((*size, D), "bfloat16", causal=causal)
    inputs = op.make_inputs(case, 1, hopper)
    for parts in (1, 2, 4, 8):
        results = [torch.cat([x.flatten() for x in run(parts, *inputs, causal, None)]) for _ in range(4)]
        verdict = judge(results[0], op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
        assert verdict.agrees, f"{parts} parts: {verdict.reason}"
        assert all(torch.equal(each, results[0]) for each in results[1:]), parts


def test_few_key_heads_are_divided_and_many_are_not() -> None:
    assert parts_of_a_group(4, 32, 8, 4096, 4096, 128, False, 132) == 1
    assert parts_of_a_group(4, 64, 8, 4096, 4096, 128, True, 132) == 1
    assert parts_of_a_group(1, 8, 8, 4096, 4096, 128, False, 132) == 1
    for causal in (False, True):
        assert parts_of_a_group(1, 16, 1, 4096, 4096, 128, causal, 132) in (4, 8, 16)
    assert parts_of_a_group(1, 6, 1, 2048, 2048, 64, False, 132) in (2, 3, 6)


def test_the_configuration_names_all_kernels() -> None:
    q, k = torch.zeros(1, 4, 3, 64).half(), torch.zeros(1, 2, 130, 64).half()
    assert config(q, k, k, q) == "wgmma 64x128 teams=3; prepare; gradients parts=1; finish"
    many, one = torch.zeros(1, 1, 1, 64).half().expand(1, 16, 4096, 64), torch.zeros(1, 1, 100, 64).half()
    steps = config(many, one, one, many).split("; ")
    assert steps[-1] == "add_parts" or "parts=1" in steps[-2]
    assert config(q[:, :, :0], k, k, q[:, :, :0]) == ""


@pytest.mark.gpu
def test_rows_that_tma_cannot_read_are_copied(hopper: torch.device) -> None:
    source = torch.Generator(hopper).manual_seed(0)
    shapes = ((2, 4, 70, 64), (2, 2, 90, 64), (2, 2, 90, 64), (2, 4, 70, 64))
    given = [torch.randn(each, generator=source, device=hopper).bfloat16() for each in shapes]
    expected = attention_grad(*given)
    padded = [torch.nn.functional.pad(x, (3, 2))[..., 3:-2] for x in given]
    inside = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]
    for others in (padded, inside):
        assert all(torch.equal(x, y) for x, y in zip(attention_grad(*others), expected, strict=True))


def test_what_is_refused() -> None:
    q = torch.zeros(1, 1, 8, 64, dtype=torch.bfloat16)
    for given, arguments, message in (
        (q.float(), {}, "attention_grad: written for float16 and bfloat16; got torch.float32"),
        (torch.zeros(1, 1, 8, 256, dtype=torch.bfloat16), {}, "attention_grad: D must be 64 or 128; got D=256"),
        (q, {"sm_scale": -1.0}, "sm_scale must not be negative; got -1.0"),
        (q, {}, "which the CPU does not have"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            attention_grad(given, given, given, given, **arguments)
    none = attention_grad(q[:, :, :0], q, q, q[:, :, :0])
    assert [tuple(each.shape) for each in none] == [(1, 1, 0, 64), (1, 1, 8, 64), (1, 1, 8, 64)]
    assert torch.equal(none[1], torch.zeros_like(q))

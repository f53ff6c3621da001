"""paged_attention: its inputs, its bound, and implementations that read no slot without a token."""

from __future__ import annotations

import math

import pytest
import torch
from judging import CPU, judge_output

from cuda_ref.paged_attention import paged_attention as cuda
from cuda_ref.paged_attention.decode import paged_attention as cuda_decode
from suite import ops
from torch_impls.paged_attention import paged_attention as torch_line
from triton_kernels.paged_attention import paged_attention as triton
from triton_kernels.paged_attention.parts import paged_attention as triton_parts

OP = ops.get("paged_attention")
SHAPE = (3, 4, 2, 2, 70, 64, 16)


def test_pages_are_in_random_order_and_unused_slots_are_nan() -> None:
    case = OP.case((40, 2, 1, 1, 70, 64, 16), lengths="ragged", inputs="unused_nan")
    _, k_pages, _, table, lengths = OP.make_inputs(case, 0, CPU)
    assert (k_pages.shape, table.shape, table.dtype) == ((40 * 5 + 1, 16, 1, 64), (40, 5), torch.int32)
    assert lengths.max() == 70
    assert lengths.unique().numel() > 10
    held = k_pages.isfinite().all(-1).all(-1)
    assert int(held.sum()) == int(lengths.sum())
    used = torch.arange(5) * 16 < lengths[:, None]
    assert table[used].unique().numel() == int(used.sum()), "no page belongs to two sequences"
    assert not table[used].sort().values.equal(table[used])
    assert not held[table[~used].long()].any()


def test_the_result_is_that_of_attention_over_the_gathered_keys() -> None:
    case = OP.case(SHAPE, lengths="ragged")
    q, k_pages, v_pages, table, lengths = OP.make_inputs(case, 0, CPU)
    found = torch_line(q, k_pages, v_pages, table, lengths)
    for b, length in enumerate(lengths.tolist()):
        k, v = (x[table[b].long()].flatten(0, 1)[:length].repeat_interleave(2, 1) for x in (k_pages, v_pages))
        scores = torch.einsum("ihd,jhd->hij", q[b], k) / 8.0
        seen = torch.arange(length) <= torch.arange(2)[:, None] + length - 2
        p = torch.softmax(scores.masked_fill(~seen, -math.inf), -1).nan_to_num(0.0)
        torch.testing.assert_close(found[b], torch.einsum("hij,jhd->ihd", p, v), rtol=1e-4, atol=1e-5)


def test_a_cache_in_float8_takes_half_the_bytes_and_has_two_scales(device: str) -> None:
    case, narrow = (OP.case((64, 8, 8, 1, 1024, 64, 16), "bfloat16", kv=kv) for kv in (None, "float8_e4m3fn"))
    cache = 64 * 1024 * 8 * 64 * 2
    assert OP.bytes(case) - OP.bytes(narrow) == cache
    small = OP.case(SHAPE, "bfloat16", kv="float8_e4m3fn", lengths="ragged")
    q, k_pages, v_pages, table, lengths, scale_k, scale_v = OP.make_inputs(small, 0, torch.device(device))
    wide = OP.case(SHAPE, "bfloat16", lengths="ragged")
    for keys, values in ((scale_k, scale_v), (-scale_k, scale_v)):
        scaled = [(pages.double() * scale).float() for pages, scale in ((k_pages, keys), (v_pages, values))]
        expected = torch_line(q.float(), *scaled, table, lengths)
        for line in (torch_line, triton, triton_parts, cuda):
            found = line(q, k_pages, v_pages, table, lengths, keys, values)
            torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=2e-2)
    assert OP.memory_bytes(small) < OP.memory_bytes(wide)


@pytest.mark.parametrize("arguments", [(torch.ones(()), None), (torch.ones(1), torch.ones(1)), (None, None)])
def test_float8_pages_need_two_scales(arguments: tuple[torch.Tensor | None, ...]) -> None:
    q, *rest = OP.make_inputs(OP.case(SHAPE, "bfloat16", kv="float8_e4m3fn"), 0, CPU)[:5]
    with pytest.raises(ValueError, match="must be float32 of shape"):
        torch_line(q, *rest, *arguments)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bound_tells_more_roundings(dtype: str) -> None:
    case = OP.case(SHAPE, dtype, lengths="ragged")
    inputs = OP.make_inputs(case, 0, CPU)
    right = torch_line(*inputs)
    assert judge_output(OP, case, right).error_ratio < 0.7
    coarse = torch.float16 if dtype == "float32" else torch.float8_e4m3fn
    assert judge_output(OP, case, right.to(coarse).to(right.dtype)).error_ratio > 1.2


@pytest.mark.parametrize("line", [triton, triton_parts, cuda, cuda_decode], ids=lambda each: each.__module__)
def test_entries_beyond_the_pages_of_a_sequence_are_not_read(line, device: str) -> None:
    case = OP.case((3, 4, 2, 2, 300, 64, 16), "float16", lengths="ragged", inputs="unused_nan")
    q, k_pages, v_pages, table, lengths = OP.make_inputs(case, 0, CPU)
    used = torch.arange(table.shape[1]) * 16 < lengths[:, None]
    spoiled = torch.where(used, table, 2**30)
    found = line(*(x.to(device) for x in (q, k_pages, v_pages, spoiled, lengths)))
    assert judge_output(OP, case, found.cpu()).agrees


def test_triton_computes_more_queries_of_a_key_head_than_a_tile_holds(device: str) -> None:
    case = OP.case((1, 4, 2, 70, 90, 64, 16), "float32", lengths="ragged", inputs="unused_nan")
    inputs = OP.make_inputs(case, 0, CPU)
    assert judge_output(OP, case, triton(*(x.to(device) for x in inputs)).cpu()).agrees
    with pytest.raises(NotImplementedError, match="at most 128"):
        triton_parts(*(x.to(device) for x in inputs))


@pytest.mark.parametrize("inputs", ["nan", "nan@2", "infinity", "infinity@2"])
def test_values_hidden_from_a_query_are_finite(inputs: str) -> None:
    """A weight of 0 times NaN may be NaN or left out: both are right."""
    case = OP.case(OP.usual_shape, inputs=inputs)
    for seed in range(6):  # seed 5: the NaN of a page is in the last key, which the first query does not see
        drawn = OP.make_inputs(case, seed, CPU)
        *_, v_pages, table, lengths = drawn
        last = lengths - 1
        pages = table[torch.arange(len(table)), last // case["page"]].long()
        assert v_pages[pages, last % case["page"]].isfinite().all()
        assert not v_pages.isfinite().all() or inputs.endswith("@2")
        assert judge_output(OP, case, torch_line(*drawn), seed).agrees

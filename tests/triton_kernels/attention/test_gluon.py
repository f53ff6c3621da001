"""Attention in Gluon: configurations, order of the tiles, and calls from threads, CUDA graphs and other GPUs."""

from __future__ import annotations

import itertools
import threading
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from triton_kernels._common.tma import tma_rows
from triton_kernels.attention import _gluon_tiles as tiles
from triton_kernels.attention._configs_gluon import (
    CONFIGS,
    HEAD_64_THREE,
    HEAD_64_TWO,
    HEAD_128,
    HEAD_256,
    OUT_COLUMNS,
    ROWS,
    Config,
    configuration,
    heads_together,
)
from triton_kernels.attention.gluon import attention

PROCESSORS = 132  # of an H200
hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="needs a Hopper GPU"
)


@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_shared_memory_and_registers_hold_every_configuration(D: int, causal: bool) -> None:
    for heads, S_q in itertools.product((1, 8, 16, 512), (1, 100, 192, 512, 4096, 16384)):
        config = configuration(D, causal, heads, S_q, PROCESSORS)
        assert config in CONFIGS
        elements = (ROWS * config.CONSUMERS + 2 * config.STAGES * config.BLOCK_N) * D
        elements += config.CONSUMERS * (2 if D > OUT_COLUMNS else 1) * ROWS * OUT_COLUMNS
        assert 2 * elements + 1024 <= 227 * 1024
        accumulators = (D + config.BLOCK_N) // 2  # a thread
        assert accumulators <= (112 if config.CONSUMERS == 3 else 192)


@pytest.mark.parametrize(
    ("D", "causal", "heads", "S_q", "expected"),
    [
        (64, False, 128, 4096, HEAD_64_THREE),
        (64, False, 512, 256, HEAD_64_TWO),  # 192 queries would be padded to 384
        (64, False, 32, 1, HEAD_64_TWO),
        (64, True, 128, 4096, HEAD_64_TWO),
        (128, False, 512, 512, HEAD_128),
        (128, True, 16, 16384, HEAD_128),
        (256, True, 32, 4096, HEAD_256),
    ],
)
def test_configuration(D: int, causal: bool, heads: int, S_q: int, expected: Config) -> None:
    assert configuration(D, causal, heads, S_q, PROCESSORS) == expected


def test_heads_advance_together_while_their_keys_fit_into_the_cache() -> None:
    head = 2 * 4096 * 128 * 2
    assert heads_together(64, 1, 2048, PROCESSORS, head) == 8
    assert heads_together(64, 1, 900, PROCESSORS, head) == 16  # few tiles
    assert heads_together(64, 4, 2048, PROCESSORS, head) == 32  # four query heads share a key head
    assert heads_together(6, 1, 2048, PROCESSORS, head) == 6
    assert heads_together(64, 8, 2048, PROCESSORS, 2**30) == 8


@pytest.mark.parametrize(("S_q", "S_k"), [(4096, 4096), (3000, 3000), (300, 4096), (4096, 300), (512, 512)])
@pytest.mark.parametrize("group", [1, 6, 64])
def test_every_tile_is_computed_once_and_programs_have_equal_work(S_q: int, S_k: int, group: int) -> None:
    heads, BLOCK = 64, 128
    lists = tiles.tile_lists(PROCESSORS, heads, group, S_q, S_k, BLOCK, BLOCK)
    tiles_m = -(-S_q // BLOCK)
    assert sorted(itertools.chain(*lists)) == list(range(heads * tiles_m))

    def cost(tile: int) -> float:
        first = tile // (group * tiles_m) * group
        row = (tile - first * tiles_m) // min(heads - first, group)
        blocks = max(-(-(min((tiles_m - row) * BLOCK, S_q) + S_k - S_q) // BLOCK), 1)
        return blocks + tiles.TILE_COST

    work = [sum(map(cost, each)) for each in lists]
    assert max(work) <= sum(work) / PROCESSORS + max(map(cost, itertools.chain(*lists)))


def test_table_has_the_counts_and_then_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    sizes = (5, 3, 2, 300, 300, 128, 128)
    table = tiles._table.__wrapped__(sizes, torch.device("cpu"))
    lists = tiles.tile_lists(*sizes)
    assert table.shape[0] >= 2 + max(map(len, lists))  # a program reads one number ahead
    for program, each in enumerate(lists):
        assert table[: 1 + len(each), program].tolist() == [len(each), *each]


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA graph capture, as the module sees it."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(tiles, "captured", {})


@pytest.mark.usefixtures("capturing")
def test_a_capture_needs_a_call_before_it() -> None:
    for _ in range(2):  # the error is not cached
        with pytest.raises(RuntimeError, match="attention: first causal call with these sizes"):
            tiles.tile_table(7, 7, 7, 7000, 7000, 128, 128, device=torch.device("cpu"))


@pytest.mark.usefixtures("capturing")
def test_tables_in_graphs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_table", lru_cache(maxsize=1)(lambda sizes, device: torch.empty(1)))
    first = tiles.tile_table(1, device=torch.device("cpu"))
    tiles.tile_table(2, device=torch.device("cpu"))
    assert tiles.tile_table(1, device=torch.device("cpu")) is first


def test_tma_reads_permuted_operands_and_copies_others() -> None:
    x = torch.randn(2, 3, 5, 64).half()
    for same in (x, x.transpose(1, 2).contiguous().transpose(1, 2), x[:, :1], x[:1]):
        assert tma_rows(same) is same
    flat = torch.randn(x.numel() + 1).half()
    for other in (x[..., ::2], x[:1].expand(2, 3, 5, 64), flat[1:].view(x.shape)):
        copy = tma_rows(other)
        assert copy is not other
        assert copy.is_contiguous()
        assert torch.equal(copy, other)


def operands(heads: int, S: int, device: str = "cuda") -> list[Tensor]:
    return [torch.randn(1, heads, S, 128, device=device).bfloat16() for _ in range(3)]


@pytest.mark.gpu
@hopper
def test_threads_compute_what_one_computes() -> None:
    inputs = [operands(40, 512 + 64 * i) for i in range(8)]  # more tiles than programs, so each has a table
    expected = [attention(*each, causal=True) for each in inputs]
    tiles._table.cache_clear()
    torch.cuda.synchronize()
    failures: list[int] = []

    def work(i: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                if not torch.equal(attention(*inputs[i % 8], causal=True), expected[i % 8]):
                    failures.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.gpu
@hopper
@pytest.mark.parametrize("causal", [False, True])
def test_a_cuda_graph_computes_with_new_inputs(causal: bool) -> None:
    q, k, v = operands(40, 640)
    attention(q, k, v, causal=causal)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(q, k, v, causal=causal)
    tiles._table.cache_clear()
    torch.cuda.empty_cache()
    for _ in range(3):
        for x in (q, k, v):
            x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(out, attention(q, k, v, causal=causal))


@pytest.mark.gpu
@hopper
def test_a_first_call_in_a_capture_is_refused() -> None:
    q, k, v = operands(40, 704)
    attention(q, k, v, causal=True)
    tiles._table.cache_clear()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="inside a CUDA graph capture; call it once before"), torch.cuda.graph(graph):
        attention(q, k, v, causal=True)
    expected = attention(q, k, v, causal=True)
    assert torch.equal(attention(q, k, v, causal=True), expected)


@pytest.mark.gpu
@hopper
@pytest.mark.two_gpus
def test_a_gpu_that_is_not_current() -> None:
    inputs = operands(40, 640)
    expected = attention(*inputs, causal=True)
    there = attention(*(x.to("cuda:1") for x in inputs), causal=True)
    assert there.device == torch.device("cuda", 1)
    assert torch.equal(there.to("cuda:0"), expected)

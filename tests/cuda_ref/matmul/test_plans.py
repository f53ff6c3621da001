"""Products by mma.sync for rows at any address, copies to a pitch, sums of parts, and the choice of a plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from thinning import THOROUGH, thorough_unless
from torch import Tensor

from cuda_ref import build
from cuda_ref.hopper.layouts import operand_layouts
from cuda_ref.hopper.pitched import pitch, pitched
from cuda_ref.matmul import _model as _matmul_model
from cuda_ref.matmul import _model_tf32_float8, auto
from cuda_ref.matmul import _plan as _matmul_plan
from cuda_ref.matmul import _tiles as _matmul_tiles
from cuda_ref.matmul._narrow import run as run_narrow
from cuda_ref.matmul._narrow_plan import MOST_WARPS, SHARED_BYTES, TILE_ROWS, divide
from cuda_ref.matmul._short import run as run_short
from cuda_ref.matmul._tiles import Plan, Problem
from cuda_ref.matmul.mma import matmul
from cuda_ref.matmul.stream import matmul as matmul_stream
from cuda_ref.matmul.stream import run as run_stream

Random = Callable[..., Tensor]
Agrees = Callable[..., Tensor]
needs_compiler = pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu")))


def layouts(random: Random, rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
    """At multiples of 16 bytes, at odd addresses, transposed, without a contiguous dimension, and repeated."""
    return [
        random(rows, columns, dtype=dtype, pad=8 + -columns % 8),
        random(rows, columns, dtype=dtype, shift=3, pad=2),
        random(columns, rows, dtype=dtype, shift=1).t(),
        random(2 * rows, 3 * columns, dtype=dtype)[1::2, ::3],
        random(1, columns, dtype=dtype, shift=5).expand(rows, columns),
    ]


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rows_at_any_address(random: Random, agrees: Agrees, dtype: torch.dtype) -> None:
    for M, N, K in ((1, 1, 1), (1, 35, 33), (37, 34, 131)):
        for a, b in itertools.product(layouts(random, M, K, dtype), layouts(random, K, N, dtype)):
            agrees(matmul, a, b)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 70, 33), (70, 9, 33), (1, 130, 64), (16, 5, 131)], ids=str)
def test_few_rows_or_columns(random: Random, agrees: Agrees, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    M, N, K = shape
    for a, b in itertools.product(layouts(random, M, K, dtype), layouts(random, K, N, dtype)):
        agrees(matmul_stream, a, b)


@needs_compiler
@pytest.mark.parametrize("warps", [1, 2, 3])
def test_warps_divide_long_sums(random: Random, agrees: Agrees, warps: int) -> None:
    for M, N, K in ((5, 200, 300), (200, 11, 290)):
        a, b = random(M, K, dtype=torch.bfloat16, shift=1), random(K, N, dtype=torch.bfloat16)

        def matmul(a: Tensor, b: Tensor, precision: str) -> Tensor:
            return run_stream(Plan("stream", warps, 1), a, b)

        agrees(matmul, a, b)


@needs_compiler
@pytest.mark.parametrize("tile", [pytest.param(tile, marks=thorough_unless(tile % 5 == 3)) for tile in range(14)])
def test_threads_divide_short_sums(random: Random, agrees: Agrees, tile: int) -> None:
    blocks = tile in _matmul_tiles.SHORT_BLOCKS
    middle, many = (
        (5, 7, 1500) if blocks else (9, 35, 64 if tile in (8, 9) else 150),
        (7, 9, 3) if blocks else (70, 300, 3),
    )
    for dtype, (M, N, K) in itertools.product((torch.float16, torch.bfloat16), ((1, 1, 1), (5, 3, 9), middle, many)):

        def matmul(a: Tensor, b: Tensor, precision: str) -> Tensor:
            return run_short(Plan("short", tile, 1), a, b)

        agrees(matmul, random(M, K, dtype=dtype, shift=1), random(3 * N, K, dtype=dtype)[::3].t())


def dense(random: Random, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Rows without gaps from a multiple of 16 bytes on, with NaN before the first one and behind the last."""
    numbers = random(rows * columns, dtype=dtype, shift=64, pad=64)
    inner = numbers.as_strided((rows, columns), (columns, 1))
    behind = inner.data_ptr() % 16 // 2
    return inner if behind == 0 else inner.as_strided(inner.shape, inner.stride(), inner.storage_offset() - behind)


NARROW = (
    (8, 1, 1),
    (50, 3, 7),
    (100, 20, 72),
    (333, 20, 70),
    (61, 116, 116),
    (300, 8, 1040),
    (70, 5, 300),
    (77, 3, 256),
    (90, 403, 10),
    (600, 17, 33),
    (1200, 16, 9),
    (40, 100, 251),
    (130, 512, 16),
)


@needs_compiler
@pytest.mark.parametrize("tile", range(len(TILE_ROWS)))
@pytest.mark.parametrize("shape", [NARROW[0], *(pytest.param(each, marks=THOROUGH) for each in NARROW[1:])], ids=str)
def test_many_dense_rows_with_few_columns(
    random: Random, agrees: Agrees, shape: tuple[int, int, int], tile: int
) -> None:
    M, N, K = shape

    def matmul(a: Tensor, b: Tensor, precision: str) -> Tensor:
        return run_narrow(Plan("narrow", tile, 1), a, b)

    for dtype in (torch.float16, torch.bfloat16):
        for b in layouts(random, K, N, dtype):
            if divide(M, N, K, tile, 2) is not None:
                agrees(matmul, dense(random, M, K, dtype), b)


def test_narrow_divisions_fit() -> None:
    for M, N, K, tile in itertools.product(
        (100, 9000, 10**6), (1, 8, 20, 64, 116, 403, 512), (1, 10, 72, 128, 250, 256, 1031, 1040), range(len(TILE_ROWS))
    ):
        found = divide(M, N, K, tile, 132)
        if found is None:
            continue
        terms, groups = -(-K // 16) * 16, -(-N // found.tile_columns)
        b_bytes = terms * (groups * found.tile_columns // 8 | 1) * 16
        ring = found.warps * found.stages * found.tile_rows * found.pitch
        rounded = found.warps // found.sharing * found.tile_rows * (2 * N + 16 * (N % 16 == 0))
        assert b_bytes + ring + rounded <= SHARED_BYTES
        assert found.warps <= MOST_WARPS
        assert found.warps % found.sharing == 0
        assert found.rows * 132 >= M
        assert found.rows % 8 == 0
        assert found.pitch % 32 == 16  # ldmatrix has no bank conflicts


def test_narrow_is_for_dense_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_matmul_plan, "multiprocessors", lambda device: 132)
    b = torch.empty(72, 20, dtype=torch.bfloat16)

    def kernels(a: Tensor) -> set[str]:
        return {each.kernel for each in _matmul_tiles.candidates(_matmul_plan.problem_of(a, b))}

    whole = torch.empty(5008, 80, dtype=torch.bfloat16)
    assert "narrow" in kernels(whole.view(-1)[: 5000 * 72].view(5000, 72))
    assert "narrow" not in kernels(whole[:, :72])
    assert "narrow" not in kernels(whole.view(-1)[1 : 5000 * 72 + 1].view(5000, 72))
    x = Problem(401408, 20, 72, a_copied=False, b_copied=True, multiprocessors=132, a_dense=True)
    assert _matmul_plan.best_of(x, _matmul_tiles.KERNELS).kernel == "narrow"


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_copies_to_a_pitch_of_16_bytes(dtype: torch.dtype) -> None:
    for rows, columns in ((1, 1), (5, 7), (33, 129), (64, 8), (3, 1000)):
        numbers = torch.randint(0, 99, (3 * rows * columns + 3,)).to(dtype)
        for offset in (0, 1, 3):
            x = numbers[offset:][: rows * columns].view(rows, columns)
            y = numbers[offset : offset + 3 * rows * columns : 3].view(rows, columns).t()
            for inner in (0, 1):
                found = pitched((x, inner), (y, inner))
                assert torch.equal(found[0], x)
                assert torch.equal(found[1], y)
                assert all(each.stride(inner) == 1 for each in found)
                assert all(each.stride(1 - inner) * each.element_size() % 16 == 0 for each in found)


def test_plans_have_work_for_every_part() -> None:
    for M, N, K in itertools.product((1, 100, 5000), (1, 200, 3000), (1, 65, 20000)):
        x = Problem(M, N, K, a_copied=True, b_copied=False, multiprocessors=132)
        plans = list(_matmul_tiles.candidates(x))
        assert plans
        for plan in plans:
            if plan.kernel in _matmul_tiles.TILES or plan.kernel == "fitted":
                assert plan.parts <= -(-K // _matmul_tiles.tile_of(plan).K)
            assert _matmul_model.predicted_us(plan, x) > 0


def test_many_rows_times_a_vector_take_no_tiles_by_tma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_matmul_plan, "multiprocessors", lambda device: 132)
    for M, K in ((38656, 1152), (9856, 1536), (26248, 872)):
        x = _matmul_plan.problem_of(torch.empty(M, K, dtype=torch.bfloat16), torch.empty(K, 1, dtype=torch.bfloat16))
        assert not x.b_along_k
        assert _matmul_plan.best_of(x, _matmul_tiles.KERNELS).kernel in ("stream", "mma", "narrow")


@pytest.mark.parametrize("multiprocessors", [1, 7, 14, 78, 132])
def test_a_device_of_any_size_has_a_plan(multiprocessors: int) -> None:
    for M, N, K in itertools.product((1, 20, 300), (8, 200, 3000), (64, 4096)):
        x = Problem(M, N, K, a_copied=False, b_copied=False, multiprocessors=multiprocessors, a_dense=True)
        for plan in _matmul_tiles.candidates(x):
            assert _matmul_model.predicted_us(plan, x) > 0, plan


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        ((4096, 4096, 4096), "wgmma"),
        ((8192, 1024, 2048), "wgmma16"),
        ((1024, 1024, 1024), "wgmma"),
        ((20, 30, 40), "short"),
    ],
    ids=str,
)
def test_the_choice_of_a_plan(shape: tuple[int, int, int], kernel: str) -> None:
    x = Problem(*shape, a_copied=False, b_copied=False, multiprocessors=132)
    assert _matmul_plan.best_of(x, _matmul_tiles.KERNELS).kernel == kernel


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        ((79, 4096, 4096), "fitted"),
        ((1, 1024, 4096), "skinny"),
        ((3, 3840, 1280), "skinny"),
    ],
    ids=str,
)
def test_few_tokens_times_weights(shape: tuple[int, int, int], kernel: str) -> None:
    """The fastest kernels of the measured plans. On an H200 `wgmma16` or `short` takes 16 to 52% longer."""
    x = Problem(*shape, False, False, multiprocessors=132, a_dense=True, b_along_k=True)
    assert _matmul_plan.best_of(x, _matmul_tiles.KERNELS).kernel == kernel


def test_clusters_beyond_those_that_fit_take_another_round() -> None:
    for parts, clusters in _matmul_tiles.SKINNY_CLUSTERS.items():
        plan = Plan("skinny", 0, parts)
        fit, more = (
            _matmul_model.predicted_us(plan, Problem(1, 128 * count, 64 * parts, False, False, 132))
            for count in (clusters, clusters + 1)
        )
        assert more > fit + 0.5 * _matmul_model.H200.skinny_block_us, parts


def test_rows_of_tiles_fit_the_output() -> None:
    """Each number of rows is the least that needs so many blocks."""
    for M, N in ((100, 200), (1656, 1240), (5000, 64)):
        plans = [each for each in _matmul_tiles.candidates(Problem(M, N, 64, False, False, 132)) if each.parts == 1]
        tiles = [_matmul_tiles.tile_of(each) for each in plans if each.kernel == "fitted"]
        assert tiles
        for tile in tiles:
            assert tile.M % 16 == 0
            assert _matmul_tiles.FITTED_ROWS[tile.N] >= tile.M
            fewer = -(-M // ((tile.M - 16) * tile.cluster)) if tile.M > 16 else 0
            assert fewer != -(-M // (tile.M * tile.cluster))
    assert not [
        each for each in _matmul_tiles.candidates(Problem(99, 99, 99, True, True, 132)) if each.kernel == "fitted"
    ]


def test_rows_of_long_copies_are_whole_lines() -> None:
    assert [pitch(columns, 2) for columns in (1, 9, 255, 256, 4099)] == [8, 16, 256, 256, 4160]
    assert pitch(4099, 4) == 4128


def test_a_few_rows_that_lie_across_k_are_copied_for_the_kernel_that_reads_them_along_k(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_matmul_plan, "multiprocessors", lambda device: 132)
    a, b = torch.empty(4096, 16, dtype=torch.bfloat16), torch.empty(4096, 6144, dtype=torch.bfloat16)
    along_k, across_k = _matmul_plan.problem_of(a.t().contiguous(), b), _matmul_plan.problem_of(a.t(), b)
    plan = _matmul_plan.best_of(along_k, _matmul_tiles.KERNELS)
    assert plan.kernel == "skinny"
    assert _matmul_plan.best_of(across_k, _matmul_tiles.KERNELS) == plan
    costs = [_matmul_model.predicted_us(plan, x) for x in (along_k, across_k)]
    assert costs[0] < costs[1]
    called: list[torch.Tensor] = []
    monkeypatch.setattr(auto, "pitched", lambda operand: [operand[0].contiguous()])
    monkeypatch.setattr(auto.skinny, "run", lambda plan, a, b: called.append(a))
    auto.run(plan, a.t(), b)
    assert called[0].is_contiguous()


@pytest.mark.parametrize(
    ("a", "b", "copied", "across"),
    [
        ("n8", "n8", "", "b"),
        ("n7", "n7", "ab", "b"),
        ("t7", "n8", "a", "b"),
        ("t9", "n7", "ab", "a"),
        ("t8", "n8", "b", "a"),
        ("t7", "t7", "ab", "a"),
        ("t8", "n9", "b", "a"),
    ],
)
def test_a_copy_in_tf32_is_contiguous_as_its_original_unless_no_operand_were_along_k(
    a: str, b: str, copied: str, across: str
) -> None:
    def operand(layout: str) -> Tensor:
        x = torch.empty(8, int(layout[1]))
        return x.t() if layout[0] == "t" else x

    layouts, found = operand_layouts(operand(a), operand(b))
    assert [name for name, layout in zip("ab", layouts, strict=True) if layout is None] == [*copied]
    assert [name for name, is_across in zip("ab", found, strict=True) if is_across] == [*across]


@pytest.mark.parametrize("rows", [5, 20])
@pytest.mark.parametrize("columns", [3637, 3640])
@pytest.mark.parametrize("transposed", [False, True])
def test_few32_reads_rows_at_any_address(rows: int, columns: int, transposed: bool) -> None:
    a, b = torch.empty(rows, 4096, device="meta"), torch.empty(4096, columns, device="meta")
    b = torch.empty(columns, 4097, device="meta")[:, 1:].t() if transposed else b
    x = _model_tf32_float8.problem_of(a, b, "tf32")._replace(multiprocessors=132)
    assert x.words == (columns == 3637 or transposed)
    assert x.few == (rows == 5 or x.words)
    assert (_model_tf32_float8.best_of(x).kernel == "few32") == x.few


@pytest.mark.parametrize(
    ("shape", "kernel", "divided"),
    [
        ((1, 6144, 4096), "few32", False),
        ((128, 576, 7168), "wgmma32", True),
        ((4096, 4096, 4096), "wgmma32", False),
    ],
    ids=str,
)
def test_the_choice_of_a_plan_in_tf32(shape: tuple[int, int, int], kernel: str, divided: bool) -> None:
    few = min(shape[:2]) <= _model_tf32_float8.FEW
    plan = _model_tf32_float8.best_of(_model_tf32_float8.Problem("wgmma32", *shape, 0, 132, few))
    assert plan.kernel == kernel
    if kernel != "few32":
        assert (plan.parts > 1) == divided


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        ((4, 65536, 32), "short8"),
        ((4, 65536, 24), "skinny8"),
        ((1, 6144, 4096), "skinny8"),
        ((6144, 16, 4096), "skinny8"),
        ((4096, 4096, 4096), "wgmma8"),
    ],
)
def test_plan_of_float8(shape: tuple[int, int, int], kernel: str) -> None:
    assert _model_tf32_float8.best_of(_model_tf32_float8.Problem("wgmma8", *shape, 0, 132)).kernel == kernel


def test_promoted_sums_have_only_tiles_that_registers_hold() -> None:
    x = _model_tf32_float8.Problem("wgmma8", 300, 500, 4096, 0, 132, promoted=True)
    assert {each.tile for each in _model_tf32_float8.candidates(x)} == set(_model_tf32_float8.PROMOTED_TILES)


def test_layouts_of_tf32() -> None:
    """The product is transposed if b only is contiguous across K; the smaller operand is copied if none is along K."""

    def problem(a: str, b: str) -> _model_tf32_float8.Problem:
        x, y = torch.empty(8, 12) if a == "n" else torch.empty(12, 8).t(), torch.empty(12, 16)
        return _model_tf32_float8.problem_of(x, y if b == "n" else torch.empty(16, 12).t(), "tf32")

    for layouts, sizes, copied in (("nn", (16, 8), 0), ("nt", (8, 16), 0), ("tt", (8, 16), 0), ("tn", (16, 8), 96)):
        x = problem(*layouts)
        assert ((x.M, x.N), x.copied, x.few) == (sizes, copied, True), layouts


def test_long_sums_are_divided() -> None:
    x = Problem(128, 128, 32768, a_copied=False, b_copied=False, multiprocessors=132)
    assert _matmul_plan.best_of(x, ("wgmma",)).parts > 8
    assert _matmul_plan.best_of(x, ("wgmma",)) != Plan("wgmma", 0, 1)

"""What the host headers give a .cu on the CPU, against NumPy's and torch's truth.

The kernels are in tests/cuda_host/. On a machine with a GPU they run there as well, which checks the emulation itself.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cuda_ref import build, compiler

pytestmark = pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu")))
SOURCES = Path(__file__).parent / "cuda_host"
on_both = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
each_dtype = pytest.mark.parametrize("dtype", list(build.DTYPES), ids=str)
each_narrow_dtype = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def run(source: str, function: str, device: str, *arguments: Any) -> None:
    build.launch(SOURCES / f"{source}.cu", function, torch.device(device), *arguments)


# --------------------------------------------------------------------------------------------------- launches and types


@on_both
def test_indices_in_three_dimensions(device: str) -> None:
    grid, block = (3, 2, 4), (5, 3, 2)
    out = torch.full((*grid[::-1], *block[::-1], 6), -1, dtype=torch.int32, device=device)
    run("basics", "indices", device, out, *grid, *block)
    axes = [torch.arange(n, dtype=torch.int32) for n in (*grid[::-1], *block[::-1])]
    expected = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)[..., [2, 1, 0, 5, 4, 3]]
    assert torch.equal(out.cpu(), expected)


@on_both
def test_a_kernel_whose_template_arguments_are_deduced(device: str) -> None:
    out = torch.zeros(9, device=device)
    run("basics", "fill", device, out, 2.5, 8)
    assert out.tolist() == [2.5] * 8 + [0.0]


def test_vector_types_have_the_sizes_and_alignments_of_a_gpu() -> None:
    out = torch.zeros(14, dtype=torch.int32)
    run("basics", "types", "cpu", out)
    assert out.tolist() == [808, 1204, 1616, 1616, 1616, 404, 404, 808, 1616, 808, 202, 404, 404, 1616]


@on_both
def test_global_and_constant_variables(device: str) -> None:
    out = torch.empty(8, device=device)
    run("basics", "global_variables", device, out)
    assert out.tolist() == [1, 2, 4, 8] * 2


def test_launches_from_several_threads_take_turns() -> None:
    inputs = [torch.randn(50, 333) for _ in range(4)]
    outputs = [torch.empty_like(x) for x in inputs]

    def work(x: torch.Tensor, out: torch.Tensor) -> None:
        for _ in range(20):
            run("barriers", "reverse_blocks", "cpu", x, out, 333, 50)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, outputs, strict=True)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(torch.equal(out, x.flip(1)) for x, out in zip(inputs, outputs, strict=True))


# ---------------------------------------------------------------------------------------------- barriers, shared memory


@on_both
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 100, 1024])
def test_syncthreads(device: str, n: int) -> None:
    x = torch.randn(7, n, device=device)
    out = torch.empty_like(x)
    run("barriers", "reverse_blocks", device, x, out, n, 7)
    assert torch.equal(out, x.flip(1))


def test_contexts_of_the_c_library_do_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiler, "HOST_FLAGS", [*compiler.HOST_FLAGS, "-DCUDA_HOST_UCONTEXT"])
    path = tmp_path / "ucontext.cu"
    path.write_text((SOURCES / "barriers.cu").read_text())
    x = torch.randn(7, 100)
    build.launch(path, "reverse_blocks", x.device, x, out := torch.empty_like(x), 100, 7)
    assert torch.equal(out, x.flip(1))


@on_both
@each_dtype
def test_static_and_dynamic_shared_memory(device: str, dtype: torch.dtype) -> None:
    x = torch.randint(-8, 9, (5, 256), device=device).to(dtype)
    out = torch.empty(5, 2, device=device)
    run("barriers", "totals", device, x, out, 5, build.dtype_code(dtype))
    assert torch.equal(out, torch.stack([x.float().sum(1), x[:, -1].float()], 1))


@on_both
def test_votes_of_a_block_count_those_that_are_left(device: str) -> None:
    out = torch.full((100, 5), -1, dtype=torch.int32, device=device)
    run("barriers", "vote", device, out)
    assert out[:70].tolist() == [[24, 1, 0, 1, 0]] * 70
    assert (out[70:] == -1).all()


@pytest.mark.parametrize("n", [2, 40, 200])
def test_threads_that_have_returned_are_not_waited_for(n: int) -> None:
    """On the host only: an H200 never finishes this with 40 threads, though CUDA promises as much since Volta."""
    out = torch.zeros(n - 1, dtype=torch.int32)
    run("barriers", "count_down", "cpu", out, n)
    assert out.tolist() == list(range(n - 1, 0, -1))


@on_both
def test_threads_that_wait_for_one_another_with_nanosleep(device: str) -> None:
    out = torch.full((70,), -1, dtype=torch.int32, device=device)
    run("barriers", "take_turns", device, out, 70)
    assert out.tolist() == list(range(70))


@on_both
def test_copies_to_shared_memory_in_the_background(device: str) -> None:
    x = torch.randint(-9, 10, (7, 128), device=device).float()
    out = torch.empty(7, 32, device=device)
    run("pipeline", "sum_rows", device, x, out, 7, 1, 0)
    read = x.clone()
    read[1:, 126:] = 0  # the kernel asks for zeros there
    assert torch.equal(out, read.roll(-4, 1).view(7, 4, 32).sum(1))


def test_copies_that_are_not_waited_for_or_misaligned() -> None:
    x, out = torch.ones(7, 128), torch.empty(7, 32)
    run("pipeline", "sum_rows", "cpu", x, out, 7, 0, 0)
    assert out.isnan().any()
    with pytest.raises(build.CudaError, match="cudaErrorMisalignedAddress"):
        run("pipeline", "sum_rows", "cpu", x, out, 6, 1, 1)


# ----------------------------------------------------------------------------------------------- kernels that are wrong


def test_shared_memory_is_poisoned_for_every_block() -> None:
    out = torch.zeros(2, 64, 3)
    run("failures", "poisoned", "cpu", out)
    assert (out[0] == 1).all()
    assert out[1].isnan().all()


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_missing_barrier_shows(backwards: int) -> None:
    out = torch.zeros(2, 64)
    run("failures", "without_barrier", "cpu", out, backwards)
    assert out.isnan().any()


STUCK = {
    0: r"LaunchTimeout.*32 wait in __syncthreads on line \d+, 32 wait in __syncthreads on line \d+, 0 have returned",
    1: r"LaunchTimeout.*of 64 threads 5 wait in a warp operation on line \d+, 59 wait in __syncthreads",
    2: r"LaunchTimeout.*31 wait in a warp operation on line \d+, 1 wait in __syncthreads on line \d+, 32 have returned",
    3: r"LaunchFailure.*lane \d+ is not in its own mask 0x0000fff0",
    4: r"LaunchFailure.*thread \(40, 0, 0\): __trap",
}


@pytest.mark.parametrize("how", STUCK)
def test_a_kernel_that_never_finishes_is_an_error_and_the_next_launch_works(how: int) -> None:
    out = torch.zeros(64, dtype=torch.int32)
    with pytest.raises(build.CudaError, match=STUCK[how]):
        run("failures", "get_stuck", "cpu", how, out)
    assert out[0] != 77
    run("failures", "get_stuck", "cpu", 99, out)
    assert out[0] == 77
    run("failures", "poisoned", "cpu", x := torch.zeros(2, 64, 3))
    assert (x[0] == 1).all()


@pytest.mark.parametrize("how", [0, 1, 2])
@pytest.mark.parametrize("offset", [0, 2, 4, 8, 12, 16])
def test_a_misaligned_access_is_an_error(how: int, offset: int) -> None:
    x = torch.arange(32, dtype=torch.float32)
    out = torch.full((8,), -1.0)
    if offset % 16 == 0:
        run("failures", "aligned", "cpu", x, out, offset, how)
        assert out[0] != -1
    else:
        with pytest.raises(build.CudaError, match=r"cudaErrorMisalignedAddress \(716\).*no multiple of 16"):
            run("failures", "aligned", "cpu", x, out, offset, how)


def test_more_static_shared_memory_than_a_block_has() -> None:
    out = torch.zeros(1)
    with pytest.raises(build.CudaError, match="65536 bytes of static"):
        run("too_much_static", "hoarding", "cpu", out)
    assert out.item() == 0


def test_what_the_cpu_cannot_run_says_so() -> None:
    with pytest.raises(
        NotImplementedError, match=r"hopper\.cu uses instructions of sm_90a, which the CPU does not have"
    ):
        run("hopper", "fenced", "cpu")


# ---------------------------------------------------------------------------------------------------------------- warps


def _bits(lanes: list[int]) -> int:
    """A mask with these lanes, as a signed number."""
    return int(np.uint32(sum(1 << i for i in lanes)).view(np.int32))


@on_both
@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0000FFFF, 0xFFFFFF00], ids=hex)
@pytest.mark.parametrize("width", [32, 16, 8])
@pytest.mark.parametrize("n", [32, 64, 48])
def test_shuffles_and_votes(device: str, mask: int, width: int, n: int) -> None:
    rng = np.random.default_rng(width + n)
    x, k = rng.integers(0, 1000, n, dtype=np.int32), rng.integers(0, 32, n, dtype=np.int32)
    out = torch.full((n, 8), -7, dtype=torch.int32, device=device)
    run("warps", "shuffle", device, torch.tensor(x, device=device), torch.tensor(k, device=device), out, width, mask, n)
    got = out.cpu().numpy()
    for t in range(n):
        lane, values = t % 32, x[t - t % 32 :][:32]  # of this warp
        group = [i for i in range(len(values)) if mask >> i & 1]
        if lane not in group:
            assert (got[t] == -7).all()
            continue
        first, last = lane // width * width, lane // width * width + width - 1
        sources = [
            first + k[t] % width,
            lane - 3 if lane - 3 >= first else lane,
            lane + 3 if lane + 3 <= last else lane,
            lane ^ 5 if lane ^ 5 <= last else lane,
        ]
        for column, source in enumerate(sources):
            if source in group:  # the value of a lane that takes no part is undefined
                assert got[t, column] == values[source], (t, column)
        assert got[t, 4] == _bits([i for i in group if values[i] % 2])
        assert (got[t, 5] != 0) == any(values[i] == 4 for i in group)
        assert (got[t, 6] != 0) == all(values[i] < 900 for i in group)
        assert got[t, 7] == _bits([i for i in group if values[i] % 3 == x[t] % 3])


@on_both
def test_the_halves_of_a_warp_part_ways_and_meet(device: str) -> None:
    out = torch.empty(96, 4, device=device)
    run("warps", "warp_sum", device, out)
    f, d, low, high = out.cpu().unbind(1)
    assert torch.equal(f, torch.arange(96.0).view(6, 16).sum(1).repeat_interleave(16))
    assert torch.equal(d[::32], f[::32])  # a sum by shuffles down ends in lane 0
    assert torch.equal(d.view(3, 2, 16)[:, 1], torch.full((3, 16), float(sum(range(16, 32)))))
    assert (low == 496).all()
    assert (high == 992).all()


@on_both
def test_reductions_of_a_warp(device: str) -> None:
    out = torch.empty(64, 7, dtype=torch.int32, device=device)
    run("warps", "reduce", device, out)
    for start in (0, 32):
        x = [(t * 37) % 64 - 20 for t in range(start, start + 32)]
        ands, xors = int(np.bitwise_and.reduce([v | 8 for v in x])), int(np.bitwise_xor.reduce(x))
        assert out[start : start + 32].tolist() == [[sum(x), min(x), max(x), ands, 255, xors, 32]] * 32


# -------------------------------------------------------------------------------------------- 16-bit floats, arithmetic


def all_patterns(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)


def same_values(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Equal, with the sign of zero; NaN anywhere both have it."""
    return bool(((x.isnan() & y.isnan()) | ((x == y) & (x.signbit() == y.signbit()))).all())


@on_both
@each_narrow_dtype
def test_every_16_bit_pattern_widens(device: str, dtype: torch.dtype) -> None:
    x = all_patterns(dtype)
    out = torch.empty(65536, device=device)
    run("narrow", "widen", device, x.to(device), out, build.dtype_code(dtype))
    assert same_values(out.cpu(), x.float())


@on_both
@each_narrow_dtype
def test_floats_narrow_to_nearest_even(device: str, dtype: torch.dtype) -> None:
    """Every value, the ties between neighbours, the floats just beside both, and any bits: subnormal, infinite, NaN."""
    values = all_patterns(dtype).float()
    values = values[values.isfinite()].sort().values
    ties = ((values[1:].double() + values[:-1].double()) / 2).float()
    exact = torch.cat([values, ties, torch.tensor([65519.99, 65520.0, 65536.0, torch.inf, -torch.inf, torch.nan])])
    beside = [torch.nextafter(exact, torch.full_like(exact, to)) for to in (torch.inf, -torch.inf)]
    generator = torch.Generator().manual_seed(0)
    any_bits = torch.randint(-(2**31), 2**31, (1 << 18,), generator=generator).to(torch.int32).view(torch.float32)
    x = torch.cat([exact, *beside, any_bits])
    out = torch.empty(len(x), dtype=dtype, device=device)
    run("narrow", "narrow", device, x.to(device), out, len(x), build.dtype_code(dtype))
    assert same_values(out.cpu(), x.to(dtype))
    assert (out.cpu()[x.isnan()].view(torch.int16) == 0x7FFF).all()  # the canonical one


@on_both
@each_narrow_dtype
def test_16_bit_arithmetic_is_correctly_rounded(device: str, dtype: torch.dtype) -> None:
    x = torch.randn(1000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype)
    out = torch.empty(1000, 24, dtype=dtype, device=device)
    run("narrow", "operate", device, x.to(device), out, 1000, build.dtype_code(dtype))
    a, b, c = x.double().unbind(1)
    larger, smaller, total = torch.maximum(a, b), torch.minimum(a, b), (a + b).to(dtype).double()
    expected = [a + b, a - b, a * b, a / b, -a, a + b, a - b, a * b, a * b + c, larger, smaller, a.abs(), -a]
    expected += [a + b, b + c, a * b, b * c, a * b + a, b * c + b, smaller, larger, a, total, b * total]
    for column, truth in enumerate(expected):
        assert same_values(out[:, column].cpu(), truth.to(dtype)), column


INT = torch.iinfo(torch.int32)
FUNCTIONS: list[tuple[str, Any, float]] = [  # name, truth in float64, ulps of float32 that a GPU may be off
    ("expf", torch.exp, 2),
    ("exp2f", torch.exp2, 2),
    ("logf", torch.log, 1),
    ("log2f", torch.log2, 1),
    ("tanhf", torch.tanh, 2),
    ("sqrtf", torch.sqrt, 0.5),
    ("rsqrtf", torch.rsqrt, 2),
    ("fabsf", torch.abs, 0),
    ("floorf", torch.floor, 0),
    ("erff", torch.erf, 2),
    ("__expf", torch.exp, 128),
    ("__logf", torch.log, 1e6),
    ("__frcp_rn", torch.reciprocal, 0.5),
    ("__fdividef", torch.reciprocal, 2),
    ("__fsqrt_rn", torch.sqrt, 0.5),
    ("fmaxf(x, NAN)", lambda a: a, 0),
    ("fminf(x, INFINITY)", lambda a: a.nan_to_num(torch.inf, torch.inf, -torch.inf), 0),
    ("max(x, 0.5f)", lambda a: a.nan_to_num(0.5, torch.inf, -torch.inf).clamp(min=0.5), 0),
    ("min(x, 0.5f)", lambda a: a.nan_to_num(0.5, torch.inf, -torch.inf).clamp(max=0.5), 0),
    ("__saturatef", lambda a: a.nan_to_num(0).clamp(0, 1), 0),
    ("__float2int_rn", lambda a: a.nan_to_num(0).round().clamp(INT.min, INT.max), 0.5),
    ("__float2int_rz", lambda a: a.nan_to_num(0).trunc().clamp(INT.min, INT.max), 0.5),
    ("__float2uint_rz", lambda a: a.nan_to_num(0).trunc().clamp(0, 2**32 - 1), 0.5),
    ("__int_as_float", torch.neg, 0),
    ("isnan", torch.isnan, 0),
    ("isinf", torch.isinf, 0),
    ("fmaf", lambda a: a * a - 1, 0.5),
    ("__fmaf_rn", lambda a: a * a - 1, 0.5),
    ("__fmul_rn", lambda a: a * a, 0.5),
    ("powf", lambda a: a.abs() ** 1.5, 4),
]


@on_both
def test_mathematics(device: str) -> None:
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        torch.inf,
        -torch.inf,
        torch.nan,
        1e-40,
        3e9,
        -3e9,
        88.0,
        89.0,
    ]
    x = torch.cat([torch.tensor(special), 4 * torch.randn(1000, generator=torch.Generator().manual_seed(2))])
    out = torch.full((len(x), len(FUNCTIONS)), torch.nan, device=device)
    run("arithmetic", "mathematics", device, x.to(device), out, len(x))
    for column, (name, truth_of, ulps) in enumerate(FUNCTIONS):
        got, truth = out[:, column].cpu().double(), truth_of(x.double()).double()
        ulp = 2.0 ** (truth.abs().clamp(min=2.0**-126, max=2.0**127).log2().floor() - 23)
        good = (got - truth).abs() <= ulps * ulp
        good |= (got == truth) | (got.isnan() & truth.isnan())
        good |= (truth.abs() >= torch.finfo(torch.float32).max) & (got == truth.sign() * torch.inf)
        assert good.all(), (name, x[~good], got[~good], truth[~good])


def test_fdividef_is_zero_for_a_huge_denominator() -> None:
    x = torch.tensor([2.0**126, 2.0**127, -(2.0**127)])
    out = torch.empty(3, len(FUNCTIONS))
    run("arithmetic", "mathematics", "cpu", x, out, 3)
    assert out[:, 13].tolist() == [2.0**-126, 0.0, 0.0]


@on_both
def test_bits(device: str) -> None:
    out = torch.zeros(14, dtype=torch.int32, device=device)
    run("arithmetic", "bit", device, out)
    assert out.tolist() == [8, 31, 32, 4, 1, 64, 63, 3, -1, 0x77553311, 3, 1, 7, 1]


@on_both
def test_atomics(device: str) -> None:
    x = torch.randint(-50, 50, (512,)).float()
    f, d = torch.zeros(1, device=device), torch.zeros(1, dtype=torch.float64, device=device)
    i = torch.tensor([0, -1, 5000, -1, 0, 17], dtype=torch.int32, device=device)
    u = torch.zeros(3, dtype=torch.int32, device=device)
    run("arithmetic", "atomic", device, x.to(device), f, d, i, u)
    scrambled = [(t * 7919) % 1000 for t in range(512)]
    assert (f.item(), d.item()) == (x.sum().item(), x.sum().item())
    assert i.tolist() == [sum(range(512)), max(scrambled), min(scrambled), 511, 17, 42]
    assert u.tolist() == [(1 << 20) - 1, 0, 512 % 100]


@on_both
@pytest.mark.parametrize("size", [4, 8, 16])
def test_loads_and_stores_with_a_cache_hint(device: str, size: int) -> None:
    x = torch.randn(16, size // 4, device=device)
    out = torch.empty(16, 4, size // 4, device=device)
    run("arithmetic", "hint", device, x, out, size)
    assert torch.equal(out, x[:, None].expand_as(out))


# --------------------------------------------------------------------------------------------------------------- limits

REFUSED = [
    ((1, 1, 1), (1025, 1, 1), 0, "cudaErrorInvalidValue"),
    ((1, 1, 1), (32, 33, 1), 0, "cudaErrorInvalidValue"),
    ((1, 1, 1), (1, 1, 65), 0, "cudaErrorInvalidValue"),
    ((1, 1, 1), (0, 1, 1), 0, "cudaErrorInvalidValue"),
    ((0, 1, 1), (1, 1, 1), 0, "cudaErrorInvalidValue"),
    ((1, 65536, 1), (1, 1, 1), 0, "cudaErrorInvalidValue"),
    ((1, 1, 65536), (1, 1, 1), 0, "cudaErrorInvalidValue"),
    ((1 << 31, 1, 1), (1, 1, 1), 0, "cudaErrorInvalidValue"),
    ((1, 1, 1), (1, 1, 1), 49153, "cudaErrorInvalidValue"),
]


@on_both
@pytest.mark.parametrize(("grid", "block", "shared", "error"), REFUSED)
def test_launch_limits(device: str, grid: tuple[int, ...], block: tuple[int, ...], shared: int, error: str) -> None:
    out = torch.zeros(1, dtype=torch.int32, device=device)
    with pytest.raises(build.CudaError) as caught:
        run("limits", "configured", device, out, *grid, *block, shared)
    for part in ("configured in limits.cu", error, f"grid {grid}", f"block {block}", f"{shared} bytes"):
        assert part in str(caught.value)
    assert out.item() == 0
    run("limits", "configured", device, out, 3, 2, 1, 16, 8, 4, 49152)
    assert out.item() == 1


@on_both
def test_shared_memory_above_48_kb_is_asked_for_kernel_by_kernel(device: str) -> None:
    out = torch.zeros(1, dtype=torch.int32, device=device)
    run("limits", "shared_bytes", device, out, 49152, -1, 0)
    with pytest.raises(build.CudaError, match="cudaErrorInvalidValue"):
        run("limits", "shared_bytes", device, out, 49156, -1, 0)
    run("limits", "shared_bytes", device, out, 100000, 100000, 0)
    assert out.item() == 5
    with pytest.raises(build.CudaError, match="cudaErrorInvalidValue"):
        run("limits", "shared_bytes", device, out, 100000, -1, 1)  # the same template for another type
    with pytest.raises(build.CudaError, match="cudaErrorInvalidValue"):
        run("limits", "shared_bytes", device, out, 240000, 240000, 0)


def test_device_attributes() -> None:
    out = torch.zeros(6, dtype=torch.int32)
    run("limits", "attributes", "cpu", out)
    assert out.tolist() == [4, 232448, 2048, 32, 8, 5]


# -------------------------------------------------------------------------------------------------------------- by nvcc


@pytest.mark.skipif(build.missing("cuda") is not None, reason=str(build.missing("cuda")))
@pytest.mark.parametrize("name", sorted(each.stem for each in SOURCES.glob("*.cu")))
def test_nvcc_takes_the_same_text(name: str) -> None:
    if name == "too_much_static":
        with pytest.raises(build.BuildError, match="too much shared data"):
            build.compile_only(SOURCES / f"{name}.cu", "sm_80")
    else:
        assert build.resources(SOURCES / f"{name}.cu", "sm_90a")

"""The emulation of CUDA on the CPU: launches, barriers, shared memory, warps, and the detection of errors.

The kernels are in host/. On a machine with a GPU they also run there, which checks the emulation itself.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from thinning import THOROUGH

from cuda_ref import build
from cuda_ref.build import compiler

pytestmark = pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu")))
SOURCES = Path(__file__).parent
on_both = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)


def run(source: str, function: str, device: str, *arguments: Any) -> None:
    build.launch(SOURCES / f"{source}.cu", function, torch.device(device), *arguments)


# launches and types


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


@on_both
def test_an_earlier_error_of_somebody_else_is_not_attributed_to_a_launch(device: str) -> None:
    run("failures", "good_after_bad", device, torch.empty(128, device=device))


def test_launches_from_several_threads_are_serialized() -> None:
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


# barriers, shared memory


@on_both
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 100, 1024])
def test_syncthreads(device: str, n: int) -> None:
    x = torch.randn(7, n, device=device)
    out = torch.empty_like(x)
    run("barriers", "reverse_blocks", device, x, out, n, 7)
    assert torch.equal(out, x.flip(1))


def test_contexts_of_the_c_library_give_the_same_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
def test_barriers_with_a_predicate_count_the_live_threads(device: str) -> None:
    out = torch.full((100, 5), -1, dtype=torch.int32, device=device)
    run("barriers", "vote", device, out)
    assert out[:70].tolist() == [[24, 1, 0, 1, 0]] * 70
    assert (out[70:] == -1).all()


@pytest.mark.parametrize("n", [2, 40, 200])
def test_threads_that_have_returned_are_not_waited_for(n: int) -> None:
    """On the host only: CUDA specifies this since Volta, but an H200 hangs with 40 threads."""
    out = torch.zeros(n - 1, dtype=torch.int32)
    run("barriers", "count_down", "cpu", out, n)
    assert out.tolist() == list(range(n - 1, 0, -1))


@on_both
def test_threads_wait_for_each_other_with_nanosleep(device: str) -> None:
    out = torch.full((70,), -1, dtype=torch.int32, device=device)
    run("barriers", "take_turns", device, out, 70)
    assert out.tolist() == list(range(70))


@on_both
def test_asynchronous_copies_to_shared_memory(device: str) -> None:
    x = torch.randint(-9, 10, (7, 128), device=device).float()
    out = torch.empty(7, 32, device=device)
    run("pipeline", "sum_rows", device, x, out, 7, 1, 0)
    read = x.clone()
    read[1:, 126:] = 0  # the kernel asks for zeros there
    assert torch.equal(out, read.roll(-4, 1).view(7, 4, 32).sum(1))


def test_copies_without_a_wait_or_misaligned() -> None:
    x, out = torch.ones(7, 128), torch.empty(7, 32)
    run("pipeline", "sum_rows", "cpu", x, out, 7, 0, 0)
    assert out.isnan().any()
    with pytest.raises(build.CudaError, match="cudaErrorMisalignedAddress"):
        run("pipeline", "sum_rows", "cpu", x, out, 6, 1, 1)


# kernels that are wrong


def test_shared_memory_of_each_block_is_nan_at_first() -> None:
    out = torch.zeros(2, 64, 3)
    run("failures", "poisoned", "cpu", out)
    assert (out[0] == 1).all()
    assert out[1].isnan().all()


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_missing_barrier_changes_the_result(backwards: int) -> None:
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


def test_a_kernel_that_requires_a_gpu_is_refused() -> None:
    with pytest.raises(
        NotImplementedError, match=r"hopper\.cu uses instructions of sm_90a, which the CPU does not have"
    ):
        run("hopper", "fenced", "cpu")


# warps


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
            if source in group:  # the value of a lane that does not take part is undefined
                assert got[t, column] == values[source], (t, column)
        assert got[t, 4] == _bits([i for i in group if values[i] % 2])
        assert (got[t, 5] != 0) == any(values[i] == 4 for i in group)
        assert (got[t, 6] != 0) == all(values[i] < 900 for i in group)
        assert got[t, 7] == _bits([i for i in group if values[i] % 3 == x[t] % 3])


@on_both
def test_the_halves_of_a_warp_diverge_and_converge(device: str) -> None:
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


# limits

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
def test_shared_memory_above_48_kb_is_allowed_for_each_kernel(device: str) -> None:
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


# cooperative groups, memory of a stream, cuBLAS


@on_both
def test_cooperative_groups(device: str) -> None:
    given = torch.arange(64, dtype=torch.float32, device=device)
    out = torch.zeros(64, 10, device=device)
    run("groups", "groups", device, given, out)
    t, values = torch.arange(64), given.cpu()
    by_warp, by_quad = values.view(2, 32), values.view(16, 4)
    columns = [t % 32, t // 32, t % 32 // 4, by_warp.sum(1)[t // 32], by_quad.amax(1)[t // 4]]
    columns += [torch.where(t % 4 == 3, values, values + 1), torch.full((64,), 4), by_warp.amax(1)[t // 32] + 32]
    columns += [t % 2, t]
    assert torch.equal(out.cpu(), torch.stack([column.float() for column in columns], 1))


def test_blocks_that_wait_for_each_other_are_declined() -> None:
    out = torch.zeros(3, dtype=torch.int32)
    run("groups", "grid_sync", "cpu", out, 1)
    for _ in range(2):
        with pytest.raises(NotImplementedError, match=r"declines the case: .*blocks that wait for each other"):
            run("groups", "grid_sync", "cpu", out, 3)
    run("groups", "grid_sync", "cpu", out, 1)


CUBLAS = """#include <cublas_v2.h>
#include "common.cuh"

__global__ void fill(float* out) { out[threadIdx.x] = 1; }
extern "C" int product(float* a, float* out, int64_t n, int64_t by_cublas, cudaStream_t stream, LaunchRecord* record) {
    cublasHandle_t handle;
    const float one = 1, zero = 0;
    cublasCreate(&handle);
    cublasSetStream(handle, stream);
    if (by_cublas) cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, a, n, &zero, out, n);
    cublasDestroy(handle);
    record->set(1, 4);
    fill<<<1, 4, 0, stream>>>(out);
    return cudaGetLastError();
}
"""


def test_a_call_of_cublas_declines_the_case_even_if_a_kernel_follows(tmp_path: Path) -> None:
    (tmp_path / "product.cu").write_text(CUBLAS)
    launch = partial(build.launch, tmp_path / "product.cu", "product", torch.device("cpu"))
    a, out = torch.zeros(2, 2), torch.zeros(2, 2)
    with pytest.raises(NotImplementedError, match=r"cublasSgemm is called: cuBLAS runs on a GPU only"):
        launch(a, out, 2, 1)
    launch(a, out, 2, 0)
    assert out.tolist() == [[1, 1], [1, 1]]


def test_cublas_is_linked_for_a_gpu_alone() -> None:
    assert "-lcublas" in compiler.link_flags(CUBLAS, "sm_90a")
    assert compiler.link_flags(CUBLAS, "host") == compiler.link_flags("int x;", "sm_90a") == compiler.LINK_FLAGS


# by nvcc


@pytest.mark.skipif(build.missing("cuda") is not None, reason=str(build.missing("cuda")))
@THOROUGH
@pytest.mark.parametrize("name", sorted(each.stem for each in SOURCES.glob("*.cu")))
def test_nvcc_compiles_the_same_text(name: str) -> None:
    if name == "too_much_static":
        with pytest.raises(build.BuildError, match="too much shared data"):
            build.compile_only(SOURCES / f"{name}.cu", "sm_80")
    else:
        assert build.resources(SOURCES / f"{name}.cu", "sm_90a")

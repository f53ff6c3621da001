"""Users' files that are written for a GPU run without one: Triton's interpreter is mended, and `cuda` is the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import GPU
from external_files import RIGHT, SharedProcess, external, status, write

from suite import ops

pytestmark = pytest.mark.skipif(bool(GPU), reason="shows what is replaced where there is no GPU")

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
ADD = """
@triton.jit
def kernel(a, b, out, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(a + offs, offs < N) + tl.load(b + offs, offs < N), offs < N)

def vector_add(a, b):
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    kernel[(triton.cdiv(a.numel(), 64),)](a, b, out, a.numel(), BLOCK=64)
    return out
"""
TUNED = ADD.replace("\n@triton.jit", "\n@triton.autotune([triton.Config({'BLOCK': 32}), triton.Config({'BLOCK': 64})], "
    "key=['N'])\n@triton.jit", 1).replace(", BLOCK=64)", ")").replace(
    "(triton.cdiv(a.numel(), 64),)", "lambda meta: [triton.cdiv(a.numel(), meta['BLOCK'])]")  # fmt: skip
HEURISTIC = ADD.replace("\n@triton.jit", "\n@triton.heuristics({'BLOCK': lambda args: 64})\n@triton.jit", 1).replace(
    ", BLOCK=64)", ")")  # fmt: skip
WARMED = ADD.replace("    kernel[(triton.cdiv(a.numel(), 64),)](a, b, out, a.numel(), BLOCK=64)", """\
    compiled = kernel.warmup(a, b, out, a.numel(), BLOCK=64, grid=(1,))
    compiled._init_handles()
    assert REGISTERS // compiled.n_regs and SHARED // compiled.metadata.shared
    compiled[(triton.cdiv(a.numel(), 64), 1, 1)](a, b, out, a.numel())""")  # fmt: skip
DRIVER = """
DEVICE = triton.runtime.driver.active.get_active_torch_device()
properties = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
REGISTERS, SHARED = properties["max_num_regs"], properties["max_shared_mem"]
MULTIPROCESSORS, WARP = properties["multiprocessor_count"], properties["warpSize"]
assert triton.runtime.driver.active.get_current_target().backend == "cuda"
"""
TORCH_CUDA = """
DEVICE = torch.device("cuda")
CACHE = torch.zeros(16, device=DEVICE)
SCRATCH = torch.empty(16, device="cuda:0").cuda().to("cuda")
MAJOR = torch.cuda.get_device_capability()[0]
MULTIPROCESSORS = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
torch.cuda.synchronize()
"""
BENCHMARK = """
@triton.testing.perf_report(triton.testing.Benchmark(["size"], [2**i for i in range(20, 28)], "provider", ["triton"],
                                                     ["Triton"], "add", {}))
def benchmark(size, provider):
    raise RuntimeError("must not run")

benchmark.run(print_data=True)
"""
ROWS = """
import triton.language.extra.libdevice as libdevice

@triton.jit
def kernel(x, weight, out, N, eps, squared, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    value = tl.load(x + row * N + offs, offs < N, other=0.0).to(tl.float32)
    if squared:
        total = tl.sum(value * value, axis=0)
    else:
        total = tl.sum(value, axis=0)
    scale = libdevice.rsqrt(total / N + eps.to(tl.float32))
    tl.store(out + row * N + offs, value * scale * tl.load(weight + offs, offs < N), offs < N)

def rms_norm(x, weight, eps):
    x = x.contiguous()
    assert x.is_cuda
    out = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    with torch.cuda.device(x.device):
        kernel[(x.shape[0],)](x, weight, out, x.shape[1], eps, True, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""
PRODUCT = """
@triton.jit
def kernel(a, b, out, M, N, K, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        left = tl.load(a + m[:, None] * K + k[None, :], (m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], (k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc)
    tl.store(out + m[:, None] * N + n[None, :], acc.to(out.type.element_ty), (m[:, None] < M) & (n[None, :] < N))

def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](a, b, out, M, N, K, BLOCK=16)
    return out
"""
FILES: dict[str, tuple[str, tuple[int, ...], str, str]] = {
    "add": ("vector_add", (100,), "bfloat16", HEAD + ADD),
    "tuned": ("vector_add", (100,), "float32", HEAD + TUNED),
    "heuristic": ("vector_add", (100,), "float32", HEAD + HEURISTIC),
    "warmed": ("vector_add", (100,), "float32", HEAD + DRIVER + WARMED),
    "benchmark": ("vector_add", (100,), "float16", HEAD + BENCHMARK + ADD),
    "torch_cuda": ("vector_add", (100,), "float32", HEAD + TORCH_CUDA + ADD),
    "plain_torch": ("vector_add", (100,), "float32", "import torch\n" + TORCH_CUDA + RIGHT),
    "rows": ("rms_norm", (5, 48), "bfloat16", HEAD + ROWS),
    "product": ("matmul", (20, 18, 35), "bfloat16", HEAD + PRODUCT),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_for_a_gpu_runs_without_one(name: str, shared: SharedProcess, tmp_path: Path) -> None:
    operation, shape, dtype, text = FILES[name]
    implementation = external(write(tmp_path / f"{name}.py", text), operation)
    reply = shared.check(implementation, ops.get(operation).case(shape, dtype))
    assert (status(reply), reply.reason) == ("ok", "")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("tl.inline_asm_elementwise('', '', [x], tl.float32, True, 1)", "inline_asm not supported in interpreter mode"),
        ("libdevice.erfinv(x)", "Triton's interpreter has no libdevice.erfinv"),
    ],
)
def test_what_the_interpreter_lacks_is_unsupported(
    call: str, reason: str, shared: SharedProcess, tmp_path: Path
) -> None:
    kernel = ADD.replace("    tl.store(", f"    x = tl.load(a + offs, offs < N)\n    y = {call}\n    tl.store(")
    text = HEAD + "from triton.language.extra import libdevice\n" + kernel
    reply = shared.check(external(write(tmp_path / "lacks.py", text)))
    assert (status(reply), reply.reason) == ("unsupported", reason)


def test_an_error_in_a_kernel_has_its_own_line(shared: SharedProcess, tmp_path: Path) -> None:
    text = HEAD + ADD.replace("    tl.store(", "    missing = undefined_name\n    tl.store(")
    reply = shared.check(external(write(tmp_path / "undefined.py", text)))
    line = text.splitlines().index("    missing = undefined_name") + 1
    assert reply.reason == f"NameError: name 'undefined_name' is not defined (undefined.py:{line})"


def test_rounding_to_bfloat16_is_that_of_torch() -> None:
    from suite.frameworks.triton.bfloat16 import rounded, widened

    bits = torch.randint(-(2**31), 2**31 - 1, (100_000,), generator=torch.manual_seed(0)).to(torch.int32)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3.4028235e38, 1e-40, 1.00390625])
    values = torch.cat([bits.view(torch.float32), special])
    wanted = values.bfloat16()
    got = torch.from_numpy(rounded(values.numpy()).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(got.isnan(), wanted.isnan())
    assert torch.equal(got[~got.isnan()].view(torch.int16), wanted[~wanted.isnan()].view(torch.int16))
    assert torch.equal(torch.from_numpy(widened(rounded(special[:4].numpy()))), special[:4])
